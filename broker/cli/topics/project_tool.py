"""`frazil export plan | apply --file`: the table settings of topics, as a project file says.

What the file (`broker.reports.project_file`) wants is read and set over Kafka's protocol: all of it is checked
by the cluster before any of it is set, and each topic is set as a whole (KIP-339).
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from broker.cli.command_result import CommandResult, ToolError
from broker.cli.kafka_client import KafkaClient, check
from broker.cli.topics.requests import DELETE, SET, alter_configs, described_configs
from broker.config.entries import Source
from broker.config.table_configs import PREFIX
from broker.reports import project_file
from broker.reports.project_file import Change, Settings
from protocol.errors import ErrorCode
from protocol.messages import IncrementalAlterableConfig


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
    there: dict[str, Settings] = {}
    for topic, row in (await described_configs(client, wanted)).items():
        if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ToolError(f"there is no topic {topic}; nothing was changed")
        check(row.error_code, f"{topic}: {row.error_message or 'refused'}")
        there[topic] = {
            one.name: one.value or ""
            for one in row.configs
            if one.config_source == Source.DYNAMIC_TOPIC and one.name.startswith(PREFIX)
        }
    return project_file.changes(wanted, there)


async def _alter(
    client: KafkaClient, found: Sequence[Change], *, validate_only: bool
) -> dict[str, str]:
    """Returns why topics are refused, a sentence each."""
    wanted = {
        topic: [
            IncrementalAlterableConfig(
                name=one.name,
                config_operation=DELETE if one.after is None else SET,
                value=one.after,
            )
            for one in some
        ]
        for topic, some in groupby(found, lambda one: one.topic)
    }
    refused = await alter_configs(client, wanted, validate_only=validate_only)
    return {
        topic: f"{topic}: {error.message or error.code.name}" for topic, error in refused.items()
    }
