"""Metadata, v0-13: agents, topics, and which agent to use for each partition.

KIP-516 (topic ids, v10+), KIP-430 (operations, v8+), KIP-1102 (v13). All live agents with the
client's listener are named, to some clients as several nodes (`broker.cluster.nodes`); the leader is
advice (`broker.cluster.placement`), its epoch constant. A name
or id that is not found is looked for again behind a barrier (P8); so is the list of all topics,
if a barrier can be had. Auto-creation proposes the topic and answers with it, not with an error:
one round trip less than Kafka takes.

Errors, per topic: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION,
INVALID_PARTITIONS (no room in the cluster, or for this client); LEADER_NOT_AVAILABLE when the log does not say
(retriable, as the first two are). Topics are kept encoded (`broker.cluster.topic_bytes`).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from broker import guards
from broker.api import Api, Cold, Encoded, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import forget, outcome_of, wait_for
from broker.calls.slices import Turns
from broker.cluster.nodes import is_led_to_nodes, is_shown_nodes
from broker.cluster.placement import Placement, zone_of_client
from broker.cluster.topic_bytes import encode_metadata
from broker.handler_support import (
    CLUSTER_OPERATIONS,
    TOPIC_OPERATIONS,
    caught_up,
    propose_partitions,
)
from broker.handlers.create_topics import CLUSTER_METADATA
from broker.node import Node
from coordinator.commands.entries import CreateTopic, Outcome, Rejected
from coordinator.log.metadata_log import LogError
from coordinator.tables.topics import Topic, name_error
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    NOT_ASKED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from protocol.types import TOPIC_ID_ZERO, Incarnation

CREATION_WAIT_MS: Final = 5_000
PROPOSAL_ELEMENTS: Final = 10
"""What one creation costs, in elements that are looked at."""

Found = Topic | MetadataResponseTopic
"""A topic, or the refusal that is answered in its place."""
RightCheck = Callable[[Right, str], bool]
"""Says whether the requester has a right to a topic."""


async def handle(node: Node, call: Call, request: MetadataRequest) -> Encoded:
    turns = node.slices.of(call)
    asked = request.topics
    asks = guards.asker(node, call)
    if asked is None or (call.version == 0 and not asked):
        await caught_up(node)
        found: list[Found] = [
            topic
            async for topic in turns.over(list(node.log_client.machine.topics))
            if asks is None or asks.allows(DESCRIBE, topic.name)
        ]
    else:
        found = await _find_all(
            node, call, turns, await _once(turns, asked), create=request.allow_auto_topic_creation
        )
    placement = node.placement(call.connection.listener)
    software = call.connection.software
    head = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=agent.node_id, host=agent.host, port=agent.port, rack=agent.zone or None
            )
            for agent in placement.nodes(spread=is_shown_nodes(software))
        ],
        cluster_id=node.settings.cluster_id,
        controller_id=controller_id(node, placement),
    )
    if request.include_cluster_authorized_operations:
        head.cluster_authorized_operations = guards.cluster_operations(
            node, call, CLUSTER_OPERATIONS
        )
    operations: int | Callable[[str], int] = NOT_ASKED
    if request.include_topic_authorized_operations:
        operations = TOPIC_OPERATIONS
        if asks is not None:
            operations = partial(asks.operations, Resource.TOPIC)
    head.throttle_time_ms = call.throttle()
    parts = encode_metadata(
        call.version,
        head,
        found,
        placement=placement,
        zone=zone_of_client(call.client_id),
        operations=operations,
        spread=is_led_to_nodes(software, may_create=request.allow_auto_topic_creation),
    )
    return Encoded(await turns.run(parts))


def refusal(call: Call, request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    """Every topic gets the error; versions before 13 have no other place for one."""
    return MetadataResponse(
        error_code=error.code,
        topics=[
            MetadataResponseTopic(
                error_code=error.code, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in request.topics or ()
        ],
    )


DESCRIBE: Final = Right(Operation.DESCRIBE, Resource.TOPIC, ("topics[].name", "topics[].topic_id"))
CREATE: Final = Right(
    Operation.CREATE, Resource.CLUSTER, instead=Right(Operation.CREATE, Resource.TOPIC)
)
"""For topics that come to be since their metadata are asked for."""


async def narrow(_node: Node, _call: Call, request: MetadataRequest) -> Narrowed:
    """Topics are checked where they are found, since those that are refused have their places among
    the others (`_find`)."""
    return Narrowed(request)


API: Final = Api(
    key=apis.METADATA,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.LEADER_NOT_AVAILABLE,
    changes=False,
    rights=(DESCRIBE,),
)


def controller_id(node: Node, placement: Placement) -> int:
    """Where admin clients send changes: any agent will do, so this one (KRaft brokers too name
    any broker). -1 when no agent is live."""
    node_ids = [agent.node_id for agent in placement.agents]
    own = node.log_client.node_id()
    if own in node_ids:
        return own
    return node_ids[0] if node_ids else -1


async def _once(turns: Turns, asked: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Each topic once, as in Kafka: a name takes a few bytes, its partitions many."""
    topics = {(topic.name, topic.topic_id): topic async for topic in turns.over(asked)}
    return list(topics.values())


