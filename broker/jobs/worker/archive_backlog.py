"""What was applied and is not archived yet, cut into the objects that it will be. Pure: time is handed in.

Entries are added in the order of the log, from a snapshot on, and batches are taken in that order, each
beginning where the one before ended: so archives leave no hole. Nothing is dropped. When the store is away
for long, batches keep only their ends, and the digests there; their entries are read from the log again.
"""

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from protocol.types import POSITION_ZERO, Position
from storage.formats.log_archive import ENTRY_BYTES, ArchivedEntry

OBJECT_BYTES: Final = 8 << 20
"""Of entries in an archive, about: what a reader takes at once."""
HELD_BYTES_MAX: Final = 64 << 20
"""Of entries that wait in memory."""
OVERHEAD_BYTES: Final = 256
"""Of an entry in memory beside its payload."""
QUIET_S: Final = 60.0
"""How long entries wait that change nothing (ticks, reports of jobs), unless others come."""


@dataclass(slots=True, eq=False)
class Batch:
    """The entries of one archive."""

    after: Position
    last: Position
    digest: bytes
    """Of the machine at `last`."""
    since_s: float
    """When the first was applied."""
    entries: list[ArchivedEntry] | None
    """None: they are to be read again."""
    bytes: int = 0
    """In an archive."""
    changes: bool = False
    """Something in it is no tick and the like."""
    is_closed: bool = False


class Backlog:
    """All that is not archived yet, in batches."""

    def __init__(
        self,
        after: Position = POSITION_ZERO,
        *,
        object_bytes: int = OBJECT_BYTES,
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        self.newest = after
        """The end of all that was added."""
        self.held_bytes = 0
        """In memory."""
        self._object_bytes = object_bytes
        self._held_bytes_max = held_bytes_max
        self._batches: deque[Batch] = deque()

    def __len__(self) -> int:
        """Batches."""
        return len(self._batches)

    def begin(self, after: Position) -> None:
        """What comes next follows upon `after`, and not upon what was added: forget that."""
        self._batches.clear()
        self.held_bytes = 0
        self.newest = after

    def add(self, entry: ArchivedEntry, digest: bytes, *, changes: bool, now_s: float) -> None:
        """The machine has taken in an entry and has this digest now."""
        batch = self._batch_for(ENTRY_BYTES + len(entry.payload), now_s)
        batch.last = self.newest = entry.position
        batch.digest = digest
        batch.bytes += ENTRY_BYTES + len(entry.payload)
        batch.changes |= changes
        if batch.entries is not None:
            batch.entries.append(entry)
            self.held_bytes += _held(entry)

    def _batch_for(self, length: int, now_s: float) -> Batch:
        must_forget = self.held_bytes >= self._held_bytes_max
        if self._batches:
            batch = self._batches[-1]
            has_room = batch.bytes + length <= self._object_bytes
            if not batch.is_closed and has_room and (batch.entries is None or not must_forget):
                return batch
            batch.is_closed = True
        entries: list[ArchivedEntry] | None = None if must_forget else []
        self._batches.append(Batch(self.newest, self.newest, b"", now_s, entries))
        return self._batches[-1]

    def due_s(self, *, put_s: float, every_s: float) -> float:
        """When something should be put, if what was put last was put at `put_s`; infinity: nothing waits."""
        if not self._batches:
            return math.inf
        if any(batch.changes for batch in self._batches):
            return put_s + every_s
        return max(put_s + every_s, self._batches[0].since_s + QUIET_S)

    def begins_after(self, position: Position) -> bool:
        """Nothing waits of what lies at or before the position."""
        return not self._batches or self._batches[0].after >= position

    def age_s(self, now_s: float) -> float:
        """Since the oldest that waits was applied; 0: nothing waits."""
        return now_s - self._batches[0].since_s if self._batches else 0.0

    def next(self, through: Position) -> Batch | None:
        """What must be put first, of what was added up to `through`; it gets no more entries.

        What came behind that waits for its turn, and for more.
        """
        if not self._batches or self._batches[0].after >= through:
            return None
        self._batches[0].is_closed = True
        return self._batches[0]

    def done(self, batch: Batch) -> None:
        """It is archived, unless the backlog has begun anew meanwhile."""
        if self._batches and self._batches[0] is batch:
            self._drop_first()

    def reach_further(self, batch: Batch) -> None:
        """The first batch shall end later than it does: with the next, or with what comes."""
        if not self._batches or self._batches[0] is not batch:
            return
        if len(self._batches) == 1:
            batch.is_closed = False
            batch.changes = False
            return
        following = self._batches[1]
        following.after, following.since_s = batch.after, batch.since_s
        following.bytes += batch.bytes
        following.changes |= batch.changes
        if following.entries is None:
            self._forget(batch)
        elif batch.entries is None:
            self._forget(following)
        else:
            following.entries[:0] = batch.entries
        self._batches.popleft()

    def archived_to(self, position: Position) -> None:
        """What lies at or before the position is archived."""
        while self._batches and self._batches[0].last <= position:
            self._drop_first()
        if not self._batches:
            return
        first = self._batches[0]
        if first.entries is None or first.after >= position:
            return  # What must be read again may be archived twice.
        rest = [entry for entry in first.entries if entry.position > position]
        self.held_bytes += sum(map(_held, rest)) - sum(map(_held, first.entries))
        first.after, first.entries = position, rest
        first.bytes = sum([ENTRY_BYTES + len(entry.payload) for entry in rest])

    def _drop_first(self) -> None:
        self._forget(self._batches.popleft())

    def _forget(self, batch: Batch) -> None:
        self.held_bytes -= sum(map(_held, batch.entries or ()))
        batch.entries = None


def _held(entry: ArchivedEntry) -> int:
    return OVERHEAD_BYTES + len(entry.payload)


class Digests:
    """The machine's digest at every position since a snapshot, in little memory."""

    def __init__(self) -> None:
        self._positions = array("Q")
        self._digests = bytearray()
        self._length = 0

    def add(self, position: Position, digest: bytes) -> None:
        """Positions ascend."""
        self._length = len(digest)
        self._positions.append(position)
        self._digests += digest

    def at(self, position: Position) -> bytes | None:
        """None: there is no entry at the position, or it was not added."""
        index = bisect_left(self._positions, position)
        if index == len(self._positions) or self._positions[index] != position:
            return None
        return bytes(self._digests[index * self._length : (index + 1) * self._length])


def newest_of_chain(
    after: Position, ranges: Iterable[tuple[Position, Position]], *, until: Position
) -> tuple[Position, Position] | None:
    """The archive that ends last of those that lead on from `after` without a hole; None: there is none.

    Those that end beyond `until` do not count.
    """
    newest, place = None, after
    for begin, last in sorted(ranges):
        if begin <= place < last <= until:
            newest, place = (begin, last), last
    return newest
