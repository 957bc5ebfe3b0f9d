"""CreateTopics, v2-7: one CreateTopic command for each topic, in the order of the request.

KIP-464 (defaults by -1), KIP-525 (v5+: configs in the answer), KIP-516 (v7+: topic id). Checked
here: what no entry of the log can change (names twice, factors, assignments, configs). Whether
the name is free, apply decides; validate_only asks the machine the same behind a barrier.

There are no replicas: any replication factor from 1 to 32767 is taken, assignments are checked
for form and then dropped, and the answer says how many agents Metadata lists for a partition.

Errors: 7 (may still happen), 17, 31 (configs that are Frazil's own, without the right to the
cluster), 35 (configs of tables while an older agent is live), 36, 37, 38,
39, 40, 41 (no session: send it elsewhere), 42, 44 (partitions are nearly used up, by this client),
89 (KIP-599, v6+).
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import RequestedChange, wait_for_changes
from broker.cluster.nodes import is_live
from broker.config import topic_configs
from broker.handler_support import (
    UNKNOWN_BROKER,
    charge_mutations,
    live_incarnation,
    propose_partitions,
    refuse_tables_of_some,
    shut_out_older,
)
from broker.node import Node
from coordinator.commands.entries import CreateTopic, TopicCreated
from coordinator.tables.topics import name_error
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.types import TOPIC_ID_ZERO, Incarnation, TopicId

STRICT_SINCE: Final = 6
"""What is over a quota is refused."""
DEFAULT: Final = -1
CREATION_ELEMENTS: Final = 30
"""What one topic costs, in elements that are looked at: its configs are validated and told."""
REPLICATION_FACTOR_MAX: Final = 32_767
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The one name that Kafka keeps for itself."""


@dataclass(slots=True, kw_only=True)
class _TopicCreation(RequestedChange):
    """One topic of the request."""

    topic: CreatableTopic
    command: CreateTopic | None = None


async def handle(node: Node, call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    turns = node.slices.of(call)
    wanted = []
    for topic in request.topics:
        await turns.spend(CREATION_ELEMENTS + len(topic.configs) + len(topic.assignments))
        wanted.append(_validate(node, call, topic))
    names = Counter(topic.name for topic in request.topics)
    for item in wanted:
        if names[item.topic.name] > 1:
            item.refused = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    is_doubtful = any(item.topic.assignments or item.refused is not None for item in wanted)
    if is_doubtful or request.validate_only:
        await node.log_client.barrier()
        _check_brokers(node, wanted)
        _refuse_taken(node, [item for item in wanted if names[item.topic.name] == 1])
    if not request.validate_only:
        incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
        for item in wanted:
            if item.command is not None and item.refused is None:
                await turns.spend(CREATION_ELEMENTS)
                shut_out_older(node, [name for name, _ in item.command.configs], incarnation)
                _propose(node, call, item, item.command, incarnation)
        await wait_for_changes(wanted, request.timeout_ms)
    response = CreateTopicsResponse()
    for item in _once(wanted):
        await turns.spend(CREATION_ELEMENTS)
        response.topics.append(_result(node, call, item))
    return response


def refusal(call: Call, request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_refused(topic.name, error) for topic in request.topics])


CREATE: Final = Right(
    Operation.CREATE,
    Resource.CLUSTER,
    instead=Right(Operation.CREATE, Resource.TOPIC, ("topics[].name",)),
)
DESCRIBE_CONFIGS: Final = Right(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, ("topics[].name",))


async def narrow(node: Node, call: Call, request: CreateTopicsRequest) -> Narrowed:
    """Who may not DESCRIBE_CONFIGS of a topic that it creates is told nothing of them (KIP-525)."""
    assert node.rights is not None
    asks = guards.Asker(node.rights, call)
    left: list[CreatableTopic] = []
    refused: list[CreatableTopic] = []
    async for topic in node.slices.of(call).over(request.topics):
        (left if asks.permits(CREATE, topic.name) else refused).append(topic)

    def complete(response: CreateTopicsResponse | None) -> CreateTopicsResponse:
        response = response or CreateTopicsResponse()
        for result in response.topics:
            if result.error_code or asks.allows(DESCRIBE_CONFIGS, result.name):
                continue
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            result.num_partitions = result.replication_factor = -1
            result.configs = []
        part = refusal(call, replace(request, topics=refused), guards.refusal_for(Resource.TOPIC))
        response.topics.extend(part.topics)
        return response

    is_left = left or not refused
    return Narrowed(replace(request, topics=left) if is_left else None, complete)


API: Final = Api(
    key=apis.CREATE_TOPICS,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(CREATE, DESCRIBE_CONFIGS, guards.OWN_CONFIGS),
    is_audited=True,
)


def _propose(
    node: Node, call: Call, item: _TopicCreation, command: CreateTopic, incarnation: Incarnation
) -> None:
    added = (command.name, 0, command.partition_count)
    try:
        charge_mutations(call, command.partition_count, strict_since=STRICT_SINCE)
        item.future = propose_partitions(node, call, command, added, incarnation)
    except KafkaError as error:
        item.refused = error


