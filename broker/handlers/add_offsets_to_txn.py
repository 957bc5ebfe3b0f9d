"""AddOffsetsToTxn, v0-4: a group's offsets take part in a producer's transaction.

KIP-98. As AddPartitionsToTxn, of the group alone: what Kafka adds here is a partition of its
offsets topic. Whether there is such a group does not matter yet.

Errors: 14, 42, 44, 47 (before v2) or 90, 49, 51. A fate that stays open closes the connection.
"""

from broker.edge.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from txn import error_codes


async def handle(
    node: Node, call: Call, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    code = await node.transactions.add(
        call,
        request.transactional_id,
        (request.producer_id, request.producer_epoch),
        group_ids=(request.group_id,),
    )
    return AddOffsetsToTxnResponse(error_code=error_codes.for_add(code, call.version))


def refusal(
    call: Call, request: AddOffsetsToTxnRequest, error: KafkaError
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error.code)
