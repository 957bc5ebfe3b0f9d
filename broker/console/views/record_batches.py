"""Records out of fetched batches, as far as somebody who looks should see them. Pure.

Left out: what was aborted, as consumers leave it out (KIP-98), by what the fetch told; markers; and what was not asked
for. `AbortedBatches` is asked about each batch in the order of offsets.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from protocol.record_scan import records_end
from protocol.records import CONTROL_ABORT, BatchHeader, Record, iterate, payload
from protocol.types import Buffer

RECORDS_A_SLICE: Final = 200
"""Looked at before others have a turn of the loop: half a millisecond."""
RECORDS_PASSED_A_SLICE: Final = 5_000
"""Likewise, of those of which only the lengths are read."""


class FoundRecord(NamedTuple):
    """A record, and the batch that it came in."""

    partition: int
    record: Record
    header: BatchHeader

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        record = self.record
        headers = sum(
            len(name.encode(errors="replace")) + len(said or b"") for name, said in record.headers
        )
        return len(record.key or b"") + len(record.value or b"") + headers


class AbortedBatches:
    """Of one fetch of a partition."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted`: producers and first offsets of transactions, as the answer has them."""
        self._to_come = sorted(aborted, key=lambda each: each[1])
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, marker: int | None) -> bool:
        """Whether a batch is left out. `marker`: what ends a transaction, of a control batch."""
        while self._to_come and self._to_come[0][1] <= header.last_offset:
            self._open.add(self._to_come.pop(0)[0])
        if header.is_control:
            if marker == CONTROL_ABORT:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def marker_of(batch: Buffer, header: BatchHeader) -> int | None:
    """What a control batch says; None: it is none. Raises ProtocolError."""
    if not header.is_control:
        return None
    key = next(iter(iterate(batch))).key or b""
    return int.from_bytes(key[2:4], "big")


class Slice(NamedTuple):
    """A few records."""

    found: list[FoundRecord]
    looked: int
    """So many were looked at."""


def records_of(
    batch: Buffer, partition: int, *, first: int, stop: int, needle: bytes
) -> Iterator[Slice]:
    """Records of one batch within [first, stop) that have `needle` in them, a slice at a time. Raises ProtocolError.

    `batch`: from its first byte; its records are not compressed. Those before `first` are passed over unread where the
    batch has one for each offset.
    """
    header, data = payload(batch)
    found: list[FoundRecord] = []
    looked = place = 0
    before = min(first - header.base_offset, header.record_count) if is_dense(header) else 0
    for number in range(0, before, RECORDS_PASSED_A_SLICE):
        place = records_end(data, place, min(before - number, RECORDS_PASSED_A_SLICE))
        yield Slice([], 0)
    for record in iterate(batch, begin=(max(before, 0), place)):
        if record.offset >= stop:
            break
        looked += 1
        if record.offset >= first and has(record, needle):
            found.append(FoundRecord(partition, record, header))
        if looked == RECORDS_A_SLICE:
            yield Slice(found, looked)
            found, looked = [], 0
    yield Slice(found, looked)


def is_dense(header: BatchHeader) -> bool:
    """Whether there is a record for each of the offsets of a batch: the cleaner has taken none out."""
    return header.record_count == header.last_offset - header.base_offset + 1


class Kept:
    """What is kept of a stretch that is looked through: onwards its first records, going back its last. The rest is
    looked at again when it is its turn, so memory is for no more than a page shows."""

    def __init__(self, first: int, most: int, *, goes_back: bool) -> None:
        self.found: list[FoundRecord] = []
        self.first = first
        """Nothing before it counts as looked at."""
        self.reached = first
        """Nor from here on."""
        self.is_cut = False
        """Going back, records were let go of."""
        self._most = most
        self._goes_back = goes_back

    @property
    def is_full(self) -> bool:
        """Nothing behind is of use."""
        return not self._goes_back and len(self.found) >= self._most

    def add(self, found: Iterable[FoundRecord]) -> None:
        """The next ones, in the order of their offsets."""
        self.found += found
        if self.is_full:
            del self.found[self._most :]
            self.reached = self.found[-1].record.offset + 1
        elif len(self.found) > 2 * self._most:
            del self.found[: -self._most]
            self.first = self.found[0].record.offset
            self.is_cut = True

    def begins(self, header: BatchHeader, first: int, stop: int) -> int:
        """From which offset on records of the next batch, which are all to be shown, are of use, of those within
        [first, stop): going back, its last ones replace all before them."""
        last_ones = min(stop, header.last_offset + 1) - self._most
        if (
            not self._goes_back
            or not is_dense(header)
            or last_ones <= max(first, header.base_offset)
        ):
            return first
        self.found.clear()
        self.first = last_ones
        self.is_cut = True
        return last_ones

    def reach(self, offset: int) -> None:
        """All before it was looked at, unless it is full."""
        if not self.is_full:
            self.reached = max(self.reached, offset)


def has(record: Record, needle: bytes) -> bool:
    """Whether these bytes are in key, value or headers of a record; letters of ASCII count alike, capital or not.
    `needle`: in small letters."""
    if not needle:
        return True
    parts = [record.key, record.value, *(said for _, said in record.headers)]
    parts += [name.encode(errors="replace") for name, _ in record.headers]
    return any(part is not None and needle in part.lower() for part in parts)
