"""Who may import whom, and which modules may wait, read clocks or draw lots.

Three tables (docs/design/README.md says why). `MAY_IMPORT`: packages point one way. `ROOMS`: so do
the rooms of a package, that is its folders, and each module that lies beside them; lowest first.
`SHELLS`: the closed list of modules that may touch the world; every other module is pure: it imports
neither an impure module nor a shell, so purity holds through whatever it imports. Imports for the
eyes of a type checker count like all others.
"""

import ast
from graphlib import TopologicalSorter
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

MODULES_MAX = 22
"""In one folder; `broker/handlers/` has one for each API."""

FOR_ALL = {
    "storage": set(),
    "coordinator": {"stats"},
    "broker": {"config", "logs", "patterns"},
    "iceberg_export": {"errors", "names", "progress", "settings", "steps", "units"},
}
"""Rooms that everybody in the package may import; they import none but each other."""

ROOMS: dict[str, dict[str, set[str]]] = {
    "storage": {
        "stores": set(),
        "cache": {"stores"},
        "formats": {"stores"},
        "accumulator": {"formats"},
        "cleaner": {"formats"},
        "fetch_plan": {"formats"},
        "reader": {"cache", "fetch_plan", "formats", "stores"},
        "writer": {"accumulator", "formats", "stores"},
    },
    "coordinator": {
        "commands": set(),
        "log": set(),
        "barrier": {"log"},
        "settings": {"commands"},
        "tables": {"commands"},
        "tables.administration": {"commands"},
        "machine": {"commands", "tables", "tables.administration"},
        "snapshot": {"commands", "log", "machine", "tables", "tables.administration"},
        "replica": {"commands", "log", "machine", "snapshot"},
        "proposer": {"commands", "log", "replica"},
        "session": {"barrier", "commands", "log", "machine", "proposer", "replica", "settings"},
        "log_client": {
            "barrier",
            "commands",
            "log",
            "machine",
            "proposer",
            "replica",
            "session",
            "settings",
            "snapshot",
        },
    },
    "broker": {
        "sasl": set(),
        "calls": {"sasl"},
        "rights": {"calls"},
        "telemetry": {"calls"},
        "cluster": {"calls"},
        "groups.group": set(),
        "environment": set(),
        "http": {"calls", "sasl"},
        "registry": {"calls", "environment", "http", "rights"},
        "fetch": {"calls", "cluster", "rights"},
        "groups.classic": {"groups.group"},
        "groups.consumer": {"groups.group"},
        "jobs.worker": {"cluster"},
        "transactions": {"calls", "cluster"},
        "groups.migration": {"groups.classic", "groups.consumer", "groups.group"},
        "jobs.kinds": {"jobs.worker"},
        "produce": {"transactions"},
        "groups": {"calls", "cluster", "groups.group", "groups.migration", "rights"},
        "jobs": {"cluster", "jobs.kinds", "jobs.worker", "environment"},
        "reports": {"jobs.kinds", "transactions"},
        "store": {"cluster", "jobs.kinds"},
        "node": {
            "calls",
            "cluster",
            "fetch",
            "groups",
            "produce",
            "rights",
            "sasl",
            "telemetry",
            "transactions",
        },
        "admin": {
            "calls",
            "fetch",
            "groups",
            "http",
            "jobs",
            "jobs.kinds",
            "node",
            "produce",
            "reports",
            "rights",
            "telemetry",
        },
        "api": {"calls", "node"},
        "composition": {
            "calls",
            "cluster",
            "fetch",
            "groups",
            "groups.group",
            "node",
            "produce",
            "rights",
            "telemetry",
            "transactions",
        },
        "guards": {"api", "calls", "node", "rights"},
        "handler_support": {"calls", "node", "sasl"},
        "upkeep": {"groups", "node", "sasl", "transactions"},
        "edge": {"api", "calls", "guards", "node", "rights", "sasl"},
        "client": {"edge", "sasl"},
        "trial": {"sasl"},
        "handlers": {
            "api",
            "calls",
            "cluster",
            "groups",
            "groups.consumer",
            "groups.group",
            "guards",
            "handler_support",
            "node",
            "produce",
            "rights",
            "sasl",
            "transactions",
        },
        "http_listeners": {
            "admin",
            "composition",
            "edge",
            "http",
            "node",
            "registry",
            "rights",
            "sasl",
        },
        "agent": {
            "admin",
            "composition",
            "edge",
            "handlers",
            "http_listeners",
            "jobs",
            "node",
            "registry",
            "sasl",
            "store",
            "upkeep",
        },
        "api_reference": {"api", "handlers"},
        "process": {"agent", "calls", "composition", "environment"},
        "cli": {
            "agent",
            "client",
            "edge",
            "jobs.kinds",
            "environment",
            "node",
            "process",
            "reports",
            "sasl",
            "store",
            "transactions",
            "trial",
        },
        "__main__": {"cli"},
    },
    "iceberg_export": {
        "table": set(),
        "files": {"table"},
        "plan": {"table"},
        "records": {"plan", "table"},
        "upsert": {"files", "table"},
        "typed": {"records", "table"},
        "tasks": {"files", "plan", "records", "table", "typed", "upsert"},
        "dead_letters": {"files", "records", "table", "typed"},
        "runs": {"files", "dead_letters", "plan", "records", "table", "tasks", "typed", "upsert"},
        "source": {"files", "dead_letters", "plan", "records", "table", "typed"},
        "upkeep": {"files", "dead_letters", "plan", "runs", "table"},
        "verify": {
            "files",
            "dead_letters",
            "plan",
            "records",
            "runs",
            "table",
            "tasks",
            "typed",
            "upsert",
        },
        "cli": {"dead_letters", "plan", "records", "runs", "table", "tasks", "upkeep", "verify"},
        "spark_daemon": {"source", "tasks", "verify"},
        "__main__": {"cli"},
    },
}

