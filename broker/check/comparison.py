"""What the log points at, beside what a listing of the store has. Pure.

Both are in the order of keys, so one walk over each finds what is missing, what has another length, and what
is nobody's; nothing is held but what is wrong. The listing takes a while, and the log goes on: what was found
missing has to be looked at once more by whoever asks (`broker.check.checking`).

Left out: objects that no entry names (`broker.jobs.kinds.unnamed_objects`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from broker.jobs.kinds import collection_plan
from storage.formats import era_marker, log_checkpoint
from storage.formats.spans import ObjectId, ObjectKind
from storage.stores.object_store import ObjectInfo

Expected = Mapping[ObjectKind, Iterable[tuple[ObjectId, int]]]
"""Objects with their lengths, in the order of their keys."""

EXAMPLES_MAX: Final = 20
OWN_FOLDERS: Final = (
    collection_plan.SNAPSHOTS,
    collection_plan.ARCHIVES,
    f"{era_marker.FOLDER}/",
    log_checkpoint.FOLDER,
    "doctor/",
)
OWN_KEYS: Final = ("cluster.json", "log.json", "put-once")

MISSING: Final = "missing"
LENGTH: Final = "length"
DAMAGED: Final = "damaged"
MOVED: Final = "moved"
"""It can be read: a batch is at another offset than it was written with, or of another era."""


class Wrong(NamedTuple):
    """An object that is not as the log says."""

    key: str
    kind: str
    """As `kind_name`, or "snapshot"."""
    trouble: str
    """MISSING, LENGTH, DAMAGED or MOVED."""
    text: str


class Counted(NamedTuple):
    """Objects of a kind that the log points at."""

    objects: int = 0
    bytes: int = 0


class Foreign(NamedTuple):
    """Objects with keys that Frazil gives to none."""

    objects: int = 0
    bytes: int = 0
    examples: tuple[str, ...] = ()


def kind_name(kind: ObjectKind) -> str:
    return _KINDS[kind]


_KINDS: Final = {
    ObjectKind.CHUNK: "chunk",
    ObjectKind.SEGMENT: "segment",
    ObjectKind.INDEX: "index",
}


class Comparison:
    """Of one listing; `see` gets its pages in order, then `end` is called."""

    def __init__(self, expected: Expected) -> None:
        self._expected = {kind: iter(expected.get(kind, ())) for kind in ObjectKind}
        self._next = {kind: next(rows, None) for kind, rows in self._expected.items()}
        self.counted = dict.fromkeys(ObjectKind, Counted())
        self.wrong: list[tuple[ObjectId, Wrong]] = []
        self.foreign = Foreign()

    def see(self, infos: Iterable[ObjectInfo]) -> None:
        for info in infos:
            object_id = object_id_of(info.key)
            if object_id is not None:
                self._see(object_id, info)
            elif not _is_own(info.key):
                objects, length, examples = self.foreign
                shown = (*examples, info.key)[:EXAMPLES_MAX]
                self.foreign = Foreign(objects + 1, length + info.length, shown)

    def end(self) -> None:
        for kind in ObjectKind:
            for object_id, length in self._before(kind, None):
                self._missing(object_id, length)

    def _see(self, object_id: ObjectId, info: ObjectInfo) -> None:
        kind = object_id.kind
        for missing, length in self._before(kind, object_id):
            self._missing(missing, length)
        expected = self._next[kind]
        if expected is None or expected[0] != object_id:
            return
        self._count(*expected)
        self._next[kind] = next(self._expected[kind], None)
        if info.length != expected[1]:
            text = f"it has {info.length} bytes, not {expected[1]}"
            self.wrong.append((object_id, Wrong(info.key, kind_name(kind), LENGTH, text)))

    def _before(self, kind: ObjectKind, end: ObjectId | None) -> Iterator[tuple[ObjectId, int]]:
        """What is expected before `end`; None: all that is left."""
        while (expected := self._next[kind]) is not None and (end is None or expected[0] < end):
            yield expected
            self._next[kind] = next(self._expected[kind], None)

    def _missing(self, object_id: ObjectId, length: int) -> None:
        self._count(object_id, length)
        self.wrong.append((object_id, missing(object_id)))

    def _count(self, object_id: ObjectId, length: int) -> None:
        objects, total = self.counted[object_id.kind]
        self.counted[object_id.kind] = Counted(objects + 1, total + length)


def missing(object_id: ObjectId) -> Wrong:
    return Wrong(object_id.key, kind_name(object_id.kind), MISSING, "it is not in the store")


def object_id_of(key: str) -> ObjectId | None:
    """None: it is not the key of a chunk, a segment or an index object."""
    try:
        object_id = ObjectId.of_key(key)
    except ValueError:
        return None
    return object_id if object_id.key == key else None


def _is_own(key: str) -> bool:
    return key in OWN_KEYS or key.startswith(OWN_FOLDERS)
