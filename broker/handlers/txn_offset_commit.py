"""TxnOffsetCommit, v0-5: offsets that a group has when the producer's transaction is committed.

KIP-98, KIP-447 (v3+: fenced by member and generation, if the client names them), KIP-890 (v5: the
offsets add themselves to the transaction of the epoch, begun if need be). As OffsetCommit the
request goes to the group's coordinator and each offset is judged alone. Before v5 the command
names the transaction that is open as this agent knows it, behind a barrier if it knows of none,
and `apply` says whether the group takes part: offsets that are late must not slide into another
transaction. So they are sent back too when one of the id has ended since their frame was read.

Errors, per partition: 3, 7 (may still happen), 12, 14, 15, 16, 22, 24, 25, 28 (fits into no
entry), 42 (no transactional id), 44, 47, 48 (the group takes no part), 49, 82, 120 (v4+).
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.shares import owner_of
from broker.calls.slices import Turns
from broker.groups import commits
from broker.groups.commits import Committer, RequestedOffset
from broker.handlers.offset_commit import in_parts, put
from broker.node import Node
from coordinator.commands.group_commands import CommittedOffset
from coordinator.commands.transaction_commands import CommitTransactionOffsets
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from txn import error_codes, transactions
from txn.transactions import OF_EPOCH

OF_EPOCH_SINCE = 5
_NONE = ErrorCode.NONE
_MEMBERS_AS_OF = 9
"""The version of OffsetCommit that fences members as all versions of this API do."""

# REBALANCE_IN_PROGRESS is not foreseen here and ends producers. Kafka takes offsets of a
# generation that waits for its assignment; our log does not know it yet, soon it will.
_ASSIGNING = {ErrorCode.REBALANCE_IN_PROGRESS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
# And whose partition it is not any more must abort, as after a rebalance.
_NOT_OWNER = {ErrorCode.REBALANCE_IN_PROGRESS: ErrorCode.ILLEGAL_GENERATION}


async def handle(
    node: Node, call: Call, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    node.groups.coordinates(request.group_id)
    turns = node.slices.of(call)
    wanted = await _requested_offsets(node, turns, request)
    if not all(map(commits.is_known, wanted)):
        await node.log_client.barrier()
        wanted = await _requested_offsets(node, turns, request)
    await node.groups.settled(request.group_id)
    if isinstance(_instance(node, call, request), ErrorCode):
        await node.log_client.barrier()
        await node.groups.settled(request.group_id)

    async def commit(some: list[RequestedOffset]) -> list[ErrorCode]:
        await node.groups.settled(request.group_id)
        return await _commit(node, call, request, some)

    owner = owner_of(call.connection.peer)
    with node.groups.shares.committing(owner, request.group_id, wanted, pending=True):
        codes = await in_parts(turns, wanted, commit)
    return _answer(call, request, codes)


def refusal(
    call: Call, request: TxnOffsetCommitRequest, error: KafkaError
) -> TxnOffsetCommitResponse:
    count = sum(len(topic.partitions) for topic in request.topics)
    return _answer(call, request, [error.code] * count)


RIGHTS: Final = (
    Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, ("transactional_id",)),
    Right(Operation.READ, Resource.GROUP, ("group_id",)),
    Right(Operation.READ, Resource.TOPIC, ("topics[].name",)),
)
API: Final = Api(
    key=apis.TXN_OFFSET_COMMIT,
    handler=Cold(
        handle,
        refusal,
        guards.each_of(RIGHTS, "topics", "name", answers="topics", refusal=refusal),
    ),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=RIGHTS,
)


def _answer(
    call: Call, request: TxnOffsetCommitRequest, codes: list[ErrorCode]
) -> TxnOffsetCommitResponse:
    rest = iter(codes)

    def topic_of(topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
        return TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=error_codes.for_txn_offset_commit(next(rest), call.version),
                )
                for partition in topic.partitions
            ],
        )

    return TxnOffsetCommitResponse(topics=[topic_of(topic) for topic in request.topics])


async def _requested_offsets(
    node: Node, turns: Turns, request: TxnOffsetCommitRequest
) -> list[RequestedOffset]:
    """The offsets of the request in their order, one after the other."""
    topics = node.log_client.machine.topics
    return [
        RequestedOffset(
            topics.by_name(topic.name),
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
        )
        async for topic in turns.over(request.topics)
        async for partition in turns.over(topic.partitions)
    ]


def _instance(node: Node, call: Call, request: TxnOffsetCommitRequest) -> int | ErrorCode:
    """The transaction that the offsets are for, or why there is none, as this agent knows it."""
    row = node.log_client.machine.transactions.get(request.transactional_id)
    if row is None or row.txn_metadata.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if call.version >= OF_EPOCH_SINCE:
        return OF_EPOCH
    instance = row.txn_metadata.instance
    code = transactions.check(
        row.txn_metadata,
        producer_id=request.producer_id,
        epoch=request.producer_epoch,
        instance=instance,
    )
    if code is _NONE and row.ended_at > call.clock:
        # They were on their way when the transaction before this one ended, and may be its.
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is _NONE and request.group_id not in row.group_ids:
        return ErrorCode.TRANSACTION_ABORTABLE
    return instance if code is _NONE else code


async def _commit(
    node: Node, call: Call, request: TxnOffsetCommitRequest, wanted: list[RequestedOffset]
) -> list[ErrorCode]:
    """What becomes of each. The group is not writing; until the proposal nothing is waited for."""
    codes = [
        _NONE if commits.is_known(each) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in wanted
    ]
    if _NONE not in codes:
        return codes
    instance = _instance(node, call, request)
    if isinstance(instance, ErrorCode):
        return _all(codes, instance)
    group = node.groups.live(request.group_id)
    try:
        by = _committer(node, request)
    except KafkaError as error:
        return _all(codes, _ASSIGNING.get(error.code, error.code))
    settings = node.groups.settings_for(request.group_id)

    def validate(each: RequestedOffset) -> ErrorCode:
        code = commits.validate_offset(each, settings=settings, group=group, by=by)
        return _NOT_OWNER.get(code, code)

    def commands(offsets: list[CommittedOffset]) -> list[CommitTransactionOffsets]:
        whole = CommitTransactionOffsets(
            request.group_id,
            by.member_id,
            by.epoch,
            request.producer_id,
            request.producer_epoch,
            instance,
            tuple(offsets),
        )
        return commits.transaction_commands(whole)

    return await put(node, codes, wanted, validate=validate, commands=commands)


def _all(codes: list[ErrorCode], error: ErrorCode) -> list[ErrorCode]:
    return [error if code is _NONE else code for code in codes]


def _committer(node: Node, request: TxnOffsetCommitRequest) -> Committer:
    """In whose name the offsets come. Raises KafkaError.

    A client that names neither member nor generation is fenced by its transaction alone: before
    KIP-447 each partition had a producer of its own, and that is still how many do it.
    """
    named = request.member_id != "" or request.group_instance_id is not None
    if request.generation_id < 0 and not named:
        return commits.NOBODY
    return commits.committer(
        node.groups.live(request.group_id),
        member_id=request.member_id,
        epoch=request.generation_id,
        instance_id=request.group_instance_id,
        version=_MEMBERS_AS_OF,
        now_ms=node.groups.now_ms(),
    )
