"""`frazil topic describe`: where a topic's records lie. `frazil export plan | apply --file`: a project file.

`describe` asks an agent's admin listener, since Kafka's protocol knows nothing of chunks, segments and pages.
What a project file (`broker.reports.project_file`) wants is read and set over Kafka's protocol: all of it is checked
by the cluster before any of it is set, and each topic is set as a whole (KIP-339). Left out: what Kafka's own
tools do (kafka-topics.sh).
"""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final
from urllib.parse import quote

from broker.cli import admin_client
from broker.cli.admin_client import AgentPlace
from broker.cli.command_result import CommandResult, ToolError
from broker.cli.kafka_client import KafkaClient, check
from broker.config.entries import Source
from broker.config.table_configs import PREFIX
from broker.reports import project_file, topic_report
from broker.reports.project_file import Change, Settings
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError

TOPIC: Final = 2
SET, DELETE = 0, 1


def describe(agent: AgentPlace, name: str, *, as_json: bool) -> CommandResult:
    """One topic with all its partitions. Raises ToolError."""
    path = f"/topics/{quote(name, safe='')}?from="
    view = admin_client.ask(agent, f"{path}0")
    partitions = view["partitions"]
    # Partitions are asked for in slices; a topic that is deleted meanwhile ends it.
    while len(partitions) < view["partition_count"]:
        more = admin_client.ask(agent, f"{path}{len(partitions)}")
        if more["topic_id"] != view["topic_id"] or not more["partitions"]:
            break
        partitions += more["partitions"]
    return CommandResult([json.dumps(view)] if as_json else topic_report.lines(view))


async def plan(client: KafkaClient, wanted: Mapping[str, Settings]) -> CommandResult:
    """What would change. Raises ToolError for a topic that there is not, ClientError, KafkaError."""
    return CommandResult(project_file.lines(await _changes(client, wanted)))


async def apply(client: KafkaClient, wanted: Mapping[str, Settings]) -> CommandResult:
    """Sets it, if the cluster takes all of it. Raises as `plan`."""
    found = await _changes(client, wanted)
    if not found:
        return CommandResult(project_file.lines(found))
    if refused := await _alter(client, found, validate_only=True):
        return CommandResult([], failures=[*refused.values(), "nothing was changed"])
    # A topic can be deleted in between, or its rights taken away.
    failed = await _alter(client, found, validate_only=False)
    done = [one for one in found if one.topic not in failed]
    return CommandResult(project_file.lines(done) if done else [], failures=[*failed.values()])


async def _changes(client: KafkaClient, wanted: Mapping[str, Settings]) -> list[Change]:
    resources = [
        messages.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=topic, configuration_keys=None
        )
        for topic in wanted
    ]
    request = messages.DescribeConfigsRequest(resources=resources)

    async def attempt() -> dict[str, Settings]:
        answer: messages.DescribeConfigsResponse = await client.ask(apis.DESCRIBE_CONFIGS, request)
        there: dict[str, Settings] = {}
        for row in answer.results:
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ToolError(f"there is no topic {row.resource_name}; nothing was changed")
            check(row.error_code, f"{row.resource_name}: {row.error_message or 'refused'}")
            there[row.resource_name] = {
                one.name: one.value or ""
                for one in row.configs
                if one.config_source == Source.DYNAMIC_TOPIC and one.name.startswith(PREFIX)
            }
        return there

    return project_file.changes(wanted, await client.until_done(attempt))


async def _alter(
    client: KafkaClient, found: Sequence[Change], *, validate_only: bool
) -> dict[str, str]:
    """Returns why topics are refused, a sentence each."""
    request = messages.IncrementalAlterConfigsRequest(
        resources=[
            messages.IncrementalAlterConfigsResource(
                resource_type=TOPIC,
                resource_name=topic,
                configs=[
                    messages.IncrementalAlterableConfig(
                        name=one.name,
                        config_operation=DELETE if one.after is None else SET,
                        value=one.after,
                    )
                    for one in some
                ],
            )
            for topic, some in groupby(found, lambda one: one.topic)
        ],
        validate_only=validate_only,
    )

    async def attempt() -> dict[str, str]:
        answer = await client.ask(apis.INCREMENTAL_ALTER_CONFIGS, request)
        refused = {}
        for row in answer.responses:
            try:
                check(row.error_code, row.error_message or "")
            except KafkaError as error:
                said = error.message or error.code.name
                refused[row.resource_name] = f"{row.resource_name}: {said}"
        return refused

    return await client.until_done(attempt)
