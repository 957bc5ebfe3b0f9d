"""Whom the tools ask about which partitions, and asking several at once."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import TypeVar

from broker.cli.command_result import ToolError
from broker.cli.kafka_client import KafkaClient, PassingError, check
from broker.reports.group_report import WORDS, Partition, error_text
from protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")


async def leaders(client: KafkaClient, topics: Collection[str] | None) -> dict[Partition, int]:
    """Whom to ask about each partition of the topics that there are; None: of all topics.

    Raises ToolError for what is no name, and PassingError.
    """
    found = {}
    for topic in (await client.refresh(topics)).topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
            continue
        if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise ToolError(f'"{topic.name}" is not the name of a topic')
        check(topic.error_code, f'topic "{topic.name}" is not told about')
        for row in topic.partitions:
            if row.leader_id < 0:
                raise PassingError(f"{topic.name}:{row.partition_index} has no agent to ask")
            found[topic.name, row.partition_index] = row.leader_id
    return found


async def told(about: str, work: Awaitable[T], words: Mapping[ErrorCode, str] = WORDS) -> T:
    """The result; a refusal by the cluster becomes a sentence. Raises ToolError."""
    try:
        return await work
    except KafkaError as error:
        text = error_text(error.code, error.message, words)
        raise ToolError(f"{about}: {text}") from error


async def all_of(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all, which have all ended; else the first error among them."""
    ended = await asyncio.gather(*work, return_exceptions=True)
    results = []
    for result in ended:
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


def by_agent(
    partitions: Iterable[Partition], agents: Mapping[Partition, int]
) -> dict[int, list[Partition]]:
    """The partitions that have an agent to ask, in their order, by agent."""
    found: defaultdict[int, list[Partition]] = defaultdict(list)
    for where in sorted(partitions):
        if where in agents:
            found[agents[where]].append(where)
    return found


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        found[topic].append(partition)
    return found
