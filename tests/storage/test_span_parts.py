"""Long spans of segments are read part by part, and every batch of them once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records import Record, build_batch, empty_batch
from storage import span_parts
from storage.fetch_plan import SpanPart
from storage.formats.batches import Batches, DamagedSpanError
from storage.formats.spans import ObjectKind, Span
from storage.span_parts import SpanParts
from tests.storage.build import CHUNK

SEGMENT = CHUNK._replace(kind=ObjectKind.SEGMENT)
START = 5_000


class Stored:
    """A span of batches of so many records and bytes a record, with holes between them."""

    def __init__(self, sizes: list[tuple[int, int, int]]) -> None:
        """Of each batch: the offsets missing before it, records, bytes of each."""
        offset = 100
        batches = []
        for hole, count, size in sizes:
            offset += hole
            batches.append(
                build_batch([Record(-1, 5, None, bytes(size))] * count, base_offset=offset)
            )
            offset += count
        batches.append(empty_batch(offset + 3))
        self.data = b"".join(batches)
        self.span = Span(SEGMENT, START, len(self.data), 100, offset + 4 - 100, 5)
        self.parts = SpanParts()
        self.asked: list[tuple[int, int]] = []
        """First byte and length of each read."""

    def read(self, piece: Span | SpanPart) -> Batches | None:
        at = piece.start - START
        data = memoryview(self.data)[at : at + piece.length]
        self.asked.append((at, piece.length))
        if isinstance(piece, SpanPart):
            return self.parts.read(piece, data)
        batches = Batches.checked(piece, data)
        if piece == self.span:
            self.parts.note(piece, batches)
        return batches

    def read_on(self, offset: int, *, at_a_time: int) -> bytes:
        """All from there on, as a consumer who takes so many bytes at a time."""
        got = b""
        while offset < self.span.next_offset:
            batches = self.read(next(self.parts.from_offset(self.span, offset)))
            if batches is None:
                continue
            piece = batches.slice(offset, bytes_max=at_a_time, at_least_one=True)
            got += b"".join(piece.views)
            assert piece.next_offset > offset
            offset = piece.next_offset
        return got


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_parts, "PART_BYTES", 1_000)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 5), st.sampled_from([0, 50, 200, 900])),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from([1, 500, 1_000, 5_000]),
)
def test_reading_part_by_part_gives_every_batch_once(
    sizes: list[tuple[int, int, int]], at_a_time: int
) -> None:
    stored = Stored(sizes)
    assert stored.read_on(100, at_a_time=at_a_time) == stored.data


def test_a_reader_from_the_beginning_reads_parts_one_behind_the_other() -> None:
    stored = Stored([(0, 1, 230)] * 20)
    assert stored.read_on(100, at_a_time=1_000) == stored.data
    assert max(length for _, length in stored.asked) <= 1_500
    assert sum(length for _, length in stored.asked) < 1.4 * len(stored.data)


def test_who_reads_the_same_again_is_given_the_same_parts() -> None:
    stored = Stored([(0, 1, 230)] * 20)
    stored.read_on(100, at_a_time=1_000)
    first = list(stored.asked)
    stored.asked.clear()
    stored.read_on(100, at_a_time=1_000)
    assert [at for at, _ in stored.asked] == [at for at, _ in first]


def test_who_begins_in_the_middle_reads_the_whole_once_and_then_parts() -> None:
    stored = Stored([(0, 1, 230)] * 20)
    stored.read_on(110, at_a_time=1_000)
    whole = (0, len(stored.data))
    assert stored.asked[0] == whole
    assert whole not in stored.asked[1:]


def test_a_batch_that_is_longer_than_a_part_is_read_with_the_whole_span() -> None:
    stored = Stored([(0, 1, 5_000), (0, 1, 100)])
    assert stored.read_on(100, at_a_time=1) == stored.data
    assert (0, len(stored.data)) in stored.asked


def test_a_damaged_part_is_an_error() -> None:
    stored = Stored([(0, 1, 230)] * 20)
    stored.data = stored.data[:500] + b"\xff" + stored.data[501:]
    with pytest.raises(DamagedSpanError):
        stored.read_on(100, at_a_time=1_000)


def test_a_part_whose_batches_go_beyond_the_span_is_an_error() -> None:
    stored = Stored([(0, 1, 230)] * 20)
    stored.span = stored.span._replace(records=3)
    with pytest.raises(DamagedSpanError):
        stored.read_on(100, at_a_time=1_000)


@pytest.mark.promise("P15")
def test_the_parts_of_a_bounded_number_of_spans_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_parts, "SPANS_MAX", 2)
    stored = Stored([(0, 1, 230)] * 20)
    stored.read_on(100, at_a_time=1_000)
    others = [stored.span._replace(start=START + number) for number in (1, 2)]
    for other in others:
        next(stored.parts.from_offset(other, 100))
    # Nothing is known of the first one any more.
    (first,) = stored.parts.from_offset(stored.span, 100)
    assert first == SpanPart(stored.span, START, 1_000, 100)
