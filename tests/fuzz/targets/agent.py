"""Requests to a whole agent that has topics, groups and transactions, in virtual time.

An input is a stream of frames. They go to an agent of their own, one after the other; a connection that
is closed, or that waits, is followed by another one. In the end the agent must still serve an honest
client, hold nothing of those who left, and be the machine that its snapshot says.
"""

import asyncio
import random
import time
from collections.abc import Coroutine, Hashable, Sequence
from functools import cache
from typing import Any, ClassVar

from typing_extensions import override

from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, is_dump_of, restore
from protocol import apis
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.records import TRANSACTIONAL
from tests.broker.groups.requests import join, sync
from tests.fuzz import grammar, mutation
from tests.fuzz.target import Target, WrongError
from tests.kit import agents, requests
from tests.kit.agents import World
from tests.kit.batches import batch
from tests.kit.client import Client
from tests.kit.loop import SimLoop

FRAMES_MAX = 60
FRAME_BYTES_MAX = 1 << 20
WAIT_S = 0.3
"""Longer than a flush takes."""
PATIENCE_S = 60.0
STEPS_MAX = 100_000
"""Callbacks of a run; more is a livelock."""
OURS = "canary"


class Agent(Target):
    name = "agent"
    fixed = 60
    settings: ClassVar[dict[str, str]] = {"chunk_linger_ms": "5"}

    @override
    def generate(self, rng: random.Random) -> bytes:
        names = names_of_agent()
        count = rng.randrange(1, FRAMES_MAX)
        # A stream keeps to few APIs, so that they meet.
        some = rng.sample(grammar.VERSIONS, rng.choice((1, 4, len(grammar.VERSIONS))))
        frames = [
            grammar.generated(rng, names, *rng.choice(some), number) for number in range(count)
        ]
        if rng.random() < 0.3:
            frames += [rng.choice(frames) for _ in range(rng.choice((1, 5, 20)))]
        return b"".join(frames)

    @override
    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        mine, theirs = [*self.pieces(data)], self.pieces(other)
        if not mine or not theirs:
            return self.generate(rng)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(mine))
            match rng.randrange(4):
                case 0:
                    mine.insert(at, rng.choice(theirs))
                case 1:
                    mine.append(mine[at])
                case _:
                    changed = mutation.mutated(rng, mine[at][4:], rng.choice(theirs)[4:])
                    mine[at] = len(changed).to_bytes(4, "big") + changed
        return b"".join(mine[: 2 * FRAMES_MAX])

    @override
    def pieces(self, data: bytes) -> Sequence[bytes]:
        pieces, at = [], 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big", signed=True)
            end = at + 4 + size if 0 <= size < FRAME_BYTES_MAX else len(data)
            pieces.append(data[at:end])
            at = end
        return pieces

    @override
    def inputs_in(self, data: bytes) -> int:
        return len(self.pieces(data))

    @override
    def run(self, data: bytes) -> Hashable:
        return self.on_a_loop(self._met(self.pieces(data)))

    def world(self) -> World:
        return World()

    async def settle(self, one: agents.Agent) -> None:
        """What there is when the first frame comes."""
        await settle(one)

    async def send(self, one: agents.Agent, frames: Sequence[bytes]) -> Hashable:
        return await _send(one, frames)

    def on_a_loop(self, main: Coroutine[Any, Any, Hashable]) -> Hashable:
        loop = _TimedLoop(random.Random(1))
        loop.steps_max = STEPS_MAX
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(main)
        finally:
            self.stood_ms = 1000 * loop.longest_s
            asyncio.set_event_loop(None)
            loop.discard()

    async def _met(self, frames: Sequence[bytes]) -> Hashable:
        async with self.world().agents("one", **self.settings) as (one,):
            await self.settle(one)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, _TimedLoop)
            loop.longest_s = 0.0
            said = await self.send(one, frames)
            await canary(one)
            await _left(one)
            _check_machine(one.machine)
            if loop.failures:
                raise WrongError(f"nobody caught {loop.failures}")
            if one.node.stats.failed_handlers:
                raise WrongError("a handler failed")
        return said


class _TimedLoop(SimLoop):
    """`longest_s`: the CPU that the longest callback so far took."""

    longest_s = 0.0

    @override
    def _run_once(self) -> None:
        begun = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        took = time.thread_time() - begun
        if took > self.longest_s:
            self.longest_s = took


async def _send(one: agents.Agent, frames: Sequence[bytes]) -> Hashable:
    said: set[bytes] = set()
    clients = [one.connect()]
    for frame in frames:
        client = clients[-1]
        said.add(await exchanged(client, frame))
        if client.closed or not client.transport.writes:
            clients.append(one.connect())
        client.forget()
    for client in clients:
        if not client.closed:
            client.hang_up()
    return frozenset(said)


