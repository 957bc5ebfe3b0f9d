"""DescribeClientQuotas, v0-1: quotas of users, client ids and addresses, of which there are none.

KIP-546. Quotas are not served, so none can be set; `kafka-configs.sh --describe --entity-type users`
asks for them beside credentials. What a filter may say is Kafka's (ClientQuotaCache).

Errors: 35 (a type of entity that Kafka does not have), 42 (a type is empty, there twice, or an address
beside others).
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse

IP: Final = "ip"
ENTITY_TYPES: Final = ("user", "client-id", IP)


async def handle(
    node: Node, call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    seen: list[str] = []
    for component in request.components:
        entity_type = component.entity_type
        if not entity_type:
            reason = "Unexpected empty filter component entity type"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        if entity_type in seen:
            reason = f"Duplicate {entity_type} filter component entity type"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        if entity_type not in ENTITY_TYPES:
            reason = f"Custom entity type '{entity_type}' not supported"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
        seen.append(entity_type)
    if IP in seen and len(seen) > 1:
        reason = (
            "Invalid entity filter component combination, IP filter component should not be used"
            " with user or clientId filter component."
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return DescribeClientQuotasResponse(entries=[])


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
