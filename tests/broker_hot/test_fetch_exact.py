"""Any transactions, any limits: a client that filters as Kafka's do sees exactly what it should.

The collector answers fetches over a machine whose partition gets plain, transactional, committed
and aborted batches, in the middle of it all. The client drops the batches of a producer from the
first offset of an aborted transaction until its marker (KIP-98), and nothing else.
"""

from collections import deque
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.fetch_answers import Collector, Found, Look, bytes_there, look
from broker.fetch_sessions import Place
from coordinator.transaction_commands import (
    EndTransaction,
    GiveUpTransaction,
    InitProducer,
    ProducerInitialized,
    TransactionEnded,
)
from protocol.fetch import FetchPartition
from protocol.records import (
    TRANSACTIONAL,
    Record,
    batch_positions,
    build_batch,
    iterate,
    read_header,
)
from storage.batches import Batches
from storage.spans import ChunkId, Item
from tests.coordinator.story import Story, span
from txn.transactions import OF_EPOCH

PRODUCERS = 3


class Log:
    """One partition, its bytes, and what a reader of it should see."""

    def __init__(self) -> None:
        self.story = Story()
        self.agent = self.story.open()
        self.topic_id = self.story.topic(self.agent, "t")
        self.row = self.story.partition(self.topic_id)
        self.objects: dict[ChunkId, bytes] = {}
        self.numbers = count()
        self.producers = [self.init(index) for index in range(PRODUCERS)]
        self.open: dict[int, list[tuple[int, bytes]]] = {}
        """By producer: offsets and values of its transaction."""
        self.committed: list[tuple[int, bytes]] = []
        self.everything: list[tuple[int, bytes]] = []
        self.aborted: list[tuple[int, int, int]] = []
        """Producer id, first offset, offset of the marker."""
        self.markers: list[tuple[int, int, bool]] = []
        """Offset, producer id, whether it commits."""

    def init(self, index: int) -> list[int]:
        """Producer id, epoch and next sequence; aborts what was open."""
        outcome = self.story.do(self.agent, InitProducer(f"x{index}", 60_000, -1, -1))
        assert isinstance(outcome, ProducerInitialized)
        return [outcome.producer_id, outcome.producer_epoch, 0]

    def write(self, parts: list[tuple[int | None, int]]) -> None:
        """One chunk: (producer, or none for a plain batch; records)."""
        items, data = [], bytearray()
        offset = self.row.end_offset
        for index, records in parts:
            values = [b"%d" % next(self.numbers) for _ in range(records)]
            rows = [(offset + delta, value) for delta, value in enumerate(values)]
            offset += records
            self.everything += rows
            built = [Record(timestamp=1, value=value) for value in values]
            if index is None:
                self.committed += rows
                batch = build_batch(built)
                items.append(Item(0, len(batch), records, 1))
            else:
                producer_id, epoch, sequence = self.producers[index]
                self.open.setdefault(index, []).extend(rows)
                batch = build_batch(
                    built,
                    attributes=TRANSACTIONAL,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                )
                self.producers[index][2] += records
                items.append(
                    Item(0, len(batch), records, 1, producer_id, epoch, sequence, OF_EPOCH)
                )
            data += batch
        chunk = ChunkId(self.agent, self.story.chunks)
        self.objects[chunk] = bytes(data)
        results = self.story.commit(self.agent, span(self.topic_id, *items))
        assert not any(result.error for result in results)

    def end(self, index: int, how: str) -> None:
        rows = self.open.pop(index, None)
        if rows is None:
            return
        producer_id, epoch, _ = self.producers[index]
        marker = self.row.end_offset
        if how == "take over":
            self.producers[index] = self.init(index)
        else:
            outcome = self.story.do(
                self.agent,
                self.giving_up(index)
                if how == "give up"
                else EndTransaction(f"x{index}", producer_id, epoch, how == "commit", None),
            )
            assert isinstance(outcome, TransactionEnded)
            self.producers[index] = (
                self.init(index)
                if how == "give up"
                else [outcome.producer_id, outcome.producer_epoch, 0]
            )
        assert self.row.end_offset == marker + 1
        self.markers.append((marker, producer_id, how == "commit"))
        if how == "commit":
            self.committed += rows
        else:
            self.aborted.append((producer_id, rows[0][0], marker))

    def giving_up(self, index: int) -> GiveUpTransaction:
        row = self.story.machine.transactions.get(f"x{index}")
        assert row is not None
        producer_id, epoch, _ = self.producers[index]
        return GiveUpTransaction(
            f"x{index}", producer_id, epoch, row.standing.instance, timed_out=True
        )

    def seen(self, *, committed: bool) -> list[tuple[int, bytes]]:
        """What a reader has seen who has come as far as there is."""
        if not committed:
            return self.everything
        return sorted(row for row in self.committed if row[0] < self.row.last_stable)


