"""The contract of MetadataLog, run against every adapter."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from coordinator.log.metadata_log import (
    LogEntry,
    LogReplacedError,
    LogUnavailableError,
    MetadataLog,
    Session,
    SessionLostError,
    SessionState,
)
from protocol.types import Position
from tests.contracts.logs import ADAPTERS, Connect, connection, connections, connects

TTL_MS = 30_000
SHORT_TTL_MS = 2_000
pytestmark = pytest.mark.real_loop


@pytest.fixture(params=ADAPTERS)
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    return connects(request, tmp_path)


async def read(log: MetadataLog, count: int, *, after: int = 0) -> list[LogEntry]:
    """The next `count` entries of the tail."""
    entries: list[LogEntry] = []
    async with aclosing(log.tail(Position(after))) as batches:
        while len(entries) < count:
            batch: Sequence[LogEntry] = await anext(batches)
            assert batch
            entries += batch
    return entries


async def opened(log: MetadataLog, payload: bytes = b"open") -> Session:
    return await log.open(await log.grant(TTL_MS), payload)


async def test_identity_is_written_once_and_then_told(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        assert await log.identify(b"one") == b"one"
        assert await other.identify(b"two") == b"one"
        assert await log.identify(b"one") == b"one"


async def test_head_of_an_empty_log_is_zero(connect: Connect) -> None:
    async with connection(connect) as log:
        assert await log.head() == 0
        await log.grant(TTL_MS)
        assert await log.head() == 0


async def test_incarnation_is_the_position_of_the_open(connect: Connect) -> None:
    async with connection(connect) as log:
        session = await opened(log)
        assert session.incarnation == await log.head()
        (entry,) = await read(log, 1)
        assert entry == LogEntry(Position(session.incarnation), session.id, 0, b"open")


async def test_positions_grow_and_head_is_the_newest(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        session = await opened(log)
        positions = [Position(session.incarnation)]
        for n in range(1, 5):
            positions.append(await log.append(session, n, b"x"))
            assert await other.head() == positions[-1]
        assert positions == sorted(set(positions))


async def test_append_repeated_is_in_once(connect: Connect) -> None:
    async with connection(connect) as log:
        session = await opened(log)
        first = await log.append(session, 1, b"one")
        assert await log.append(session, 1, b"one") == first
        second = await log.append(session, 2, b"two")
        assert await log.append(session, 2, b"two") == second
        entries = await read(log, 3)
        assert [(entry.n, entry.payload) for entry in entries] == [
            (0, b"open"),
            (1, b"one"),
            (2, b"two"),
        ]
        assert await log.head() == second


async def test_append_sent_twice_at_once_is_in_once(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        session = await opened(log)
        one, two = await asyncio.gather(
            log.append(session, 1, b"x"), other.append(session, 1, b"x")
        )
        assert one == two == await log.head()


async def test_open_repeated_begins_one_incarnation(connect: Connect) -> None:
    async with connection(connect) as log:
        lease = await log.grant(TTL_MS)
        session = await log.open(lease, b"open")
        assert await log.open(lease, b"open") == session
        await log.append(session, 1, b"x")
        assert await log.open(lease, b"open") == session
        assert [entry.n for entry in await read(log, 2)] == [0, 1]


async def test_large_entry_comes_back_whole(connect: Connect) -> None:
    async with connection(connect) as log:
        session = await opened(log)
        payload = bytes(range(256)) * 256
        await log.append(session, 1, payload)
        assert (await read(log, 2))[1].payload == payload


async def test_append_under_a_revoked_session_tells_the_final_last(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        session = await opened(log)
        await log.append(session, 1, b"x")
        await other.revoke(session.id)
        head = await log.head()
        with pytest.raises(SessionLostError) as lost:
            await log.append(session, 2, b"y")
        assert lost.value.last == 1
        assert await other.read_session(session.id) == SessionState(alive=False, last=1)
        assert await log.head() == head


async def test_append_that_is_in_tells_so_after_the_session_is_gone(connect: Connect) -> None:
    async with connection(connect) as log:
        session = await opened(log)
        await log.append(session, 1, b"x")
        await log.revoke(session.id)
        with pytest.raises(SessionLostError) as lost:
            await log.append(session, 1, b"x")
        assert lost.value.last == 1


async def test_revoked_session_does_not_come_back(connect: Connect) -> None:
    async with connection(connect) as log:
        session = await opened(log)
        await log.revoke(session.id)
        await log.revoke(session.id)
        with pytest.raises(SessionLostError) as lost:
            await log.keep_alive(session.id)
        assert lost.value.last == 0
        with pytest.raises(SessionLostError) as lost:
            await log.open(session.id, b"open")
        assert lost.value.last == 0


async def test_session_that_was_never_opened_is_lost_without_entries(connect: Connect) -> None:
    async with connection(connect) as log:
        lease = await log.grant(TTL_MS)
        assert (await log.read_session(lease)).last == -1
        await log.revoke(lease)
        with pytest.raises(SessionLostError) as lost:
            await log.open(lease, b"open")
        assert lost.value.last == -1
        assert await log.read_session(lease) == SessionState(alive=False, last=-1)
        assert await log.head() == 0


async def test_session_that_nobody_was_granted_is_not_alive(connect: Connect) -> None:
    async with connection(connect) as log:
        assert await log.read_session(7_777_777) == SessionState(alive=False, last=-1)


async def test_session_lives_as_long_as_it_is_renewed(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        kept = await log.open(await log.grant(SHORT_TTL_MS), b"kept")
        left = await log.open(await log.grant(SHORT_TTL_MS), b"left")
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 8
        while (await other.read_session(left.id)).alive:
            assert loop.time() < end_s, "the lease never ran out"
            await asyncio.sleep(0.3)
            await log.keep_alive(kept.id)
        assert await other.read_session(kept.id) == SessionState(alive=True, last=0)
        with pytest.raises(SessionLostError):
            await log.append(left, 1, b"x")
        await log.append(kept, 1, b"x")


async def test_tail_gives_all_entries_of_all_sessions_in_order(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):

        async def write(log: MetadataLog, count: int) -> list[Position]:
            session = await opened(log)
            return [Position(session.incarnation)] + [
                await log.append(session, n, b"%d" % n) for n in range(1, count)
            ]

        one, two = await asyncio.gather(write(log, 600), write(other, 400))
        entries = await read(log, 1000)
        assert [entry.position for entry in entries] == sorted(one + two)
        assert all(entry.payload == b"%d" % entry.n for entry in entries if entry.n)
        assert entries == await read(other, 1000)


async def test_tail_from_the_middle_gives_what_comes_after(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        one, two = await opened(log), await opened(other)
        for n in range(1, 20):
            await log.append(one, n, b"one")
            await other.append(two, n, b"two")
        late = await opened(log)
        entries = await read(log, 41)
        for middle in (0, 1, 17, 39):
            after = entries[middle].position
            assert await read(other, 40 - middle, after=after) == entries[middle + 1 :]
        assert entries[-1].position == late.incarnation


async def test_tail_follows_what_is_appended_later(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        reading = asyncio.ensure_future(read(other, 12))
        await asyncio.sleep(0.05)
        one = await opened(log)
        for n in range(1, 6):
            await log.append(one, n, b"one")
        await asyncio.sleep(0.05)
        two = await opened(log)
        for n in range(1, 6):
            await log.append(two, n, b"two")
        entries = await reading
        assert [(entry.session, entry.n) for entry in entries] == [
            (session.id, n) for session in (one, two) for n in range(6)
        ]


async def test_tail_at_the_end_waits(connect: Connect) -> None:
    async with connection(connect) as log:
        session = await opened(log)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await read(log, 1, after=session.incarnation)


async def test_reading_a_session_does_not_change_the_log(connect: Connect) -> None:
    async with connection(connect) as log:
        session = await opened(log)
        head = await log.head()
        await log.read_session(session.id)
        await log.keep_alive(session.id)
        assert await log.head() == head


async def test_closing_ends_open_tails(connect: Connect) -> None:
    async with connection(connect) as log:
        reading = asyncio.ensure_future(read(log, 1))
        await asyncio.sleep(0.1)
        await log.aclose()
        with pytest.raises(LogUnavailableError):
            await reading
        with pytest.raises(LogUnavailableError):
            await log.head()
        await log.aclose()


async def test_a_tail_from_beyond_the_head_finds_that_the_log_was_replaced(
    connect: Connect,
) -> None:
    async with connection(connect) as log:
        session = await opened(log)
        beyond = Position(session.incarnation + 1000)
        with pytest.raises(LogReplacedError, match="before"):
            await read(log, 1, after=beyond)
