"""ListConfigResources, v0-1: names of what can have configs.

KIP-714 (v0: subscriptions to clients' metrics), KIP-1142 (v1: any kind). Groups are those
ids that have configs. Topics and groups are listed behind a barrier (P8).

Errors: 7 (no barrier to be had), 35 (an unknown kind).
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right, error_alone
from broker.calls.call import Call
from broker.handlers.describe_configs import ResourceType
from broker.node import Node
from coordinator.commands.config_commands import ConfigKind
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

SINCE_KINDS: Final = 1
"""Version that can name kinds."""


async def handle(
    node: Node, call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    kinds = request.resource_types or list(ResourceType)
    if call.version < SINCE_KINDS:
        kinds = [ResourceType.CLIENT_METRICS]
    if unknown := [kind for kind in kinds if kind not in list(ResourceType)]:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource types: {unknown}")
    await node.log_client.barrier()
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(kinds)
            for name in _names(node, ResourceType(kind))
        ]
    )


API: Final = Api(
    key=apis.LIST_CONFIG_RESOURCES,
    handler=Cold(handle, error_alone(ListConfigResourcesResponse)),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(Right(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),),
)


def _names(node: Node, kind: ResourceType) -> list[str]:
    machine = node.log_client.machine
    match kind:
        case ResourceType.TOPIC:
            return [topic.name for topic in machine.topics]
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(row.node_id) for row in machine.incarnations]
        case ResourceType.CLIENT_METRICS:
            return machine.dynamic_configs.names(ConfigKind.CLIENT_METRICS)
        case ResourceType.GROUP:
            return machine.groups.groups_with_configs()
