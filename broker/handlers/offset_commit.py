"""OffsetCommit, v2-10: how far a group has come, fenced by member and generation or epoch.

KIP-211 (no retention of its own; the field of v2-4 is not looked at), KIP-320 (leader epoch, v6+),
KIP-345 (instance id, v7+), KIP-848 (member epoch, v9+; topics by id, v10). Commits do not wait for
each other: each is proposed as soon as no change of its group is under way, and apply fences it
(`coordinator.tables.groups`). What does not fit into one command goes as several; each partition's answer
is that of its own command. `frazil.commit.owner.only`: see `broker.groups.commits`.

Errors, per partition: 3, 100 (v10), 7 (may still happen), 12, 14, 15, 16, 22, 24, 25, 27, 28 (fits
into no entry), 35 (a member of KIP-848 before v9), 44 (more than a cluster keeps, or this
client's share of it), 69 (v9+), 82, 113.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from broker import guards
from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.shares import owner_of
from broker.calls.slices import Turns
from broker.groups import commits
from broker.groups.commits import Committer, RequestedOffset
from broker.node import Node
from coordinator.commands.encoding import CodecError
from coordinator.commands.entries import Rejected
from coordinator.commands.group_commands import CommitOffsets, CommittedOffset, OffsetsCommitted
from coordinator.commands.transaction_commands import CommitTransactionOffsets
from coordinator.tables.groups import GROUP_COMMAND_ROWS_MAX
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_NONE = ErrorCode.NONE
_CommandT = TypeVar("_CommandT", CommitOffsets, CommitTransactionOffsets)


async def handle(node: Node, call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    node.groups.coordinates(request.group_id)
    turns = node.slices.of(call)
    wanted = await _requested_offsets(node, turns, call.version, request)
    if not all(map(commits.is_known, wanted)):
        await node.log_client.barrier()
        wanted = await _requested_offsets(node, turns, call.version, request)

    async def commit(some: list[RequestedOffset]) -> list[ErrorCode]:
        await node.groups.settled(request.group_id)
        return await _commit(node, call.version, request, some)

    await node.groups.settled(request.group_id)
    owner = owner_of(call.connection.peer)
    with node.groups.shares.committing(owner, request.group_id, wanted, pending=False):
        rest = iter(await in_parts(turns, wanted, commit))
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=next(rest)
                    )
                    async for partition in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(request.topics)
        ]
    )


def refusal(call: Call, request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[_answer(topic, [error.code] * len(topic.partitions)) for topic in request.topics]
    )


RIGHTS: Final = (
    Right(Operation.READ, Resource.GROUP, ("group_id",)),
    Right(Operation.READ, Resource.TOPIC, ("topics[].name", "topics[].topic_id")),
)
API: Final = Api(
    key=apis.OFFSET_COMMIT,
    handler=Cold(
        handle,
        refusal,
        guards.each_of(RIGHTS, "topics", "name", answers="topics", refusal=refusal),
    ),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=RIGHTS,
)


def _answer(topic: OffsetCommitRequestTopic, codes: list[ErrorCode]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=code
            )
            for partition, code in zip(topic.partitions, codes, strict=True)
        ],
    )


async def in_parts(
    turns: Turns,
    wanted: list[RequestedOffset],
    commit: Callable[[list[RequestedOffset]], Awaitable[list[ErrorCode]]],
) -> list[ErrorCode]:
    """What becomes of each offset; many are judged and proposed a part at a time, each in a slice.

    More than a command takes would go as several anyway. The parts wait for the log together.
    """
    if len(wanted) <= GROUP_COMMAND_ROWS_MAX:
        return await commit(wanted)

    async def part(first: int) -> list[ErrorCode]:
        await turns.next()
        return await commit(wanted[first : first + GROUP_COMMAND_ROWS_MAX])

    firsts = range(0, len(wanted), GROUP_COMMAND_ROWS_MAX)
    codes: list[ErrorCode] = []
    for done in await asyncio.gather(*map(part, firsts), return_exceptions=True):
        if isinstance(done, BaseException):
            raise done
        codes += done
    return codes


async def _requested_offsets(
    node: Node, turns: Turns, version: int, request: OffsetCommitRequest
) -> list[RequestedOffset]:
    """The offsets of the request in their order, one after the other."""
    topics = node.log_client.machine.topics
    by_id = version >= commits.SINCE_TOPIC_IDS
    wanted = []
    async for each in turns.over(request.topics):
        topic = topics.by_id(each.topic_id) if by_id else topics.by_name(each.name)
        wanted += [
            RequestedOffset(
                topic,
                partition.partition_index,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
            )
            async for partition in turns.over(each.partitions)
        ]
    return wanted


async def _commit(
    node: Node, version: int, request: OffsetCommitRequest, wanted: list[RequestedOffset]
) -> list[ErrorCode]:
    """What becomes of each. The group is not writing; until the proposal nothing is waited for."""
    codes = [
        _NONE if commits.is_known(each) else commits.unknown_code(each, version) for each in wanted
    ]
    if _NONE not in codes:
        return codes
    group = node.groups.live(request.group_id)
    try:
        by = commits.committer(
            group,
            member_id=request.member_id,
            epoch=request.generation_id_or_member_epoch,
            instance_id=request.group_instance_id,
            version=version,
            now_ms=node.groups.now_ms(),
        )
    except KafkaError as error:
        return [error.code if code is _NONE else code for code in codes]
    settings = node.groups.settings_for(request.group_id)
    return await put(
        node,
        codes,
        wanted,
        validate=lambda each: commits.validate_offset(each, settings=settings, group=group, by=by),
        commands=lambda offsets: commits.commands(
            request.group_id, by.member_id, by.epoch, offsets
        ),
        told=lambda code: _told(code, version, by),
    )


async def put(
    node: Node,
    codes: list[ErrorCode],
    wanted: list[RequestedOffset],
    *,
    validate: Callable[[RequestedOffset], ErrorCode],
    commands: Callable[[list[CommittedOffset]], list[_CommandT]],
    told: Callable[[ErrorCode], ErrorCode] = lambda code: code,
) -> list[ErrorCode]:
    """What becomes of each offset: what `codes` say already, else `validate`, else the log.

    `told` is what the log's codes are called. What does not fit into one command goes as several.
    """
    codes = [
        validate(each) if code is _NONE else code for code, each in zip(codes, wanted, strict=True)
    ]
    offsets = [
        CommittedOffset(each.topic.topic_id, *each[1:])
        for code, each in zip(codes, wanted, strict=True)
        if code is _NONE and each.topic is not None
    ]
    try:
        parts = commands(offsets)
    except CodecError:
        rest = iter([ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * len(offsets))
    else:
        if len(parts) == 1:
            # Not as a task of its own, which would begin later than in this very call.
            answers = [await _propose(node, parts[0])]
        else:
            answers = await asyncio.gather(*[_propose(node, part) for part in parts])
        rest = iter([told(code) for answer in answers for code in answer])
    return [next(rest) if code is _NONE else code for code in codes]


async def _propose(
    node: Node, command: CommitOffsets | CommitTransactionOffsets
) -> Sequence[ErrorCode]:
    try:
        outcome = await node.groups.propose(command)
    except KafkaError as error:
        return [error.code] * len(command.offsets)
    if isinstance(outcome, Rejected):
        return [outcome.error] * len(command.offsets)
    assert isinstance(outcome, OffsetsCommitted)
    return outcome.errors


def _told(code: ErrorCode, version: int, by: Committer) -> ErrorCode:
    """The log's code, as a client of this version and protocol knows it."""
    match code:
        case ErrorCode.GROUP_ID_NOT_FOUND:
            return commits.not_found_code(version)
        case ErrorCode.ILLEGAL_GENERATION | ErrorCode.STALE_MEMBER_EPOCH:
            return by.stale
        case ErrorCode.UNKNOWN_TOPIC_ID if version < commits.SINCE_TOPIC_IDS:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        case _:
            return code
