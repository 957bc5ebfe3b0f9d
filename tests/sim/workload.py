"""What simulated clients do with records: producers, readers, and askers of where logs end.

A producer keeps several batches of a partition in flight on one connection, as Java's does, and
after a failure sends what is not acknowledged again, in order. Records are `Line`s: no other has
the ident that one carries in its header. What clients are told and shown goes into the world's
account (`account`).
"""

import asyncio
import random
from dataclasses import dataclass

from typing_extensions import override

from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import hot
from protocol.records import Record, build_batch
from protocol.types import TopicId
from tests.kit import requests
from tests.kit.loop import SimLoop
from tests.kit.requests import EARLIEST, LATEST, NOBODY, Partition, batches_in, rows_of
from tests.sim.account import Line, RecordAccount
from tests.sim.client import Address, LostError
from tests.sim.cut import WHOLE, Cut
from tests.sim.world import Worker, World

TOPIC = "t"
OF_2020_MS = 1_600_000_000_000
PRODUCE_VERSIONS = (3, 7, 8, 9, 11)
FETCH_VERSIONS = (4, 7, 11, 12)
FETCH_BY_ID = 13
RACK_FROM = 11
ZONES = ("a", "b")
UNDECIDED = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION}
"""What leaves open whether it happened, besides no answer at all."""
LARGE_BYTES = 20_000
RESTS_S = (0.001, 0.3, 1.0)
"""Between the first batches of a producer; it looks at answers when all are sent, as one does that
stands still."""
OUT_OF_STEP = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}


class RecordsCluster(World):
    """What clients of records share."""

    def __init__(self, loop: SimLoop, rng: random.Random, cut: Cut = WHOLE) -> None:
        super().__init__(loop, rng, cut)
        self.account = RecordAccount(self.violations, self.counts)

    def partitions(self) -> list[Partition]:
        """All that are read in the end."""
        return [(TOPIC, index) for index in range(self.shape.partitions)]


class RecordWorker(Worker):
    """Knows what there is to be known of records."""

    world: RecordsCluster

    def __init__(self, world: RecordsCluster, name: str) -> None:
        super().__init__(world, name)
        self.account = world.account

    async def limit(
        self, partition: Partition, timestamp: int, at: Address | None = None
    ) -> int | None:
        """Where a log starts or ends, as an agent tells; None when it tells nothing."""
        starts, ends = self.account.starts[partition], self.account.end_least(partition)
        offset = (await self.client.limits([partition], timestamp, at=at)).get(partition)
        if offset is not None and timestamp == EARLIEST:
            now_ms = self.world.now_ms()
            self.account.starts_at(self.name, partition, offset, least=starts, now_ms=now_ms)
        elif offset is not None:
            self.account.ends_at(self.name, partition, offset, least=ends)
        return offset


@dataclass(eq=False)
class Batch:
    lines: list[Line]
    first_sequence: int