def _once(wanted: list[_TopicCreation]) -> list[_TopicCreation]:
    """A name that was asked for twice is answered once, as in Kafka."""
    return list({item.topic.name: item for item in wanted}.values())


def _validate(node: Node, call: Call, topic: CreatableTopic) -> _TopicCreation:
    try:
        return _TopicCreation(topic=topic, command=_command(node, call, topic))
    except KafkaError as error:
        return _TopicCreation(topic=topic, refused=error)


def _command(node: Node, call: Call, topic: CreatableTopic) -> CreateTopic:
    """The command for a topic. Raises KafkaError for what can never be."""
    if topic.name == CLUSTER_METADATA:
        reason = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if (reason_why := name_error(topic.name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason_why)
    partitions = topic.num_partitions
    if topic.assignments:
        if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
            reason = "With replica assignments, partitions and replication factor must be -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        _check_assignments(topic.assignments)
        partitions = len(topic.assignments)
    elif partitions == DEFAULT:
        partitions = node.kafka.num_partitions
    if partitions < 1:
        reason = f"Number of partitions was set to {partitions}; at least 1, or -1 for the default."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, reason)
    factor = topic.replication_factor
    if factor != DEFAULT and not 1 <= factor <= REPLICATION_FACTOR_MAX:
        reason = f"Replication factor was set to {factor}; at least 1, or -1 for the default."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    configs = _configs(topic)
    guards.check_own_configs(node, call, [name for name, _ in configs])
    refuse_tables_of_some(node, [name for name, _ in configs])
    return CreateTopic(topic.name, partitions, configs)


def _check_assignments(assignments: list[CreatableReplicaAssignment]) -> None:
    """Form only: consecutive partitions, replicas given, distinct and equally many."""
    indexes = sorted(assignment.partition_index for assignment in assignments)
    counts = [len(assignment.broker_ids) for assignment in assignments]
    if indexes != list(range(len(assignments))):
        reason = "Partitions must be consecutive, from 0 on, each one once."
    elif counts[0] == 0 or len(Counter(counts)) > 1:
        reason = "All partitions must have the same number of replicas, at least one."
    elif any(len(set(each.broker_ids)) < len(each.broker_ids) for each in assignments):
        reason = "A replica was named twice for one partition."
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _check_brokers(node: Node, wanted: list[_TopicCreation]) -> None:
    """Replicas must be live agents; only a caught up replica may say that one is not."""
    incarnations = node.log_client.machine.incarnations
    for item in wanted:
        for assignment in item.topic.assignments:
            unknown = [each for each in assignment.broker_ids if not is_live(each, incarnations)]
            if unknown and item.refused is None:
                reason = UNKNOWN_BROKER.format(unknown[0])
                item.refused = KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _refuse_taken(node: Node, wanted: list[_TopicCreation]) -> None:
    """That a topic is there comes before whatever else is wrong, as in Kafka: programs that create
    what may be there already go by that error. Only a caught up replica may say it."""
    topics = node.log_client.machine.topics
    for item in wanted:
        if item.refused is not None:
            rejected = topics.validate(CreateTopic(item.topic.name, 1, ()), partitions=0)
            if rejected is not None:
                item.refused = KafkaError(rejected.error, rejected.message)


def _configs(topic: CreatableTopic) -> tuple[tuple[str, str], ...]:
    """What the client set, checked, sorted by name. Raises KafkaError(INVALID_CONFIG)."""
    configs: dict[str, str] = {}
    for config in topic.configs:
        reason = topic_configs.check(config.name, config.value)
        if config.name in configs:
            reason = f"Config {config.name} was given twice."
        if reason is not None or config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason or "")
        configs[config.name] = config.value
    if (reason := topic_configs.check_together(configs)) is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    return tuple(sorted(configs.items()))


def _result(node: Node, call: Call, item: _TopicCreation) -> CreatableTopicResult:
    try:
        topic_id = _settle(node, item)
    except KafkaError as error:
        return _refused(item.topic.name, error)
    assert item.command is not None
    configs = topic_configs.describe_topic(dict(item.command.configs), node.kafka)
    return CreatableTopicResult(
        name=item.topic.name,
        topic_id=topic_id,
        num_partitions=item.command.partition_count,
        replication_factor=max(node.placement(call.connection.listener).replica_count, 1),
        configs=[
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.source,
                is_sensitive=config.sensitive,
            )
            for config in configs
        ],
    )


def _settle(node: Node, item: _TopicCreation) -> TopicId:
    """The id of the new topic (zero when only validated). Raises KafkaError."""
    outcome = item.outcome(ErrorCode.NOT_CONTROLLER)
    assert item.command is not None
    if outcome is None:
        machine = node.log_client.machine
        rejected = machine.topics.validate(item.command, partitions=len(machine.partitions))
        if rejected is not None:
            raise KafkaError(rejected.error, rejected.message)
        return TOPIC_ID_ZERO
    assert isinstance(outcome, TopicCreated)
    return outcome.topic_id


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message or None, configs=[]
    )
