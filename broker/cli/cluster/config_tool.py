"""`frazil config`: the configs of topics, brokers, groups and subscriptions to clients' metrics, as they hold and as they
shall (DescribeConfigs; IncrementalAlterConfigs, KIP-339).

Works on any cluster that speaks Kafka's protocol. Configs of a broker are told and set by that broker; those of all of
them (no name) by any.
"""

import json
from collections.abc import Awaitable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from broker.cli.command_result import CommandResult, ToolError
from broker.cli.kafka_client import KafkaClient, check
from broker.cli.routing import told
from broker.cli.topics.requests import WORDS
from broker.cli.topics.topic_tool import Alteration
from broker.reports import topic_lines
from broker.reports.tables import table
from protocol import apis, messages

T = TypeVar("T")


class ResourceKind(IntEnum):
    """What has configs, by the protocol's numbers (KIP-226, KIP-714, KIP-848)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    kind: ResourceKind
    name: str
    """"": all brokers together."""

    def words(self) -> str:
        kind = self.kind.name.lower().replace("_", " ")
        return f"{kind} {self.name}" if self.name else "all brokers"


def resource(kind: ResourceKind, name: str) -> Resource:
    """Raises ToolError for a name that none can have."""
    needs_number = kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER)
    if (
        needs_number
        and not (name.isascii() and name.isdigit())
        and (name or kind != ResourceKind.BROKER)
    ):
        raise ToolError(f'"{name}" is no id of a broker (frazil cluster describe shows them)')
    return Resource(kind, name)


async def describe(
    client: KafkaClient, about: Resource, *, every: bool, as_json: bool
) -> CommandResult:
    """Those that are no defaults, or `every` one. Raises ToolError, ClientError, KafkaError."""
    request = messages.DescribeConfigsRequest(
        resources=[
            messages.DescribeConfigsResource(
                resource_type=about.kind, resource_name=about.name, configuration_keys=None
            )
        ]
    )

    async def attempt() -> messages.DescribeConfigsResult:
        node = await _node(client, about)
        answer = await client.ask(apis.DESCRIBE_CONFIGS, request, node=node)
        row: messages.DescribeConfigsResult
        (row,) = answer.results
        check(row.error_code, row.error_message or "")
        return row

    row = await _told(about, client.until_done(attempt))
    found = topic_lines.set_configs(row, every=every)
    if as_json:
        return CommandResult([json.dumps([one._asdict() for one in found])])
    lines = table(("CONFIG", "VALUE", "SOURCE"), found)
    return CommandResult(lines if found else [f"all configs of {about.words()} are defaults"])


async def alter(
    client: KafkaClient, about: Resource, alterations: Sequence[Alteration], *, dry_run: bool
) -> CommandResult:
    """All of them or none. Raises ToolError, ClientError, KafkaError."""
    request = messages.IncrementalAlterConfigsRequest(
        resources=[
            messages.IncrementalAlterConfigsResource(
                resource_type=about.kind,
                resource_name=about.name,
                configs=[
                    messages.IncrementalAlterableConfig(
                        name=one.name, config_operation=one.operation, value=one.value
                    )
                    for one in alterations
                ],
            )
        ],
        validate_only=dry_run,
    )

    async def attempt() -> None:
        node = await _node(client, about)
        answer = await client.ask(apis.INCREMENTAL_ALTER_CONFIGS, request, node=node)
        (row,) = answer.responses
        check(row.error_code, row.error_message or "")

    # What is there already is not appended again, so it may be sent twice.
    await _told(about, client.until_done(attempt))
    done = ", ".join(one.words() for one in alterations)
    return CommandResult([f"{about.words()} {'would be' if dry_run else 'is'} altered: {done}"])


async def _node(client: KafkaClient, about: Resource) -> int | None:
    """Whom to ask; None: anybody. Raises ToolError for a broker that there is not."""
    if about.kind not in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) or not about.name:
        return None
    await client.refresh([])
    if int(about.name) not in client.brokers:
        known = ", ".join(map(str, sorted(client.brokers)))
        raise ToolError(f"there is no broker {about.name} (known: {known})")
    return int(about.name)


async def _told(about: Resource, work: Awaitable[T]) -> T:
    """Raises ToolError for a refusal."""
    return await told(f"configs of {about.words()}", work, WORDS)
