"""Who may import whom, and which modules may wait, read clocks or draw lots.

Two tables. `MAY_IMPORT`: packages point one way. `SHELLS`: the closed list of modules that may
touch the world; every other module is pure: it imports neither an impure module nor a shell, so
purity holds through whatever it imports.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {
    "protocol": set(),
    "storage": {"protocol"},
    "txn": {"protocol"},
    "coordinator": {"protocol", "storage", "txn"},
    "broker": {"protocol", "storage", "txn", "coordinator"},
    "iceberg_export": {"protocol", "storage", "txn", "coordinator"},
}

SHELLS = {
    "storage": {
        "cache",
        "formats.marker",
        "reader",
        "stores.disk",
        "stores.memory",
        "stores.open_store",
        "stores.s3",
        "writer",
    },
    "coordinator": {
        "barrier",
        "coordinator",
        "log.etcd",
        "log.etcd_client",
        "log.etcd_cut",
        "log.etcd_keys",
        "log.etcd_pb2",
        "log.memory",
        "log.open_log",
        "log.sqlite",
        "log.sqlite_file",
        "proposer",
        "replica",
        "session",
        "snapshot.loading",
        "snapshot.store",
    },
    "broker": {
        "__main__",
        "admin.listener",
        "admin.metrics",
        "agent",
        "api",
        "api_reference",
        "calls.outcomes",
        "edge.limits",
        "cli.admin_client",
        "cli.dev",
        "cli.doctor",
        "cli.feature_tool",
        "cli.group_tool",
        "cli.job_arguments",
        "cli.job_tool",
        "cli.kafka_client",
        "cli.log_tail",
        "cli.main",
        "cli.routing",
        "cli.topic_arguments",
        "cli.topic_tool",
        "cli.txn_arguments",
        "cli.txn_tool",
        "upkeep.deleted_topics",
        "config.reference",
        "edge.connection",
        "edge.dispatch",
        "edge.server",
        "edge.unread",
        "fetch.fetching",
        "fetch.loading",
        "groups.claims",
        "groups.coordinator",
        "upkeep.offset_expiration",
        "groups.hosting",
        "groups.loading",
        "groups.timers",
        "handlers",
        "handling",
        "jobs.__main__",
        "jobs.child",
        "jobs.host",
        "jobs.kinds.by_name",
        "jobs.kinds.collecting",
        "jobs.kinds.compacting",
        "jobs.kinds.merging",
        "jobs.kinds.moving",
        "jobs.kinds.retention",
        "jobs.kinds.snapshotting",
        "jobs.kinds.spilling",
        "jobs.kinds.unnamed_objects",
        "jobs.worker.channel",
        "jobs.worker.context",
        "jobs.worker.worker",
        "logs",
        "node",
        "opening",
        "process",
        "produce.producing",
        "registry.rest",
        "registry.rest_rules",
        "registry.serving",
        "store.clock",
        "store.identity",
        "store.log_checkpoints",
        "store.probe",
        "store.truncation",
        "upkeep.transaction_expiration",
        "transactions.producer_ids",
        "transactions.service",
    },
    "iceberg_export": {
        "__main__",
        "cli.main",
        "cli.preview",
        "cli.reset_preview",
        "cli.table_commands",
        "files.metrics",
        "files.partition_values",
        "files.read",
        "files.rewrite",
        "files.write",
        "letters.dead_letters",
        "letters.settle",
        "plan.agent_client",
        "records.read_chunks",
        "records.seams",
        "runs.failures",
        "runs.job",
        "runs.loop",
        "runs.metrics",
        "runs.session",
        "runs.status",
        "settings",
        "source.data_source",
        "source.planning",
        "source.read_options",
        "source.reading",
        "source.streaming",
        "source.tables",
        "source.topics",
        "spark_daemon",
        "table.catalog",
        "table.catalog_view",
        "table.commit",
        "table.durable_io",
        "table.library_mends",
        "table.rest_catalog",
        "table.run_markers",
        "table.schema",
        "tasks.spark",
        "tasks.work",
        "typed.registry_client",
        "typed.topic_types",
        "upkeep.compact",
        "upkeep.maintain",
        "upkeep.reset",
        "upsert.files",
        "upsert.job",
        "verify.proof",
        "verify.upsert",
    },
    "protocol": set(),
    "txn": set(),
}

IMPURE = {
    "aiobotocore",
    "aiohttp",
    "asyncio",
    "botocore",
    "concurrent",
    "datetime",
    "google",
    "grpc",
    "http",
    "logging",
    "multiprocessing",
    "obstore",
    "os",
    "pathlib",
    "prometheus_client",
    "pyiceberg",
    "pyspark",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
    "uvloop",
}


def _name(file: Path) -> str:
    """`storage.formats.chunk` of storage/formats/chunk.py, `broker.handlers` of its __init__."""
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    _name(file): file for package in MAY_IMPORT for file in sorted(ROOT.glob(f"{package}/**/*.py"))
}


def _is_shell(module: str) -> bool:
    package, _, rest = module.partition(".")
    return bool(rest) and any(
        rest == shell or rest.startswith(f"{shell}.") for shell in SHELLS[package]
    )


def _imports(file: Path) -> Iterator[str]:
    """Full names of what a file imports; `from a import b` gives a.b when that is a module."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in FILES else node.module


@pytest.mark.parametrize("module", sorted(FILES))
def test_packages_import_only_what_lies_below_them(module: str) -> None:
    package = module.partition(".")[0]
    allowed = MAY_IMPORT[package] | {package}
    ours = {name.partition(".")[0] for name in _imports(FILES[module])} & {
        *MAY_IMPORT,
        "tests",
        "deploy",
    }
    assert ours <= allowed, f"{module} imports {sorted(ours - allowed)}"


@pytest.mark.promise("P6")
@pytest.mark.parametrize("module", sorted(name for name in FILES if not _is_shell(name)))
def test_modules_that_are_not_shells_are_pure(module: str) -> None:
    imported = set(_imports(FILES[module]))
    # Descriptors and messages of Protobuf are values; all else of google.* talks to somebody.
    impure = {
        name
        for name in imported
        if name.partition(".")[0] in IMPURE and not name.startswith("google.protobuf")
    }
    shells = {name for name in imported & set(FILES) if _is_shell(name)}
    assert not impure, f"{module} is not listed as a shell and imports {sorted(impure)}"
    assert not shells, f"{module} is not listed as a shell and imports the shells {sorted(shells)}"


def test_every_shell_in_the_table_exists() -> None:
    missing = [
        f"{package}.{shell}"
        for package, shells in SHELLS.items()
        for shell in sorted(shells)
        if f"{package}.{shell}" not in FILES
    ]
    assert not missing


def test_the_three_pure_packages_have_no_shells() -> None:
    assert not SHELLS["protocol"]
    assert not SHELLS["txn"]
