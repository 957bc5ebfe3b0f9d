"""UnregisterBroker, v0: whether an agent is gone, as `kafka-cluster.sh unregister` is told.

KIP-500. An agent that leaves, or whose session ends, is closed in the log, and with that it is in no
description any more: nothing is left to be forgotten but the id that its name keeps, which does no
harm, and is given to others when they are many. So this changes nothing, and may be asked twice. A
live one is refused; Kafka unregisters it, too, and from then on clients do not find it. Behind a
barrier (P8).

Errors: 42 (it is live), 102 (no agent that is remembered had the id), 7 (no barrier to be had).
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.cluster.nodes import agent_id_of
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(
    node: Node, call: Call, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    await node.log_client.barrier()
    incarnations = node.log_client.machine.incarnations
    wanted = request.broker_id
    if incarnations.by_node_id(agent_id_of(wanted, incarnations)) is not None:
        reason = f"Broker {wanted} is live. Stop it: it is forgotten when it has left."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if not incarnations.knows_node_id(wanted):
        reason = f"Broker ID {wanted} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, reason)
    return UnregisterBrokerResponse()


def refusal(
    call: Call, request: UnregisterBrokerRequest, error: KafkaError
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message or None)


API: Final = Api(
    key=apis.UNREGISTER_BROKER,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(Right(Operation.ALTER, Resource.CLUSTER),),
)
