"""AlterConfigs, v0-2: from now on a resource has what is named here, and nothing else.

KIP-133; deprecated since KIP-339, whose IncrementalAlterConfigs shares what is below. Topics and
groups (KIP-848) have configs of their own, as commands in the log; a group id may have some
before there is such a group. The settings of an agent come from its file, environment and flags:
brokers, their loggers and client metrics cannot be altered.

Errors, per resource: 3, 7 (may still happen), 17, 35 (configs of tables while an older agent is
live), 40, 41 (no session: send it elsewhere), 42 (twice in a request, or of a kind that cannot be
altered), 44 (more than fits).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import accepted, outcome_of, wait_for
from broker.config import group_configs, topic_configs
from broker.config.changes import Changes, ConfigRules, replaced
from broker.handler_support import live_incarnation, refuse_tables_of_some, shut_out_older
from broker.handlers.describe_configs import ResourceType
from broker.node import Node
from coordinator.commands.codec import encoded_size
from coordinator.commands.encoding import CodecError
from coordinator.commands.entries import Outcome
from coordinator.commands.group_commands import SetGroupConfigs, SetTopicConfigs
from coordinator.proposer import COMMAND_BYTES_MAX
from coordinator.tables.topics import name_error
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

WAIT_MS: Final = 30_000
"""The request has no timeout of its own; this is Kafka's request.timeout.ms."""

_FIXED: Final = {
    ResourceType.BROKER: (
        "The settings of an agent cannot be altered while it runs: they come from its file,"
        " environment and flags."
    ),
    ResourceType.BROKER_LOGGER: "Levels of loggers cannot be altered while the agent runs.",
    ResourceType.CLIENT_METRICS: "There are no metrics of clients here, so no configs of them.",
}

_ChangesOf = Callable[[Mapping[str, str], ConfigRules], Changes]
"""From what is set, and the rules of the resource, to what must change. Raises KafkaError."""


@dataclass(slots=True)
class Alteration:
    """One resource of a request, and how far its alteration has come."""

    resource_type: int
    resource_name: str
    changes_of: _ChangesOf
    refused: KafkaError | None = None
    future: asyncio.Future[Outcome] | None = None
    """None: refused, only validated, or nothing changes."""


async def handle(node: Node, call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    alterations = []
    for resource in request.resources:
        wanted = [(config.name, config.value) for config in resource.configs]

        def changes_of(
            before: Mapping[str, str],
            rules: ConfigRules,
            wanted: list[tuple[str, str | None]] = wanted,
        ) -> Changes:
            return replaced(before, wanted, rules)

        alterations.append(Alteration(resource.resource_type, resource.resource_name, changes_of))
    responses = await alter(node, alterations, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=responses)


def refusal(call: Call, request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            refused(resource.resource_type, resource.resource_name, error)
            for resource in request.resources
        ]
    )


API: Final = Api(
    key=apis.ALTER_CONFIGS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(
        Right(Operation.ALTER_CONFIGS, Resource.TOPIC, ("resources[].resource_name",)),
        Right(Operation.ALTER_CONFIGS, Resource.GROUP, ("resources[].resource_name",)),
        Right(Operation.ALTER_CONFIGS, Resource.CLUSTER),
    ),
)


def refused(resource_type: int, name: str, error: KafkaError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.message or None,
        resource_type=resource_type,
        resource_name=name,
    )


async def alter(
    node: Node, alterations: list[Alteration], *, validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    """Behind a barrier, since what is set decides what changes."""
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    await node.log_client.barrier()
    counts = Counter((each.resource_type, each.resource_name) for each in alterations)
    for item in alterations:
        try:
            if counts[item.resource_type, item.resource_name] > 1:
                reason = "Each resource must appear at most once."
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            command = _command(node, item)
        except KafkaError as error:
            item.refused = error
        else:
            if command.configs and not validate_only:
                given = [name for name, value in command.configs if value is not None]
                shut_out_older(node, given, incarnation)
                item.future = node.log_client.propose(command, incarnation)
    await wait_for([item.future for item in alterations if item.future is not None], WAIT_MS)
    return [_result(item) for item in alterations]


def _command(node: Node, item: Alteration) -> SetTopicConfigs | SetGroupConfigs:
    machine, kafka, name = node.log_client.machine, node.settings.kafka, item.resource_name
    command: SetTopicConfigs | SetGroupConfigs
    match item.resource_type:
        case ResourceType.TOPIC:
            _refuse_default(name, "topic")
            if (reason := name_error(name)) is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
            topic = machine.topics.by_name(name)
            if topic is None:
                reason = f"The topic '{name}' does not exist."
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
            changes = item.changes_of(topic.configs, topic_configs.rules(kafka))
            refuse_tables_of_some(node, [name for name, value in changes if value is not None])
            command = SetTopicConfigs(topic.topic_id, changes)
        case ResourceType.GROUP:
            _refuse_default(name, "group")
            changes = item.changes_of(machine.groups.configs(name), group_configs.rules(kafka))
            command = SetGroupConfigs(name, changes)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER | ResourceType.CLIENT_METRICS as kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, _FIXED[ResourceType(kind)])
        case kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    _refuse_large(command)
    return command


def _refuse_default(name: str, what: str) -> None:
    if name == "":
        reason = f"Default {what} resources are not allowed."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _refuse_large(command: SetTopicConfigs | SetGroupConfigs) -> None:
    try:
        fits = encoded_size(command) <= COMMAND_BYTES_MAX
    except CodecError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    if not fits:
        reason = f"What is altered takes more than {COMMAND_BYTES_MAX} bytes."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _result(item: Alteration) -> AlterConfigsResourceResponse:
    try:
        if item.refused is not None:
            raise item.refused
        if item.future is not None:
            outcome = outcome_of(item.future, ErrorCode.NOT_CONTROLLER)
            gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic of this id")
            accepted(outcome, {ErrorCode.UNKNOWN_TOPIC_ID: gone})
    except KafkaError as error:
        return refused(item.resource_type, item.resource_name, error)
    return AlterConfigsResourceResponse(
        resource_type=item.resource_type, resource_name=item.resource_name
    )
