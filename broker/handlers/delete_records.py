"""DeleteRecords, v0-2: logs begin later from now on; it has taken effect when it is answered.

KIP-107. What an offset means is found behind a barrier (P8): -1 is the end as of then, and what
is told of another agent's records and topics must not be contradicted. Partitions go into few
commands, whose trims apply judges one by one; one whose log begins there already, or later, needs
none. Objects go when nothing points at them any more. Of a partition that a request names twice
the last mention counts, as in Kafka.

Errors, per partition: 1 (beyond the end, or negative and not -1), 3, 6 (no session or barrier to
be had: ask another agent), 7 (may still happen), 17 (a name that Kafka keeps for itself), 35 (an
agent of an older release is live), 44 (a topic that is compacted and not deleted from).
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from broker import guards
from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import accepted, outcome_of, wait_for
from broker.calls.slices import Turns
from broker.config.topic_configs import TopicSettings, effective
from broker.handler_support import live_incarnation, refuse_beside_older
from broker.node import Node
from coordinator.commands.entries import Outcome
from coordinator.commands.job_commands import JOBS_LEVEL, LogsTrimmed, Trim, TrimLogs
from coordinator.tables.partition import Partition
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.types import Incarnation

TO_THE_END: Final = -1
LOW_WATERMARK_NONE: Final = -1
TRIMS_PER_COMMAND_MAX: Final = 1000
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Topics in which Kafka's brokers keep what is in the metadata log here."""


@dataclass(slots=True)
class _PartitionTrim:
    """One partition of the request."""

    trim: Trim | None = None
    """None: nothing is left to be done."""
    low_watermark: int = LOW_WATERMARK_NONE
    error: ErrorCode = ErrorCode.NONE


_Trims = dict[str, dict[int, _PartitionTrim]]
"""By topic and partition, in the order of the request."""


async def handle(node: Node, call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    incarnation = live_incarnation(node, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await node.log_client.barrier()
    refuse_beside_older(node, JOBS_LEVEL)
    turns = node.slices.of(call)
    wanted = await _validate(node, turns, request)
    await _trim(node, incarnation, wanted, request.timeout_ms)
    return _response(wanted)


def refusal(call: Call, request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return _response(
        {
            topic.name: {
                partition.partition_index: _PartitionTrim(error=error.code)
                for partition in topic.partitions
            }
            for topic in request.topics
        }
    )


RIGHTS: Final = (Right(Operation.DELETE, Resource.TOPIC, ("topics[].name",)),)
API: Final = Api(
    key=apis.DELETE_RECORDS,
    handler=Cold(
        handle,
        refusal,
        guards.each_of(RIGHTS, "topics", "name", answers="topics", refusal=refusal),
    ),
    unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    changes=True,
    rights=RIGHTS,
    is_audited=True,
)


async def _validate(node: Node, turns: Turns, request: DeleteRecordsRequest) -> _Trims:
    """What is to be done for each partition; only behind a barrier."""
    machine = node.log_client.machine
    wanted: _Trims = {}
    async for asked in turns.over(request.topics):
        topic = machine.topics.by_name(asked.name)
        settings = None if topic is None else effective(topic.configs, node.kafka)
        rows = wanted.setdefault(asked.name, {})
        async for each in turns.over(asked.partitions):
            index = each.partition_index
            partition = None if topic is None else machine.partitions.get(topic.topic_id, index)
            if partition is None or settings is None:
                rows[index] = _PartitionTrim(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif asked.name in INTERNAL_TOPICS:
                rows[index] = _PartitionTrim(error=ErrorCode.INVALID_TOPIC_EXCEPTION)
            else:
                rows[index] = _validate_offset(partition, settings, each.offset)
    return wanted


def _validate_offset(partition: Partition, settings: TopicSettings, offset: int) -> _PartitionTrim:
    if settings.compacted and not settings.deleted:
        return _PartitionTrim(error=ErrorCode.POLICY_VIOLATION)
    if offset == TO_THE_END:
        offset = partition.end_offset
    if not 0 <= offset <= partition.end_offset:
        return _PartitionTrim(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    if offset <= partition.log_start:
        return _PartitionTrim(low_watermark=partition.log_start)
    return _PartitionTrim(trim=Trim(partition.topic_id, partition.partition, offset))


async def _trim(node: Node, incarnation: Incarnation, wanted: _Trims, timeout_ms: int) -> None:
    """Propose what is to be trimmed, wait, and note what became of it."""
    items = [item for rows in wanted.values() for item in rows.values() if item.trim is not None]
    slices = [
        items[first : first + TRIMS_PER_COMMAND_MAX]
        for first in range(0, len(items), TRIMS_PER_COMMAND_MAX)
    ]
    futures = [
        node.log_client.propose(
            TrimLogs(tuple(item.trim for item in part if item.trim is not None)), incarnation
        )
        for part in slices
    ]
    await wait_for(futures, timeout_ms)
    for part, future in zip(slices, futures, strict=True):
        _settle(part, future)


def _settle(items: list[_PartitionTrim], future: asyncio.Future[Outcome]) -> None:
    try:
        outcome = accepted(outcome_of(future, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert isinstance(outcome, LogsTrimmed)
        for item, result in zip(items, outcome.results, strict=True):
            item.error = result.error
            if result.error is ErrorCode.NONE:
                item.low_watermark = result.log_start
    except KafkaError as error:
        for item in items:
            item.error = error.code


def _response(wanted: _Trims) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=index,
                        low_watermark=item.low_watermark,
                        error_code=item.error,
                    )
                    for index, item in rows.items()
                ],
            )
            for name, rows in wanted.items()
        ]
    )