class Producer(RecordWorker):
    """Writes to one partition until told to stop; then finishes what it began."""

    def __init__(
        self,
        world: RecordsCluster,
        name: str,
        partition: Partition,
        *,
        keys: int = 0,
        idempotent: bool = True,
        pauses_s: tuple[float, ...] = (0.0, 0.2, 1.0),
        in_flight: int = 1,
        large: float = 0.0,
    ) -> None:
        """`keys`: how many; 0: records have none. `in_flight`: batches on the way at a time.

        `large`: how many of the batches are of a record that an agent opens away from its loop.
        """
        super().__init__(world, name)
        self.partition = partition
        self._keys = keys
        self._idempotent = idempotent
        self._pauses_s = pauses_s
        self._in_flight = in_flight
        self._large, self._sizes = large, world.draw(f"sizes of {name}")
        self._renewing = world.draw(f"renewals of {name}")
        self._renews = self._renewing.choice((0.0, 0.2, 0.6))
        """How often it goes on as a new producer, with rests between its first batches."""
        self._rest_s = 0.0
        self._producer = NOBODY
        self._sequence = 0
        self.number = 0
        self._backlog: list[Batch] = []

    @override
    async def run(self) -> None:
        while not self.stopping:
            await self.write()
            await asyncio.sleep(self.rng.choice(self._pauses_s))

    async def write(self) -> None:
        """As many batches as may be in flight, until their fates are known or never will be.

        So, as in Java, a batch is never more than the window of five behind the newest.
        """
        renews = self._renewing.random() < self._renews
        if self._idempotent and (renews or self._producer == NOBODY):
            self._producer, self._sequence = await self.client.init_producer(), 0
            self._rest_s = self._renewing.choice(RESTS_S) if renews else 0.0
        self._backlog = [self._next() for _ in range(self._in_flight)]
        while True:
            await self._round()
            if not self._backlog:
                return
            await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.3)))

    def _next(self) -> Batch:
        lines = [self._line() for _ in range(self.rng.choice((1, 1, 3, 20)))]
        if self._sizes.random() < self._large:
            del lines[1:]
            lines[0] = self._sent(lines[0]._replace(value=lines[0].ident.ljust(LARGE_BYTES)))
        batch = Batch(lines, self._sequence)
        self._sequence += len(batch.lines)
        return batch

    def _line(self) -> Line:
        self.number += 1
        ident = f"{self.name}-{self.number}".encode()
        key = f"k{self.rng.randrange(self._keys)}".encode() if self._keys else None
        value: bytes | None = ident * self.rng.choice((1, 4, 10))
        if self._keys and self.rng.random() < 0.2:
            value = None
        # An agent whose clock is a day behind takes no records of today.
        written_ms = self.world.now_ms() if self.world.is_in_time else OF_2020_MS
        return self._sent(Line(ident, key, value, written_ms - self.rng.choice((0, 0, 5, 400))))

    def _sent(self, line: Line) -> Line:
        self.account.sent[self.partition][line.ident] = line
        return line

    async def _round(self) -> None:
        """Send all of the backlog on one connection, look at the answers in order."""
        ask = self.client
        try:
            connection = await ask.connect(ask.anybody())
        except LostError:
            await asyncio.sleep(0.2)
            return
        version = self.rng.choice(PRODUCE_VERSIONS)
        sent = []
        for batch in self._backlog:
            request = self._request(batch)
            sent.append((batch, ask.send(connection, apis.PRODUCE, version, request)))
            if self._rest_s:
                await asyncio.sleep(self._rest_s)
        self._rest_s = 0.0
        offset = -1
        for batch, future in sent:
            try:
                answer = await ask.answer(connection, future)
            except LostError:
                self._lost(batch)
                continue
            row = rows_of(answer)[self.partition]
            if row.error_code == ErrorCode.NONE:
                if row.base_offset <= offset:
                    self.wrong(f"{batch} is at {row.base_offset}, the one before at {offset} (P11)")
                offset = row.base_offset
            self._answered(batch, row)

    def _request(self, batch: Batch) -> hot.ProduceRequest:
        producer_id, epoch = self._producer
        data = build_batch(
            [record_of(line) for line in batch.lines],
            codec=self.rng.choice((0, 0, 1)),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=batch.first_sequence if self._idempotent else -1,
        )
        return requests.produce({self.partition: data})

    def _lost(self, batch: Batch) -> None:
        if not self._idempotent:  # Sending it again could write it twice, so it stays unknown.
            self._backlog.remove(batch)

    def _answered(self, batch: Batch, row: hot.PartitionProduceResponse) -> None:
        error = row.error_code
        if error == ErrorCode.NONE:
            self.account.acknowledge(self.partition, row.base_offset, batch.lines)
            self._backlog.remove(batch)
            return
        if row.base_offset != -1:
            self.wrong(f"error {error} with a base offset (P2)")
        if error in UNDECIDED:
            self._lost(batch)
        elif not self._idempotent:
            self.account.refused[self.partition].update(line.ident for line in batch.lines)
            self._backlog.remove(batch)
        elif error == ErrorCode.INVALID_PRODUCER_EPOCH:
            self.wrong("nobody fenced this producer, and it was fenced")
        elif error in OUT_OF_STEP and batch is self._backlog[0] and self.world.is_in_time:
            self.wrong(f"the oldest batch was told {ErrorCode(error).name}")


def record_of(line: Line) -> Record:
    headers = (("i", line.ident),)
    return Record(timestamp=line.timestamp, key=line.key, value=line.value, headers=headers)


