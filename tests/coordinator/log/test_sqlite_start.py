"""The embedded log when its file is made, left by a process that died, or begun anew: what a power cut leaves of it."""

import asyncio
import os
import shutil
import sqlite3
import time
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from coordinator.log.metadata_log import Session
from coordinator.log.sqlite import SqliteLog
from coordinator.log.sqlite_era import write_era
from protocol.types import Position, position

pytestmark = pytest.mark.real_loop


async def written(log: SqliteLog, count: int) -> Session:
    session = await log.open(await log.grant(30_000), b"open")
    for n in range(1, count):
        await log.append(session, n, b"%d" % n)
    return session


async def first_batch(log: SqliteLog):
    async with aclosing(log.tail(Position(0))) as batches, asyncio.timeout(4):
        return await anext(batches)


@pytest.mark.promise("P1")
async def test_what_an_earlier_process_has_left_beside_the_file_is_in_it_before_any_of_it_is_told(
    tmp_path: Path,
) -> None:
    """Its last fsync may have failed: then what it wrote can be read, and no later fsync makes it durable."""
    log = SqliteLog(tmp_path / "log.db")
    await written(log, 20)
    left, alone = tmp_path / "left", tmp_path / "alone"
    left.mkdir()
    alone.mkdir()
    for file in tmp_path.glob("log.db*"):
        shutil.copy(file, left / file.name)
    await log.aclose()
    async with aclosing(SqliteLog(left / "log.db")) as found:
        assert len(await first_batch(found)) == 20
        # A power cut may take all of what is beside it.
        shutil.copy(left / "log.db", alone / "log.db")
    async with aclosing(SqliteLog(alone / "log.db")) as kept:
        assert len(await first_batch(kept)) == 20


async def test_who_reads_the_file_for_long_does_not_keep_the_log_from_being_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, left = tmp_path / "log.db", tmp_path / "left"
    left.mkdir()
    log = SqliteLog(path)
    session = await written(log, 5)
    for file in tmp_path.glob("log.db*"):
        shutil.copy(file, left / file.name)
    await log.append(session, 5, b"5")
    await log.aclose()
    with closing(sqlite3.connect(left / "log.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entry").fetchone()
        async with aclosing(SqliteLog(left / "log.db")) as log:
            assert len(await first_batch(log)) == 5
            assert "is being read" in caplog.text
            await written(log, 2)


@pytest.mark.promise("P1")
@pytest.mark.parametrize("is_there", [False, True])
async def test_a_new_log_is_in_its_folder_and_that_in_its_own_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    synced = []
    fsync = os.fsync

    def counting(handle: int) -> None:
        fsync(handle)
        synced.append(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", counting)
    folder = tmp_path / "data"
    if is_there:
        folder.mkdir()
    async with aclosing(SqliteLog(folder / "log.db")) as log:
        await log.head()
    expected = [folder.stat().st_ino, tmp_path.stat().st_ino]
    assert synced == expected
    async with aclosing(SqliteLog(folder / "log.db")) as log:
        await log.head()
    assert synced == expected


async def test_an_era_begins_however_long_it_takes_to_delete_the_log_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.log.sqlite.CALL_S_MAX", 0.2)

    def slow(*arguments: Any, **named: Any) -> None:
        time.sleep(0.6)
        write_era(*arguments, **named)

    monkeypatch.setattr("coordinator.log.sqlite.write_era", slow)
    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        await log.identify(b"one")
        await log.begin_era(2, b"two", snapshots=b"s", instead_of=b"one")
        assert await log.head() == position(2, 1)
