"""`frazil topic trim`: delete the oldest records of a topic's partitions, over Kafka's protocol.

Ends and times become offsets before anything is deleted: a request that is sent again deletes no record
that came in between.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

from broker.cli.command_result import CommandResult, ToolError
from broker.cli.groups.group_tool import LATEST, offsets_at
from broker.cli.kafka_client import ClientError, KafkaClient
from broker.cli.routing import all_of, by_agent, by_topic, leaders
from broker.cli.topics.requests import WORDS, partitions_of, refusal
from broker.reports import topic_lines
from broker.reports.group_report import Partition
from protocol import apis, messages
from protocol.errors import ErrorCode

_WORDS: Final[Mapping[ErrorCode, str]] = {
    **WORDS,
    ErrorCode.OFFSET_OUT_OF_RANGE: "its records end before that offset",
    ErrorCode.POLICY_VIOLATION: "the topic is compacted, and nothing else (cleanup.policy)",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "it is a topic of the cluster's own",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition any more",
}


class TrimRule(Enum):
    """How the new first offset is found."""

    OFFSET = "offset"
    TIME = "time"
    ALL = "all"


class TrimTarget(NamedTuple):
    rule: TrimRule
    value: int = 0
    """OFFSET: it; TIME: ms since the epoch; else nothing."""


async def trim(
    client: KafkaClient, topic: str, partitions: Collection[int] | None, target: TrimTarget
) -> CommandResult:
    """Delete the records before the target; None: in all partitions. Raises ToolError, ClientError."""
    chosen = await partitions_of(client, topic, partitions)
    befores = await _befores(client, target, chosen)
    firsts: dict[Partition, int] = {}
    refused: dict[Partition, str] = {}

    async def ask(node: int, wanted: list[Partition]) -> None:
        request = messages.DeleteRecordsRequest(
            topics=[
                messages.DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        messages.DeleteRecordsPartition(
                            partition_index=index, offset=befores[name, index]
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(wanted).items()
            ],
            timeout_ms=client.request_timeout_ms,
        )
        answer = await client.ask(apis.DELETE_RECORDS, request, node=node)
        passing = []
        for row in [row for each in answer.topics for row in each.partitions]:
            where = (topic, row.partition_index)
            try:
                why = refusal(row.error_code, f"{topic}:{row.partition_index}", _WORDS)
            except ClientError as error:
                passing.append(error)
                continue
            if why is None:
                firsts[where] = row.low_watermark
            else:
                refused[where] = why
        if passing:
            raise passing[0]

    async def attempt() -> None:
        left = [where for where in befores if where not in firsts and where not in refused]
        leading = await leaders(client, [topic])
        refused.update((where, "its topic is gone") for where in left if where not in leading)
        await all_of(ask(*item) for item in by_agent(left, leading).items())

    failures = []
    try:
        await client.until_done(attempt)
    except ClientError as error:
        left = [where for where in befores if where not in firsts and where not in refused]
        numbers = ", ".join(str(index) for _, index in left)
        failures.append(
            f'it is not known whether partition {numbers} of topic "{topic}" is trimmed: {error}'
        )
    failures += [
        f"{topic}:{index} is not trimmed: {why}" for (_, index), why in sorted(refused.items())
    ]
    return CommandResult(topic_lines.trimmed_lines(firsts), failures=failures)


async def _befores(
    client: KafkaClient, target: TrimTarget, chosen: Collection[Partition]
) -> dict[Partition, int]:
    """The new first offset of each partition. Raises ToolError, ClientError."""
    if target.rule is TrimRule.OFFSET:
        return dict.fromkeys(chosen, target.value)
    # Before the search by time: where it finds nothing, all records up to here are older.
    ends = await offsets_at(client, LATEST, chosen)
    at_time: Mapping[Partition, int | None] = {}
    if target.rule is TrimRule.TIME:
        at_time = await offsets_at(client, target.value, chosen)
    found = {}
    for where in chosen:
        offset = at_time.get(where)
        end = ends.get(where)
        if end is None:
            raise ToolError(f"{where[0]}:{where[1]} is gone; nothing was trimmed")
        found[where] = end if offset is None else offset
    return found
