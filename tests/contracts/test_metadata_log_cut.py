"""The contract of MetadataLog about snapshots and the cut, run against every adapter."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from coordinator.log.metadata_log import (
    LAST_UNKNOWN,
    LogCutError,
    LogEntry,
    LogRefusedError,
    MetadataLog,
    Session,
    SessionLostError,
    SessionState,
)
from protocol.types import POSITION_ZERO, Position
from tests.contracts.logs import ADAPTERS, Connect, connection, connections, connects

TTL_MS = 60_000
SESSIONS_KEPT = 3
pytestmark = pytest.mark.real_loop


@pytest.fixture(params=ADAPTERS)
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    return connects(request, tmp_path, sessions_kept=SESSIONS_KEPT)


@asynccontextmanager
async def tailing(log: MetadataLog, after: int) -> AsyncIterator[Callable[[int], Awaitable]]:
    """A function that gives the next so many entries."""
    entries: list[LogEntry] = []
    async with aclosing(log.tail(Position(after))) as batches:

        async def take(count: int) -> list[LogEntry]:
            while len(entries) < count:
                entries.extend(await anext(batches))
            taken = entries[:count]
            del entries[:count]
            return taken

        yield take


async def read(log: MetadataLog, count: int, *, after: int) -> list[LogEntry]:
    async with tailing(log, after) as take:
        return await take(count)


async def opened(log: MetadataLog) -> Session:
    return await log.open(await log.grant(TTL_MS), b"open")


async def written(log: MetadataLog, session: Session, *numbers: int) -> list[Position]:
    return [await log.append(session, n, b"%d" % n) for n in numbers]


async def cut(log: MetadataLog, session: Session, through: int) -> int:
    await log.publish(session, b"two snapshots", older=Position(through))
    return await log.cut(session, Position(through))


async def test_nothing_is_published_until_somebody_does(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        assert await log.snapshots() == b""
        session = await opened(log)
        await log.publish(session, b"one", older=POSITION_ZERO)
        assert await other.snapshots() == b"one"
        await log.publish(session, b"one\ntwo", older=Position(session.incarnation))
        await log.publish(session, b"one\ntwo", older=Position(session.incarnation))
        assert await other.snapshots() == b"one\ntwo"


async def test_publication_under_a_lost_session_is_refused(connect: Connect) -> None:
    async with connection(connect) as log:
        holder, other = await opened(log), await opened(log)
        await log.publish(holder, b"one", older=POSITION_ZERO)
        await log.revoke(holder.id)
        with pytest.raises(SessionLostError) as lost:
            await log.publish(holder, b"two", older=Position(other.incarnation))
        assert lost.value.last == 0
        assert await log.snapshots() == b"one"


async def test_publication_that_was_overtaken_changes_nothing(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        before, after = await opened(log), await opened(other)
        one, two = await written(log, before, 1, 2)
        await other.publish(after, b"newer", older=two)
        await log.publish(before, b"older", older=one)
        assert await log.snapshots() == b"newer"
        assert await other.cut(after, two) == 4


async def test_what_lies_behind_the_cut_is_whole(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        one, two = await opened(log), await opened(other)
        places = []
        for n in range(1, 20):
            places += await written(log, one, n)
            places += await written(other, two, n)
        head = await log.head()
        assert await cut(log, one, places[11]) == 2 + 12
        assert await other.head() == head
        for after in (11, 12, 30):
            entries = await read(other, 37 - after, after=places[after])
            assert [entry.position for entry in entries] == places[after + 1 :]


async def test_tail_from_before_the_cut_says_so(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        session = await opened(log)
        places = await written(log, session, 1, 2, 3)
        await cut(log, session, places[1])
        for after in (0, session.incarnation, places[0]):
            with pytest.raises(LogCutError) as error:
                await read(other, 1, after=after)
            assert error.value.cut == places[1]


async def test_no_cut_goes_beyond_the_older_snapshot(connect: Connect) -> None:
    async with connection(connect) as log:
        session = await opened(log)
        one, two = await written(log, session, 1, 2)
        with pytest.raises(LogRefusedError):
            await log.cut(session, one)
        await log.publish(session, b"", older=one)
        with pytest.raises(LogRefusedError):
            await log.cut(session, two)
        assert len(await read(log, 3, after=0)) == 3


async def test_cut_repeated_or_late_deletes_nothing_more(connect: Connect) -> None:
    async with connection(connect) as log:
        session = await opened(log)
        one, two, three = await written(log, session, 1, 2, 3)
        assert await cut(log, session, two) == 3
        assert await log.cut(session, two) == 0
        assert await log.cut(session, one) == 0
        assert [entry.position for entry in await read(log, 1, after=two)] == [three]
        with pytest.raises(LogCutError):
            await read(log, 1, after=one)


async def test_cut_under_a_lost_session_deletes_nothing(connect: Connect) -> None:
    async with connection(connect) as log:
        holder, other = await opened(log), await opened(log)
        await written(log, holder, 1)
        (place,) = await written(log, other, 1)
        await log.publish(holder, b"", older=place)
        await log.revoke(holder.id)
        with pytest.raises(SessionLostError) as lost:
            await log.cut(holder, place)
        assert lost.value.last == 1
        assert len(await read(log, 4, after=0)) == 4


async def test_cut_takes_as_many_slices_as_it_needs(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        one, two = await opened(log), await opened(other)

        async def write(log: MetadataLog, session: Session, count: int) -> Position:
            return (await written(log, session, *range(1, count)))[-1]

        await asyncio.gather(write(log, one, 1200), write(other, two, 60))
        (last,) = await written(other, two, 60)
        await written(log, one, 1200)
        assert await cut(log, one, last) == 1200 + 61
        assert [entry.n for entry in await read(other, 1, after=last)] == [1200]


async def test_who_follows_the_log_does_not_notice_a_cut(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        session = await opened(log)
        places = await written(log, session, *range(1, 301))
        async with tailing(other, 0) as take:
            assert len(await take(301)) == 301
            cutting = asyncio.ensure_future(cut(log, session, places[-1]))
            for n in range(301, 320):
                await written(log, session, n)
            assert await cutting == 301
            await written(log, session, 320)
            assert [entry.n for entry in await take(20)] == list(range(301, 321))


async def test_who_catches_up_during_a_cut_misses_nothing_without_hearing_of_it(
    connect: Connect,
) -> None:
    async with connections(connect, 2) as (log, other):
        session = await opened(log)
        places = await written(log, session, *range(1, 1300))
        async with tailing(other, 0) as take:
            numbers = [entry.n for entry in await take(10)]
            cutting = asyncio.ensure_future(cut(log, session, places[-2]))
            try:
                while len(numbers) < 1300:
                    numbers += [entry.n for entry in await take(1)]
            except LogCutError:
                pass
            assert numbers == list(range(len(numbers)))
            assert await cutting == 1299


async def test_append_repeated_after_it_was_cut_is_in_once(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        session, cutter = await opened(log), await opened(other)
        await written(log, session, 1)
        (place,) = await written(other, cutter, 1)
        assert await cut(other, cutter, place) == 4
        assert await log.append(session, 1, b"1") == place
        assert await log.open(session.id, b"open") == session
        assert await log.head() == place
        await written(log, session, 2)
        assert [entry.n for entry in await read(other, 1, after=place)] == [2]


async def test_session_that_was_idle_for_long_goes_on_where_it_was(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        idle, busy = await opened(log), await opened(other)
        await written(log, idle, 1)
        places = await written(other, busy, *range(1, 10))
        for place in places:
            await cut(other, busy, place)
        assert await other.read_session(idle.id) == SessionState(alive=True, last=1)
        async with tailing(other, places[-1]) as take:
            await written(log, idle, 2)
            assert [(each.session, each.n) for each in await take(1)] == [(idle.id, 2)]
        await log.revoke(idle.id)
        assert await other.read_session(idle.id) == SessionState(alive=False, last=2)


async def test_who_comes_back_after_the_cut_finds_how_far_it_had_got(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        away, cutter = await opened(log), await opened(other)
        await written(log, away, 1, 2)
        await other.revoke(away.id)
        (place,) = await written(other, cutter, 1)
        await cut(other, cutter, place)
        for n in (2, 3):
            with pytest.raises(SessionLostError) as lost:
                await log.append(away, n, b"%d" % n)
            assert lost.value.last == 2
        assert await log.read_session(away.id) == SessionState(alive=False, last=2)


async def test_of_a_session_gone_for_long_nobody_says_that_nothing_was_in(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        cutter = await opened(other)
        gone = []
        for _ in range(SESSIONS_KEPT + 2):
            gone.append(await opened(log))
            await written(log, gone[-1], 1)
            await log.revoke(gone[-1].id)
        unopened = await log.grant(TTL_MS)
        (place,) = await written(other, cutter, 1)
        await cut(other, cutter, place)
        lasts = []
        for session in gone:
            with pytest.raises(SessionLostError) as lost:
                await log.append(session, 1, b"1")
            state = await other.read_session(session.id)
            assert state == SessionState(alive=False, last=lost.value.last)
            with pytest.raises(SessionLostError) as lost:
                await log.keep_alive(session.id)
            assert state.last == lost.value.last
            lasts.append(state.last)
        assert lasts == [LAST_UNKNOWN] * 2 + [1] * SESSIONS_KEPT
        # One that lives is not forgotten, whether or not it has written.
        assert await other.read_session(unopened) == SessionState(alive=True, last=-1)
        assert await other.read_session(cutter.id) == SessionState(alive=True, last=1)
        assert (await log.open(unopened, b"open")).incarnation > place


async def test_session_whose_entries_are_not_all_cut_is_not_forgotten(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        cutter = await opened(other)
        (place,) = await written(other, cutter, 1)
        gone = [await opened(log) for _ in range(SESSIONS_KEPT + 2)]
        for session in gone:
            await log.revoke(session.id)
        await cut(other, cutter, place)
        assert [(await log.read_session(each.id)).last for each in gone] == [0] * len(gone)


@pytest.mark.parametrize("turns", [1, 3, 10, 30])
async def test_cut_that_broke_off_is_finished_by_the_next(connect: Connect, turns: int) -> None:
    async with connections(connect, 2) as (log, other):
        session, heir = await opened(log), await opened(other)
        places = await written(log, session, *range(1, 200))
        await log.publish(session, b"", older=places[-2])
        cutting = asyncio.ensure_future(log.cut(session, places[-2]))
        for _ in range(turns):
            await asyncio.sleep(0)
        cutting.cancel()
        await asyncio.wait([cutting])
        await other.cut(heir, places[-2])
        assert await other.cut(heir, places[-2]) == 0
        assert [entry.n for entry in await read(other, 1, after=places[-2])] == [199]
        with pytest.raises(LogCutError):
            await read(log, 1, after=places[-3])


async def test_two_who_cut_at_once_do_no_harm(connect: Connect) -> None:
    async with connections(connect, 2) as (log, other):
        one, two = await opened(log), await opened(other)
        places = await written(log, one, *range(1, 150))
        await log.publish(one, b"", older=places[-2])
        counts = await asyncio.gather(log.cut(one, places[70]), other.cut(two, places[-2]))
        assert 0 < sum(counts) <= 150
        assert await log.cut(one, places[-2]) == 0
        assert [entry.n for entry in await read(other, 1, after=places[-2])] == [149]