class Follower(Worker):
    """Fetches partitions from one agent after the other; when it tells a rack, from one of that zone
    whenever it is sent there. What it is given, its kind takes."""

    rests_s: tuple[float, ...] = (0.0, 0.05)
    goes_back = 0.0
    """How often it begins anew somewhere."""
    isolation_level = 0
    rack = ""
    topic_id: TopicId | None = None
    """Of the one topic, asked for by id; it may be one of several of that name."""
    offsets: dict[Partition, int]
    _is_sent_on = False
    """By the newest answer."""

    @override
    async def run(self) -> None:
        rng = self.rng
        while True:
            zone = self.rack if self._is_sent_on else ""
            await self.poll(self.client.anybody(zone), max_wait_ms=rng.choice((0, 100, 1000)))
            await asyncio.sleep(rng.choice(self.rests_s))
            if rng.random() < self.goes_back:
                partition = rng.choice(sorted(self.offsets))
                self.seek(partition, rng.randrange(self.offsets[partition] + 1))

    def seek(self, partition: Partition, offset: int) -> None:
        self.offsets[partition] = offset

    async def read_to(self, ends: dict[Partition, int], address: Address | None = None) -> None:
        """Until it is behind all that lies before these ends, from one agent or from any."""
        while any(self.offsets[partition] < end for partition, end in ends.items()):
            await self.poll(address or self.client.anybody(), max_wait_ms=100)

    async def poll(self, address: Address, *, max_wait_ms: int) -> bool:
        """One fetch; whether there was an answer."""
        rng = self.rng
        wanted = rng.sample(sorted(self.offsets), len(self.offsets))
        version = rng.choice(FETCH_VERSIONS) if self.topic_id is None else FETCH_BY_ID
        request = requests.fetch(
            {partition: self.offsets[partition] for partition in wanted},
            max_wait_ms=max_wait_ms,
            max_bytes=rng.choice((1, 1 << 20)),
            partition_max_bytes=rng.choice((1, 300, 1 << 20)),
            isolation_level=self.isolation_level,
            topic_id=self.topic_id,
        )
        if version >= RACK_FROM:
            request.rack_id = self.rack
        self._is_sent_on = False
        ends = {partition: self.world.ends_told[address, partition] for partition in wanted}
        answer = await self.client.try_ask(apis.FETCH, version, request, at=address)
        if answer is None:
            return False
        for (topic, index), row in rows_of(answer).items():
            partition = (topic if self.topic_id is None else wanted[0][0], index)
            if row.error_code == ErrorCode.NONE and self.topic_id is None:
                self._look_at_end(address, partition, row.high_watermark, least=ends[partition])
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self.out_of_range(partition, address)
            else:
                self.take(partition, row)
            if row.preferred_read_replica != -1:
                self._go_on_elsewhere(address, row)
        return True

    def _look_at_end(self, address: Address, partition: Partition, end: int, *, least: int) -> None:
        """An agent, also one that was started again, does not contradict what it had told."""
        if end < least:
            self.wrong(f"{address} told {least} as the end of {partition}, and then {end} (P12)")
        self.world.ends_told[address, partition] = max(end, least)

    def _go_on_elsewhere(self, address: Address, row: hot.PartitionData) -> None:
        self._is_sent_on = True
        if row.records or row.error_code or self.client.addresses.zones.get(address) == self.rack:
            self.wrong(
                f"of rack {self.rack}, was sent on by {address} with error {row.error_code} and "
                f"{len(row.records or b'')} bytes of records"
            )

    async def out_of_range(self, partition: Partition, address: Address) -> None:
        self.wrong(f"{partition} at {self.offsets[partition]}: OFFSET_OUT_OF_RANGE (P8)")

    def take(self, partition: Partition, row: hot.PartitionData) -> None:
        """What a fetch gave of a partition."""
        raise AssertionError(partition)


class Reader(Follower, RecordWorker):
    """Reads records into the account, in order and, where topics are dense, without a hole."""

    def __init__(
        self, world: RecordsCluster, name: str, partitions: list[Partition], rack: str = ""
    ) -> None:
        super().__init__(world, name)
        self.rack = rack
        self.offsets = dict.fromkeys(partitions, 0)
        self.lines: dict[Partition, dict[int, Line]] = {each: {} for each in partitions}

    @override
    async def out_of_range(self, partition: Partition, address: Address) -> None:
        """To the log start, as `auto.offset.reset=earliest` has it."""
        start = await self.limit(partition, EARLIEST, address)
        if start is None:
            return
        if start <= self.offsets[partition]:
            self.wrong(
                f"at {self.offsets[partition]} of {partition} was told OFFSET_OUT_OF_RANGE, and it "
                f"starts at {start} (P8)"
            )
        self.account.counts["jumps"] += 1
        self.offsets[partition] = start

    @override
    def take(self, partition: Partition, row: hot.PartitionData) -> None:
        for header, records in batches_in(row.records):
            if not header.is_control:
                for record in records:
                    if record.offset >= self.offsets[partition]:
                        self._see(partition, record)
            if header.last_offset + 1 > self.offsets[partition]:
                if partition[0] in self.account.dense:
                    self.wrong(f"the end {header.last_offset} of {partition} has no records")
                self.offsets[partition] = header.last_offset + 1

    def _see(self, partition: Partition, record: Record) -> None:
        here = self.offsets[partition]
        if partition[0] in self.account.dense and record.offset != here:
            self.wrong(f"was given {record.offset} of {partition} when it wanted {here} (P7)")
        line = Line(record.headers[0][1] or b"", record.key, record.value, record.timestamp)
        self.account.saw(self.name, partition, record.offset, line)
        self.lines[partition][record.offset] = line
        self.offsets[partition] = record.offset + 1


class LaggingReader(Reader):
    """With long rests; now and then it begins anew somewhere."""

    rests_s = (0.05, 0.3, 1.0, 6.0)
    goes_back = 0.15


class Asker(RecordWorker):
    """Asks where logs start and end, those of new partitions too: what anybody was told before the
    question holds."""

    @override
    async def run(self) -> None:
        while True:
            partition = self.rng.choice(self.world.partitions())
            await self.limit(partition, self.rng.choice((EARLIEST, LATEST)))
            await asyncio.sleep(self.rng.choice((0.1, 0.7)))