async def exchanged(client: Client, frame: bytes) -> bytes:
    """Key and version of the frame, and how the answer begins: errors are among the first things."""
    client.feed(frame)
    for _ in range(int(WAIT_S * 50)):
        if client.closed or client.transport.writes:
            break
        await asyncio.sleep(0.02)
    return frame[4:8] + b"".join(client.transport.writes)[8:24]


async def canary(one: agents.Agent) -> None:
    """An honest client is served as on any day."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _produce_and_read(one)
    except (TimeoutError, AssertionError) as error:
        raise WrongError(f"the canary is not served: {error!r}") from error


async def _produce_and_read(one: agents.Agent) -> None:
    offset = await one.produce(OURS, batch(b"sung"))
    answer = await one.call(apis.FETCH, requests.fetch({(OURS, 0): offset}), version=11)
    row = requests.rows_of(answer)[OURS, 0]
    assert row.error_code == 0, row
    assert row.records, row
    committed = await one.call(apis.OFFSET_COMMIT, _commit(OURS, OURS, offset), version=7)
    assert requests.error_of(committed) == 0, committed
    fetched = await one.call(apis.OFFSET_FETCH, requests.offset_fetch(OURS, [(OURS, 0)]), version=5)
    assert requests.rows_of(fetched)[OURS, 0].committed_offset == offset, fetched


def _commit(group_id: str, topic: str, offset: int) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])]
    )


async def _left(one: agents.Agent) -> None:
    """Of connections that are closed nothing is held, after a while."""
    stats = one.node.stats
    for _ in range(100):
        if not stats.held_bytes:
            return
        await asyncio.sleep(0.1)
    raise WrongError(f"{stats.held_bytes} bytes of requests are held, and nobody is there")


def _check_machine(machine: Machine) -> None:
    parts = dump(machine)
    again = Machine()
    restore(again, parts)
    if again.digest() != machine.digest() or not is_dump_of(again, parts):
        raise WrongError("another machine out of its snapshot")


async def settle(one: agents.Agent) -> tuple[Any, ...]:
    """What there is when the first frame comes; the same every time."""
    for name, count, configs in (
        ("t", 3, {}),
        ("logs", 1, {}),
        ("compacted", 2, {"cleanup_policy": "compact"}),
        (OURS, 1, {}),
    ):
        await one.create_topic(name, count, **configs)
    await one.produce("t", batch(b"1", b"2", b"3"))
    await one.produce("logs", batch(b"1", key=b"k"))
    client = one.connect()
    while (joined := await _join(client)).error_code:
        await asyncio.sleep(0.1)
    request = sync("classic", joined.member_id, joined.generation_id)
    await client.call(apis.SYNC_GROUP, 4, request)
    beat = ConsumerGroupHeartbeatRequest(
        group_id="modern", member_id="member", member_epoch=0, rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"], topic_partitions=[],
    )  # fmt: skip
    await client.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, beat)
    await client.call(apis.OFFSET_COMMIT, 7, _commit("empty", "t", 1))
    producers = []
    for name in ("begun", "idle"):
        answer = await client.call(apis.INIT_PRODUCER_ID, 4, requests.init_producer_id(name))
        producers.append((answer.producer_id, answer.producer_epoch))
    await client.call(
        apis.ADD_PARTITIONS_TO_TXN, 3, requests.add_partitions("begun", producers[0], [("t", 1)])
    )
    data = batch(
        b"in",
        attributes=TRANSACTIONAL,
        producer_id=producers[0][0],
        epoch=producers[0][1],
        sequence=0,
    )
    await client.call(apis.PRODUCE, 9, requests.produce({("t", 1): data}, transactional_id="begun"))
    client.hang_up()
    return joined.member_id, [producer_id for producer_id, _ in producers]


async def _join(client: Client) -> Any:
    answer = await client.call(apis.JOIN_GROUP, 9, join("classic"))
    if answer.member_id and answer.error_code:
        answer = await client.call(apis.JOIN_GROUP, 9, join("classic", answer.member_id))
    return answer


@cache
def names_of_agent() -> grammar.Names:
    """What requests may name of it; the canary's topic and group they may not."""

    async def look() -> grammar.Names:
        async with World().agents("one", chunk_linger_ms="5") as (one,):
            member, producers = await settle(one)
            ids = [one.machine.topics.by_name(name).topic_id for name in ("t", "logs", "compacted")]
            return grammar.Names(
                topic_ids=[bytes(16), *ids],
                members=["", member, "member", "another"],
                producers=[*producers, 999, -1],
                node_ids=[one.node_id, 7],
            )

    loop = SimLoop(random.Random(1))
    try:
        return loop.run_until_complete(look())
    finally:
        loop.discard()
