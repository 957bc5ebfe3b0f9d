"""Replica: the log in order into the machine, and what stops it (P13)."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from coordinator.commands.codec import encode_entry
from coordinator.commands.entries import Close, CreateTopic, Entry, Tick
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LogEntry, LogHoleError, LogUnavailableError
from coordinator.machine.machine import Machine
from coordinator.replica import Applied, Replica, ReplicaStoppedError
from coordinator.stats import LogClientStats
from tests.coordinator.support import Writer, writer_of

pytestmark = pytest.mark.schedules(5)

tasks: list[asyncio.Task[None]] = []
"""Of replicas that run until their scenario ends."""


def replica_on(log: MemoryLog) -> Replica:
    return Replica(log, Machine(), LogClientStats())


async def numbers_of(log: MemoryLog) -> list[int]:
    """Of the entries that a replica applies, up to the end."""
    replica = replica_on(log)
    numbers: list[int] = []
    replica.on_applied(lambda applied: numbers.append(applied.entry.n))
    tasks.append(asyncio.ensure_future(replica.run()))
    await replica.wait_for(await log.head())
    return numbers


async def run_until_stopped(replica: Replica) -> str:
    async with asyncio.timeout(60):
        with pytest.raises(ReplicaStoppedError) as stopped:
            await replica.run()
    return str(stopped.value)


async def test_entries_are_applied_once_and_in_order() -> None:
    writer = await writer_of()
    positions = [await writer.write(Tick()) for _ in range(250)]
    replica = replica_on(MemoryLog(writer.cluster))
    seen: list[Applied] = []
    replica.on_applied(seen.append)
    tasks.append(asyncio.ensure_future(replica.run()))
    await replica.wait_for(positions[-1])

    assert [each.position for each in seen] == [writer.session.incarnation, *positions]
    assert {each.incarnation for each in seen} == {writer.session.incarnation}
    assert replica.machine.position == positions[-1]


async def test_waiting_for_a_position_ends_when_it_is_applied() -> None:
    writer = await writer_of()
    replica = replica_on(MemoryLog(writer.cluster))
    tasks.append(asyncio.ensure_future(replica.run()))
    next_one = writer.cluster.head() + 1
    waiting = replica.wait_for(next_one)
    await asyncio.sleep(1)
    assert not waiting.done()
    await writer.write(CreateTopic("t", 1, ()))
    await waiting
    assert replica.machine.topics.by_name("t") is not None
    assert replica.wait_for(next_one).done()


class _Broken(MemoryLog):
    """Tails break off after a few entries."""

    async def tail(self, after: int) -> AsyncGenerator[Sequence[LogEntry], None]:
        async for batch in super().tail(after):
            yield batch[:7]
            raise LogUnavailableError("broken off")


async def test_tail_that_breaks_off_goes_on_where_it_was() -> None:
    writer = await writer_of(ticks=40)
    assert await numbers_of(_Broken(writer.cluster)) == list(range(41))


@pytest.mark.promise("P13")
async def test_entry_that_cannot_be_decoded_stops_the_replica_and_is_not_skipped() -> None:
    writer = await writer_of()
    good = await writer.write(Tick())
    await writer.write_bytes(b"of a later version")
    await writer.write(CreateTopic("t", 1, ()))
    replica = replica_on(MemoryLog(writer.cluster))
    assert "cannot be decoded" in await run_until_stopped(replica)
    assert replica.machine.position == good
    assert replica.machine.topics.by_name("t") is None


@pytest.mark.promise("P13")
async def test_entry_that_makes_apply_raise_stops_the_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply = Machine.apply

    def raising(machine: Machine, position: int, entry: Entry) -> object:
        if entry.n == 2:
            raise KeyError("a bug")
        return apply(machine, position, entry)

    monkeypatch.setattr(Machine, "apply", raising)

    writer = await writer_of(ticks=3)
    replica = replica_on(MemoryLog(writer.cluster))
    seen: list[Applied] = []
    replica.on_applied(seen.append)
    assert "cannot be applied" in await run_until_stopped(replica)
    assert [each.entry.n for each in seen] == [0, 1]


async def test_entry_under_another_incarnation_than_its_session_stops_the_replica() -> None:
    cluster = MemoryLogCluster()
    writer, other = Writer(cluster), Writer(cluster)
    await writer.open("one")
    await other.open("two")
    await writer.write_bytes(encode_entry(Entry(other.session.incarnation, 1, 1, (Tick(),))))
    assert "does not follow" in await run_until_stopped(replica_on(MemoryLog(cluster)))


async def test_entry_under_another_number_than_it_says_stops_the_replica() -> None:
    writer = await writer_of()
    await writer.write_bytes(encode_entry(Entry(writer.session.incarnation, 2, 1, (Tick(),))))
    assert "says number 2" in await run_until_stopped(replica_on(MemoryLog(writer.cluster)))


class _Leaky(MemoryLog):
    """Leaves out one entry, so many times."""

    def __init__(self, cluster: MemoryLogCluster, *, times: int, adapter_notices: bool) -> None:
        super().__init__(cluster)
        self._times = times
        self._adapter_notices = adapter_notices

    async def tail(self, after: int) -> AsyncGenerator[Sequence[LogEntry], None]:
        async for batch in super().tail(after):
            if self._times and any(entry.n == 5 for entry in batch):
                self._times -= 1
                if self._adapter_notices:
                    raise LogHoleError("entry 5 is missing")
                yield [entry for entry in batch if entry.n != 5]
            else:
                yield batch


@pytest.mark.parametrize("adapter_notices", [True, False])
async def test_hole_in_the_tail_is_read_again(adapter_notices: bool) -> None:
    writer = await writer_of(ticks=9)
    leaky = _Leaky(writer.cluster, times=1, adapter_notices=adapter_notices)
    assert await numbers_of(leaky) == list(range(10))


@pytest.mark.parametrize("adapter_notices", [True, False])
async def test_hole_that_stays_stops_the_replica(adapter_notices: bool) -> None:
    writer = await writer_of(ticks=9)
    replica = replica_on(_Leaky(writer.cluster, times=9, adapter_notices=adapter_notices))
    assert "missing" in await run_until_stopped(replica)


class _Backwards(MemoryLog):
    """Gives everything twice."""

    async def tail(self, after: int) -> AsyncGenerator[Sequence[LogEntry], None]:
        async for batch in super().tail(after):
            yield [*batch, *batch]


async def test_position_that_does_not_grow_stops_the_replica() -> None:
    cluster = MemoryLogCluster()
    await Writer(cluster).open()
    assert "after" in await run_until_stopped(replica_on(_Backwards(cluster)))


async def test_sessions_that_ended_are_forgotten_and_their_late_entries_still_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.replica.WRITERS_MAX", 6)

    cluster = MemoryLogCluster()
    living = Writer(cluster)
    await living.open("living")
    ended = []
    for number in range(20):
        writer = Writer(cluster)
        await writer.open(f"writer-{number}")
        await living.write(Close(writer.session.incarnation, 0))
        ended.append(writer)
    await ended[0].write(CreateTopic("late", 1, ()))
    await ended[0].write(CreateTopic("later", 1, ()))
    await living.write(CreateTopic("t", 1, ()))
    replica = replica_on(MemoryLog(cluster))
    tasks.append(asyncio.ensure_future(replica.run()))
    await replica.wait_for(cluster.head())
    assert [topic.name for topic in replica.machine.topics] == ["t"]
    assert len(replica._writers) <= 6