class Client:
    """A consumer of one isolation level, as Kafka's are written."""

    def __init__(self, log: Log, *, committed: bool, offset: int) -> None:
        self.log = log
        self.committed = committed
        self.offset = offset
        self.records: list[tuple[int, bytes]] = []
        self.markers: list[tuple[int, int, bool]] = []

    @property
    def end(self) -> int:
        return self.log.row.last_stable if self.committed else self.log.row.end_offset

    def fetch(
        self, *, bytes_max: int, partition_bytes_max: int, in_memory: bool, meanwhile
    ) -> bool:
        """Fetch and take what comes; whether the position moved."""
        log = self.log
        place = Place("t", None, FetchPartition(0, self.offset, partition_bytes_max))

        def looked() -> Look:
            return look(
                log.story.machine, place, version=11, committed=self.committed, cut_off=False
            )

        def read(wanted) -> Batches:
            return Batches.of(wanted, log.objects[wanted.chunk][wanted.start :][: wanted.length])

        collector = Collector(
            log.story.machine,
            cached=read if in_memory else lambda _: None,
            is_recent=lambda _: False,
        )
        found = None
        bounds = self.end
        seen = looked()
        assert (bytes_there(seen, place, committed=self.committed) > 0) == (
            self.offset < bounds and partition_bytes_max > 0
        )
        for _ in range(2):
            bounds = self.end
            collected = collector.collect(
                [place],
                [looked()],
                bytes_max=bytes_max,
                committed=self.committed,
                found=found,
            )
            if not collected.missing:
                break
            assert not in_memory
            found = Found()
            for wanted in collected.missing:
                batches = read(wanted.span)
                found.batches[wanted.span.chunk, wanted.span.start] = batches
            # What was asked for is being read; the log goes on.
            meanwhile()
        (answer,) = collected.answers
        assert (answer.high_watermark, answer.last_stable_offset) == (
            log.row.end_offset,
            log.row.last_stable,
        )
        before = self.offset
        self.take(b"".join(answer.records), answer.aborted, bytes_max, partition_bytes_max, bounds)
        return self.offset > before

    def take(
        self, data: bytes, aborted, bytes_max: int, partition_bytes_max: int, end: int
    ) -> None:
        starts, _ = batch_positions(data)
        headers = [(at, read_header(data, at)) for at in starts]
        if len(headers) > 1:
            assert len(data) <= min(bytes_max, partition_bytes_max)
        reached = headers[-1][1].last_offset + 1 if headers else self.offset
        assert reached <= max(end, self.offset)
        if not self.committed:
            assert aborted is None
        else:
            assert list(aborted) == self.listed(reached)
        waiting = deque(aborted or ())
        dropping: set[int] = set()
        for at, header in headers:
            while waiting and waiting[0][1] <= header.last_offset:
                dropping.add(waiting.popleft()[0])
            if header.is_control:
                (record,) = iterate(data, at)
                commits = record.key == b"\0\0\0\1"
                self.markers.append((record.offset, header.producer_id, commits))
                if not commits:
                    dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                self.records += [
                    (record.offset, record.value)
                    for record in iterate(data, at)
                    if record.offset >= self.offset
                ]
        self.offset = reached

    def listed(self, reached: int) -> list[tuple[int, int]]:
        """The aborted transactions that have something in what was given."""
        if reached == self.offset:
            return []
        rows = [
            (first, producer_id)
            for producer_id, first, marker in self.log.aborted
            if marker >= self.offset and first < reached
        ]
        return [(producer_id, first) for first, producer_id in sorted(rows)]


parts = st.lists(
    st.tuples(st.none() | st.integers(0, PRODUCERS - 1), st.integers(1, 3)), min_size=1, max_size=5
)
ends = st.tuples(
    st.integers(0, PRODUCERS - 1), st.sampled_from(["commit", "abort", "give up", "take over"])
)
limits = st.sampled_from([0, 1, 77, 78, 100, 160, 250, 400, 1_000, 1 << 20])
steps = st.lists(st.one_of(parts, ends, st.just("fetch")), max_size=40)


def do(log: Log, step) -> None:
    if isinstance(step, list):
        log.write(step)
    elif isinstance(step, tuple):
        log.end(*step)


@settings(max_examples=300, deadline=None)
@given(played=steps, data=st.data())
def test_a_filtering_client_sees_exactly_the_records_of_its_isolation_level(played, data) -> None:
    log = Log()
    committed = data.draw(st.booleans())
    client = Client(log, committed=committed, offset=0)
    ahead = deque(played)

    def meanwhile() -> None:
        if ahead and data.draw(st.booleans()):
            do(log, ahead.popleft())

    def fetch() -> bool:
        return client.fetch(
            bytes_max=data.draw(limits),
            partition_bytes_max=data.draw(limits),
            in_memory=data.draw(st.booleans()),
            meanwhile=meanwhile,
        )

    while ahead:
        step = ahead.popleft()
        do(log, step)
        if step == "fetch":
            behind = client.offset < client.end
            assert fetch() or not behind
    while client.offset < client.end:
        assert fetch()
    assert not fetch()
    assert client.records == log.seen(committed=committed)
    assert client.markers == [one for one in log.markers if one[0] < client.end]


@settings(max_examples=200, deadline=None)
@given(played=steps, committed=st.booleans(), data=st.data())
def test_a_client_may_begin_anywhere(played, committed, data) -> None:
    """Also within a batch, at a marker, or between the two ends of the log."""
    log = Log()
    for step in played:
        do(log, step)
    begin = data.draw(st.integers(0, log.row.end_offset))
    client = Client(log, committed=committed, offset=begin)
    bytes_max = data.draw(limits)
    in_memory = data.draw(st.booleans())
    while client.fetch(
        bytes_max=bytes_max,
        partition_bytes_max=1 << 20,
        in_memory=in_memory,
        meanwhile=lambda: None,
    ):
        pass
    assert client.offset == max(begin, client.end)
    assert client.records == [row for row in log.seen(committed=committed) if row[0] >= begin]
