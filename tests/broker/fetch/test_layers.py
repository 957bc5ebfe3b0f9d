"""Any transactions, any jobs, any limits: fetches read across all layers without a seam (P7).

Rows are merged, thinned out, spilled, recalled and cut in front between fetches and between the
rounds of one, and objects that nothing points at are gone at once. The model: what is still there
at the end was seen by whoever read up to there, and nothing was seen twice, or that never was.
"""

from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.fetch import answers
from broker.fetch.answers import ROUNDS_MAX, Collected, Collector
from broker.fetch.loaded import LoadedData
from broker.fetch.sessions import CachedPartition
from broker.fetch.statuses import bytes_there, check_partition
from protocol.errors import ErrorCode
from protocol.fetch import FetchPartition, PartitionAnswer
from storage import span_parts
from storage.formats.batches import Batches
from storage.formats.spans import ObjectId, Page, Span
from storage.span_parts import SpanParts, is_long
from storage.stores.object_store import ObjectNotFoundError
from tests.broker.fetch.layers import LayeredLog, jobs, play, steps
from tests.broker.fetch.transaction_log import Consumer


class Client(Consumer):
    """A consumer, and the agent that it asks."""

    log: LayeredLog

    def __init__(self, log: LayeredLog, *, committed: bool, offset: int) -> None:
        super().__init__(log, committed=committed, offset=offset)
        self.cache: dict = {}
        self.parts = SpanParts()

    def cached(self, row: Span | Page):
        kept = self.cache.get((row.object_id, row.start))
        return None if kept is None or kept[0] != row else kept[1]

    def cached_at(self, object_id: ObjectId, start: int):
        _, read = self.cache.get((object_id, start), (None, None))
        return read if isinstance(read, Batches) else None

    def parts_of(self, span: Span, offset: int):
        """As `storage.reader`."""
        if not is_long(span) or self.cached(span) is not None:
            return (span,)
        return self.parts.from_offset(span, offset)

    def fill(self, found: LoadedData, collected: Collected) -> None:
        """As `broker.fetch.store_reads`."""
        found.rounds += 1
        for row in [*(wanted.span for wanted in collected.missing), *collected.pages]:
            try:
                if isinstance(row, Page):
                    read = found.pages[row.object_id, row.start] = self.log.rows_of(row)
                else:
                    read = self.log.batches_of(row)
                    found.add(read)
                    if is_long(row):
                        self.parts.note(row, read)
                self.cache[row.object_id, row.start] = row, read
            except ObjectNotFoundError as error:
                found.failed[row.object_id] = error
        for part in collected.parts:
            try:
                data = self.log.bytes_of(part)
            except ObjectNotFoundError as error:
                found.failed[part.object_id] = error
                continue
            read = self.parts.read(part, memoryview(data))
            if read is not None:
                found.add(read)
                self.cache[part.object_id, part.start] = read.span, read

    def fetch(self, *, bytes_max: int, partition_bytes_max: int, meanwhile) -> bool:
        """Fetch and take what comes; whether the position moved. As `broker.fetch.fetch_path`."""
        place = CachedPartition("t", None, FetchPartition(0, self.offset, partition_bytes_max))
        collector = Collector(
            self.log.story.machine,
            cached=self.cached,
            cached_at=self.cached_at,
            cached_page=self.cached,
            is_recent=lambda _: False,
            parts_of=self.parts_of,
        )
        gone: set = set()
        rounds = 0
        found: LoadedData | None = None
        while True:
            seen = check_partition(
                self.log.story.machine, place, version=11, committed=self.committed, cut_off=False
            )
            if seen.error:
                return self.told(seen.error)
            there = bytes_there(seen, place, committed=self.committed, enough=1)
            assert (there > 0) == (self.offset < self.end and partition_bytes_max > 0)
            collected = collector.collect(
                [place], [seen], bytes_max=bytes_max, committed=self.committed, found=found
            )
            if collected.is_whole:
                break
            found = found or LoadedData()
            found.forget_unused()
            meanwhile()
            self.fill(found, collected)
            rounds = max(rounds, found.rounds)
            meanwhile()
            if not found.gone <= gone:
                gone |= found.gone
                found = None
        assert not collected.failures
        (answer,) = collected.answers
        before = self.offset
        self.take(answer)
        # Who could not be given anything in so many rounds asks again.
        assert self.offset > before or self.offset >= self.end or rounds == ROUNDS_MAX
        return self.offset > before

    def told(self, error: ErrorCode) -> bool:
        assert error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert self.offset < self.log.row.log_start
        self.offset = self.log.row.log_start
        return True

    def take(self, answer: PartitionAnswer) -> None:
        row = self.log.row
        told = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
        assert told == (row.end_offset, row.last_stable, row.log_start)
        self.read(b"".join(answer.records), answer.aborted)


limits = st.sampled_from([0, 1, 77, 78, 100, 160, 250, 400, 1_000, 1 << 20])


@pytest.mark.promise("P7")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(played=steps, data=st.data())
def test_nothing_is_left_out_while_jobs_rearrange_what_is_read(played, data) -> None:
    log = LayeredLog()
    committed = data.draw(st.booleans())
    client = Client(log, committed=committed, offset=0)

    def meanwhile() -> None:
        if (step := data.draw(st.none() | jobs)) is not None:
            play(log, step)

    def fetch() -> bool:
        for key in list(client.cache):
            if data.draw(st.booleans()):
                del client.cache[key]
        return client.fetch(
            bytes_max=data.draw(limits),
            partition_bytes_max=data.draw(limits),
            meanwhile=meanwhile,
        )

    for step in played:
        if step == "fetch":
            fetch()
        else:
            play(log, step)
    with (
        patch.object(answers, "LOAD_BYTES_MAX", data.draw(st.sampled_from([200, 1 << 20]))),
        patch.object(answers, "LONG_BYTES", data.draw(st.sampled_from([1, 1 << 20]))),
        patch.object(span_parts, "PART_BYTES", data.draw(st.sampled_from([100, 200, 500]))),
    ):
        while client.offset < client.end:
            fetch()
    offsets = [offset for offset, _ in client.records]
    assert offsets == sorted(set(offsets))
    left = {row for row in log.seen(committed=committed) if row[0] >= log.row.log_start}
    assert left <= set(client.records)
    if committed:
        assert set(client.records) <= {*log.committed, *log.removed}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(played=steps, committed=st.booleans(), data=st.data())
def test_a_client_may_begin_anywhere_in_any_layer(played, committed, data) -> None:
    """Also in a hole, in a page, at a marker that is a batch by now."""
    log = LayeredLog()
    for step in played:
        if step != "fetch":
            play(log, step)
    begin = data.draw(st.integers(log.row.log_start, log.row.end_offset))
    client = Client(log, committed=committed, offset=begin)
    bytes_max = data.draw(limits)
    while client.fetch(bytes_max=bytes_max, partition_bytes_max=1 << 20, meanwhile=lambda: None):
        pass
    assert client.offset == max(begin, client.end)
    assert client.records == [row for row in log.seen(committed=committed) if row[0] >= begin]
