"""The table of objects: how long each is, and how many rows point at it.

Objects of one incarnation and kind are numbered upwards, so a *writer* (an incarnation and a
kind) keeps two dense columns (length, references) from its first object that something points at
to its newest. They are bytes, not arrays: bytes in front are given up without moving the rest, and
the oldest objects go first. At chunks and segments point spans, in memory or in pages; at index objects pages do. Rows name an
object by the writer's slot and the number: eight bytes. The kind is in the slot's lowest bits.

Invariants: an object is in the columns from its commit on while something points at it; then it
is `unreferenced`, with the position and the machine's time of that moment, until it is doomed
(docs/design/bounded.md §7); a doomed one is listed until it is forgotten, and never pointed at
again. The unreferenced objects of a writer are in the order in which they became so. Slots of
writers that are closed and have nothing left are used again.

Left out: when an object may be doomed (`bounding`).
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from protocol.types import Incarnation, Position
from storage.formats.spans import ObjectId, ObjectKind

OBJECT_NUMBERS_AHEAD_MAX: Final = 1 << 20
"""How far an object's number may be ahead of the newest of its writer: what was given up leaves
gaps, and a gap costs eight bytes a number."""
DOOMED_MAX: Final = 10_000
"""Objects that wait to be forgotten: whoever dooms more has to delete first."""

_KIND_BITS: Final = 2
KIND_MASK: Final = (1 << _KIND_BITS) - 1
"""Of a slot: the kind of the writer's objects."""

# Number, position, the machine's time.
_UNREFERENCED: Final = Struct("=IQq")
_UNREFERENCED_WORDS: Final = _UNREFERENCED.size // 4

# Of the columns of lengths and references.
_NUMBER: Final = Struct("=I")
_NUMBER_BYTES: Final = _NUMBER.size


class Moment(NamedTuple):
    """When something happens: the entry's place, and the machine's time there."""

    position: Position
    time_ms: int


class Unreferenced(NamedTuple):
    """A committed object that nothing points at."""

    object_id: ObjectId
    since: Position
    since_ms: int
    """In the machine's time."""


@dataclass(slots=True, eq=False)
class _Writer:
    """Objects of one incarnation and kind; `references[i]` belongs to the number `first + i`."""

    incarnation: Incarnation
    kind: ObjectKind
    first: int = 0
    lengths: bytearray = field(default_factory=bytearray)
    references: bytearray = field(default_factory=bytearray)
    referenced: int = 0
    """Objects that rows point at."""
    unreferenced: bytearray = field(default_factory=bytearray)
    doomed: "array[int]" = field(default_factory=lambda: array("I"))
    closed: bool = False

    def id(self, number: int) -> ObjectId:
        return ObjectId(self.incarnation, number, self.kind)

    @property
    def count(self) -> int:
        """Numbers in the columns."""
        return len(self.references) // _NUMBER_BYTES

    def is_referenced(self, number: int) -> bool:
        index = number - self.first
        return 0 <= index < self.count and _number(self.references, index) > 0


