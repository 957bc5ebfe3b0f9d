"""InitProducerId, v0-5: producer ids for idempotent producers.

KIP-98, KIP-360 (without a transactional id, an epoch that is given is of no use: the answer is
always a new id with epoch 0, as in Kafka). Transactions are not served yet: a transactional id
is refused with UNSUPPORTED_VERSION, which clients take as final.

Errors: 14 (no session, no barrier or no block of ids: clients ask again), 35, 42.
"""

from broker.dispatch import Call
from broker.handling import live_incarnation
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import InitProducerIdRequest, InitProducerIdResponse


async def handle(node: Node, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id == "" or (request.producer_id == -1) != (
        request.producer_epoch == -1
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "transactions are not served yet")
    live_incarnation(node, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    await node.coordinator.barrier()
    return InitProducerIdResponse(producer_id=await node.producer_ids.take(), producer_epoch=0)


def refusal(
    call: Call, request: InitProducerIdRequest, error: KafkaError
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
