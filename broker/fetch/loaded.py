"""What was read of the store for one fetch, on top of the cache. Pure."""

from collections.abc import Sequence

from storage.formats.batches import Batches
from storage.formats.spans import Marker, ObjectId, Span
from storage.stores.object_store import ObjectNotFoundError, StoreError


class LoadedData:
    """Spans and pages that were read for one fetch, on top of the cache, and the reads that failed."""

    __slots__ = ("batches", "byte_count", "failed", "idle", "is_behind", "pages", "rounds", "used")

    def __init__(self) -> None:
        self.batches: dict[tuple[ObjectId, int], Batches] = {}
        """By object and first byte."""
        self.pages: dict[tuple[ObjectId, int], Sequence[Span | Marker]] = {}
        """Likewise."""
        self.failed: dict[ObjectId, StoreError] = {}
        self.idle: set[int] = set()
        """Places that this fetch does not look at again: for them nothing is read."""
        self.is_behind = False
        """The log is not reached: an object that is gone may have been replaced."""
        self.rounds = 0
        """How often was read."""
        self.used: set[tuple[ObjectId, int]] = set()
        """Of `batches`, those that the newest answers are made of."""
        self.byte_count = 0
        """Of `batches`."""

    def add(self, batches: Batches) -> None:
        span = batches.span
        assert isinstance(span, Span)
        self.batches[span.object_id, span.start] = batches
        self.byte_count += len(batches)

    def holds(self, span: Span) -> bool:
        """The whole of it."""
        batches = self.batches.get((span.object_id, span.start))
        return batches is not None and batches.span == span

    def forget_unused(self) -> None:
        """Let go of spans that are of no use any more: their rows were rearranged meanwhile."""
        if len(self.used) < len(self.batches):
            self.batches = {key: self.batches[key] for key in self.used}
            self.byte_count = sum(map(len, self.batches.values()))

    def forget_all(self) -> None:
        """Let go of all spans."""
        self.batches.clear()
        self.used.clear()
        self.byte_count = 0

    @property
    def gone(self) -> set[ObjectId]:
        return {key for key, e in self.failed.items() if isinstance(e, ObjectNotFoundError)}