class Objects:
    """Slots of writers, and the counts of references per object."""

    def __init__(self) -> None:
        self._writers: list[_Writer | None] = []
        self._slots: dict[tuple[Incarnation, int], int] = {}
        self._free: list[int] = []
        """Indexes in `_writers`."""
        self.unreferenced_count = 0
        self.doomed_count = 0

    def __len__(self) -> int:
        """Objects that rows point at."""
        return sum(writer.referenced for writer in self._writers if writer is not None)

    def id(self, slot: int, number: int) -> ObjectId:
        """The object that a row names by its writer's slot."""
        return self._writer(slot).id(number)

    def length(self, object_id: ObjectId) -> int:
        """Bytes of the object. Raises KeyError when nothing points at it."""
        incarnation, number, kind = object_id
        writer = self._writer(self._slots[incarnation, kind])
        if not writer.is_referenced(number):
            raise KeyError(object_id)
        return _number(writer.lengths, number - writer.first)

    def is_referenced(self, object_id: ObjectId) -> bool:
        incarnation, number, kind = object_id
        slot = self._slots.get((incarnation, kind))
        return slot is not None and self._writer(slot).is_referenced(number)

    def referenced(self, kind: ObjectKind | None = None) -> Iterator[tuple[ObjectId, int]]:
        """The objects of a kind that something points at now, each with its length; in the order of
        their keys. None: kind by kind. They may change while they are walked."""
        found = [each for each in self._writers if each is not None and kind in (None, each.kind)]
        found.sort(key=attrgetter("kind", "incarnation"))
        return chain.from_iterable(
            map(
                _referenced,
                [
                    (each.id(each.first), bytes(each.lengths), bytes(each.references))
                    for each in found
                ],
            )
        )

    def unreferenced(self, through: Position | None = None) -> Iterator[Unreferenced]:
        """Committed objects that nothing points at: by writer, and of each the oldest first.

        `through`: only those that were let go of there or before.
        """
        for writer in [*self._writers]:
            if writer is not None:
                column = writer.unreferenced
                end = len(column) if through is None else _rows_through(column, through)
                for number, position, time_ms in _UNREFERENCED.iter_unpack(bytes(column[:end])):
                    yield Unreferenced(writer.id(number), Position(position), time_ms)

    def waiting(self, incarnation: Incarnation, kind: ObjectKind, numbers: set[int]) -> set[int]:
        """Those of these numbers whose objects are unreferenced or doomed."""
        if (slot := self._slots.get((incarnation, kind))) is None:
            return set()
        writer = self._writer(slot)
        # There may be millions.
        unreferenced = memoryview(writer.unreferenced).cast("I")[::_UNREFERENCED_WORDS].tolist()
        return numbers.intersection(unreferenced) | numbers.intersection(writer.doomed)

    def doomed(self) -> Iterator[ObjectId]:
        """What was doomed and not forgotten yet, by writer."""
        for writer in [*self._writers]:
            if writer is not None:
                yield from [writer.id(number) for number in writer.doomed]

    def slot(self, incarnation: Incarnation, kind: ObjectKind = ObjectKind.CHUNK) -> int:
        """The slot of a writer, a new one if it has none."""
        slot = self._slots.get((incarnation, kind))
        if slot is not None:
            return slot
        writer = _Writer(incarnation, kind)
        if self._free:
            index = self._free.pop()
            self._writers[index] = writer
        else:
            index = len(self._writers)
            self._writers.append(writer)
        slot = self._slots[incarnation, kind] = index << _KIND_BITS | kind
        return slot

    # For `apply`.

    def add(self, slot: int, number: int, *, length: int, references: int, moment: Moment) -> None:
        """An object was committed, and so many rows point at it.

        The number is above all of the writer's before.
        """
        writer = self._writer(slot)
        if references == 0:
            self._let_go(writer, number, moment)
            return
        if not writer.references:
            writer.first = number
        gap = number - writer.first - writer.count
        assert gap >= 0
        if gap:
            writer.lengths += bytes(gap * _NUMBER_BYTES)
            writer.references += bytes(gap * _NUMBER_BYTES)
        writer.lengths += _NUMBER.pack(length)
        writer.references += _NUMBER.pack(references)
        writer.referenced += 1

    def release(self, slot: int, number: int, moment: Moment) -> None:
        """One row less points at the object."""
        writer = self._writer(slot)
        index = number - writer.first
        assert index >= 0
        references = _number(writer.references, index) - 1
        assert references >= 0
        _NUMBER.pack_into(writer.references, index * _NUMBER_BYTES, references)
        if references > 0:
            return
        self._let_go(writer, number, moment)
        writer.referenced -= 1
        if writer.referenced == 0:
            writer.lengths.clear()
            writer.references.clear()
        elif index == 0:
            _trim(writer)

    def close(self, incarnation: Incarnation) -> None:
        """The incarnation commits no more."""
        for kind in ObjectKind:
            if (slot := self._slots.get((incarnation, kind))) is not None:
                writer = self._writer(slot)
                writer.closed = True
                self._free_if_done(slot, writer)

    def find_unreferenced(
        self, incarnation: Incarnation, kind: ObjectKind, numbers: set[int]
    ) -> dict[int, Moment]:
        """Since when the objects of these numbers are unreferenced, as far as they are."""
        found: dict[int, Moment] = {}
        if (slot := self._slots.get((incarnation, kind))) is None:
            return found
        column = self._writer(slot).unreferenced
        for index in _places(column, numbers):
            number, position, time_ms = _UNREFERENCED.unpack_from(
                column, index * _UNREFERENCED.size
            )
            found[number] = Moment(Position(position), time_ms)
        return found

    def doomed_of(self, incarnation: Incarnation, kind: ObjectKind) -> frozenset[int]:
        """Numbers of the doomed objects of a writer."""
        slot = self._slots.get((incarnation, kind))
        return frozenset() if slot is None else frozenset(self._writer(slot).doomed)

    def doom(
        self, incarnation: Incarnation, kind: ObjectKind, numbers: list[int], *, is_live: bool
    ) -> None:
        """These will be deleted; nothing points at them, and they are not doomed yet."""
        writer = self._writer(self.slot(incarnation, kind))
        writer.closed = not is_live
        writer.doomed.extend(numbers)
        self.doomed_count += len(numbers)
        column = writer.unreferenced
        places = _places(column, set(numbers))
        if places:
            gone = set(places)
            size = _UNREFERENCED.size
            front = [index for index in range(places[-1]) if index not in gone]
            kept = [bytes(column[index * size : (index + 1) * size]) for index in front]
            column[: (places[-1] + 1) * size] = b"".join(kept)
            self.unreferenced_count -= len(places)

    def forget(self, incarnation: Incarnation, kind: ObjectKind, numbers: set[int]) -> None:
        """Those of them that are doomed are listed no more."""
        if (slot := self._slots.get((incarnation, kind))) is None:
            return
        writer = self._writer(slot)
        left = array("I", [number for number in writer.doomed if number not in numbers])
        self.doomed_count -= len(writer.doomed) - len(left)
        writer.doomed = left
        self._free_if_done(slot, writer)

    def _writer(self, slot: int) -> _Writer:
        writer = self._writers[slot >> _KIND_BITS]
        assert writer is not None
        return writer

    def _let_go(self, writer: _Writer, number: int, moment: Moment) -> None:
        writer.unreferenced += _UNREFERENCED.pack(number, *moment)
        self.unreferenced_count += 1

    def _free_if_done(self, slot: int, writer: _Writer) -> None:
        if (
            writer.closed
            and writer.referenced == 0
            and not writer.unreferenced
            and not writer.doomed
        ):
            self._writers[slot >> _KIND_BITS] = None
            del self._slots[writer.incarnation, writer.kind]
            self._free.append(slot >> _KIND_BITS)


