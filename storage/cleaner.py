"""Log compaction, record by record, as Kafka's cleaner does it.

Two passes over a partition. `OffsetMap` learns the newest offset of every key in what was not
compacted yet; `Cleaner` then copies the rows from the partition's first on and leaves out
records with a newer one of their key. Where nothing is said about a key the record stays.

* A record without value is a tombstone: it stays until its batch's *delete horizon* (KIP-534),
  which the first pass over it sets (bit 6; the base timestamp is the horizon, and the deltas of
  the records are from there).
* Batches of aborted transactions go. The end of a transaction becomes a control batch; when none
  of the transaction's records is left it gets a delete horizon, too, and goes when that passed.
* Records without a key go: nothing could ever replace them.
* Offsets, timestamps, producers and codecs stay, but for a newest timestamp that is not that of
  the records (`storage.formats.walk`). A batch of which all records stay is copied
  whole; one of which none stays goes, and leaves a hole; another keeps its range of offsets.
* What cannot be read as records stays whole, and says nothing about keys. It may hold records that
  a tombstone behind it takes back for whoever can read it, so tombstones behind it stay.

A `Cleaner` goes over a partition's rows in order, without leaving rows out: whether a
transaction's records are left it has seen itself. If rows could not be replaced in the log, the
pass ends there: a marker must not go before the records that it ends. Pure.
"""

from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from operator import add, le, not_
from typing import Final

from protocol import record_scan, records
from protocol.record_scan import Scanned
from protocol.records import BatchHeader
from protocol.types import Buffer
from storage.formats.batches import marker_batch
from storage.formats.spans import Marker, ObjectKind, Span
from storage.formats.walk import (
    Aborted,
    Merged,
    Output,
    data_of_rows,
    leave_chunk,
    payload_of,
    walk,
)

ENTRY_BYTES: Final = 192
"""What a key and its offset take in memory, as measured: at most 41 bytes are kept of a key."""
_INT64_MAX: Final = (1 << 63) - 1


class OffsetMap:
    """The newest offset of every key in rows that were added in order, at most so many keys."""

    def __init__(self, entries_max: int) -> None:
        assert entries_max > 0
        self._entries_max = entries_max
        # No record is newer than that of no key: so records without one go.
        self._newest: dict[bytes | None, int] = {None: _INT64_MAX}
        self.next_offset = 0
        """All keys of records below it, from the first row that was added, are in; what lies at
        or above it is left alone."""

    def __len__(self) -> int:
        """Keys."""
        return len(self._newest) - 1

    def add(self, span: Span, data: Buffer, aborted: Aborted) -> bool:
        """Learn the keys of the next span. False when they do not fit: `next_offset` says how far
        it came, and nothing more is to be added. Raises DamagedSpanError."""
        view = memoryview(data)
        for start, _, header in walk(span, view):
            if not header.is_control and not aborted.holds(header):
                scanned = _scan(view, start, header)[0]
                if scanned is not None and not self._learn(header, scanned):
                    return False
            self.next_offset = header.last_offset + 1
        self.next_offset = span.next_offset
        return True

    def _learn(self, header: BatchHeader, scanned: Scanned) -> bool:
        newest = self._newest
        if len(self) + len(scanned.keys) > self._entries_max:
            new = len(set(scanned.keys) - newest.keys())
            # A single batch is taken whatever its size: else nothing would ever be compacted.
            if len(self) and len(self) + new > self._entries_max:
                return False
        newest.update(zip(scanned.keys, _offsets(header, scanned), strict=True))
        newest[None] = _INT64_MAX
        return True

    def newest_of(self, keys: Sequence[bytes | None]) -> Iterable[int]:
        """Of each key the newest offset, or -1."""
        return map(self._newest.get, keys, repeat(-1))


def _offsets(header: BatchHeader, scanned: Scanned) -> Iterable[int]:
    base_offset, deltas = header.base_offset, scanned.deltas
    if isinstance(deltas, range):
        return range(base_offset, base_offset + len(deltas))
    return map(add, deltas, repeat(base_offset))


def _scan(view: memoryview, start: int, header: BatchHeader) -> tuple[Scanned | None, bytes]:
    """The batch's records, None when they cannot be read, and its payload."""
    payload = payload_of(view, start, header)
    if payload is None:
        return None, b""
    scanned = record_scan.scan(
        payload, count=header.record_count, last_delta=header.last_offset_delta
    )
    return scanned, payload


