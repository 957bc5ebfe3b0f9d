"""AlterClientQuotas, v0-1: quotas of users, client ids and addresses are set and removed (KIP-546).

Each entity is done or refused as a whole, by Kafka's rules and in its words (ClientQuotaControlManager):
of a type that is named twice the last one counts, an entity that comes again is refused while what came
before is done, and what is removed need not be there. Unlike in Kafka a quota is a finite number, and
`ip` is an address, not the name of a host: it is kept in the spelling that connections have it in.

Errors, per entity: 7 (may still happen), 35 (an agent of an older release is live), 41 (no session:
send it elsewhere), 42, 44 (more entities than a cluster keeps).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import RequestedChange, forget, wait_for_changes
from broker.handler_support import live_incarnation, refuse_beside_older
from broker.node import Node
from broker.quotas.names import ENTITY_TYPES, OF_ADDRESSES, OF_CLIENTS, address_of
from coordinator.commands.config_commands import (
    CONFIG_LEVEL,
    AlterClientQuotas,
    EntityPart,
    EntityType,
    Quota,
    QuotaChange,
    QuotaEntity,
)
from coordinator.tables.administration.client_quotas import misfit
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResult,
    EntityData,
    OpData,
)

WAIT_MS: Final = 30_000
"""The request has no timeout of its own; this is Kafka's request.timeout.ms."""
CHANGE_ELEMENTS: Final = 10
"""What one entity costs, in elements that are looked at."""
INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
EPSILON: Final = 1e-6
"""So far a number may be from a whole one that is meant."""
WHOLE: Final = {
    Quota.PRODUCER_BYTE_RATE: ("a LONG", LONG_MAX),
    Quota.CONSUMER_BYTE_RATE: ("a LONG", LONG_MAX),
    Quota.CONNECTION_CREATION_RATE: ("an INT", INT_MAX),
}
"""Quotas that are whole numbers: of which type, and the greatest."""

_Named = dict[str, str | None]
"""An entity as it is named: by type."""


@dataclass(slots=True, kw_only=True)
class EntityChange(RequestedChange):
    """What becomes of one entity."""

    named: _Named


async def handle(
    node: Node, call: Call, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    refuse_beside_older(node, CONFIG_LEVEL)
    turns = node.slices.of(call)
    changes: dict[frozenset[tuple[str, str | None]], EntityChange] = {}
    for entry in request.entries:
        await turns.spend(CHANGE_ELEMENTS + len(entry.ops))
        named = _named(entry)
        change = changes.setdefault(frozenset(named.items()), EntityChange(named=named))
        try:
            if change.future is not None or _is_twice(entry.ops):
                raise _invalid(f"Ignoring duplicate entity {_told(named)}")
            command = _command(named, entry.ops)
            if command.changes and not request.validate_only:
                change.future = node.log_client.propose(command, incarnation)
                forget(change.future)  # Its client may be gone before it is asked for.
        except KafkaError as error:
            change.refused = error
    await wait_for_changes(changes.values(), WAIT_MS)
    return AlterClientQuotasResponse(
        entries=[_result(change) async for change in turns.over(changes.values())]
    )


def refusal(
    call: Call, request: AlterClientQuotasRequest, error: KafkaError
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[_refused(_named(entry), error) for entry in request.entries]
    )


API: Final = Api(
    key=apis.ALTER_CLIENT_QUOTAS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(Right(Operation.ALTER_CONFIGS, Resource.CLUSTER),),
    is_audited=True,
)


def _named(entry: AlterClientQuotasEntry) -> _Named:
    return {part.entity_type: part.entity_name for part in entry.entity}


def _is_twice(ops: list[OpData]) -> bool:
    return len({op.key for op in ops}) < len(ops)


def _command(named: Mapping[str, str | None], ops: list[OpData]) -> AlterClientQuotas:
    """What to propose. Raises KafkaError."""
    entity = _entity(named)
    keys = OF_ADDRESSES if entity[0].entity_type is EntityType.IP else OF_CLIENTS
    changes = []
    for op in ops:
        quota = keys.get(op.key)
        if op.remove:
            if quota is not None:
                changes.append(QuotaChange(entity, quota, None))
            continue
        if quota is None:
            raise _invalid(f"Invalid configuration key {op.key}")
        change = QuotaChange(entity, quota, _value(quota, op))
        if (reason := misfit(change)) is not None:
            raise _invalid(reason)
        changes.append(change)
    return AlterClientQuotas(tuple(changes))


def _entity(named: Mapping[str, str | None]) -> QuotaEntity:
    if not named:
        raise _invalid("Invalid empty client quota entity")
    parts = []
    for type_name, name in named.items():
        entity_type = ENTITY_TYPES.get(type_name)
        if entity_type is None:
            raise _invalid(f"Unhandled client quota entity type: {type_name}")
        if name == "":
            raise _invalid(f"Empty {type_name} not supported")
        parts.append(EntityPart(entity_type, name))
    parts.sort(key=lambda part: part.entity_type)
    if parts[-1].entity_type is not EntityType.IP:
        return tuple(parts)
    if len(parts) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should"
            "not be combined with User or ClientId"
        )
    name = parts[0].name
    address = None if name is None else address_of(name)
    if name is not None and address is None:
        raise _invalid(f"{name} is not a valid IP or resolvable host.")
    return (EntityPart(EntityType.IP, address),)


def _value(quota: Quota, op: OpData) -> float:
    """The value, if it may be one. Raises KafkaError."""
    value: float = op.value
    if not value > 0:
        raise _invalid(f"Quota {op.key} must be greater than 0")
    if quota in WHOLE:
        type_name, most = WHOLE[quota]
        if value > most:
            raise _invalid(f"Proposed value for {op.key} is too large for {type_name}.")
        if abs(round(value) - value) > EPSILON:
            raise _invalid(f"{op.key} cannot be a fractional value.")
    elif math.isinf(value):
        raise _invalid(f"Quota {op.key} must be a finite number")
    return value


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _told(named: Mapping[str, str | None]) -> str:
    """An entity, as Kafka's sentences have it."""
    parts = ", ".join(
        f"{kind}={'null' if name is None else name}" for kind, name in sorted(named.items())
    )
    return f"ClientQuotaEntity(entries={{{parts}}})"


def _result(change: EntityChange) -> AlterClientQuotasResult:
    try:
        change.outcome(ErrorCode.NOT_CONTROLLER)
    except KafkaError as error:
        return _refused(change.named, error)
    return AlterClientQuotasResult(entity=_entity_data(change.named))


def _refused(named: Mapping[str, str | None], error: KafkaError) -> AlterClientQuotasResult:
    return AlterClientQuotasResult(
        error_code=error.code, error_message=error.message or None, entity=_entity_data(named)
    )


def _entity_data(named: Mapping[str, str | None]) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in named.items()]
