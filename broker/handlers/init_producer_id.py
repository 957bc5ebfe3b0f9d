"""InitProducerId, v0-5: a producer id and epoch, for idempotent and for transactional producers.

KIP-98, KIP-360 (v3+: with its id and epoch a producer asks for the next epoch), KIP-588. Without
a transactional id, an epoch that is given is of no use: the answer is always a new id with epoch
0, as in Kafka. With one, an open transaction is aborted by the same entry of the log, so no client
is sent away with CONCURRENT_TRANSACTIONS and a takeover costs one epoch, not two.

Errors: 14 (no session, no barrier, no block of ids: clients ask again), 42, 44 (too many ids),
47 (before v4) or 90 (fenced), 50. A fate that stays open closes the connection.
"""

from dataclasses import replace
from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.handler_support import live_incarnation
from broker.node import Node
from broker.transactions.stats import Ending
from coordinator.commands.entries import Rejected
from coordinator.commands.transaction_commands import InitProducer, ProducerInitialized
from protocol import apis
from protocol.acls import CLUSTER_NAME
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from txn import error_codes


async def handle(node: Node, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        live_incarnation(node, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        await node.log_client.barrier()
        return InitProducerIdResponse(producer_id=await node.producer_ids.take(), producer_epoch=0)
    return await _init(node, call, request, request.transactional_id)


def refusal(
    call: Call, request: InitProducerIdRequest, error: KafkaError
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)


WRITE_ID: Final = Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, ("transactional_id",))
WRITE_SOME: Final = Right(Operation.WRITE, Resource.TOPIC)
IDEMPOTENT_WRITE: Final = Right(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, instead=WRITE_SOME)


async def narrow(node: Node, call: Call, request: InitProducerIdRequest) -> Narrowed:
    """Who may write to some topic may be idempotent there (KIP-679)."""
    assert node.rights is not None
    asks = guards.Asker(node.rights, call)
    if request.transactional_id is not None:
        asks.require(WRITE_ID, request.transactional_id)
    elif not asks.allows_some(WRITE_SOME):
        asks.require(replace(IDEMPOTENT_WRITE, instead=None), CLUSTER_NAME)
    return Narrowed(request)


API: Final = Api(
    key=apis.INIT_PRODUCER_ID,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=(WRITE_ID, IDEMPOTENT_WRITE),
)


async def _init(
    node: Node, call: Call, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    if transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not 0 < request.transaction_timeout_ms <= node.kafka.transaction_max_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    service = node.transactions
    command = InitProducer(
        transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
    )
    outcome = await service.init(call, command, service.incarnation())
    if isinstance(outcome, Rejected):
        raise KafkaError(error_codes.for_init(outcome.error, call.version), outcome.message)
    assert isinstance(outcome, ProducerInitialized)
    if outcome.marked:
        service.ended(Ending.FENCED)
    return InitProducerIdResponse(
        producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch
    )