class Cleaner:
    """One pass over one partition."""

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        time_ms: int,
        delete_retention_ms: int,
        begins_ms: int | None = None,
    ) -> None:
        """`begins_ms`: when the time of a tombstone begins that is seen first; None: `time_ms`, by which others
        go."""
        assert delete_retention_ms >= 0
        self._offsets = offsets
        self._time_ms = time_ms
        begins_ms = time_ms if begins_ms is None else begins_ms
        self._horizon = min(begins_ms + delete_retention_ms, _INT64_MAX)
        self._unfinished: set[int] = set()
        """Producers of whose transaction, not ended so far, records are left."""
        self._unread = False
        """A batch was kept that nobody here could read."""
        self.records_read = 0

    def clean(
        self,
        rows: Sequence[Span | Marker],
        data: Iterable[Buffer],
        aborted: Iterable[tuple[int, int, int]] = (),
    ) -> Merged:
        """The next adjacent rows as one span of a segment; arguments as of `segment.merge_rows`.

        Raises DamagedSpanError.
        """
        assert rows
        dropped = Aborted(aborted)
        output = Output()
        for row, content in data_of_rows(rows, data):
            if content is None:
                assert isinstance(row, Marker)
                batch = memoryview(marker_batch(row))
                self._end(batch, 0, len(batch), records.read_header(batch), output)
            else:
                assert isinstance(row, Span)
                self._clean(row, content, dropped, output)
        return output.finish(rows[-1].next_offset)

    def _clean(self, span: Span, content: Buffer, dropped: Aborted, output: Output) -> None:
        # Headers are patched in it; what is read from a segment says its offsets already.
        view = memoryview(bytearray(content))
        for start, end, header in walk(span, view):
            self.records_read += header.record_count
            if header.is_control:
                self._end(view, start, end, header, output)
            elif not dropped.holds(header):
                records.patch(view, start, header.base_offset, header.leader_epoch)
                in_chunk = span.object_id.kind is ObjectKind.CHUNK
                true = leave_chunk(span, view, start, header) if in_chunk else header
                if self._keep(view, start, end, true, output) and header.is_transactional:
                    self._unfinished.add(header.producer_id)

    def _end(
        self, view: memoryview, start: int, end: int, header: BatchHeader, output: Output
    ) -> None:
        """The control batch at the end of a transaction."""
        empty = header.producer_id not in self._unfinished
        self._unfinished.discard(header.producer_id)
        if not empty:
            output.take(view, start, end, header)
        elif not header.attributes & records.DELETE_HORIZON:
            payload = bytes(view[start + records.HEADER_BYTES : end])
            _add(output, self._with_horizon(header, payload, [(0, len(payload))]))
        elif header.base_timestamp > self._time_ms:
            output.take(view, start, end, header)

    def _keep(
        self, view: memoryview, start: int, end: int, header: BatchHeader, output: Output
    ) -> bool:
        """Write what stays of a batch of records; whether anything does."""
        scanned, payload = None, b""
        if header.last_offset < self._offsets.next_offset:
            scanned, payload = _scan(view, start, header)
            self._unread |= scanned is None
        if scanned is None:
            output.take(view, start, end, header)
            return True
        stays = list(map(le, self._offsets.newest_of(scanned.keys), _offsets(header, scanned)))
        needs_horizon = False
        if header.attributes & records.DELETE_HORIZON:
            if header.base_timestamp <= self._time_ms and not self._unread:
                for null in scanned.nulls:
                    stays[null] = False
        else:
            needs_horizon = any(stays[null] for null in scanned.nulls)
        count = sum(stays)
        if not count:
            return False
        if count == len(stays) and not needs_horizon:
            output.take(view, start, end, header)
            return True
        if count < len(stays):
            newest = _newest_of(header, payload, scanned.starts, stays)
            header = header._replace(max_timestamp=newest, record_count=count)
        if needs_horizon:
            _add(output, self._with_horizon(header, payload, _ranges(payload, scanned, stays)))
        else:
            parts = [payload[one:after] for one, after in _joined(payload, scanned, stays)]
            _add(output, records.assemble(header, b"".join(parts)))
        return True

    def _with_horizon(
        self, header: BatchHeader, payload: bytes, ranges: Sequence[tuple[int, int]]
    ) -> bytes:
        """The batch of these records, to be looked at again when the horizon has passed."""
        later = header.base_timestamp - self._horizon
        return records.assemble(
            header._replace(
                attributes=header.attributes | records.DELETE_HORIZON,
                base_timestamp=self._horizon,
            ),
            record_scan.moved(payload, ranges, later=later),
        )


def _ranges(payload: bytes, scanned: Scanned, stays: Sequence[bool]) -> list[tuple[int, int]]:
    """First byte, and byte after the last, of every record that stays."""
    ends = [*scanned.starts[1:], len(payload)]
    return list(zip(compress(scanned.starts, stays), compress(ends, stays), strict=True))


def _joined(payload: bytes, scanned: Scanned, stays: Sequence[bool]) -> list[tuple[int, int]]:
    """As `_ranges`; when most stay, neighbours are one."""
    if 2 * sum(stays) < len(stays):
        return _ranges(payload, scanned, stays)
    joined = []
    at = 0
    for start, end in _ranges(payload, scanned, list(map(not_, stays))):
        if at < start:
            joined.append((at, start))
        at = end
    joined.append((at, len(payload)))
    return joined


def _newest_of(
    header: BatchHeader, payload: bytes, starts: Sequence[int], stays: Sequence[bool]
) -> int:
    """The newest timestamp of the records that stay: they are asked, or those that go, whichever
    are fewer."""
    if header.is_log_append_time:
        return header.max_timestamp
    delta_of = record_scan.timestamp_delta
    base = header.base_timestamp
    if 2 * sum(stays) > len(stays):
        gone = compress(starts, map(not_, stays))
        if all(base + delta_of(payload, start) < header.max_timestamp for start in gone):
            return header.max_timestamp
    newest = base + max(delta_of(payload, start) for start in compress(starts, stays))
    return max(records.NO_TIMESTAMP, min(newest, _INT64_MAX))


def _add(output: Output, batch: bytes) -> None:
    output.add(batch, records.read_header(batch))
