"""Requests about topics that several commands send: what there is, and which configs hold or shall hold.

Requests that change something go to one agent each time, and to another one at the next attempt
(`AnyAgent`): so it is known that an answer was lost, and an agent that cannot serve is left.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from broker.cli.command_result import ToolError
from broker.cli.kafka_client import PASSING, KafkaClient, PassingError, check
from broker.reports.group_report import Partition, error_text
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError

TOPIC: Final = 2
"""Topics among the types of resources that have configs (KIP-133)."""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""What IncrementalAlterConfigs does with a config (KIP-339)."""

WORDS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic (frazil topic list shows all)",
    ErrorCode.TOPIC_ALREADY_EXISTS: "there is one already (--if-not-exists takes it as it is)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "you may not do that with this topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "you may not do that in this cluster",
    ErrorCode.TOPIC_DELETION_DISABLED: "the cluster deletes no topics (delete.topic.enable)",
}
TOLD_WORDS: Final[Mapping[ErrorCode, str]] = {
    **WORDS,
    ErrorCode.INVALID_TOPIC_EXCEPTION: "that is not the name of a topic",
}
"""Of Metadata, which has no message that would say more."""

Alterations = Mapping[str, Sequence[messages.IncrementalAlterableConfig]]
"""By topic."""


def refusal(
    error_code: int, message: str | None = "", words: Mapping[ErrorCode, str] = WORDS
) -> str | None:
    """What an error of the cluster means for a topic, in words; None for NONE. Raises PassingError."""
    try:
        check(error_code, message or "")
    except KafkaError as error:
        return error_text(error.code, error.message, words)
    return None


def _wait_out(error_code: int, message: str) -> None:
    """Raises PassingError for what may pass; other errors are answers."""
    if error_code in PASSING:
        check(error_code, message)


class AnyAgent:
    """Asks one agent, and another at the next attempt, since any of them can change a topic."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._attempts = 0

    async def ask(self, key: int, request: object) -> Any:
        """Raises as `KafkaClient.ask`; after a PassingError the request may have been carried out."""
        nodes = sorted(self._client.brokers)
        if not nodes:
            raise PassingError("the cluster names no agent")
        node = nodes[self._attempts % len(nodes)]
        self._attempts += 1
        return await self._client.ask(key, request, node=node)


async def topic_rows(
    client: KafkaClient, names: Collection[str] | None
) -> dict[str, messages.MetadataResponseTopic]:
    """What Metadata tells of topics by name, also of those with an error; None: of all topics.

    Raises ClientError, KafkaError.
    """

    async def attempt() -> dict[str, messages.MetadataResponseTopic]:
        answer = await client.refresh(names)
        for row in answer.topics:
            _wait_out(row.error_code, f'topic "{row.name}" is not told about')
        return {row.name: row for row in answer.topics if row.name is not None}

    return await client.until_done(attempt)


async def topic_row(client: KafkaClient, name: str) -> messages.MetadataResponseTopic | None:
    """What Metadata tells of a topic, or None when it knows of none that it may show."""
    row = (await topic_rows(client, [name])).get(name)
    return None if row is None or row.error_code else row


async def partitions_of(
    client: KafkaClient, name: str, wanted: Collection[int] | None
) -> list[Partition]:
    """The partitions of a topic, all or those wanted. Raises ToolError when one is not there."""
    row = (await topic_rows(client, [name]))[name]
    if why := refusal(row.error_code, words=TOLD_WORDS):
        raise ToolError(f'topic "{name}": {why}')
    there = sorted(each.partition_index for each in row.partitions)
    if lacking := sorted(set(wanted or ()) - set(there)):
        numbers = ", ".join(map(str, lacking))
        raise ToolError(f'topic "{name}" has no partition {numbers}, but 0 to {max(there)}')
    return [(name, index) for index in there if wanted is None or index in wanted]


async def described_configs(
    client: KafkaClient, names: Collection[str]
) -> dict[str, messages.DescribeConfigsResult]:
    """What DescribeConfigs answers by topic, also errors. Raises ClientError, KafkaError."""
    request = messages.DescribeConfigsRequest(
        resources=[
            messages.DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
    )

    async def attempt() -> dict[str, messages.DescribeConfigsResult]:
        answer: messages.DescribeConfigsResponse = await client.ask(apis.DESCRIBE_CONFIGS, request)
        for row in answer.results:
            _wait_out(row.error_code, f'configs of topic "{row.resource_name}" are not told')
        return {row.resource_name: row for row in answer.results}

    return await client.until_done(attempt) if names else {}


async def alter_configs(
    client: KafkaClient, wanted: Alterations, *, validate_only: bool
) -> dict[str, KafkaError]:
    """Change configs, each topic's as a whole; returns the refusals by topic. Raises ClientError.

    All operations may be repeated: what is there already is not appended again.
    """
    request = messages.IncrementalAlterConfigsRequest(
        resources=[
            messages.IncrementalAlterConfigsResource(
                resource_type=TOPIC, resource_name=name, configs=list(configs)
            )
            for name, configs in wanted.items()
        ],
        validate_only=validate_only,
    )
    agents = AnyAgent(client)

    async def attempt() -> dict[str, KafkaError]:
        answer = await agents.ask(apis.INCREMENTAL_ALTER_CONFIGS, request)
        refused = {}
        for row in answer.responses:
            try:
                check(row.error_code, row.error_message or "")
            except KafkaError as error:
                refused[row.resource_name] = error
        return refused

    return await client.until_done(attempt)
