"""Fixtures that every folder of tests shares: real parts, each started once, and options.

Integration tests run in a few processes side by side (`--dist loadfile`), each with servers of its
own; `tests.parts.dealing` says which gets which file. A process that a test started must not outlive the tests.
"""

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import logs
from tests.kit import own_entries
from tests.parts import left
from tests.parts.servers import EtcdServer, MinioServer

LEFT = pytest.StashKey[list[str]]()
LONGEST_FIRST = [
    Path(__file__).parent / name
    for name in (
        "faults/test_transactions.py",
        "iceberg_export/runs/test_masters.py",
        "clients/test_groups_clients.py",
        "clients/test_txn_tools.py",
        "clients/test_txn_clients.py",
        "faults/test_kills.py",
        "faults/test_older_log.py",
        "clients/test_racks.py",
        "releases/test_kept.py",
        "iceberg_export/table/test_rest_answers.py",
        "iceberg_export/runs/test_spark.py",
        "clients/test_groups_crowd.py",
        "clients/test_bounded_layers.py",
        "browser/test_console.py",
        "docs/test_migrate.py",
        "docs/test_tutorial.py",
        "faults/test_bounded.py",
        "faults/test_outages.py",
        "iceberg_export/table/test_catalogs.py",
        "clients/test_group_tools.py",
        "clients/test_record_commands.py",
        "clients/test_secure_page.py",
        "clients/test_workers.py",
        "test_demo.py",
        "clients/test_bounded_streams.py",
        "clients/test_bounded_tools.py",
        "faults/test_etcd_members.py",
        "faults/test_groups.py",
        "faults/test_flink.py",
        "iceberg_export/runs/test_kills.py",
        "iceberg_export/upsert/test_kills.py",
        "clients/test_tools_side_by_side_topics.py",
        "clients/test_tools_side_by_side_clients.py",
        "clients/test_tools_side_by_side_cluster.py",
        "clients/test_starting.py",
        "broker/test_process.py",
        "clients/test_groups_late_commit.py",
        "clients/test_wider_topics.py",
        "clients/test_txn_late_end.py",
        "iceberg_export/table/test_latest_view.py",
        "broker/jobs/test_worker_process.py",
        "broker/groups/classic/test_any_clients.py",
        "test_properties.py",
    )
]
"""Files that take from five minutes to half a minute, as measured, and of the unit tests those of a
single long test: processes side by side end together when these began early."""
assert all(file.exists() for file in LONGEST_FIRST)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """What a test sets up (`broker.logs`) is not the next one's."""
    root = logging.getLogger()
    level, raises = root.level, logging.raiseExceptions
    yield
    root.setLevel(level)
    logging.raiseExceptions = raises
    for handler in list(root.handlers):
        if isinstance(handler.formatter, logs.JsonFormatter | logs.TextFormatter):
            root.removeHandler(handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the outcomes of tests/scripts/*.txt anew"
    )


def pytest_configure(config: pytest.Config) -> None:
    os.environ["FRAZIL_CONTEXT"] = ""
    left.mark()
    own_entries.watch()
    config.stash[LEFT] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {file: rank for rank, file in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """None: that of xdist."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.parts.dealing import FolderScheduling

    return FolderScheduling(config, log)


def pytest_collection_finish() -> None:
    """Tests are many, and stay: garbage is looked for among what they make, as seldom as in an agent."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What one of several processes left behind."""
    node.config.stash[LEFT] += getattr(node, "workeroutput", {}).get("left", [])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """What tests started must have ended; and in CI a test that did not run has failed.

    Last, since only then the processes of several have ended.
    """
    config = session.config
    found = left.left()
    left.end(found)
    config.stash[LEFT] += found.values()
    if hasattr(config, "workeroutput"):
        config.workeroutput["left"] = config.stash[LEFT]
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    # What a test that did not run would have shown is not known.
    skipped = reporter is not None and reporter.stats.get("skipped")
    if config.stash[LEFT] or (skipped and os.environ.get("CI") == "true"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash[LEFT]:
        terminalreporter.section("processes that tests left behind", red=True, bold=True)
        for told in config.stash[LEFT]:
            terminalreporter.line(told)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A real etcd for the whole run; tests share it under prefixes of their own."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    """A real S3 server for the whole run; tests share it with buckets of their own."""
    server = MinioServer(tmp_path_factory.mktemp("minio"))
    server.start()
    yield server
    server.stop()
