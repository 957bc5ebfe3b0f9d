"""The table of client quotas: what users, client ids and addresses may use up (KIP-546).

Invariants: an entity has its parts in order, and at least one quota; numbers are positive and finite.
`version` is the position of the newest change, so that whoever has looked up who may what need not do
it again.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final

from coordinator.commands.config_commands import (
    ENTITY_NAME_MAX,
    QUOTA_ENTITIES_MAX,
    AlterClientQuotas,
    EntityType,
    Quota,
    QuotaChange,
    QuotaEntity,
)
from coordinator.commands.entries import DONE, Done, Rejected
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position

_NONE: Final[Mapping[Quota, float]] = {}


class ClientQuotas:
    """Quotas by entity. To be read only, but by `apply`."""

    def __init__(self) -> None:
        self.version: Position = POSITION_ZERO
        self._rows: dict[QuotaEntity, dict[Quota, float]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[QuotaEntity, Mapping[Quota, float]]]:
        return iter(self._rows.items())

    def of(self, entity: QuotaEntity) -> Mapping[Quota, float]:
        """What was set for exactly this entity."""
        return self._rows.get(entity, _NONE)

    # For `apply`.

    def apply(self, command: AlterClientQuotas, position: Position) -> Done | Rejected:
        """Codes of a refusal: INVALID_REQUEST it cannot be a quota, POLICY_VIOLATION there is no room."""
        for change in command.changes:
            if (reason := misfit(change)) is not None:
                return Rejected(ErrorCode.INVALID_REQUEST, reason)
        after = {change.entity: dict(self.of(change.entity)) for change in command.changes}
        for entity, quota, value in command.changes:
            if value is None:
                after[entity].pop(quota, None)
            else:
                after[entity][quota] = value
        gained = sum((entity not in self._rows) and bool(row) for entity, row in after.items())
        if gained and len(self._rows) + gained > QUOTA_ENTITIES_MAX:
            reason = f"there are quotas of {len(self._rows)} entities; {QUOTA_ENTITIES_MAX} may be"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        for entity, row in after.items():
            if row:
                self._rows[entity] = row
            else:
                self._rows.pop(entity, None)
        self.version = position
        return DONE


def misfit(change: QuotaChange) -> str | None:
    """Why this cannot be a quota, as a sentence; None when it can."""
    kinds = [part.entity_type for part in change.entity]
    if not kinds or kinds != sorted({*kinds}):
        return "an entity has at least one part, of each type at most one, in order"
    if EntityType.IP in kinds and len(kinds) > 1:
        return "an address stands alone"
    for part in change.entity:
        if part.name is not None and not 0 < len(part.name) <= ENTITY_NAME_MAX:
            return f"the name of an entity has 1 to {ENTITY_NAME_MAX} characters"
    of_address = change.quota is Quota.CONNECTION_CREATION_RATE
    if of_address != (EntityType.IP in kinds):
        return "connections are counted by address, and nothing else is"
    if change.value is not None and not 0 < change.value < math.inf:
        return "a quota is more than 0"
    return None
