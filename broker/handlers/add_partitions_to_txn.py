"""AddPartitionsToTxn, v0-3: partitions take part in a producer's transaction, all or none.

KIP-98. Versions from 4 on are for brokers alone (KIP-890). The transaction that the partitions
join, or start, is the one that stands in this agent's machine; when `apply` has moved on, so has
the machine by then, and the request is looked at again. A topic that is not known is so only
behind a barrier (P8).

Errors: 3 with 55 for all other partitions; else the same for all: 14, 42, 44, 47 (before v2) or 90,
49, 51 (the transaction moved again and again). A fate that stays open closes the connection.
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.slices import Turns
from broker.node import Node
from broker.transactions.coordinator import ATTEMPTS_MAX
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from protocol.types import TopicId
from txn import error_codes

Place = tuple[TopicId, int]


async def handle(
    node: Node, call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    turns = node.slices.of(call)
    places = await _places(node, turns, request)
    if None in places:
        await node.log_client.barrier()
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(ATTEMPTS_MAX):
        places = await _places(node, turns, request)
        if None in places:
            return _answer(request, _all_or_none(places))
        code = await _add(node, call, request, [place for place in places if place is not None])
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            break  # Else a topic was deleted meanwhile; the machine knows by now which.
    return _answer(request, [code] * len(places))


def refusal(
    call: Call, request: AddPartitionsToTxnRequest, error: KafkaError
) -> AddPartitionsToTxnResponse:
    count = sum(len(topic.partitions) for topic in request.v3_and_below_topics)
    return _answer(request, [error.code] * count)


WRITE_ID: Final = Right(
    Operation.WRITE, Resource.TRANSACTIONAL_ID, ("v3_and_below_transactional_id",)
)
WRITE_TOPIC: Final = Right(Operation.WRITE, Resource.TOPIC, ("v3_and_below_topics[].name",))


async def narrow(node: Node, call: Call, request: AddPartitionsToTxnRequest) -> Narrowed:
    """All or none: what could be added is not attempted when there is something that cannot be."""
    assert node.rights is not None
    asks = guards.Asker(node.rights, call)
    asks.require(WRITE_ID, request.v3_and_below_transactional_id)
    codes: list[ErrorCode] = []
    async for topic in node.slices.of(call).over(request.v3_and_below_topics):
        code = ErrorCode.OPERATION_NOT_ATTEMPTED
        if not asks.permits(WRITE_TOPIC, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        codes += [code] * len(topic.partitions)
    if ErrorCode.TOPIC_AUTHORIZATION_FAILED not in codes:
        return Narrowed(request)
    return Narrowed(None, lambda _: _answer(request, codes))


API: Final = Api(
    key=apis.ADD_PARTITIONS_TO_TXN,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=(WRITE_ID, WRITE_TOPIC),
)


def _answer(
    request: AddPartitionsToTxnRequest, codes: list[ErrorCode]
) -> AddPartitionsToTxnResponse:
    rest = iter(codes)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=next(rest)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


async def _places(
    node: Node, turns: Turns, request: AddPartitionsToTxnRequest
) -> list[Place | None]:
    """The partitions of the request in their order; None: there is no such one."""
    topics = node.log_client.machine.topics
    places: list[Place | None] = []
    async for each in turns.over(request.v3_and_below_topics):
        topic = topics.by_name(each.name)
        places += [
            (topic.topic_id, partition)
            if topic is not None and 0 <= partition < topic.partition_count
            else None
            async for partition in turns.over(each.partitions)
        ]
    return places


def _all_or_none(places: list[Place | None]) -> list[ErrorCode]:
    return [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if place is None else ErrorCode.OPERATION_NOT_ATTEMPTED
        for place in places
    ]


async def _add(
    node: Node, call: Call, request: AddPartitionsToTxnRequest, places: list[Place]
) -> ErrorCode:
    transactional_id = request.v3_and_below_transactional_id
    if transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    code = await node.transactions.add(
        call,
        transactional_id,
        (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        partitions=list(dict.fromkeys(places)),
    )
    return error_codes.for_add(code, call.version)
