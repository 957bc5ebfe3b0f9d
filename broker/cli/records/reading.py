"""How far `frazil consume` is: which records it still wants, and when there are enough. Pure."""

from collections.abc import Collection, Mapping

from broker.cli.records.places import Partition


class Reading:
    """Of the partitions that are read now."""

    def __init__(
        self, *, limit: int | None, stops: bool, ends: Mapping[Partition, int] | None = None
    ) -> None:
        """`limit`: of records; `stops`: what has no more records is not waited for; `ends`: offsets that are not
        read any more, of partitions that have such."""
        self._limit = limit
        self._stops = stops
        self._ends = ends or {}
        self._held: set[Partition] | None = None
        """None: it is not known yet which; a group that shares them anew takes them all first."""
        self._open: set[Partition] = set()
        self._next: dict[Partition, int] = {}

    def begin(self, partitions: Collection[Partition]) -> None:
        """These are read from now on, besides those that are."""
        self._held = (self._held or set()) | {*partitions}
        self._open |= {*partitions}

    def leave(self, partitions: Collection[Partition]) -> None:
        """Others read these from now on."""
        self._held = (self._held or set()) - {*partitions} or None
        self._open -= {*partitions}
        for partition in partitions:
            self._next.pop(partition, None)

    @property
    def wanted(self) -> int | None:
        """Records that are still asked for; None: all."""
        return self._limit

    def takes(self, partition: Partition, offset: int) -> bool:
        """Tells whether a record is asked for, which is taken then."""
        end = self._ends.get(partition)
        if end is not None and offset + 1 >= end:
            self._close(partition)
            if offset >= end:
                return False
        if self._limit is not None:
            if self._limit == 0:
                return False
            self._limit -= 1
        self._next[partition] = offset + 1
        return True

    def stops_at(self, partition: Partition, offset: int) -> None:
        """A record that was taken could not be written: whoever goes on begins with it."""
        self._next[partition] = offset

    def at_end(self, partition: Partition) -> None:
        """Nothing is behind what was read."""
        if self._stops:
            self._close(partition)

    def is_done(self) -> bool:
        return self._limit == 0 or (self._stops and self._held is not None and not self._open)

    def taken(self) -> dict[Partition, int]:
        """Returns the offsets behind what was taken since the last call."""
        found, self._next = self._next, {}
        return found

    def _close(self, partition: Partition) -> None:
        self._open.discard(partition)
