"""What must hold of a compacted partition whenever its rows are replaced, by the records themselves.

Compaction takes older records of a key away, never the newest: but one that says that the key is deleted,
when that has been there for long enough. What went does not come back, as it would if rows were replaced
by what was made of others.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.records import iterate, read_header
from protocol.types import Buffer
from storage.formats.spans import Span
from storage.formats.walk import walk
from tests.sim.account import Account

SHOWN_MAX = 3


class Kept(NamedTuple):
    """A record that is there."""

    key: bytes | None
    is_tombstone: bool


def records_of(span: Span, data: Buffer) -> Iterator[tuple[int, Kept]]:
    """The records of a row, by offset; `data` are its bytes."""
    for start, _, header in walk(span, memoryview(data)):
        written_at = read_header(data, start).base_offset
        if not header.is_control:
            for record in iterate(data, start):
                offset = record.offset - written_at + header.base_offset
                yield offset, Kept(record.key, record.value is None)


@dataclass
class CompactionAccount(Account):
    """Of one partition."""

    keeps_tombstones: bool = False
    """None is old enough to go."""
    _before: Mapping[int, Kept] = field(default_factory=dict)

    def look(self, records: Mapping[int, Kept], where: str) -> None:
        """These are there now that rows were replaced, and what came since the last time."""
        before, self._before = self._before, records
        self.counts["looks at compacted rows"] += 1
        known_to = max(before, default=-1)
        back = sorted(offset for offset in records if offset <= known_to and offset not in before)
        if back:
            self.violations.append(
                f"{back[:SHOWN_MAX]} were compacted away and are there again {where}"
            )
        newest = _newest(records.items())
        for key, offset in sorted(_newest(before.items()).items()):
            there = newest.get(key, -1)
            may_go = before[offset].is_tombstone and not self.keeps_tombstones
            if there < offset and not (may_go and there == -1):
                what = "deletion" if before[offset].is_tombstone else "newest record"
                text = (
                    f"the {what} of {key!r} at {offset} was compacted away, {there} is left {where}"
                )
                self.violations.append(text)


def _newest(records: Iterable[tuple[int, Kept]]) -> dict[bytes, int]:
    """Offsets by key."""
    return {record.key: offset for offset, record in sorted(records) if record.key is not None}
