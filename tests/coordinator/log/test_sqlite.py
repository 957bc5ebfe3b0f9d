"""The embedded log: what one process leaves to the next, and files that are refused."""

import asyncio
import resource
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from coordinator.log.metadata_log import (
    FirstFailedError,
    LogCutError,
    LogHoleError,
    LogRefusedError,
    LogReplacedError,
    LogUnavailableError,
    Session,
    SessionState,
)
from coordinator.log.sqlite import SqliteLog, _Worker
from coordinator.log.sqlite_file import SqliteFile
from protocol.fault_codes import FaultCode, told
from protocol.types import Position
from storage.stores.object_store import StoreRefusedError
from tests.coordinator.support import void_of

pytestmark = pytest.mark.real_loop


async def written(log: SqliteLog, count: int):
    session = await log.open(await log.grant(30_000), b"open")
    for n in range(1, count):
        await log.append(session, n, b"%d" % n)
    return session


async def first_batch(log: SqliteLog):
    async with aclosing(log.tail(Position(0))) as batches:
        return await anext(batches)


async def test_next_process_finds_the_entries_and_the_old_sessions_gone(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await log.identify(b"me")
    session = await written(log, 10)
    head = await log.head()
    await log.aclose()

    log = SqliteLog(tmp_path / "log.db")
    assert await log.identify(b"somebody else") == b"me"
    assert await log.head() == head
    assert [entry.n for entry in await first_batch(log)] == list(range(10))
    assert await log.read_session(session.id) == SessionState(alive=False, last=9)
    assert await log.grant(30_000) > session.id
    await log.aclose()


async def test_what_was_answered_is_in_the_files(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await written(log, 20)
    # As a power cut leaves them: the process did not close anything.
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("log.db*"):
        shutil.copy(file, copy / file.name)
    await log.aclose()
    found = SqliteLog(copy / "log.db")
    assert len(await first_batch(found)) == 20
    await found.aclose()


@pytest.mark.promise("P1")
def test_every_commit_waits_for_the_disk(tmp_path: Path) -> None:
    # A power cut cannot be had in a test; what survives one is SQLite's promise for this mode.
    database = SqliteFile(tmp_path / "log.db")
    try:
        (synchronous,) = database.connection().execute("PRAGMA synchronous").fetchone()
        assert synchronous == 2  # FULL
    finally:
        database.close()


async def test_appends_that_wait_share_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    commit = _Worker._commit

    def counting(worker, jobs):
        sizes.append(len(jobs))
        return commit(worker, jobs)

    monkeypatch.setattr(_Worker, "_commit", counting)

    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        sessions = [await log.open(await log.grant(30_000), b"open") for _ in range(50)]
        sizes.clear()
        positions = await asyncio.gather(*[log.append(each, 1, b"x") for each in sessions])
        assert positions == sorted(set(positions))
        assert sum(sizes) == 50
        assert len(sizes) < 25


async def test_call_that_is_not_answered_in_time_is_unknown_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.log.sqlite.CALL_S_MAX", 0.5)
    commit, gate = _Worker._commit, threading.Event()

    def waiting(worker, jobs):
        gate.wait(10)
        return commit(worker, jobs)

    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        session = await written(log, 2)
        with monkeypatch.context() as patch:
            patch.setattr(_Worker, "_commit", waiting)
            for n in (2, 2):
                with pytest.raises(LogUnavailableError, match="did not answer within"):
                    await log.append(session, n, b"2")
            gate.set()
        # It was under way all the time.
        place = await log.append(session, 2, b"2")
        assert await log.append(session, 3, b"3") > place
        assert [entry.n for entry in await first_batch(log)] == [0, 1, 2, 3]


async def test_what_was_given_up_takes_effect_before_what_is_called_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.log.sqlite.CALL_S_MAX", 0.5)
    done, gate = list[str](), threading.Event()

    def wait() -> None:
        gate.wait(10)
        done.append("given up")

    def fail() -> None:
        done.append("called after it")
        raise StoreRefusedError("the disk is full")

    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        session = await written(log, 2)
        with pytest.raises(LogUnavailableError, match="did not answer within"):
            await log.append_after(wait, session, 2, b"2")
        gate.set()
        with pytest.raises(FirstFailedError):
            await log.append_after(fail, session, 2, b"2")
        assert done == ["given up", "called after it"]
        assert [entry.n for entry in await first_batch(log)] == [0, 1, 2]


async def test_tail_that_fell_far_behind_reads_the_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.log.sqlite.FEED_ENTRIES_MAX", 5)

    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        session = await log.open(await log.grant(30_000), b"open")
        numbers: list[int] = []
        async with aclosing(log.tail(Position(0))) as batches:
            numbers += [entry.n for entry in await anext(batches)]
            for n in range(1, 50):
                await log.append(session, n, b"x")
            while len(numbers) < 50:
                numbers += [entry.n for entry in await anext(batches)]
        assert numbers == list(range(50))


async def refusal(path: Path) -> str:
    """The sentence, with its code."""
    log = SqliteLog(path)
    try:
        with pytest.raises(LogRefusedError) as refused:
            await log.head()
        return told(refused.value)
    finally:
        await log.aclose()


async def test_log_in_use_by_another_is_refused(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await written(log, 1)
    assert "in use by another process" in await refusal(tmp_path / "log.db")
    await log.aclose()
    free = SqliteLog(tmp_path / "log.db")
    assert await free.head() > 0
    await free.aclose()


def test_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is a text, and not a short one " * 100)
    assert "cannot be used as a log" in asyncio.run(refusal(tmp_path / "text"))


def test_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE entry (a)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    assert "something else" in asyncio.run(refusal(path))
    assert path.read_bytes() == before


@pytest.mark.fault_code("version-mismatch")
async def test_log_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await written(log, 1)
    await log.aclose()
    connection = sqlite3.connect(tmp_path / "log.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    said = await refusal(tmp_path / "log.db")
    assert "newer version" in said
    assert said.endswith(" [version-mismatch]")


def test_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "log.db", tmp_path / "no" / "such" / "log.db"):
        said = asyncio.run(refusal(path))
        assert "cannot be opened" in said
        assert said.endswith(" [data-folder-denied]")


@pytest.mark.fault_code("disk-full")
async def test_a_full_disk_is_told_with_its_code_and_what_was_not_written_can_be_repeated(
    tmp_path: Path,
) -> None:
    """SQLite itself refuses: its file has as many pages as it may. After that it is opened anew, without the bound."""
    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        session = await written(log, 1)

        def limit(connection):
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")

        await log._call(limit)
        with pytest.raises(LogUnavailableError, match="disk is full") as refused:
            await log.append(session, 1, bytes(1 << 20))
        assert refused.value.fault is FaultCode.DISK_FULL
        assert await log.append(session, 1, bytes(1 << 20)) == await log.head()


@pytest.mark.fault_code("disk-full")
async def test_a_log_for_which_the_disk_has_no_room_at_the_start_says_so(tmp_path: Path) -> None:
    """The index of its write-ahead log cannot be made, which SQLite calls an I/O error."""
    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        await written(log, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
            with pytest.raises(LogRefusedError, match="its disk is full") as refused:
                await log.head()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refused.value.fault is FaultCode.DISK_FULL


async def test_what_is_committed_is_answered_when_there_is_no_room_to_bring_it_into_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file beside the log has room when it is written anew; the log's own cannot grow."""
    monkeypatch.setattr("coordinator.log.sqlite_file.CHECKPOINT_WAL_BYTES", 400_000)
    path = tmp_path / "log.db"
    async with aclosing(SqliteLog(path)) as log:
        session = await log.open(await log.grant(30_000), b"open")
        n = 0
        while path.stat().st_size < 1_000_000:
            n += 1
            await log.append(session, n, bytes(30_000))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 8192, hard))
        try:
            while "is not brought into its file yet" not in caplog.text:
                n += 1
                await log.append(session, n, bytes(30_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        begun = path.stat().st_size
        while path.stat().st_size == begun:
            n += 1
            await log.append(session, n, bytes(30_000))
        assert [entry.n for entry in await first_batch(log)] == list(range(n + 1))


@pytest.mark.promise("P3")
async def test_an_entry_that_is_in_though_its_commit_failed_comes_to_who_follows_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        session = await written(log, 1)
        async with aclosing(log.tail(Position(0))) as batches, asyncio.timeout(10):
            assert [entry.n for entry in await anext(batches)] == [0]
            following = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(0.05)
            check, failures = SqliteFile.check, [1]

            def failing(self) -> None:
                if failures:
                    failures.pop()
                    raise sqlite3.OperationalError("disk I/O error")
                check(self)

            monkeypatch.setattr(SqliteFile, "check", failing)
            with pytest.raises(LogUnavailableError, match="disk I/O error"):
                await log.append(session, 1, b"1")
            assert await log.append(session, 1, b"1") == await log.head()
            assert [entry.n for entry in await following] == [1]


async def test_failed_write_is_unknown_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        session = await written(log, 3)
        insert, failures = SqliteLog._insert, [1]

        def failing(self, connection, session, n, payload):
            place = insert(self, connection, session, n, payload)
            if failures:
                failures.pop()
                raise sqlite3.OperationalError("database or disk is full")
            return place

        monkeypatch.setattr(SqliteLog, "_insert", failing)
        with pytest.raises(LogUnavailableError, match="disk is full"):
            await log.append(session, 3, b"3")
        with pytest.raises(LogRefusedError, match="cannot follow entry 2"):
            await log.append(session, 4, b"4")
        assert await log.append(session, 3, b"3") == await log.head()
        assert [entry.n for entry in await first_batch(log)] == [0, 1, 2, 3]


async def test_a_new_log_is_its_owners_alone_and_an_old_ones_rights_stay(tmp_path: Path) -> None:
    """It has what users log in with; objects of a store in a folder are their owner's, too."""
    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        await written(log, 2)
        rights = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("log.db*")}
        assert rights == dict.fromkeys(["log.db", "log.db-wal", "log.db-shm", "log.db.lock"], 0o600)
    (tmp_path / "log.db").chmod(0o640)
    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        await written(log, 2)
        assert (tmp_path / "log.db-wal").stat().st_mode & 0o777 == 0o640


async def test_log_of_the_format_before_is_read_and_can_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = SqliteLog(path)
    session = await written(log, 5)
    await log.aclose()
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE newest; DROP TABLE bound; PRAGMA user_version = 1")
    connection.close()

    log = SqliteLog(path)
    entries = await first_batch(log)
    assert [entry.n for entry in entries] == [0, 1, 2, 3, 4]
    assert await log.read_session(session.id) == SessionState(alive=False, last=4)
    holder = await written(log, 1)
    await log.publish(holder, b"", older=entries[2].position)
    assert await log.cut(holder, entries[2].position) == 3
    await log.aclose()


async def test_next_process_finds_the_cut_and_what_was_published(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    session = await written(log, 5)
    entries = await first_batch(log)
    await log.publish(session, b"two", older=entries[-1].position)
    assert await log.cut(session, entries[-1].position) == 5
    await log.aclose()

    log = SqliteLog(tmp_path / "log.db")
    assert await log.snapshots() == b"two"
    assert await log.head() == entries[-1].position
    assert await log.read_session(session.id) == SessionState(alive=False, last=4)
    with pytest.raises(LogCutError):
        await first_batch(log)
    later = await written(log, 1)
    assert later.incarnation > entries[-1].position
    await log.aclose()


async def test_next_process_finds_what_is_void_also_in_a_file_from_before_voids(
    tmp_path: Path,
) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await written(log, 3)
    _, entry, _ = await first_batch(log)
    await log.aclose()
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        connection.execute("DROP TABLE void")
        connection.commit()

    log = SqliteLog(tmp_path / "log.db")
    assert await log.voids() == []
    voided = void_of(entry)
    place = await log.void(voided, b"notice", snapshots=b"")
    await log.aclose()
    log = SqliteLog(tmp_path / "log.db")
    assert await log.voids() == [voided]
    assert await log.void(voided, b"notice", snapshots=b"") == place == await log.head()
    await log.aclose()


async def test_file_of_a_log_that_is_cut_stays_flat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The one beside it is written anew from there on.
    monkeypatch.setattr("coordinator.log.sqlite_file.CHECKPOINT_WAL_BYTES", 500_000)
    log = SqliteLog(tmp_path / "log.db")
    session = await written(log, 1)
    sizes = []
    for n in range(1, 601):
        place = await log.append(session, n, bytes(4096))
        if n % 100 == 0:
            await log.publish(session, b"", older=place)
            await log.cut(session, place)
            sizes.append(sum(file.stat().st_size for file in tmp_path.glob("log.db*")))
    await log.aclose()
    assert sizes[-1] <= sizes[1] * 1.1


async def _in_use(path: Path) -> tuple[SqliteLog, Session]:
    """A log that has an entry after the copy of it that lies beside, as `copy.db`."""
    log = SqliteLog(path)
    session = await log.open(await log.grant(30_000), b"open")
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as here, closing(sqlite3.connect(copy)) as there:
        here.backup(there)
    await log.append(session, 1, b"one")
    return log, session


def _move(path: Path) -> None:
    path.with_name("copy.db").rename(path)


def _overwrite(path: Path) -> None:
    path.write_bytes(path.with_name("copy.db").read_bytes())


def _remove(path: Path) -> None:
    path.unlink()


def _remove_what_is_beside(path: Path) -> None:
    path.with_name("log.db-wal").unlink()


def _write_into(path: Path) -> None:
    """As another agent does, or a person: SQLite lets it, and changes nothing in the file itself."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("INSERT INTO granted DEFAULT VALUES")
        other.commit()


@pytest.mark.promise("P1")
@pytest.mark.parametrize(
    "change", [_move, _overwrite, _remove, _remove_what_is_beside, _write_into]
)
async def test_a_file_that_is_replaced_while_in_use_acknowledges_nothing(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    log, session = await _in_use(tmp_path / "log.db")
    async with aclosing(log.tail(Position(0))) as reading:
        assert len(await anext(reading)) == 2
        following = asyncio.ensure_future(anext(reading))
        change(tmp_path / "log.db")
        for _ in range(2):
            with pytest.raises(LogReplacedError, match="while it was in use"):
                await log.append(session, 2, b"two")
        assert not following.done()
        following.cancel()
        await asyncio.wait([following])
    await log.aclose()


async def test_an_agent_beside_which_another_was_started_on_the_same_file_acknowledges_nothing(
    tmp_path: Path,
) -> None:
    """Somebody has removed the lock, taking it for one that was left behind."""
    async with (
        aclosing(SqliteLog(tmp_path / "log.db")) as log,
        aclosing(SqliteLog(tmp_path / "log.db")) as other,
    ):
        session = await written(log, 2)
        (tmp_path / "log.db.lock").unlink()
        newer = await written(other, 2)
        with pytest.raises(LogReplacedError, match="another process has written"):
            await log.append(session, 2, b"two")
        assert await other.append(newer, 2, b"two") == await other.head()
        assert [entry.n for entry in await first_batch(other)] == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(("lost", "batch"), [(3, 1000), (3, 3), (5, 1000)])
async def test_a_file_that_lacks_entries_is_not_followed_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int, batch: int
) -> None:
    """A copy that is put back beside the write-ahead log of a newer one may be readable."""
    monkeypatch.setattr("coordinator.log.sqlite.BATCH_ENTRIES_MAX", batch)
    path = tmp_path / "log.db"
    log = SqliteLog(path)
    await written(log, 5)
    await log.aclose()
    with closing(sqlite3.connect(path)) as other:
        other.execute("DELETE FROM entry WHERE revision = ?", (lost,))
        other.commit()
    async with aclosing(SqliteLog(path)) as log:
        with pytest.raises(LogHoleError, match="goes up to revision 5, and lacks entries"):
            await first_batch(log)


async def test_a_logs_own_checkpoints_are_nobody_elses_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.log.sqlite_file.CHECKPOINT_WAL_BYTES", 100_000)

    path = tmp_path / "log.db"
    async with aclosing(SqliteLog(path)) as log:
        session = await log.open(await log.grant(30_000), b"open")
        before = path.stat().st_size
        for n in range(1, 101):
            await log.append(session, n, bytes(4000))
        # What was committed is in the file, and the one beside it was written anew.
        assert path.stat().st_size > before + 200_000
        assert path.with_name("log.db-wal").stat().st_size < 200_000


async def test_file_beside_the_log_is_written_anew_and_not_made_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have to be given room by the file system each time, and its journal fsynced."""
    monkeypatch.setattr("coordinator.log.sqlite_file.CHECKPOINT_WAL_BYTES", 200_000)

    wal = tmp_path / "log.db-wal"
    async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
        session = await log.open(await log.grant(30_000), b"open")
        sizes = []
        for n in range(1, 101):
            await log.append(session, n, b"small")
            sizes.append(wal.stat().st_size)
        assert sizes == sorted(sizes)
        assert sizes[-1] == sizes[30] < 300_000
        # What became much longer once is cut off.
        for other in range(60):
            await asyncio.gather(
                *[log.append(session, 101 + other * 20 + n, bytes(30_000)) for n in range(20)]
            )
        assert wal.stat().st_size < 4_000_000


async def test_who_reads_the_file_for_long_does_not_hold_up_the_log(tmp_path: Path) -> None:
    """A shell, or whoever copies it. What is written meanwhile is brought into the file afterwards."""
    path = tmp_path / "log.db"
    wal = tmp_path / "log.db-wal"
    async with aclosing(SqliteLog(path)) as log:
        session = await written(log, 3)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM entry").fetchone() == (3,)
            for n in range(3, 25):
                await log.append(session, n, bytes(1 << 20))
            assert reader.execute("SELECT count(*) FROM entry").fetchone() == (3,)
        assert wal.stat().st_size > 20 << 20
        for n in range(25, 30):
            await log.append(session, n, bytes(1 << 20))
        assert wal.stat().st_size < 10 << 20
        assert [entry.n for entry in await first_batch(log)] == list(range(30))
