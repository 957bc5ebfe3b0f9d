"""EndTxn, v0-5: a transaction is committed or aborted, everywhere by one entry of the log.

KIP-98, KIP-890 (v5: each end brings the next epoch, so a late request can only be a repetition).
Before v5 nothing in the request says which transaction is meant, so it is proposed with a proof
(`txn.transactions.Proof`): it came on the connection of the transaction's adds, or in reply to a
challenge, which is CONCURRENT_TRANSACTIONS. A client that does not repeat EndTxn (kafkajs) fails
by a challenge; it gets one only after it has lost the connection that it added partitions on.

What is found behind a barrier is a refusal, a repetition or a challenge without an entry of the
log; only what ends a transaction is proposed. `apply` looks at the proof again, at its position.

Errors: 14, 42, 47 (before v2) or 90, 48, 49, 51, 120 (v5: the cluster gave the transaction up).
Never 15 or 16: librdkafka and sarama come with a new connection then, each time. A fate that stays
open closes the connection.
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right, error_alone
from broker.calls.call import Call
from broker.calls.challenges import Challenge
from broker.node import Node
from broker.transactions.coordinator import ATTEMPTS_MAX
from broker.transactions.stats import Ending
from coordinator.commands.entries import Rejected
from coordinator.commands.transaction_commands import ClientProof, EndTransaction, TransactionEnded
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import EndTxnRequest, EndTxnResponse
from protocol.types import Incarnation
from txn import error_codes, transactions
from txn.transactions import Connection, Proof, State, TransactionMetadata

BUMPING_SINCE = 5
_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


async def handle(node: Node, call: Call, request: EndTxnRequest) -> EndTxnResponse:
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if call.version >= BUMPING_SINCE:
        return await _end_bumping(node, call, request)
    await node.log_client.barrier()
    code = _CONCURRENT
    for _ in range(ATTEMPTS_MAX):
        incarnation = node.transactions.incarnation()
        code = await _end(node, call, request, incarnation)
        if code is not _CONCURRENT or call.challenge is not None:
            break
        node.transactions.stats.moved += 1
    return EndTxnResponse(error_code=error_codes.for_end(code, call.version))


API: Final = Api(
    key=apis.END_TXN,
    handler=Cold(handle, error_alone(EndTxnResponse)),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=(Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, ("transactional_id",)),),
)


async def _end(
    node: Node, call: Call, request: EndTxnRequest, incarnation: Incarnation
) -> ErrorCode:
    """What becomes of it as the id stands now; nothing else happens until it is proposed.

    CONCURRENT_TRANSACTIONS: the call was given a challenge, or `apply` saw other metadata.
    """
    txn_metadata = node.transactions.txn_metadata(request.transactional_id)
    proof = _proof(call, request, txn_metadata, incarnation)
    judged = transactions.end(
        txn_metadata,
        producer_id=request.producer_id,
        epoch=request.producer_epoch,
        commit=request.committed,
        proof=proof,
    )
    if isinstance(judged, ErrorCode):
        if judged is _CONCURRENT:
            call.challenge = Challenge(request.transactional_id, proof.instance)
            node.transactions.stats.challenges += 1
        return judged
    if judged.markers is None:
        return ErrorCode.NONE  # It had been ended so before.
    client_proof = ClientProof(
        proof.instance, call.connection.number, proof.clock, proof.challenged
    )
    outcome = await node.transactions.propose(call, _command(request, client_proof), incarnation)
    if isinstance(outcome, Rejected):
        return outcome.error
    _count(node, request)
    return ErrorCode.NONE


def _proof(
    call: Call,
    request: EndTxnRequest,
    txn_metadata: TransactionMetadata | None,
    incarnation: Incarnation,
) -> Proof:
    instance = 0 if txn_metadata is None else txn_metadata.instance
    challenge = Challenge(request.transactional_id, instance)
    return Proof(
        instance,
        Connection(incarnation, call.connection.number),
        call.clock,
        challenged=call.connection.replied(call, challenge),
    )


async def _end_bumping(node: Node, call: Call, request: EndTxnRequest) -> EndTxnResponse:
    service = node.transactions
    before = service.txn_metadata(request.transactional_id)
    outcome = await service.propose(call, _command(request, None), service.incarnation())
    if isinstance(outcome, Rejected):
        raise KafkaError(error_codes.for_end(outcome.error, call.version), outcome.message)
    assert isinstance(outcome, TransactionEnded)
    if outcome.marked or (before is not None and before.state is State.ONGOING):
        _count(node, request)
    return EndTxnResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)


def _command(request: EndTxnRequest, proof: ClientProof | None) -> EndTransaction:
    return EndTransaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        proof,
    )


def _count(node: Node, request: EndTxnRequest) -> None:
    node.transactions.ended(Ending.COMMITTED if request.committed else Ending.ABORTED)