SHELLS = {
    "storage": {
        "cache",
        "formats.cluster_identity",
        "reader",
        "stores.disk",
        "stores.memory",
        "stores.open_store",
        "stores.retry",
        "stores.s3",
        "stores.s3_credentials",
        "writer",
    },
    "coordinator": {
        "barrier",
        "log_client",
        "log.etcd",
        "log.etcd_client",
        "log.etcd_cut",
        "log.etcd_files",
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
        "admin.load_watch",
        "admin.memory_bound",
        "admin.metrics",
        "agent",
        "api",
        "api_reference",
        "calls.off_loop",
        "calls.outcomes",
        "calls.rests",
        "calls.slices",
        "edge.gather",
        "edge.authentication",
        "edge.connections",
        "edge.limits",
        "cli.acl_arguments",
        "cli.acl_tool",
        "cli.admin_client",
        "cli.agent_arguments",
        "cli.arguments",
        "cli.dev",
        "cli.doctor",
        "cli.feature_tool",
        "cli.group_tool",
        "cli.job_tool",
        "cli.kafka_client",
        "cli.log_tail",
        "cli.main",
        "cli.routing",
        "cli.topic_tool",
        "cli.txn_arguments",
        "cli.txn_tool",
        "cli.user_arguments",
        "cli.user_tool",
        "client.client_tls",
        "client.tls_failures",
        "cluster.rights_agreement",
        "composition",
        "guards",
        "upkeep.deleted_topics",
        "upkeep.first_users",
        "config.reference",
        "edge.connection",
        "edge.dispatch",
        "edge.pressure",
        "edge.server",
        "edge.tls_context",
        "edge.tls_listener",
        "edge.tls_transport",
        "edge.unread",
        "fetch.fetch_path",
        "fetch.store_reads",
        "fetch.woken",
        "groups.claims",
        "groups.coordinator",
        "upkeep.offset_expiration",
        "groups.coordinator_runtime",
        "groups.loading",
        "groups.timers",
        "handlers",
        "handler_support",
        "http.connections",
        "http.logins",
        "http.passwords",
        "http.routes",
        "http.tokens",
        "http.turns",
        "http.listener",
        "http_listeners",
        "jobs.__main__",
        "jobs.worker_process",
        "jobs.host",
        "jobs.kinds.job_table",
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
        "environment",
        "process",
        "produce.produce_path",
        "registry.__main__",
        "registry.checker",
        "registry.rest",
        "registry.rest_rules",
        "registry.rest_support",
        "sasl.decisions",
        "sasl.key_sets",
        "store.clock",
        "store.identity",
        "store.log_checkpoints",
        "store.probe",
        "store.truncation",
        "telemetry.collecting",
        "telemetry.forwarding",
        "trial.authority",
        "trial.certificate_files",
        "trial.secure_dev",
        "upkeep.token_expiration",
        "upkeep.transaction_expiration",
        "transactions.producer_ids",
        "transactions.coordinator",
    },
    "iceberg_export": {
        "__main__",
        "cli.arguments",
        "cli.main",
        "cli.preview",
        "cli.reset_preview",
        "cli.table_commands",
        "files.metrics",
        "files.partition_values",
        "files.read",
        "files.rewrite",
        "files.target",
        "files.write",
        "dead_letters.dead_letter_table",
        "dead_letters.reconcile",
        "plan.agent_client",
        "plan.authorities",
        "records.read_chunks",
        "records.last_records",
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
        "table.pyiceberg_internals",
        "table.rest_catalog",
        "table.run_marks",
        "table.schema",
        "tasks.spark",
        "tasks.export_split",
        "tasks.run_splits",
        "typed.registry_client",
        "typed.topic_types",
        "upkeep.compact",
        "upkeep.maintain",
        "upkeep.reset",
        "upsert.buckets",
        "upsert.merge",
        "verify.exported",
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
    """`storage.chunk` of storage/chunk.py, `broker.handlers` of its __init__."""
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    _name(file): file for package in MAY_IMPORT for file in sorted(ROOT.glob(f"{package}/**/*.py"))
}


def _imports(file: Path) -> set[str]:
    """Full names of what a file imports; `from a import b` gives a.b when that is a module."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in FILES else node.module)
    return found


IMPORTS = {module: _imports(file) for module, file in FILES.items()}


def _is_shell(module: str) -> bool:
    package, _, rest = module.partition(".")
    return bool(rest) and any(
        rest == shell or rest.startswith(f"{shell}.") for shell in SHELLS[package]
    )


def _room(module: str) -> str:
    """Within its package: the folder, or the module itself when it lies beside the folders."""
    file = FILES[module]
    package = file.relative_to(ROOT).parts[0]
    folder = ".".join(file.parent.relative_to(ROOT / package).parts)
    return folder or module.removeprefix(package).lstrip(".") or "__init__"


@pytest.mark.parametrize("module", sorted(FILES))
def test_packages_import_only_what_lies_below_them(module: str) -> None:
    package = module.partition(".")[0]
    allowed = MAY_IMPORT[package] | {package}
    ours = {name.partition(".")[0] for name in IMPORTS[module]} & {*MAY_IMPORT, "tests", "deploy"}
    assert ours <= allowed, f"{module} imports {sorted(ours - allowed)}"


@pytest.mark.parametrize(
    "module", sorted(name for name in FILES if name.partition(".")[0] in ROOMS and "." in name)
)
def test_rooms_import_only_what_the_table_allows(module: str) -> None:
    package, room = module.partition(".")[0], _room(module)
    everybody = FOR_ALL[package]
    rows = ROOMS[package]
    assert room in rows or room in everybody, f"the room {room} is in no table"
    allowed = {room} | everybody | rows.get(room, set())
    inside = [name for name in IMPORTS[module] & set(FILES) if name.startswith(f"{package}.")]
    refused = {name for name in inside if _room(name) not in allowed}
    assert not refused, f"{module} imports {sorted(refused)}"


def test_rooms_are_in_rising_order() -> None:
    """So there is no circle: a room may import only what stands above it in the table."""
    for package, rows in ROOMS.items():
        lower = set(FOR_ALL[package])
        for room, allowed in rows.items():
            assert allowed <= lower, f"{package}.{room} may import {sorted(allowed - lower)}"
            lower.add(room)


def test_modules_import_each_other_in_no_circle() -> None:
    below = {module: imported & set(FILES) - {module} for module, imported in IMPORTS.items()}
    TopologicalSorter(below).prepare()


def test_no_row_of_the_table_of_rooms_is_superfluous() -> None:
    for package, rows in ROOMS.items():
        for room, allowed in rows.items():
            modules = [name for name in FILES if name.startswith(f"{package}.")]
            here = [name for name in modules if _room(name) == room]
            assert here, f"{package}.{room} does not exist"
            used = {_room(name) for module in here for name in IMPORTS[module] & set(modules)}
            assert allowed <= used, f"{package}.{room} imports nothing of {sorted(allowed - used)}"


FOLDERS = sorted({file.parent for file in FILES.values()})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_no_folder_holds_more_than_about_twenty_modules(folder: Path) -> None:
    count = len([file for file in folder.glob("*.py") if file.stem != "__init__"])
    assert count <= MODULES_MAX or folder.name == "handlers"


@pytest.mark.parametrize(
    "folder",
    [folder for folder in FOLDERS if folder.parent != ROOT],
    ids=lambda folder: str(folder.relative_to(ROOT)),
)
def test_every_room_says_who_calls_it(folder: Path) -> None:
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    assert "Called by" in docstring.replace("\n", " ")


@pytest.mark.parametrize("module", sorted(name for name in FILES if not _is_shell(name)))
def test_modules_that_are_not_shells_are_pure(module: str) -> None:
    imported = IMPORTS[module]
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
