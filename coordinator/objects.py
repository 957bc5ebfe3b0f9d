"""The table of chunks: how long each object is, and how many spans point at it.

Objects of one incarnation are numbered upwards, so a *writer* keeps two dense columns (length,
spans) from its first chunk that something points at. Spans name a chunk by the writer's slot
and the number: eight bytes.

Invariants: a chunk is in the columns from its commit on; when the last span lets go of it, it is
listed in `unreferenced` with the position of that moment, which is what collection needs
(design §11). Slots of writers that are closed and have nothing left are used again.

Left out: the deletion of objects, and segments (objects made by merging).
"""

from array import array
from collections.abc import Iterator
from struct import Struct

from protocol.types import Incarnation, Position
from storage.spans import ObjectId

CHUNK_NUMBERS_AHEAD_MAX = 1 << 20
"""How far a chunk's number may be ahead of the newest of its writer: given up chunks leave gaps,
and a gap costs eight bytes a number."""

_UNREFERENCED = Struct("=QIQ")


class _Writer:
    """The chunks of one incarnation; `spans[i]` belongs to the number `first + i`."""

    __slots__ = ("closed", "first", "incarnation", "lengths", "referenced", "spans")

    def __init__(self, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.first = 0
        self.lengths = array("I")
        self.spans = array("I")
        self.referenced = 0
        """Objects that spans point at."""
        self.closed = False


class Objects:
    """Slots of writers, and the counts of spans per chunk."""

    def __init__(self) -> None:
        self._writers: list[_Writer | None] = []
        self._slots: dict[Incarnation, int] = {}
        self._free: list[int] = []
        self._unreferenced = bytearray()

    def __len__(self) -> int:
        """Objects that spans point at."""
        return sum(writer.referenced for writer in self._writers if writer is not None)

    def id(self, slot: int, number: int) -> ObjectId:
        """The chunk that a span names by its writer's slot."""
        writer = self._writers[slot]
        assert writer is not None
        return ObjectId(writer.incarnation, number)

    def length(self, chunk: ObjectId) -> int:
        """Bytes of the object. Raises KeyError when no span points at it."""
        writer = self._writers[self._slots[chunk.incarnation]]
        assert writer is not None
        index = chunk.number - writer.first
        if not (0 <= index < len(writer.spans) and writer.spans[index]):
            raise KeyError(chunk)
        return writer.lengths[index]

    def unreferenced(self) -> Iterator[tuple[ObjectId, Position]]:
        """Committed chunks that nothing points at, and since which position; oldest first."""
        for incarnation, number, position in _UNREFERENCED.iter_unpack(bytes(self._unreferenced)):
            yield ObjectId(Incarnation(incarnation), number), Position(position)

    def slot(self, incarnation: Incarnation) -> int:
        """The slot of a writer, a new one if it has none."""
        slot = self._slots.get(incarnation)
        if slot is not None:
            return slot
        if self._free:
            slot = self._free.pop()
            self._writers[slot] = _Writer(incarnation)
        else:
            slot = len(self._writers)
            self._writers.append(_Writer(incarnation))
        self._slots[incarnation] = slot
        return slot

    def add(self, slot: int, number: int, *, length: int, spans: int, position: Position) -> None:
        """A chunk was committed at `position` and `spans` spans point at it.

        The number is above all of the writer's before.
        """
        writer = self._writers[slot]
        assert writer is not None
        if spans == 0:
            self._unreferenced += _UNREFERENCED.pack(writer.incarnation, number, position)
            return
        if not writer.spans:
            writer.first = number
        gap = number - writer.first - len(writer.spans)
        assert gap >= 0
        if gap:
            writer.lengths.extend([0] * gap)
            writer.spans.extend([0] * gap)
        writer.lengths.append(length)
        writer.spans.append(spans)
        writer.referenced += 1

    def release(self, slot: int, number: int, position: Position) -> None:
        """One span less points at the chunk, from `position` on."""
        writer = self._writers[slot]
        assert writer is not None
        index = number - writer.first
        assert writer.spans[index] > 0
        writer.spans[index] -= 1
        if writer.spans[index] > 0:
            return
        self._unreferenced += _UNREFERENCED.pack(writer.incarnation, number, position)
        writer.referenced -= 1
        if writer.referenced == 0:
            del writer.lengths[:], writer.spans[:]
            self._free_if_done(slot, writer)
        elif index == 0:
            self._trim(writer)

    def close(self, incarnation: Incarnation) -> None:
        """The writer commits no more."""
        slot = self._slots.get(incarnation)
        if slot is None:
            return
        writer = self._writers[slot]
        assert writer is not None
        writer.closed = True
        self._free_if_done(slot, writer)

    def _trim(self, writer: _Writer) -> None:
        """Drop the numbers in front that nothing points at."""
        count = next(index for index, spans in enumerate(writer.spans) if spans)
        del writer.lengths[:count], writer.spans[:count]
        writer.first += count

    def _free_if_done(self, slot: int, writer: _Writer) -> None:
        if writer.closed and writer.referenced == 0:
            self._writers[slot] = None
            del self._slots[writer.incarnation]
            self._free.append(slot)
