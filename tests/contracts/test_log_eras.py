"""The contract of MetadataLog where a log begins anew, run against every adapter."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from coordinator.log.metadata_log import (
    EraOverError,
    LiveSessionsError,
    LogCutError,
    LogRefusedError,
    MetadataLog,
)
from protocol.types import POSITION_ZERO, era_of, first_position
from tests.contracts.logs import ADAPTERS, SHARED, Connect, connection, connections, connects

TTL_MS = 30_000
SECOND = first_position(2)
pytestmark = pytest.mark.real_loop


@pytest.fixture(params=ADAPTERS)
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    return connects(request, tmp_path)


async def lost(log: MetadataLog) -> None:
    """An older state of a log, whose agents are gone."""
    await log.identify(b"first")
    session = await log.open(await log.grant(TTL_MS), b"open")
    await log.append(session, 1, b"one")
    await log.revoke(session.id)


async def recover(log: MetadataLog, *, instead_of: bytes = b"first") -> None:
    await log.begin_era(2, b"second", snapshots=b"one snapshot", instead_of=instead_of)


async def test_an_era_begins_behind_its_snapshot_without_entries(connect: Connect) -> None:
    async with connection(connect) as log:
        await lost(log)
        await recover(log)
        assert await log.identity() == b"second"
        assert await log.snapshots() == b"one snapshot"
        assert await log.head() == SECOND
        assert await log.voids() == []


async def test_an_era_begins_in_a_log_that_nobody_has_written(connect: Connect) -> None:
    async with connection(connect) as log:
        await recover(log, instead_of=b"")
        assert (await log.identity(), await log.head()) == (b"second", SECOND)


async def test_entries_of_an_era_come_behind_its_snapshot_and_are_numbered_anew(
    connect: Connect,
) -> None:
    async with connection(connect) as log:
        await lost(log)
        await recover(log)
        session = await log.open(await log.grant(TTL_MS), b"open again")
        assert era_of(session.incarnation) == 2
        assert session.incarnation > SECOND
        place = await log.append(session, 1, b"two")
        assert await log.head() == place
        async with aclosing(log.tail(SECOND)) as batches:
            entries = list(await anext(batches))
            while len(entries) < 2:
                entries += await anext(batches)
        assert [entry.payload for entry in entries] == [b"open again", b"two"]


async def test_a_tail_without_the_snapshot_of_an_era_is_told_that_there_is_something_before(
    connect: Connect,
) -> None:
    async with connection(connect) as log:
        await recover(log, instead_of=b"")
        await log.open(await log.grant(TTL_MS), b"open")
        async with aclosing(log.tail(POSITION_ZERO)) as batches:
            with pytest.raises(LogCutError):
                await anext(batches)


async def test_a_tail_of_an_era_waits_for_its_first_entry(connect: Connect) -> None:
    async with connection(connect) as log:
        await recover(log, instead_of=b"")
        async with aclosing(log.tail(SECOND)) as batches:
            first = asyncio.ensure_future(anext(batches))
            await log.open(await log.grant(TTL_MS), b"open")
            assert [entry.payload for entry in await first] == [b"open"]


async def test_an_era_that_has_begun_is_begun_again_without_effect(connect: Connect) -> None:
    async with connection(connect) as log:
        await lost(log)
        await recover(log)
        await recover(log)
        session = await log.open(await log.grant(TTL_MS), b"open")
        await log.revoke(session.id)
        log.enter(2)
        await recover(log)
        assert await log.head() == session.incarnation


async def test_no_era_begins_in_a_log_that_says_something_else_than_was_read(
    connect: Connect,
) -> None:
    async with connection(connect) as log:
        await lost(log)
        with pytest.raises(LogRefusedError):
            await recover(log, instead_of=b"another one")
        assert await log.identity() == b"first"
        assert era_of(await log.head()) == 1


async def test_no_era_begins_while_a_session_is_open(connect: Connect) -> None:
    async with connection(connect) as log:
        await log.identify(b"first")
        session = await log.open(await log.grant(TTL_MS), b"open")
        with pytest.raises(LiveSessionsError) as raised:
            await recover(log)
        assert raised.value.sessions == (session,)
        assert await log.identity() == b"first"


@pytest.mark.promise("P1")
@pytest.mark.parametrize("connect", SHARED, indirect=True)
async def test_nobody_opens_a_session_in_an_era_that_is_over(connect: Connect) -> None:
    async with connections(connect, 2) as (agent, recovery):
        assert await agent.identify(b"first") == b"first"
        await lost(agent)
        assert await recovery.identity() == b"first"
        await recover(recovery)
        lease = await agent.grant(TTL_MS)
        with pytest.raises(EraOverError):
            await agent.open(lease, b"open")
        head = await recovery.head()
        assert head == SECOND
        session = await recovery.open(await recovery.grant(TTL_MS), b"open")
        assert era_of(session.incarnation) == 2


async def test_publications_and_cuts_go_on_in_another_era(connect: Connect) -> None:
    async with connection(connect) as log:
        await lost(log)
        await recover(log)
        session = await log.open(await log.grant(TTL_MS), b"open")
        place = await log.append(session, 1, b"one")
        await log.publish(session, b"two snapshots", older=SECOND)
        assert await log.cut(session, SECOND) == 0
        await log.publish(session, b"newer ones", older=place)
        assert await log.cut(session, place) == 2
        assert await log.snapshots() == b"newer ones"
