"""The table of live incarnations: who may write, and how clients reach it.

Node ids are small integers, kept for a node name over its incarnations; a rank is the smallest
number that no live incarnation of the zone has (docs/design/running.md §1).

Invariants: at most one live incarnation per node name and per node id; ranks differ within a
zone; rows are in order of opening. Node names that are not live are forgotten, the one that
closed longest ago first, when there are more than NODE_NAMES_MAX.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from coordinator.commands.entries import Listener, Open, Rejected
from coordinator.commands.layout import Int64, UInt63
from protocol.errors import ErrorCode
from protocol.types import Incarnation
from storage.formats.spans import ObjectKind

LIVE_MAX = 1000
NODE_NAMES_MAX = 2000
NODE_NAME_MAX = 255

assert LIVE_MAX < NODE_NAMES_MAX


@dataclass(slots=True)
class IncarnationRow:
    """A live incarnation. To be read only, but by `apply`."""

    incarnation: Incarnation
    session: Int64
    node_id: UInt63
    node_name: str
    zone: str
    listeners: tuple[Listener, ...]
    rank: UInt63
    software_version: str
    feature_level_max: UInt63
    clock_ms: Int64
    """The newest wall clock that it wrote."""
    last_n: UInt63 = 0
    """Number of its newest entry."""
    chunk_last: Int64 = -1
    """Highest number of a chunk that it committed; -1: none."""
    segment_last: Int64 = -1
    """The same of segments."""
    index_last: Int64 = -1
    """The same of index objects."""

    def newest(self, kind: ObjectKind) -> int:
        """Highest number of an object of this kind that it committed; -1: none."""
        match kind:
            case ObjectKind.CHUNK:
                return self.chunk_last
            case ObjectKind.SEGMENT:
                return self.segment_last
            case ObjectKind.INDEX:
                return self.index_last
            case _:
                assert_never(kind)


class Incarnations:
    """Live incarnations. Iterates in order of opening."""

    def __init__(self) -> None:
        self._live: dict[Incarnation, IncarnationRow] = {}
        self._node_ids: dict[str, int] = {}
        """Also of names that are not live; a name moves to the end when it opens or closes."""

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[IncarnationRow]:
        return iter(self._live.values())

    def get(self, incarnation: Incarnation) -> IncarnationRow | None:
        return self._live.get(incarnation)

    def by_session(self, session: int) -> IncarnationRow | None:
        return next((row for row in self if row.session == session), None)

    def all_support(self, level: int) -> bool:
        """Every live agent can decode commands of that level (docs/design/running.md §11)."""
        return all(row.feature_level_max >= level for row in self)

    def by_node_id(self, node_id: int) -> IncarnationRow | None:
        return next((row for row in self if row.node_id == node_id), None)

    def knows_node_id(self, node_id: int) -> bool:
        """Whether a live agent has it, or it is kept for the name of one that is gone."""
        return node_id in self._node_ids.values()

    def by_node_name(self, node_name: str) -> IncarnationRow | None:
        return next((row for row in self if row.node_name == node_name), None)

    def validate(self, command: Open) -> Rejected | None:
        """Why the incarnation cannot begin; None when it can."""
        if not 0 < len(command.node_name) <= NODE_NAME_MAX:
            reason = f"a node name has 1 to {NODE_NAME_MAX} characters"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if self.by_node_name(command.node_name) is None and len(self) >= LIVE_MAX:
            return Rejected(ErrorCode.POLICY_VIOLATION, f"{LIVE_MAX} agents are live already")
        if command.node_id >= 0:
            holder = self.by_node_id(command.node_id)
            if holder is not None and holder.node_name != command.node_name:
                reason = f"node id {command.node_id} is held by the live '{holder.node_name}'"
                return Rejected(ErrorCode.DUPLICATE_BROKER_REGISTRATION, reason)
        return None

    def open(self, incarnation: Incarnation, command: Open, clock_ms: int) -> IncarnationRow:
        """`validate` had no objection, and no live incarnation has the name any more."""
        assert incarnation not in self._live
        assert self.by_node_name(command.node_name) is None
        row = IncarnationRow(
            incarnation=incarnation,
            session=command.session,
            node_id=self._take_node_id(command),
            node_name=command.node_name,
            zone=command.zone,
            listeners=command.listeners,
            rank=_least_free([row.rank for row in self if row.zone == command.zone]),
            software_version=command.software_version,
            feature_level_max=command.feature_level_max,
            clock_ms=clock_ms,
        )
        self._live[incarnation] = row
        return row

    def close(self, incarnation: Incarnation) -> None:
        row = self._live.pop(incarnation)
        self._node_ids[row.node_name] = self._node_ids.pop(row.node_name)

    def _take_node_id(self, command: Open) -> int:
        """The wanted node id; else the one the name had; else the least that no name has."""
        node_id = self._node_ids.pop(command.node_name, -1)
        if command.node_id >= 0:
            node_id = command.node_id
            for name in [name for name, taken in self._node_ids.items() if taken == node_id]:
                del self._node_ids[name]
        elif node_id < 0:
            node_id = _least_free(list(self._node_ids.values()))
        if len(self._node_ids) >= NODE_NAMES_MAX:
            self._forget_a_name()
        self._node_ids[command.node_name] = node_id
        return node_id

    def _forget_a_name(self) -> None:
        live = {row.node_name: row for row in self}
        del self._node_ids[next(name for name in self._node_ids if name not in live)]


def _least_free(taken: list[int]) -> int:
    least = 0
    for number in sorted(taken):
        if number > least:
            break
        least = number + 1
    return least
