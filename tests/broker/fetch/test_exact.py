"""Any transactions, any limits: a client that filters as Kafka's do sees exactly what it should.

The collector answers fetches over a machine whose partition gets plain, transactional, committed
and aborted batches, in the middle of it all. The client drops the batches of a producer from the
first offset of an aborted transaction until its marker (KIP-98), and nothing else.
"""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.fetch.answers import Collector
from broker.fetch.loaded import LoadedData
from broker.fetch.sessions import CachedPartition
from broker.fetch.statuses import FetchPartitionStatus, bytes_there, check_partition
from protocol.fetch import FetchPartition
from protocol.records import batch_positions, read_header
from storage.formats.batches import Batches
from tests.broker.fetch.transaction_log import Consumer, Log, do, steps


class Client(Consumer):
    """A consumer whose fetches are answered from the log's machine and bytes."""

    def fetch(
        self, *, bytes_max: int, partition_bytes_max: int, in_memory: bool, meanwhile
    ) -> bool:
        """Fetch and take what comes; whether the position moved."""
        log = self.log
        place = CachedPartition("t", None, FetchPartition(0, self.offset, partition_bytes_max))

        def looked() -> FetchPartitionStatus:
            return check_partition(
                log.story.machine, place, version=11, committed=self.committed, cut_off=False
            )

        def read(wanted) -> Batches:
            return Batches.of(
                wanted, log.objects[wanted.object_id][wanted.start :][: wanted.length]
            )

        collector = Collector(
            log.story.machine,
            cached=read if in_memory else lambda _: None,
            cached_at=lambda *_: None,
            cached_page=lambda _: None,
            is_recent=lambda _: False,
            parts_of=lambda span, _: (span,),
        )
        found = None
        bounds = self.end
        seen = looked()
        assert (bytes_there(seen, place, committed=self.committed, enough=1) > 0) == (
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
            if collected.is_whole:
                break
            assert not in_memory
            found = LoadedData()
            for wanted in collected.missing:
                batches = read(wanted.span)
                found.add(batches)
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
        headers = [read_header(data, at) for at in batch_positions(data)[0]]
        if len(headers) > 1:
            assert len(data) <= min(bytes_max, partition_bytes_max)
        reached = headers[-1].last_offset + 1 if headers else self.offset
        assert reached <= max(end, self.offset)
        if not self.committed:
            assert aborted is None
        else:
            assert list(aborted) == self.listed(reached)
        self.read(data, aborted)

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


limits = st.sampled_from([0, 1, 77, 78, 100, 160, 250, 400, 1_000, 1 << 20])


@pytest.mark.promise("P7")
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
