"""Two machines compared field by field, whatever fields they have.

Walks all that two values are made of at once. An object that is met again on one side must be the
same one on the other, so rows that are shared (a partition that takes part in a transaction) have
to be shared in both. Nothing here knows what a table holds, but for a few fields that say nothing.
"""

import dataclasses
from array import array
from enum import Enum
from typing import Any

from coordinator.machine.machine import Machine
from coordinator.tables.partition import Partition
from coordinator.tables.partitions import _Rows
from coordinator.tables.pending_offsets import PendingOffsets
from coordinator.tables.schemas import Schemas

PLAIN = (int, str, bytes, bytearray, array, float, Enum, type(None))


def fields_of(value: object) -> list[str]:
    """Names of the fields of an object of ours, in the order of their declaration."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    slots = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    return slots + sorted(getattr(value, "__dict__", {}))


class Comparison:
    """`differences` are paths with what was found there."""

    def __init__(self, one: Machine, other: Machine) -> None:
        self.differences: list[str] = []
        self._met: dict[int, Any] = {}
        self._walked: set[int] = set()
        self._machines = (one, other)
        self.compare("machine", one, other)

    def compare(self, path: str, one: Any, other: Any) -> None:
        if type(one) is not type(other):
            self._differ(path, one, other)
        elif isinstance(one, PLAIN):
            if one != other:
                self._differ(path, one, other)
        elif isinstance(one, tuple | list):
            self._compare_rows(path, one, other)
        elif isinstance(one, dict):
            self._compare_maps(path, one, other)
        else:
            self._compare_objects(path, one, other)

    def _differ(self, path: str, one: object, other: object) -> None:
        self.differences.append(f"{path}: {one!r:.200} and {other!r:.200}")

    def _compare_rows(self, path: str, one: Any, other: Any) -> None:
        if len(one) != len(other):
            self._differ(path, one, other)
            return
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            self.compare(f"{path}[{index}]", left, right)

    def _compare_maps(self, path: str, one: dict, other: dict) -> None:
        # In the same order too: what iterates over a map must do so alike.
        if list(one) != list(other):
            self._differ(path, list(one), list(other))
            return
        for key, value in one.items():
            self.compare(f"{path}[{key!r}]", value, other[key])

    def _compare_objects(self, path: str, one: Any, other: Any) -> None:
        for left, right in ((one, other), (other, one)):
            if self._met.setdefault(id(left), right) is not right:
                self._differ(f"{path} (which object)", one, other)
                return
        if id(one) in self._walked:
            return
        self._walked.add(id(one))
        assert type(one).__module__.split(".")[0] in {"coordinator", "txn"}, type(one)
        for name in fields_of(one):
            left, right = self._meant(one, name), self._meant(other, name)
            self.compare(f"{path}.{name}", left, right)

    def _meant(self, value: Any, name: str) -> Any:
        """The field, or what it means where different ones mean the same."""
        field = getattr(value, name)
        match value, name:
            case Partition(), "windows" | "_aborted":
                return field or None
            case Partition(), _ if self._is_nobodys(value) and name not in PLACE:
                return None
            case _Rows(), "partitions":
                return [row if row is not None and row.end_offset else None for row in field]
            case PendingOffsets(), "_places":  # Only ever looked up by place and producer.
                return {place: dict(sorted(rows.items())) for place, rows in sorted(field.items())}
            case Schemas(), "_uses" | "_referrers":
                return {key: dict(sorted(rows.items())) for key, rows in sorted(field.items())}
            case _, "_by_producer" | "_slots":  # Only ever looked up.
                return dict(sorted(field.items()))
        return field

    def _is_nobodys(self, partition: Partition) -> bool:
        """It was purged, and only a transaction that is open still knows it."""
        return all(
            machine.partitions.find(partition.topic_id, partition.partition) is not partition
            and machine.partitions.get(partition.topic_id, partition.partition) is not partition
            for machine in self._machines
        )


PLACE = ("topic_id", "partition")


def differences(one: Machine, other: Machine) -> list[str]:
    return Comparison(one, other).differences
