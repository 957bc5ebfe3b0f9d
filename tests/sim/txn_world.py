"""A run of transactions: writers and their zombies, processors, readers, and whatever befalls them.

Besides the faults of all runs the network holds frames back and lets them arrive when their client
has moved on, agents leave in peace, and a topic that takes part is deleted. After the faults
everything must come to an end within a bound: each writer commits once more, all input is
processed, and every partition becomes stable up to its end. What then is in the logs is judged by
`tests.sim.txn_account`.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from typing_extensions import override

from broker.node import Node
from protocol import apis, messages
from protocol.records import Record, build_batch
from tests.kit import requests
from tests.kit.loop import SimLoop
from tests.kit.requests import GROUP, READ_COMMITTED, Partition, rows_of
from tests.sim.client import Client, LostError, offsets_in
from tests.sim.cut import WHOLE, Cut
from tests.sim.group_account import GroupAccount
from tests.sim.txn_account import DOOMED, KEYS
from tests.sim.txn_client import TIMESTAMP, TxnCluster
from tests.sim.txn_readers import TxnReader, ask_stable_ends, committed_values, kept
from tests.sim.txn_workers import (
    INPUT_PARTITIONS,
    OUTPUT,
    OUTPUT_PARTITIONS,
    GroupProcessor,
    Processor,
    Writer,
)
from tests.sim.workload import TOPIC
from tests.sim.world import SETTLE_S, Life, Shape, Worker

WRITERS = (1, 6, 12)
"""Most of a writer's time is waiting for what the faults hold up, and agents cost the same with few
writers as with many: so many are what makes a transaction cheap."""
PIECE_BYTES = (16, 4000, 65536, 1 << 20)
"""Torn frames, but no single bytes, which were a quarter of all steps; other worlds have them."""
TOPICS = {TOPIC: INPUT_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS, "a": 2, "b": 1, DOOMED: 1}


class TxnWorld(TxnCluster):
    faults_s = 25.0
    leaves = True
    piece_bytes = PIECE_BYTES

    def __init__(self, loop: SimLoop, rng: random.Random, cut: Cut = WHOLE) -> None:
        super().__init__(loop, rng, cut)
        self.writers = [
            Writer(self, f"writer{index}", f"tx{index}") for index in range(rng.choice(WRITERS))
        ]
        kinds = [True] * rng.choice((1, 2)) + [False]
        self.readers = [
            TxnReader(self, f"{'committed' if each else 'all'}{index}", KEYS, committed=each)
            for index, each in enumerate(kinds)
        ]

    @override
    def drawn_shape(self) -> Shape:
        shape = super().drawn_shape()
        shape.agents = self.rng.choice((1, 2, 2, 3))
        shape.settings = {
            "kafka.group.initial.rebalance.delay.ms": "0",
            "kafka.transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        }
        return shape

    @override
    def watch(self, owner: str, node: Node) -> None:
        machine, account = node.log_client.machine, self.account
        node.log_client.on_applied(
            lambda applied: account.applied(owner, machine, applied, self.loop.time())
        )

    @override
    async def make_topics(self) -> None:
        await self.client("setup").create_topics(TOPICS)
        await self._write_input()

    async def _write_input(self) -> None:
        """Without a transaction; each record is there once, since the weather is fine."""
        values = [Record(value=b"%d" % n, timestamp=TIMESTAMP) for n in range(self.input_records)]
        missing = {(TOPIC, index) for index in range(INPUT_PARTITIONS)} if values else set()
        client = self.client("input")
        while missing:
            request = requests.produce(dict.fromkeys(sorted(missing), build_batch(values)))
            try:
                connection = await client.connect(client.anybody())
            except LostError:  # An agent that does not listen yet.
                await asyncio.sleep(0.5)
                continue
            answer = await client.asked(connection, apis.PRODUCE, 9, request)
            missing -= {each for each, row in rows_of(answer).items() if not row.error_code}
            await asyncio.sleep(0.1)

    @override
    def workers(self) -> Sequence[Worker]:
        """Writers, and processors of one kind, or none."""
        choice = self.rng.choice
        if not self.input_records:
            return self.writers
        if self.rng.random() < 0.5:
            names = [(each, i) for i in range(INPUT_PARTITIONS) for each in ("worker", "double")]
            some = [(each, i) for each, i in names if each == "worker" or self.rng.random() < 0.3]
            return [*self.writers, *(Processor(self, f"{each}{i}", i) for each, i in some)]
        dealt = GroupAccount(self.violations, self.counts, "dealt")
        members = range(choice((1, 2, 3)))
        return [*self.writers, *(GroupProcessor(self, f"member{i}", dealt) for i in members)]

    @override
    def harm(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Readers, too: at the end others read all of it."""
        self.mischief.hold = self.rng.choice((0.0, 0.1, 0.3))
        self.mischief.give_up = self.rng.choice((0.0, 0.1, 0.5))
        for index in range(len(self.writers)):
            if self.rng.random() < 0.3:
                yield Writer(self, f"zombie{index}", f"tx{index}").run()
        if self.rng.random() < 0.5:  # It does not come back for what it leaves open.
            yield Writer(self, "ghost", "ghost").run()
        for reader in self.readers:
            yield reader.run()
        yield ask_stable_ends(self)
        yield self._ask_offsets()
        yield self._delete_doomed()

    @override
    def stop(self, workers: Sequence[Worker]) -> None:
        self.mischief.hold = self.mischief.give_up = 0.0
        super().stop(workers)

    async def _delete_doomed(self) -> None:
        """In the middle of transactions; sometimes it comes back under its name."""
        await asyncio.sleep(self.rng.uniform(5.0, self.faults_s))
        self.doomed_is_gone = self.rng.random() < 0.5
        request = messages.DeleteTopicsRequest(topic_names=[DOOMED], timeout_ms=5000)
        client = self.client("deleting")
        if await client.try_ask(apis.DELETE_TOPICS, 3, request) and not self.doomed_is_gone:
            await asyncio.sleep(self.rng.choice((0.0, 2.0)))
            await client.create_topics(TOPICS)

    async def _ask_offsets(self) -> None:
        """For ever: the offsets of writers' groups are of transactions that were to be committed."""
        client = self.client("offsets", 3.0)
        while True:
            await asyncio.sleep(0.5)
            group_id = client.rng.choice(self.writers).group_id
            least = self.account.offsets_least.get(group_id, -1)
            found = await self._offset(client, group_id, stable=client.rng.random() < 0.5)
            if found is not None:
                self.account.offset_shown(group_id, found, least)

    async def _offset(self, client: Client, group_id: str, *, stable: bool) -> int | None:
        """Of a writer's group; None: nobody could say."""
        place = (TOPIC, 0)
        request = client.offset_fetch(group_id, [place], stable=stable)
        try:
            address = await client.coordinator(group_id, GROUP)
            told = offsets_in(await client.ask(*request, at=address))
        except LostError:
            return None
        return None if told is None else told[place]

    # The end.

    @override
    async def settle(self) -> list[str]:
        """In fine weather all becomes stable; then everything is judged."""
        try:
            async with asyncio.timeout(SETTLE_S * len(self.lives)):
                seen = await self.read_until_still()
        except TimeoutError:
            return [
                "agents do not become stable, do not show all of it, or end at different places"
            ]
        return [*self._check(seen), *await self._validate_offsets(seen[0])]

    async def read_until_still(self) -> list[TxnReader]:
        """What each agent shows of everything, when no end has moved while all of it was read.

        What was under way when the faults ended may still append: markers, too.
        """
        while True:
            ends = [await self._until_stable(life) for life in self.lives]
            seen = [
                await self._read_all(life, told, committed=False)
                for life, told in zip(self.lives, ends, strict=True)
            ]
            for life, told in zip(self.lives, ends, strict=True):
                await self._read_all(life, told, committed=True)
            after = [await self._until_stable(life) for life in self.lives]
            if all(told == ends[0] for told in (*ends, *after)):
                return seen

    async def _until_stable(self, life: Life) -> dict[Partition, int]:
        """The ends, when every open transaction has ended: by its producer, or by its timeout."""
        client = self.client(f"ends{life.index}", 3.0)
        while True:
            told = [
                await client.limits(KEYS, at=life.address, isolation_level=level, version=4)
                for level in (0, READ_COMMITTED)
            ]
            if told[0] == told[1] and len(told[0]) == len(KEYS):
                return told[0]
            await asyncio.sleep(1.0)

    async def _read_all(
        self, life: Life, ends: dict[Partition, int], *, committed: bool
    ) -> TxnReader:
        """Everything from offset 0 to the end, from one agent."""
        name = f"final{'committed' if committed else 'all'}{life.index}"
        reader = TxnReader(self, name, KEYS, committed=committed)
        self.readers.append(reader)
        await reader.read_to(ends, life.address)
        return reader

    def _check(self, seen: list[TxnReader]) -> list[str]:
        """The logs at the end, and what readers were shown of them."""
        logs = seen[0].lines
        found = self.account.verdict(logs)
        found += [
            f"{life.name} shows another log than agent0"
            for life, shown in zip(self.lives, seen, strict=True)
            if {place: kept(lines) for place, lines in shown.lines.items()}
            != {place: kept(lines) for place, lines in logs.items()}
        ]
        committed = {partition: committed_values(lines) for partition, lines in logs.items()}
        for reader in self.readers:
            if reader.committed:
                for partition, one in reader.passes:
                    found += one.check(committed[partition])
        return found + self._validate_output(committed)

    def _validate_output(self, committed: dict[Partition, list[tuple[int, bytes]]]) -> list[str]:
        """Consume, transform, produce: for each record of the input one of the output."""
        output = Counter(
            value.partition(b":")[2].decode()
            for index in range(OUTPUT_PARTITIONS)
            for _, value in committed[OUTPUT, index]
        )
        wanted = {
            f"{partition}.{offset}"
            for partition in range(INPUT_PARTITIONS)
            for offset in range(self.input_records)
        }
        if set(output) == wanted and all(count == 1 for count in output.values()):
            return []
        return [f"the output is {sorted(output.items())} of {self.input_records} records each"]

    async def _validate_offsets(self, shown: TxnReader) -> list[str]:
        """The offsets of the writers' groups at the end."""
        account = self.account
        found: list[str] = []
        client = self.client("last offsets", 3.0)
        fates, _ = account.fates(shown.lines)
        for writer in self.writers:
            offset = None
            deadline_s = self.loop.time() + SETTLE_S
            while offset is None and self.loop.time() < deadline_s:
                offset = await self._offset(client, writer.group_id, stable=True)
                await asyncio.sleep(0.5)
            if offset is None:
                found.append(f"nobody tells the offset of {writer.group_id}")
                continue
            found += account.validate_offsets(
                writer.group_id, writer.transactional_id, offset, fates
            )
        return found
