"""AlterConfigs, v0-2: from now on a resource has what is named here, and nothing else.

KIP-133; deprecated since KIP-339, whose IncrementalAlterConfigs shares what is below. Topics and
groups (KIP-848) have configs of their own, as commands in the log; a group id may have some
before there is such a group. The settings of an agent come from its file, environment and flags:
brokers, their loggers and client metrics cannot be altered.

Errors, per resource: 3, 7 (may still happen), 17, 31 (configs that are Frazil's own, without the
right to the cluster), 35 (configs of tables while an older agent is live), 40, 41 (no session: send it elsewhere), 42 (twice in a request, or of a kind that cannot be
altered), 44 (more than fits).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import RequestedChange, forget, wait_for_changes
from broker.calls.shares import owner_of
from broker.config import group_configs, topic_configs
from broker.config.changes import Changes, replaced
from broker.handler_support import (
    count_proposal,
    live_incarnation,
    refuse_tables_of_some,
    require_configs,
    shut_out_older,
)
from broker.handlers.describe_configs import ResourceType, of_permitted
from broker.node import Node
from coordinator.commands.codec import encoded_size
from coordinator.commands.encoding import CodecError
from coordinator.commands.group_commands import SetGroupConfigs, SetTopicConfigs
from coordinator.proposer import COMMAND_BYTES_MAX
from coordinator.tables.topics import name_error
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
)

ALTERATION_ELEMENTS: Final = 30
"""What one resource costs, in elements that are looked at: all its configs are validated."""
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

ChangesOf = Callable[..., Changes]
"""From what is set, and the `rules` of the resource, to what must change. Raises KafkaError."""
RIGHTS: Final = (
    Right(Operation.ALTER_CONFIGS, Resource.TOPIC, ("resources[].resource_name",)),
    Right(Operation.ALTER_CONFIGS, Resource.GROUP, ("resources[].resource_name",)),
    Right(Operation.ALTER_CONFIGS, Resource.CLUSTER),
)


_Request = AlterConfigsRequest | IncrementalAlterConfigsRequest


@dataclass(slots=True, kw_only=True)
class Alteration(RequestedChange):
    """One resource of a request."""

    resource_type: int
    resource_name: str
    config_count: int
    changes_of: ChangesOf


async def handle(node: Node, call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=await alter(node, call, request, _changes_of))


def refusal(call: Call, request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=refused(request, error))


async def narrow(node: Node, call: Call, request: AlterConfigsRequest) -> Narrowed:
    return await of_permitted(
        node,
        call,
        request,
        RIGHTS,
        lambda some, error: refusal(call, some, error),
        answers="responses",
    )


API: Final = Api(
    key=apis.ALTER_CONFIGS,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=RIGHTS,
    is_audited=True,
)


def _changes_of(configs: list[AlterableConfig]) -> ChangesOf:
    return partial(replaced, wanted=[(config.name, config.value) for config in configs])


def refused(request: _Request, error: KafkaError) -> list[AlterConfigsResourceResponse]:
    """The same refusal for every resource."""
    return [
        _refused(resource.resource_type, resource.resource_name, error)
        for resource in request.resources
    ]


def _refused(resource_type: int, name: str, error: KafkaError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.message or None,
        resource_type=resource_type,
        resource_name=name,
    )


async def alter(
    node: Node, call: Call, request: _Request, changes_of: Callable[[Any], ChangesOf]
) -> list[AlterConfigsResourceResponse]:
    """Behind a barrier, since what is set decides what changes."""
    alterations = [
        Alteration(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            config_count=len(resource.configs),
            changes_of=changes_of(resource.configs),
        )
        for resource in request.resources
    ]
    owner = owner_of(call.connection.peer)
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    await node.log_client.barrier()
    counts = Counter((each.resource_type, each.resource_name) for each in alterations)
    turns = node.slices.of(call)
    for item in alterations:
        await turns.spend(ALTERATION_ELEMENTS + item.config_count)
        try:
            if counts[item.resource_type, item.resource_name] > 1:
                reason = "Each resource must appear at most once."
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            command = _command(node, item)
            byte_count = 0
            if isinstance(command, SetTopicConfigs):
                guards.check_own_configs(node, call, [name for name, _ in command.configs])
                byte_count = require_configs(node, owner, item.resource_name, command.configs)
        except KafkaError as error:
            item.refused = error
        else:
            if command.configs and not request.validate_only:
                given = [name for name, value in command.configs if value is not None]
                shut_out_older(node, given, incarnation)
                item.future = node.log_client.propose(command, incarnation)
                forget(item.future)  # Its client may be gone before it is asked for.
                if byte_count:
                    name = item.resource_name
                    count_proposal(node.config_shares, owner, name, byte_count, item.future)
    await wait_for_changes(alterations, WAIT_MS)
    return [_result(item) async for item in turns.over(alterations)]


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
            changes = item.changes_of(topic.configs, rules=topic_configs.rules(kafka))
            refuse_tables_of_some(node, [name for name, value in changes if value is not None])
            command = SetTopicConfigs(topic.topic_id, changes)
        case ResourceType.GROUP:
            _refuse_default(name, "group")
            before = machine.groups.configs(name)
            changes = item.changes_of(before, rules=group_configs.rules(kafka))
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
    gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic of this id")
    try:
        item.outcome(ErrorCode.NOT_CONTROLLER, {ErrorCode.UNKNOWN_TOPIC_ID: gone})
    except KafkaError as error:
        return _refused(item.resource_type, item.resource_name, error)
    return AlterConfigsResourceResponse(
        resource_type=item.resource_type, resource_name=item.resource_name
    )