async def _find_all(
    node: Node, call: Call, turns: Turns, asked: list[MetadataRequestTopic], *, create: bool
) -> list[Found]:
    asks = guards.asker(node, call)
    check = None if asks is None else asks.allows
    tell = None if asks is None else asks.permits
    found = [_find(node, tell, topic) async for topic in turns.over(asked)]
    if None not in found:
        return [item for item in found if item is not None]
    try:
        await node.log_client.barrier()
    except LogError:
        node.stats.barriers_failed += 1
        missing = ErrorCode.LEADER_NOT_AVAILABLE
        return [
            _find(node, check, topic) or _refused(topic, missing)
            async for topic in turns.over(asked)
        ]
    if create and node.kafka.auto_create_topics_enable:
        names = [
            topic.name
            async for topic in turns.over(asked)
            if topic.name and topic.name != CLUSTER_METADATA and _find(node, check, topic) is None
        ]
        refused = [] if asks is None else [each for each in names if not asks.permits(CREATE, each)]
        names = [each for each in names if each not in {*refused}] if refused else names
        errors = await _create(node, call, turns, names) if names else {}
        errors |= dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    else:
        errors = {}
    return [
        _find(node, check, topic) or _refused(topic, _unknown(topic, errors))
        async for topic in turns.over(asked)
    ]


def _find(node: Node, check: RightCheck | None, wanted: MetadataRequestTopic) -> Found | None:
    """None: there is no such topic as far as this replica knows.

    Who may not describe a topic of this name is told that, whether there is one or not.
    """
    topics = node.log_client.machine.topics
    if wanted.topic_id != TOPIC_ID_ZERO:
        topic = topics.by_id(wanted.topic_id)
        if topic is None or check is None or check(DESCRIBE, topic.name):
            return topic
        return _refused(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    name = wanted.name or ""
    if check is not None and not check(DESCRIBE, name):
        return _refused(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if name_error(name) is not None:
        return _refused(wanted, ErrorCode.INVALID_TOPIC_EXCEPTION)
    return topics.by_name(name)


def _unknown(wanted: MetadataRequestTopic, errors: dict[str, ErrorCode]) -> ErrorCode:
    if wanted.topic_id != TOPIC_ID_ZERO:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return errors.get(wanted.name or "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _refused(wanted: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    by_id = wanted.topic_id != TOPIC_ID_ZERO
    name = None if by_id else wanted.name or ""
    return MetadataResponseTopic(error_code=code, name=name, topic_id=wanted.topic_id)


async def _create(node: Node, call: Call, turns: Turns, names: list[str]) -> dict[str, ErrorCode]:
    """Propose the topics and wait; what went wrong, by name.

    A topic that somebody else created meanwhile is found afterwards, so that is no error.
    """
    if call.stale:
        call.refused_stale = True
        node.stats.refused_stale += 1
        return dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)
    incarnation = node.log_client.incarnation()
    if incarnation is None:
        return dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)
    creations: dict[str, asyncio.Future[Outcome]] = {}
    errors: dict[str, ErrorCode] = {}
    for name in names:
        await turns.spend(PROPOSAL_ELEMENTS)
        try:
            creations[name] = _creation(node, call, name, incarnation)
        except KafkaError:
            errors[name] = ErrorCode.INVALID_PARTITIONS
    await wait_for(list(creations.values()), CREATION_WAIT_MS)
    for name, creation in creations.items():
        try:
            outcome = outcome_of(creation, ErrorCode.LEADER_NOT_AVAILABLE)
        except KafkaError:
            errors[name] = ErrorCode.LEADER_NOT_AVAILABLE
            continue
        if isinstance(outcome, Rejected) and outcome.error != ErrorCode.TOPIC_ALREADY_EXISTS:
            errors[name] = _of_rejected(outcome.error)
    return errors


def _of_rejected(code: ErrorCode) -> ErrorCode:
    if code in {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_PARTITIONS}:
        return code
    return ErrorCode.LEADER_NOT_AVAILABLE


def _creation(
    node: Node, call: Call, name: str, incarnation: Incarnation
) -> asyncio.Future[Outcome]:
    """The creation of the topic that is under way here, or a new one.

    Raises KafkaError when the client has no share of partitions left.
    """
    creation = node.creations.get(name)
    if creation is None:
        count = node.kafka.num_partitions
        command = CreateTopic(name, count, ())
        creation = propose_partitions(node, call, command, (name, 0, count), incarnation)
        node.creations[name] = creation
        creation.add_done_callback(lambda _: node.creations.pop(name, None))
        forget(creation)
        node.stats.topics_auto_created += 1
    return creation
