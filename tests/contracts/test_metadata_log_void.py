"""The contract of MetadataLog about voided entries, run against every adapter."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from coordinator.log import voided as module
from coordinator.log.metadata_log import (
    LiveSessionsError,
    LogEntry,
    LogRefusedError,
    MetadataLog,
    Session,
    SessionLostError,
    SessionState,
    VoidedEntry,
)
from coordinator.log.voided import payload_digest
from protocol.types import POSITION_ZERO, Position
from tests.contracts.logs import ADAPTERS, Connect, connection, connections, connects

TTL_MS = 60_000
pytestmark = pytest.mark.real_loop


@pytest.fixture(params=ADAPTERS)
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    return connects(request, tmp_path)


async def opened(log: MetadataLog) -> Session:
    return await log.open(await log.grant(TTL_MS), b"open")


async def written(log: MetadataLog, *payloads: bytes) -> tuple[Session, list[LogEntry]]:
    """A session that has written so much and is over, and its entries."""
    session = await opened(log)
    entries = [LogEntry(Position(session.incarnation), session.id, 0, b"open")]
    for n, payload in enumerate(payloads, start=1):
        place = await log.append(session, n, payload)
        entries.append(LogEntry(place, session.id, n, payload))
    await log.revoke(session.id)
    return session, entries


async def read(log: MetadataLog, count: int, *, after: int = 0) -> list[LogEntry]:
    entries: list[LogEntry] = []
    async with aclosing(log.tail(Position(after))) as batches:
        while len(entries) < count:
            entries += await anext(batches)
    return entries


def void_of(logged: LogEntry, reason: str = "a bug: Fehler ü") -> VoidedEntry:
    digest = payload_digest(logged.payload)
    return VoidedEntry(logged.position, logged.session, logged.n, digest, 1_700_000_000_000, reason)


async def voided(log: MetadataLog, logged: LogEntry, *, snapshots: bytes = b"") -> Position:
    return await log.void(void_of(logged), b"notice", snapshots=snapshots)


async def test_nothing_is_void_until_somebody_says_so(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        assert await log.voids() == []
        _, entries = await written(log, b"one", b"two", b"three")
        await voided(log, entries[2])
        await voided(log, entries[1])
        assert await other.voids() == [void_of(entries[1]), void_of(entries[2])]


async def test_a_void_is_told_of_by_an_entry_of_its_own_session_which_never_lives(
    connect: Connect,
) -> None:
    async with connections(connect, 2) as (log, other):
        _, entries = await written(log, b"one", b"two")
        place = await voided(log, entries[1])
        assert await other.head() == place
        *before, notice = await read(other, 4)
        assert before == entries
        assert (notice.position, notice.n, notice.payload) == (place, 0, b"notice")
        assert notice.session != entries[0].session
        assert await other.read_session(notice.session) == SessionState(alive=False, last=0)
        with pytest.raises(SessionLostError):
            await other.append(Session(notice.session, notice.position), 1, b"more")


async def test_a_void_that_is_repeated_is_there_once(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        _, entries = await written(log, b"one")
        place = await voided(log, entries[1])
        assert await voided(other, entries[1]) == place
        again = await opened(other)
        assert await other.void(void_of(entries[1], "another"), b"more", snapshots=b"") == place
        assert await other.voids() == [void_of(entries[1])]
        assert await other.head() == again.incarnation


async def test_two_who_void_at_once_tell_of_it_once(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        _, entries = await written(log, b"one")
        one, two = await asyncio.gather(voided(log, entries[1]), voided(other, entries[1]))
        assert one == two == await log.head()
        assert len(await log.voids()) == 1


@pytest.mark.promise("P13")
async def test_while_a_session_lives_nothing_can_be_voided(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        _, entries = await written(log, b"one")
        live = await opened(other)
        with pytest.raises(LiveSessionsError) as refused:
            await voided(log, entries[1])
        assert refused.value.sessions == (live,)
        assert f"{live.id:x}" in str(refused.value)
        assert await log.head() == live.incarnation
        assert await log.voids() == []
        await other.revoke(live.id)
        await voided(log, entries[1])
        assert len(await log.voids()) == 1


async def test_a_session_that_is_opened_after_the_void_lies_behind_what_tells_of_it(
    connect: Connect,
) -> None:
    async with connections(connect, 2) as (log, other):
        _, entries = await written(log, b"one")
        lease = await other.grant(TTL_MS)
        place = await voided(log, entries[1])
        assert (await other.open(lease, b"open")).incarnation > place


async def test_what_is_not_there_or_is_something_else_is_not_voided(connect: Connect) -> None:
    async with connection(connect) as log:
        _, entries = await written(log, b"one", b"two")
        one, two = void_of(entries[1]), void_of(entries[2])
        wrong = [
            one._replace(position=two.position),
            one._replace(n=2),
            one._replace(session=one.session + 1),
            one._replace(digest=two.digest),
            one._replace(position=Position(two.position + 1)),
        ]
        for each in wrong:
            with pytest.raises(LogRefusedError):
                await log.void(each, b"notice", snapshots=b"")
        assert await log.voids() == []
        assert await log.head() == two.position


@pytest.mark.promise("P13")
async def test_when_another_snapshot_was_published_than_was_looked_at_nothing_is_voided(
    connect: Connect,
) -> None:
    async with connection(connect) as log:
        _, entries = await written(log, b"one")
        session = await opened(log)
        await log.publish(session, b"newer", older=POSITION_ZERO)
        await log.revoke(session.id)
        for looked_at in (b"", b"older"):
            with pytest.raises(LogRefusedError, match="another snapshot"):
                await voided(log, entries[1], snapshots=looked_at)
        await voided(log, entries[1], snapshots=b"newer")
        assert len(await log.voids()) == 1


async def test_a_cut_forgets_the_voids_behind_it_and_no_others(connect: Connect) -> None:
    async with connection(connect) as log:
        _, entries = await written(log, b"one", b"two", b"three")
        for entry in entries[1:]:
            await voided(log, entry)
        session = await opened(log)
        await log.publish(session, b"two snapshots", older=entries[2].position)
        await log.cut(session, entries[2].position)
        assert await log.voids() == [void_of(entries[3])]
        await log.revoke(session.id)
        with pytest.raises(LogRefusedError, match="no entry"):
            await voided(log, entries[1], snapshots=b"two snapshots")


async def test_no_more_are_voided_than_are_kept(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "VOIDS_MAX", 2)
    async with connection(connect) as log:
        _, entries = await written(log, b"one", b"two", b"three")
        await voided(log, entries[1])
        await voided(log, entries[2])
        with pytest.raises(LogRefusedError, match="2 entries are voided"):
            await voided(log, entries[3])