def _referenced(columns: tuple[ObjectId, bytes, bytes]) -> Iterator[tuple[ObjectId, int]]:
    """Of a writer's first object, the lengths and the references."""
    first, lengths, references = columns
    pairs = zip(_NUMBER.iter_unpack(lengths), _NUMBER.iter_unpack(references), strict=True)
    for number, ((length,), (count,)) in enumerate(pairs, first.number):
        if count:
            yield first._replace(number=number), length


def _number(column: bytearray, index: int) -> int:
    number: int = _NUMBER.unpack_from(column, index * _NUMBER_BYTES)[0]
    return number


def _trim(writer: _Writer) -> None:
    """Drop the numbers in front that nothing points at."""
    count = _unused(writer.references)
    del writer.lengths[: count * _NUMBER_BYTES], writer.references[: count * _NUMBER_BYTES]
    writer.first += count


def _unused(references: bytearray) -> int:
    """How many numbers in front nothing points at; at some behind them something does."""
    words = memoryview(references).cast("I")
    return next(index for index, count in enumerate(words) if count)


def _rows_through(unreferenced: bytearray, position: Position) -> int:
    """Where the rows end that are of this position or before."""
    rows = range(len(unreferenced) // _UNREFERENCED.size)
    size = _UNREFERENCED.size
    return size * bisect_right(
        rows, position, key=lambda row: _UNREFERENCED.unpack_from(unreferenced, row * size)[1]
    )


def _places(unreferenced: bytearray, numbers: set[int]) -> list[int]:
    """Indexes of the rows of the objects with these numbers, ascending.

    The oldest are looked for, as a rule, so this ends soon.
    """
    found: list[int] = []
    words = memoryview(unreferenced).cast("I")[::_UNREFERENCED_WORDS]
    for index, number in enumerate(words):
        if number in numbers:
            found.append(index)
            if len(found) == len(numbers):
                break
    return found
