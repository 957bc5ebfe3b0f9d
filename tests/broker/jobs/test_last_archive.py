"""An agent that is ended while clients write has archived what it acknowledged, with a whole interval still to go."""

import sqlite3
from pathlib import Path
from urllib.parse import unquote

import pytest

from coordinator.commands.codec import decode_entry
from coordinator.commands.entries import CommitChunk
from protocol.types import first_position, position
from tests.faults.load import Load
from tests.kit.archives import reached
from tests.parts.servers import FrazilDev

pytestmark = pytest.mark.integration

FLAGS = ("--set", "log.archive.ms=600000", "--set", "jobs.start.delay.ms=0")


def keys_of(data: Path) -> list[str]:
    store = data / "objects"
    return [unquote(str(file.relative_to(store))) for file in store.glob("**/*") if file.is_file()]


def last_chunk(data: Path) -> int:
    """The revision in which the newest chunk was committed."""
    log = sqlite3.connect(f"file:{data / 'log.db'}?mode=ro", uri=True)
    try:
        for revision, payload in log.execute("SELECT revision, payload FROM entry ORDER BY 1 DESC"):
            if any(isinstance(each, CommitChunk) for each in decode_entry(payload).commands):
                return int(revision)
    finally:
        log.close()
    raise AssertionError("no chunk was committed")


def test_what_was_acknowledged_last_is_in_the_last_archive(tmp_path: Path) -> None:
    agent = FrazilDev(tmp_path, *FLAGS)
    load = Load(agent.bootstrap, "orders")
    with agent:
        load.start()
        load.wait_for_acks(500, seconds=60)
        assert agent.stop() == 0
        data = tmp_path / "data"
        archived, _ = reached(keys_of(data), first_position(1))
        assert archived >= position(1, last_chunk(data))
        agent.start()
        load.stop()
