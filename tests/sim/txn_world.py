"""A run of transactions: writers and their zombies, processors, readers, and whatever befalls them.

The cluster, its weather and its faults are those of `tests.sim.world`. Besides, the network holds
frames back and lets them arrive when their client has moved on, agents leave in peace, and a topic
that takes part is deleted. After the faults everything must come to an end within a bound: each
writer commits once more, all input is processed, and every partition becomes stable up to its end.
What then is in the logs is judged by `tests.sim.txn_account`.
"""

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Coroutine

from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import hot
from protocol.records import Record, build_batch
from tests.kit.faults import Weather
from tests.kit.loop import SimLoop
from tests.sim.client import Client, LostError
from tests.sim.group_account import GroupAccount
from tests.sim.txn_account import DOOMED, KEYS, Partition, TxnAccount
from tests.sim.txn_client import TIMESTAMP, Mischief
from tests.sim.txn_readers import (
    COMMITTED,
    TxnReader,
    ask_stable_ends,
    committed_values,
    fetch_offset,
    kept,
    stable_ends,
)
from tests.sim.txn_workers import (
    OUTPUT,
    OUTPUT_PARTITIONS,
    GroupProcessor,
    Processor,
    Writer,
)
from tests.sim.workload import TOPIC
from tests.sim.world import Nemesis, Shape, World

FAULTS_S = 25.0
SETTLE_S = 240.0
INPUT_PARTITIONS = 2
TOPICS = {TOPIC: INPUT_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS, "a": 2, "b": 1, DOOMED: 1}


