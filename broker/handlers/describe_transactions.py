"""DescribeTransactions, v0: what transactional ids are at.

KIP-664. Any agent answers for any id, behind a barrier (P8); there is no coordinator that alone
could. Groups whose offsets take part are told as Kafka tells them, as the partitions of its topic
of offsets that they would have there (`broker.transactions.views`).

Errors, per id: 14 (no barrier to be had), 42 ("" is no id), 105.
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.slices import Turns
from broker.node import Node
from broker.transactions.views import described, offsets_partitions
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


async def handle(
    node: Node, call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    await node.log_client.barrier()
    turns = node.slices.of(call)
    response = DescribeTransactionsResponse()
    # Each id once: its partitions may be many.
    async for each in turns.over(dict.fromkeys(request.transactional_ids)):
        state = await _describe(node, turns, each)
        response.transaction_states.append(state)
        await turns.spend(sum(len(topic.partitions) for topic in state.topics))
    return response


def refusal(
    call: Call, request: DescribeTransactionsRequest, error: KafkaError
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_refused(each, error.code) for each in request.transactional_ids]
    )


RIGHTS: Final = (Right(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, ("transactional_ids[]",)),)
DESCRIBE_TOPIC: Final = Right(Operation.DESCRIBE, Resource.TOPIC)
_of_ids: Final = guards.each_of(
    RIGHTS, "transactional_ids", "", answers="transaction_states", refusal=refusal
)


async def narrow(node: Node, call: Call, request: DescribeTransactionsRequest) -> Narrowed:
    """Topics that may not be described are left out of a transaction."""
    assert node.rights is not None
    asks = guards.Asker(node.rights, call)
    left, add_refused = await _of_ids(node, call, request)

    def complete(response: DescribeTransactionsResponse | None) -> DescribeTransactionsResponse:
        completed: DescribeTransactionsResponse = add_refused(response)
        for state in completed.transaction_states:
            state.topics = [
                each for each in state.topics if asks.allows(DESCRIBE_TOPIC, each.topic)
            ]
        return completed

    return Narrowed(left, complete)


API: Final = Api(
    key=apis.DESCRIBE_TRANSACTIONS,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=False,
    rights=RIGHTS,
)


def _refused(transactional_id: str, code: ErrorCode) -> DescribedTransaction:
    return DescribedTransaction(transactional_id=transactional_id, error_code=code)


async def _describe(node: Node, turns: Turns, transactional_id: str) -> DescribedTransaction:
    if not transactional_id:
        return _refused(transactional_id, ErrorCode.INVALID_REQUEST)
    machine = node.log_client.machine
    row = machine.transactions.get(transactional_id)
    if row is None:
        return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    offsets = await turns.run(offsets_partitions(row.group_ids))
    return described(row, machine.topics, offsets)
