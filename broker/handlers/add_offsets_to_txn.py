"""AddOffsetsToTxn, v0-4: a group's offsets take part in a producer's transaction.

KIP-98. As AddPartitionsToTxn, of the group alone: what Kafka adds here is a partition of its
offsets topic. Whether there is such a group does not matter yet.

Errors: 14, 42, 44, 47 (before v2) or 90, 49, 51. A fate that stays open closes the connection.
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right, error_alone
from broker.calls.call import Call
from broker.node import Node
from protocol import apis
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


API: Final = Api(
    key=apis.ADD_OFFSETS_TO_TXN,
    handler=Cold(handle, error_alone(AddOffsetsToTxnResponse)),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=(
        Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, ("transactional_id",)),
        Right(Operation.READ, Resource.GROUP, ("group_id",)),
    ),
)