class TxnWorld(World):
    """Beside agents: what transactional clients share."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mischief = Mischief()
        self.txn_account = TxnAccount(merged=self.shape.jobs)
        self.input_records = self.rng.choice((0, 4, 8))
        self.doomed_is_gone = False
        self.writers: list[Writer] = []
        self.zombies: list[Writer] = []
        self.processors: dict[str, asyncio.Task] = {}
        self.group_account = GroupAccount("dealt")
        self.watch = self._watch

    def _watch(self, node) -> None:
        owner = self.nodes[-1][0]
        machine = node.log_client.machine
        node.log_client.on_applied(
            lambda applied: self.txn_account.applied(owner, machine, applied, self.loop.time())
        )

    def draw(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    def writer(self, name: str, transactional_id: str) -> Writer:
        return Writer(
            self, self.txn_account, self.draw(), name=name, transactional_id=transactional_id
        )


async def simulate_transactions(loop: SimLoop, rng: random.Random) -> list[str]:
    """One run. The violations found; none is a pass."""
    logging.getLogger().setLevel(logging.CRITICAL)
    world = TxnWorld(loop, rng, _shape(rng))
    for life in world.lives:
        world.start(life)
    try:
        async with asyncio.timeout(SETTLE_S):
            await _make_topics(world)
            await _write_input(world)
    except TimeoutError:
        return [*world.failures(), "no topic could be created in fine weather"]
    return await _run(world)


async def _run(world: TxnWorld) -> list[str]:
    loop, rng = world.loop, world.rng
    for index in range(rng.choice((1, 2, 3))):
        world.writers.append(world.writer(f"writer{index}", f"tx{index}"))
        if rng.random() < 0.3:
            world.zombies.append(world.writer(f"zombie{index}", f"tx{index}"))
    if rng.random() < 0.5:  # It does not come back for what it leaves open.
        world.zombies.append(world.writer("ghost", "ghost"))
    readers = _readers(world)
    working = {writer: loop.create_task(writer.run()) for writer in world.writers}
    passing = [loop.create_task(zombie.run()) for zombie in world.zombies]
    passing += [loop.create_task(coroutine) for coroutine in _background(world, readers)]
    processing = {name: loop.create_task(job) for name, job in _processors(world).items()}
    for life in world.lives:
        life.store_weather.__dict__.update(Weather.drawn(rng).__dict__)
        life.log_weather.__dict__.update(Weather.drawn(rng).__dict__)
    world.mischief.hold = rng.choice((0.0, 0.1, 0.3))
    world.mischief.give_up = rng.choice((0.0, 0.1, 0.5))
    nemesis = TxnNemesis(world)
    passing += [loop.create_task(nemesis.run()), loop.create_task(_delete_doomed(world))]
    await asyncio.sleep(FAULTS_S)
    for task in passing:
        task.cancel()
    nemesis.take_back()
    world.mischief.hold = world.mischief.give_up = 0.0
    world.network.let_all_go()
    for writer in world.writers:
        writer.stopping = True
    jobs = {f"{writer.transactional_id}": task for writer, task in working.items()} | processing
    return await _settle(world, jobs, readers)


def _shape(rng: random.Random) -> Shape:
    shape = Shape.drawn(rng)
    shape.agents = rng.choice((1, 2, 2, 3))
    shape.settings = {
        "kafka.group.initial.rebalance.delay.ms": "0",
        "kafka.transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    return shape


class TxnNemesis(Nemesis):
    """Agents also leave in peace and come back."""

    async def _harm(self, kind: str, life) -> None:
        if kind == "kill" and self._rng.random() < 0.5:
            agent, task, life.agent = life.agent, life.task, None
            with self._world.loop.owned(life.owner):
                stopping = self._world.loop.create_task(agent.stop())
            await asyncio.wait([task, stopping], timeout=20.0)
            self._world.kill(life)
            self._world.start(life)
        else:
            await super()._harm(kind, life)


def _readers(world: TxnWorld) -> list[TxnReader]:
    kinds = [True] * world.rng.choice((1, 2)) + [False]
    return [
        TxnReader(
            Client(world.loop, f"{'committed' if committed else 'all'}{index}"),
            world.txn_account,
            world.draw(),
            KEYS,
            committed=committed,
        )
        for index, committed in enumerate(kinds)
    ]


def _background(world: TxnWorld, readers: list[TxnReader]) -> list[Coroutine]:
    jobs: list[Coroutine] = [reader.run(world.addresses) for reader in readers]
    asker = Client(world.loop, "asker", 3.0)
    jobs.append(ask_stable_ends(asker, world.addresses, world.txn_account, KEYS, world.draw()))
    jobs.append(_ask_offsets(world, Client(world.loop, "offsets", 3.0)))
    return jobs


def _processors(world: TxnWorld) -> dict[str, Coroutine]:
    """Of one kind, or none."""
    if not world.input_records:
        return {}
    jobs: dict[str, Coroutine] = {}
    if world.rng.random() < 0.5:
        for index in range(INPUT_PARTITIONS):
            for name in ("worker", "double")[: world.rng.choice((1, 1, 2))]:
                jobs[f"{name}{index}"] = Processor(
                    world, world.txn_account, world.draw(), name=f"{name}{index}", partition=index
                ).run()
        return jobs
    for index in range(world.rng.choice((1, 2, 3))):
        name = f"member{index}"
        jobs[name] = GroupProcessor(
            world,
            world.txn_account,
            Client(world.loop, name, 5.0),
            world.addresses,
            world.group_account,
            world.draw(),
            partitions=INPUT_PARTITIONS,
        ).run()
    return jobs


async def _make_topics(world: TxnWorld) -> None:
    client = world.client("setup")
    request = messages.CreateTopicsRequest(
        topics=[
            messages.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in TOPICS.items()
        ],
        timeout_ms=5000,
    )
    made = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    while True:
        try:
            answer = await client.ask(world.addresses.any(), apis.CREATE_TOPICS, 5, request)
            if all(topic.error_code in made for topic in answer.topics):
                return
        except LostError:
            pass
        await asyncio.sleep(0.5)


async def _write_input(world: TxnWorld) -> None:
    """Without a transaction; each record is there once, since the weather is fine."""
    values = [Record(value=b"%d" % n, timestamp=TIMESTAMP) for n in range(world.input_records)]
    missing = set(range(INPUT_PARTITIONS)) if values else set()
    client = world.client("input")
    while missing:
        topic = hot.TopicProduceData(
            name=TOPIC,
            partition_data=[
                hot.PartitionProduceData(index=index, records=build_batch(values))
                for index in sorted(missing)
            ],
        )
        request = hot.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
        try:
            connection = await client.connect(world.addresses.any())
        except LostError:  # An agent that does not listen yet.
            await asyncio.sleep(0.5)
            continue
        answer = await client.asked(connection, apis.PRODUCE, 9, request)
        for row in answer.responses[0].partition_responses:
            if row.error_code == ErrorCode.NONE:
                missing.discard(row.index)
        await asyncio.sleep(0.1)


async def _delete_doomed(world: TxnWorld) -> None:
    """In the middle of transactions; sometimes it comes back under its name."""
    await asyncio.sleep(world.rng.uniform(5.0, FAULTS_S))
    world.doomed_is_gone = world.rng.random() < 0.5
    request = messages.DeleteTopicsRequest(topic_names=[DOOMED], timeout_ms=5000)
    client = world.client("deleting")
    try:
        await client.ask(world.addresses.any(), apis.DELETE_TOPICS, 3, request)
        if world.doomed_is_gone:
            return
        await asyncio.sleep(world.rng.choice((0.0, 2.0)))
        await _make_topics(world)
    except LostError:
        pass


async def _ask_offsets(world: TxnWorld, client: Client) -> None:
    """For ever: the offsets of writers' groups are of transactions that were to be committed."""
    rng = world.draw()
    coordinators: dict[str, tuple[str, int]] = {}
    while True:
        await asyncio.sleep(0.5)
        group_id = rng.choice(world.writers).group_id
        least = world.txn_account.offsets_least.get(group_id, -1)
        try:
            found = await _offset(world, client, coordinators, group_id, stable=rng.random() < 0.5)
        except LostError:
            continue
        if found is not None:
            world.txn_account.offset_shown(group_id, found, least)


