"""AlterConfigs, v0-2: from now on a resource has what is named here, and nothing else.

KIP-133; deprecated since KIP-339, whose IncrementalAlterConfigs shares what is below. Topics and
groups (KIP-848) have configs of their own, as commands in the log; a group id may have some
before there is such a group. So have agents (KIP-226: one, which must be the one that is asked, or
with the name "" all) and subscriptions to clients' metrics (KIP-714). Levels of loggers (KIP-412)
are the process's own.

Errors, per resource: 3, 7 (may still happen), 17, 31 (configs that are Frazil's own, without the
right to the cluster), 35 (what an older agent that is live does not know), 40, 41 (no session: send
it elsewhere), 42 (twice in a request, another agent's, or what cannot be altered), 44 (more than
fits).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import RequestedChange, forget, wait_for_changes
from broker.calls.shares import owner_of
from broker.config import client_metrics_configs, group_configs, topic_configs
from broker.config.changes import AlterConfigOp, Changes, ConfigRules, replaced
from broker.dynamic import logger_levels, settings
from broker.handler_support import (
    count_proposal,
    live_incarnation,
    refuse_beside_older,
    refuse_tables_of_some,
    require_configs,
    shut_out_older,
)
from broker.handlers.describe_configs import ResourceType, agent_name, is_node_id, of_permitted
from broker.node import Node
from coordinator.commands.codec import encoded_size
from coordinator.commands.config_commands import CONFIG_LEVEL, ChangeConfigs, ConfigKind
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

ChangesOf = Callable[..., Changes]
"""From what is set, and the `rules` of the resource, to what must change. Raises KafkaError."""
_Command = SetTopicConfigs | SetGroupConfigs | ChangeConfigs


class RequestedConfigs(NamedTuple):
    """What a request asks of one resource."""

    config_count: int
    changes_of: ChangesOf
    operations: Sequence[AlterConfigOp] | None
    """None: it is no IncrementalAlterConfigs."""


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
    requested: RequestedConfigs


async def handle(node: Node, call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=await alter(node, call, request, _requested))


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


def _requested(configs: list[AlterableConfig]) -> RequestedConfigs:
    wanted = [(config.name, config.value) for config in configs]
    return RequestedConfigs(len(configs), partial(replaced, wanted=wanted), None)


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
    node: Node, call: Call, request: _Request, requested_of: Callable[[Any], RequestedConfigs]
) -> list[AlterConfigsResourceResponse]:
    """What is in the log comes first: where that fails as a whole, nothing was done."""
    turns = node.slices.of(call)
    resources: Sequence[Any] = request.resources
    alterations = [
        Alteration(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            requested=requested_of(resource.configs),
        )
        async for resource in turns.over(resources)
    ]
    counts = Counter((each.resource_type, each.resource_name) for each in alterations)
    loggers: list[Alteration] = []
    in_log: list[Alteration] = []
    async for item in turns.over(alterations):
        if counts[item.resource_type, item.resource_name] > 1:
            reason = "Each resource must appear at most once."
            item.refused = KafkaError(ErrorCode.INVALID_REQUEST, reason)
        else:
            (loggers if item.resource_type == ResourceType.BROKER_LOGGER else in_log).append(item)
    if in_log:
        await _alter_in_log(node, call, in_log, validate_only=request.validate_only)
    for item in loggers:
        await turns.spend(item.requested.config_count)
        try:
            _alter_loggers(node, item, validate_only=request.validate_only)
        except KafkaError as error:
            item.refused = error
    return [_result(item) async for item in turns.over(alterations)]


async def _alter_in_log(
    node: Node, call: Call, alterations: Sequence[Alteration], *, validate_only: bool
) -> None:
    """Behind a barrier, since what is set decides what changes. Raises KafkaError."""
    owner = owner_of(call.connection.peer)
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    await node.log_client.barrier()
    turns = node.slices.of(call)
    for item in alterations:
        await turns.spend(ALTERATION_ELEMENTS + item.requested.config_count)
        try:
            command = _command(node, item)
            byte_count = 0
            if isinstance(command, SetTopicConfigs):
                guards.check_own_configs(node, call, [name for name, _ in command.configs])
                byte_count = require_configs(node, owner, item.resource_name, command.configs)
        except KafkaError as error:
            item.refused = error
            continue
        changes = _changes(command)
        if validate_only or not changes:
            continue
        if isinstance(command, SetTopicConfigs):
            given = [name for name, value in changes if value is not None]
            shut_out_older(node, given, incarnation)
        item.future = node.log_client.propose(command, incarnation)
        forget(item.future)  # Its client may be gone before it is asked for.
        if byte_count:
            name = item.resource_name
            count_proposal(node.config_shares, owner, name, byte_count, item.future)
    await wait_for_changes(alterations, WAIT_MS)


def _alter_loggers(node: Node, item: Alteration, *, validate_only: bool) -> None:
    operations = item.requested.operations
    if operations is None:
        reason = f"Unknown resource type {item.resource_type}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    _refuse_other(
        node, agent_name(node, item.resource_name), "node id. Expected {}, but received {}"
    )
    logger_levels.validate(operations)
    if not validate_only:
        logger_levels.apply(operations)


def _changes(command: _Command) -> Changes:
    return command.changes if isinstance(command, ChangeConfigs) else command.configs


def _command(node: Node, item: Alteration) -> _Command:
    machine, kafka, name = node.log_client.machine, node.kafka, item.resource_name
    changes_of = item.requested.changes_of
    command: _Command
    match item.resource_type:
        case ResourceType.TOPIC:
            _refuse_default(name, "topic")
            if (reason := name_error(name)) is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
            topic = machine.topics.by_name(name)
            if topic is None:
                reason = f"The topic '{name}' does not exist."
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
            changes = changes_of(topic.configs, rules=topic_configs.rules(kafka))
            refuse_tables_of_some(node, [name for name, value in changes if value is not None])
            command = SetTopicConfigs(topic.topic_id, changes)
        case ResourceType.GROUP:
            _refuse_default(name, "group")
            before = machine.groups.configs(name)
            changes = changes_of(before, rules=group_configs.rules(kafka))
            command = SetGroupConfigs(name, changes)
        case ResourceType.BROKER:
            refuse_beside_older(node, CONFIG_LEVEL)
            name = agent_name(node, name)
            rules = _rules_of_agent(node, name)
            before = machine.dynamic_configs.of(ConfigKind.BROKER, name)
            changes = changes_of(before, rules=rules)
            command = ChangeConfigs(ConfigKind.BROKER, name, changes)
        case ResourceType.CLIENT_METRICS:
            refuse_beside_older(node, CONFIG_LEVEL)
            if name == "":
                reason = "Subscription name can't be empty"
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            before = machine.dynamic_configs.of(ConfigKind.CLIENT_METRICS, name)
            changes = changes_of(before, rules=client_metrics_configs.rules())
            command = ChangeConfigs(ConfigKind.CLIENT_METRICS, name, changes)
        case kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    _refuse_large(command)
    return command


def _rules_of_agent(node: Node, name: str) -> ConfigRules:
    """Raises KafkaError when it is neither this agent's resource nor that of all."""
    configs = node.log_client.machine.dynamic_configs
    before = configs.of(ConfigKind.BROKER, name)
    given = node.settings.kafka
    if name == "":
        return settings.rules(given, before, of_all=None)
    _refuse_other(node, name, "broker id, expected {}, but received {}")
    of_all = configs.of(ConfigKind.BROKER, "")
    return settings.rules(given, before, of_all=of_all)


def _refuse_other(node: Node, name: str, sentence: str) -> None:
    """Raises KafkaError unless it is this agent's number."""
    own = str(node.log_client.node_id())
    if not is_node_id(name):
        reason = f"Node id must be an integer, but it is: {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if name != own:
        reason = f"Unexpected {sentence.format(own, name)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _refuse_default(name: str, what: str) -> None:
    if name == "":
        reason = f"Default {what} resources are not allowed."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _refuse_large(command: _Command) -> None:
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
