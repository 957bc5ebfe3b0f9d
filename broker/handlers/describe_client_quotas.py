"""DescribeClientQuotas, v0-1: quotas of users, client ids and addresses (KIP-546).

What a filter may say, and which entities it finds, is Kafka's (ClientQuotasImage): a component is about
one type of entity, by name, its default, or any; `strict`: the entity has no other type.

Errors: 35 (a type of entity that Kafka does not have), 42 (a type is empty, there twice, or an address
beside others; a match that is none).
"""

from collections.abc import Iterable
from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.handler_support import caught_up
from broker.node import Node
from broker.quotas.names import ENTITY_TYPES, TYPE_NAMES, address_of, key_of
from coordinator.commands.config_commands import EntityType, Quota, QuotaEntity
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, SPECIFIED = range(3)
MATCH_NAMES: Final = ("MATCH_TYPE_EXACT", "MATCH_TYPE_DEFAULT", "MATCH_TYPE_SPECIFIED")

Filter = dict[EntityType, tuple[str | None, ...]]
"""By type: the one name that it has, None for the default; none: any."""


async def handle(
    node: Node, call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    wanted = _filter(request.components)
    await caught_up(node)
    entries: list[EntryData] = []
    async for entity, quotas in node.slices.of(call).over(list(node.quotas.table)):
        if _fits(entity, wanted, strict=request.strict):
            entries.append(_entry(entity, quotas.items()))
    return DescribeClientQuotasResponse(entries=entries)


def refusal(
    call: Call, request: DescribeClientQuotasRequest, error: KafkaError
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        error_code=error.code, error_message=error.message or None, entries=None
    )


API: Final = Api(
    key=apis.DESCRIBE_CLIENT_QUOTAS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(Right(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),),
)


def _filter(components: Iterable[ComponentData]) -> Filter:
    """Raises KafkaError."""
    wanted: Filter = {}
    for component in components:
        name = component.entity_type
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        entity_type = ENTITY_TYPES.get(name)
        if entity_type in wanted:
            reason = f"Entity type {name} cannot appear more than once in the filter."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        if entity_type is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {name}")
        wanted[entity_type] = _names(component, entity_type)
    if EntityType.IP in wanted and len(wanted) > 1:
        reason = (
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return wanted


def _names(component: ComponentData, entity_type: EntityType) -> tuple[str | None, ...]:
    match_type, match = component.match_type, component.match
    if match_type not in {EXACT, DEFAULT, SPECIFIED}:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
    name = MATCH_NAMES[match_type]
    if match_type == EXACT and match is None:
        reason = f"Request specified {name}, but set match string to null."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if match_type != EXACT and match is not None:
        reason = f"Request specified {name}, but also specified a match string."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if match is not None and entity_type is EntityType.IP:
        return (address_of(match) or match,)
    return () if match_type == SPECIFIED else (match,)


def _fits(entity: QuotaEntity, wanted: Filter, *, strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    names = dict(entity)
    return all(
        entity_type in names and (not some or names[entity_type] in some)
        for entity_type, some in wanted.items()
    )


def _entry(entity: QuotaEntity, quotas: Iterable[tuple[Quota, float]]) -> EntryData:
    return EntryData(
        entity=[
            EntityData(entity_type=TYPE_NAMES[part.entity_type], entity_name=part.name)
            for part in entity
        ],
        values=[ValueData(key=key_of(quota), value=value) for quota, value in quotas],
    )