async def _offset(world, client: Client, coordinators, group_id: str, *, stable: bool):
    """Of a writer's group; None: nobody could say."""
    address = coordinators.pop(group_id, None)
    if address is None:
        request = messages.FindCoordinatorRequest(key=group_id, key_type=0)
        answer = await client.ask(world.addresses.any(), apis.FIND_COORDINATOR, 2, request)
        if answer.error_code != ErrorCode.NONE:
            return None
        address = (answer.host, answer.port)
    partition = (TOPIC, 0)
    found = await fetch_offset(client, address, group_id, partition, world.rng, stable=stable)
    if found is not None:
        coordinators[group_id] = address
    return found


async def _settle(
    world: TxnWorld, jobs: dict[str, asyncio.Task], readers: list[TxnReader]
) -> list[str]:
    """Liveness: in fine weather all comes to its end; then everything is judged."""
    found = await _finish(jobs)
    seen: list[dict[bool, TxnReader]] = []
    for life in world.lives:
        try:
            async with asyncio.timeout(SETTLE_S):
                await _until_stable(world, life)
                seen.append({kind: await _read_all(world, life, kind) for kind in (True, False)})
        except TimeoutError:
            found.append(f"agent{life.index} does not become stable, or does not show all of it")
    found += world.failures() + world.account.violations
    if len(seen) < len(world.lives):
        return [*found, *world.txn_account.violations]
    return [*found, *_check(world, seen, readers), *await _validate_offsets(world, seen[0][False])]


async def _finish(jobs: dict[str, asyncio.Task]) -> list[str]:
    if not jobs:
        return []
    found = []
    _, stuck = await asyncio.wait(jobs.values(), timeout=SETTLE_S)
    for name, task in jobs.items():
        if task in stuck:
            found.append(f"{name} has not come to its end {SETTLE_S:g} s after the faults")
        elif task.exception() is not None:
            found.append(f"{name} failed: {task.exception()!r}")
    return found


def _check(
    world: TxnWorld, seen: list[dict[bool, TxnReader]], readers: list[TxnReader]
) -> list[str]:
    """The logs at the end, and what readers were shown of them."""
    logs = seen[0][False].lines
    found = world.txn_account.verdict(logs)
    found += [
        f"agent{index} shows another log than agent0"
        for index, shown in enumerate(seen)
        if {place: kept(lines) for place, lines in shown[False].lines.items()}
        != {place: kept(lines) for place, lines in logs.items()}
    ]
    committed = {partition: committed_values(lines) for partition, lines in logs.items()}
    for reader in [*readers, *(shown[True] for shown in seen)]:
        if reader.committed:
            for partition, one in reader.passes:
                found += one.check(committed[partition])
    return found + _validate_output(world, committed)


async def _until_stable(world: TxnWorld, life) -> None:
    """Every open transaction ends: by its producer, or by its timeout."""
    client = Client(world.loop, f"ends{life.index}", 3.0)
    while True:
        try:
            ends = await stable_ends(client, life.address, KEYS, isolation=0, version=4)
            stable = await stable_ends(client, life.address, KEYS, isolation=COMMITTED, version=4)
            if ends == stable and len(ends) == len(KEYS):
                return
        except LostError:
            pass
        await asyncio.sleep(1.0)


async def _read_all(world: TxnWorld, life, committed: bool) -> TxnReader:
    """Everything from offset 0 to the end, from one agent."""
    name = f"final{'committed' if committed else 'all'}{life.index}"
    client = Client(world.loop, name)
    reader = TxnReader(client, world.txn_account, world.draw(), KEYS, committed=committed)
    ends: dict[Partition, int] = {}
    while len(ends) < len(KEYS):
        try:
            ends = await stable_ends(client, life.address, KEYS, isolation=0, version=4)
        except LostError:
            await asyncio.sleep(0.5)
    while any(reader.offsets[partition] < end for partition, end in ends.items()):
        await reader.poll(life.address, max_wait_ms=100)
    return reader


def _validate_output(
    world: TxnWorld, committed: dict[Partition, list[tuple[int, bytes]]]
) -> list[str]:
    """Consume, transform, produce: for each record of the input one of the output."""
    output = Counter(
        value.partition(b":")[2].decode()
        for index in range(OUTPUT_PARTITIONS)
        for _, value in committed[OUTPUT, index]
    )
    wanted = {
        f"{partition}.{offset}"
        for partition in range(INPUT_PARTITIONS)
        for offset in range(world.input_records)
    }
    if set(output) == wanted and all(count == 1 for count in output.values()):
        return []
    return [f"the output is {sorted(output.items())} of {world.input_records} records each"]


async def _validate_offsets(world: TxnWorld, shown: TxnReader) -> list[str]:
    """The offsets of the writers' groups at the end."""
    account = world.txn_account
    found: list[str] = []
    client = Client(world.loop, "last offsets", 3.0)
    fates, _ = account.fates(shown.lines)
    for writer in world.writers:
        offset = None
        deadline_s = world.loop.time() + SETTLE_S
        while offset is None and world.loop.time() < deadline_s:
            with contextlib.suppress(LostError):
                offset = await _offset(world, client, {}, writer.group_id, stable=True)
            await asyncio.sleep(0.5)
        if offset is None:
            found.append(f"nobody tells the offset of {writer.group_id}")
            continue
        found += account.validate_offsets(writer.group_id, writer.transactional_id, offset, fates)
    return found
