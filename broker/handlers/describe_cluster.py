"""DescribeCluster, v0-2: the live agents that have the client's listener, behind a barrier (P8).

KIP-700, KIP-919 (v1+: only brokers can be asked for; there are no controllers to talk to),
KIP-1073 (v2+: fenced brokers; an agent is live or it is not there).

Errors: 7 (no barrier to be had), 114, 115.
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold
from broker.calls.call import Call
from broker.handler_support import CLUSTER_OPERATIONS
from broker.handlers.metadata import controller_id
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    NOT_ASKED,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


async def handle(
    node: Node, call: Call, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        reason = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type"
            " CONTROLLER"
        )
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, reason)
    if request.endpoint_type != BROKERS:
        reason = f"Unknown endpoint type {request.endpoint_type}"
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, reason)
    await node.log_client.barrier()
    placement = node.placement(call.connection.listener)
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = guards.cluster_operations(node, call, CLUSTER_OPERATIONS)
    return DescribeClusterResponse(
        cluster_id=node.settings.cluster_id,
        controller_id=controller_id(node, placement),
        brokers=[
            DescribeClusterBroker(
                broker_id=agent.node_id, host=agent.host, port=agent.port, rack=agent.zone or None
            )
            for agent in placement.agents
        ],
        cluster_authorized_operations=operations,
    )


def refusal(
    call: Call, request: DescribeClusterRequest, error: KafkaError
) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=error.code,
        error_message=error.message,
        endpoint_type=request.endpoint_type,
    )


API: Final = Api(
    key=apis.DESCRIBE_CLUSTER,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(),
)
