"""Which requests bring the bytes of spans, and what of them stays in memory."""

from iceberg_export.plan.splits import PlannedSpan
from iceberg_export.records import read_chunks
from iceberg_export.records.read_chunks import GAP_BYTES_MAX, WASTE_BYTES_MAX, merge_reads

LENGTH = 1000


def spans_apart(count, gap):
    return [
        PlannedSpan(0, "chunks/1/2", n * (LENGTH + gap), LENGTH, n, 1, n, n + 1)
        for n in range(count)
    ]


class Counted:
    """Objects of zeros, and how many bytes of them were asked for."""

    def __init__(self):
        self.data = []

    def read(self, key, start, length):
        self.data.append(memoryview(bytes(length)))
        return self.data[-1]


def test_one_request_brings_no_more_than_a_bound_of_what_nobody_wants():
    reads = merge_reads(spans_apart(64, GAP_BYTES_MAX))
    assert len(reads) == 4
    wasted = [read.length - LENGTH * len(read.spans) for read in reads]
    assert max(wasted) <= WASTE_BYTES_MAX


def test_what_lies_between_spans_is_not_kept():
    reader = Counted()
    spans = spans_apart(8, 1000)
    found = dict(read_chunks.span_bytes(reader, spans))
    assert list(found) == spans
    assert all(len(part) == LENGTH for part in found.values())
    assert all(part.obj is not reader.data[0].obj for part in found.values())


def test_adjacent_spans_are_not_copied():
    reader = Counted()
    found = dict(read_chunks.span_bytes(reader, spans_apart(8, 0)))
    assert all(part.obj is reader.data[0].obj for part in found.values())
