"""Fixtures that every folder of tests shares: real parts, each started once, and options.

Integration tests run in a few processes side by side (`--dist loadgroup`), each with servers of its
own. What shares a server that is dear to start, or a fixture of its module, goes to one of them;
what takes long begins first. A process that a test started must not outlive the tests.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts import left
from tests.parts.servers import EtcdServer, MinioServer

TESTS = Path(__file__).parent
LEFT = pytest.StashKey[list[str]]()
DEAR = {"kafka": {"kafka"}, "spark": {"tasks", "session"}}
"""Groups whose tests share a server that is dear to start, by the fixtures, or their names as
parameters, that ask for it."""
LAST = ("contracts", "coordinator_shell", "storage")
"""Folders whose tests are short: they fill up what is left at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the outcomes of tests/scripts/*.txt anew"
    )


def pytest_configure(config: pytest.Config) -> None:
    left.mark()
    config.stash[LEFT] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of several: which tests go together, and which begin first."""
    if not getattr(config.option, "loadgroup", False):
        return
    dear = {item.path: name for item in items for name, asks in DEAR.items() if asks & _asked(item)}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(dear.get(item.path) or _group(item)))
    items.sort(key=lambda item: _turn(item, dear.get(item.path)))


def _asked(item: pytest.Item) -> set[str]:
    """Names of fixtures that a test asks for, also by a parameter."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    words = {value for value in parameters if isinstance(value, str)}
    return words | set(getattr(item, "fixturenames", ()))


def _group(item: pytest.Item) -> str:
    """A test of faults has a cluster of its own, or shares one within its file as others do."""
    alone = item.path.parent.name == "faults" and "tmp_path" in _asked(item)
    return item.nodeid if alone else item.nodeid.partition("::")[0]


def _turn(item: pytest.Item, dear: str | None) -> int:
    """What takes long begins first, so that no process waits long for another at the end."""
    folder = item.path.relative_to(TESTS).parts[0]
    if dear is not None:
        return 0
    return {"faults": 1, "clients": 2}.get(folder, 4 if folder in LAST else 3)


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
