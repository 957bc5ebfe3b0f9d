"""DescribeConfigs, v1-4: configs of topics, groups and subscriptions, settings and loggers of this agent.

KIP-133, KIP-226 (brokers, synonyms), KIP-412 (loggers), KIP-569 (type and documentation, v3+),
KIP-714 (client metrics), KIP-848 (groups). What the log has is described behind a barrier (P8), but
settings and loggers of an agent by that agent only, since nobody else knows them. "" is what was set
for all agents.

Errors, per resource: 3, 7 (no barrier to be had), 17, 42.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.cluster.nodes import agent_id_of
from broker.config.client_metrics_configs import describe_subscription
from broker.config.entries import ConfigEntry, Source, describe_all_brokers, describe_broker
from broker.config.group_configs import describe_group
from broker.config.topic_configs import describe_topic
from broker.dynamic import logger_levels
from broker.node import Node
from coordinator.commands.config_commands import ConfigKind
from coordinator.tables.topics import name_error
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


class ResourceType(IntEnum):
    """What configs can be of (`org.apache.kafka.common.config.ConfigResource.Type`)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_IN_LOG: Final = frozenset(ResourceType) - {ResourceType.BROKER_LOGGER}
CONFIG_ELEMENTS: Final = 3
"""What one config costs, in elements that are looked at: it has synonyms and a documentation."""
UNKNOWN_TYPE: Final = 0
"""Of a level of a logger, as in Kafka."""
RESOURCE_ELEMENTS: Final = 30
"""What a resource costs besides: all its configs are looked up, however few are told."""


async def handle(
    node: Node, call: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    if any(resource.resource_type in _IN_LOG for resource in request.resources):
        await node.log_client.barrier()
    turns = node.slices.of(call)
    response = DescribeConfigsResponse()
    async for resource in turns.over(_once(request.resources)):
        result = _describe(node, request, resource)
        response.results.append(result)
        if result.error_code == ErrorCode.NONE:
            await turns.spend(RESOURCE_ELEMENTS + CONFIG_ELEMENTS * len(result.configs))
    return response


def refusal(
    call: Call, request: DescribeConfigsRequest, error: KafkaError
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_refused(resource, error) for resource in request.resources]
    )


def _once(resources: list[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """A resource that is asked for twice is described once, with all that is asked of it: its configs
    are much longer than its name."""
    wanted: dict[tuple[int, str], DescribeConfigsResource] = {}
    for each in resources:
        first = wanted.setdefault((each.resource_type, each.resource_name), each)
        if first is each or not first.configuration_keys:
            continue
        if each.configuration_keys:
            first.configuration_keys.extend(each.configuration_keys)
        else:
            first.configuration_keys = None  # All of them.
    return list(wanted.values())


RIGHTS: Final = (
    Right(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, ("resources[].resource_name",)),
    Right(Operation.DESCRIBE_CONFIGS, Resource.GROUP, ("resources[].resource_name",)),
    Right(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),
)


async def of_permitted(
    node: Node,
    call: Call,
    request: Any,
    rights: Sequence[Right],
    refused_response: Callable[[Any, KafkaError], Any],
    *,
    answers: str,
) -> Narrowed:
    """The resources of the request whose requester has the right to them: `rights` are those to
    topics, to groups, and to all else, which are the cluster's."""
    assert node.rights is not None
    asks = guards.Asker(node.rights, call)
    of_topics, of_groups, of_cluster = rights
    known = {ResourceType.TOPIC: of_topics, ResourceType.GROUP: of_groups}
    left: list[Any] = []
    refused: dict[Resource, list[Any]] = {}
    async for each in node.slices.of(call).over(request.resources):
        right = known.get(each.resource_type, of_cluster)
        is_known = each.resource_type in [*ResourceType]
        if not is_known or asks.permits(right, each.resource_name):
            left.append(each)
        else:
            refused.setdefault(right.resource, []).append(each)

    def complete(response: Any) -> Any:
        for resource, some in refused.items():
            part = replace(request, resources=some)
            told = refused_response(part, guards.refusal_for(resource))
            response = guards.joined(response, told, answers)
        return response

    if not refused:
        return Narrowed(request)
    return Narrowed(replace(request, resources=left) if left else None, complete)


async def narrow(node: Node, call: Call, request: DescribeConfigsRequest) -> Narrowed:
    return await of_permitted(
        node,
        call,
        request,
        RIGHTS,
        lambda some, error: refusal(call, some, error),
        answers="results",
    )


API: Final = Api(
    key=apis.DESCRIBE_CONFIGS,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=RIGHTS,
)


def _describe(
    node: Node, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        entries = _entries(node, resource)
    except KafkaError as error:
        return _refused(resource, error)
    keys = resource.configuration_keys
    wanted = None if not keys else frozenset(keys)
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            _config(entry, request) for entry in entries if wanted is None or entry.name in wanted
        ],
    )


def _entries(node: Node, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            if (reason := name_error(name)) is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
            topic = node.log_client.machine.topics.by_name(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(topic.configs, node.kafka)
        case ResourceType.BROKER:
            if name == "":
                dynamic = node.log_client.machine.dynamic_configs
                return describe_all_brokers(dynamic.of(ConfigKind.BROKER, ""))
            _refuse_other(
                node, agent_name(node, name), "expected {} or empty string, but received {}"
            )
            return describe_broker(node.kafka)
        case ResourceType.GROUP:
            if name == "":
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            configs = node.log_client.machine.groups.configs(name)
            return describe_group(configs, node.kafka)
        case ResourceType.BROKER_LOGGER:
            if name == "":
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _refuse_other(node, agent_name(node, name), "expected {} but received {}")
            return [_of_logger(*item) for item in logger_levels.levels().items()]
        case ResourceType.CLIENT_METRICS:
            if name == "":
                reason = "Client metrics subscription name must not be empty"
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            dynamic = node.log_client.machine.dynamic_configs
            return describe_subscription(dynamic.of(ConfigKind.CLIENT_METRICS, name))
        case kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _refuse_other(node: Node, name: str, sentence: str) -> None:
    """Raises KafkaError unless it is this agent's number."""
    own = str(node.log_client.node_id())
    if not is_node_id(name):
        reason = f"Broker id must be an integer, but it is: {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if name != own:
        reason = f"Unexpected broker id, {sentence.format(own, name)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def agent_name(node: Node, name: str) -> str:
    """The agent's resource, for that of any node as which it is shown; else `name` itself."""
    if not is_node_id(name) or str(int(name)) != name:
        return name
    return str(agent_id_of(int(name), node.log_client.machine.incarnations))


def is_node_id(name: str) -> bool:
    """Whether the name of a resource is a number, as those of agents are."""
    return re.fullmatch(r"[0-9]{1,10}", name) is not None


def _of_logger(name: str, level: str) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=level,
        source=Source.DYNAMIC_BROKER_LOGGER,
        kind=None,
        documentation="",
        synonyms=(),
        read_only=False,
        sensitive=False,
    )


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=UNKNOWN_TYPE if entry.kind is None else entry.kind,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in entry.synonyms
        ]
    if request.include_documentation:
        result.documentation = entry.documentation
    return result


def _refused(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
