"""CreatePartitions, v0-3: topics get more partitions, in effect when it is answered.

KIP-195. Which topics there are, and how many partitions they have, is known behind a barrier. As
Kafka does it checks replica assignments, though nothing follows from them here (placement is by
hashing).

Errors, per topic: 3, 7 (may still happen), 35 (an agent of an older release is live), 37 (not more
than there are, or too many), 39, 41 (no session: send it elsewhere), 42 (named twice), 44
(partitions are nearly used up, by this client), 89 (KIP-599, v3+).
"""

from collections import Counter
from typing import Final

from broker import guards
from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import RequestedChange, wait_for_changes
from broker.cluster.nodes import is_live
from broker.handler_support import (
    NO_REPLICAS,
    UNKNOWN_BROKER,
    charge_mutations,
    live_incarnation,
    propose_partitions,
    refuse_beside_older,
)
from broker.node import Node
from coordinator.commands.table_commands import TABLES_LEVEL, GrowTopic
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_SINCE: Final = 3
"""What is over a quota is refused."""
PROPOSAL_ELEMENTS: Final = 10
"""What one topic costs, in elements that are looked at."""


async def handle(
    node: Node, call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    await node.log_client.barrier()
    refuse_beside_older(node, TABLES_LEVEL)
    counts = Counter(topic.name for topic in request.topics)
    wanted: dict[str, RequestedChange] = {}
    turns = node.slices.of(call)
    for topic in request.topics:
        await turns.spend(PROPOSAL_ELEMENTS + len(topic.assignments or ()))
        item = wanted.setdefault(topic.name, RequestedChange())
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            command, first = _command(node, topic)
            charge_mutations(call, command.partition_count - first, strict_since=STRICT_SINCE)
            if not request.validate_only:
                added = (topic.name, first, command.partition_count - first)
                item.future = propose_partitions(node, call, command, added, incarnation)
        except KafkaError as error:
            item.refused = error
    await wait_for_changes(wanted.values(), request.timeout_ms)
    return CreatePartitionsResponse(
        results=[_result(*each) async for each in turns.over(wanted.items())]
    )


def refusal(
    call: Call, request: CreatePartitionsRequest, error: KafkaError
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            _refused(name, error) for name in dict.fromkeys(each.name for each in request.topics)
        ]
    )


RIGHTS: Final = (Right(Operation.ALTER, Resource.TOPIC, ("topics[].name",)),)
API: Final = Api(
    key=apis.CREATE_PARTITIONS,
    handler=Cold(
        handle,
        refusal,
        guards.each_of(RIGHTS, "topics", "name", answers="results", refusal=refusal),
    ),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=RIGHTS,
    is_audited=True,
)


def _command(node: Node, wanted: CreatePartitionsTopic) -> tuple[GrowTopic, int]:
    """The command, and how many partitions there are. Raises KafkaError; the log judges the
    numbers again."""
    machine = node.log_client.machine
    topic = machine.topics.by_name(wanted.name)
    if topic is None:
        raise _unknown(wanted.name)
    rejected = machine.topics.validate_growth(
        topic, wanted.count, partitions=len(machine.partitions)
    )
    if rejected is not None:
        raise KafkaError(rejected.error, rejected.message)
    if wanted.assignments is not None:
        _check_assignments(node, wanted.assignments, wanted.count - topic.partition_count)
    return GrowTopic(topic.topic_id, wanted.count), topic.partition_count


def _check_assignments(
    node: Node, assignments: list[CreatePartitionsAssignment], added: int
) -> None:
    """One for each new partition, of live agents, each once, and equally many."""
    incarnations = node.log_client.machine.incarnations
    replicas = [each.broker_ids for each in assignments]
    unknown = [each for some in replicas for each in some if not is_live(each, incarnations)]
    if len(assignments) != added:
        reason = (
            f"Attempted to add {added} additional partition(s), but only {len(assignments)}"
            " assignment(s) were specified."
        )
    elif not all(replicas):
        reason = NO_REPLICAS
    elif any(len(Counter(some)) < len(some) for some in replicas):
        reason = "A replica was named twice for one partition."
    elif len(Counter(map(len, replicas))) > 1:
        reason = "All partitions must have the same number of replicas."
    elif unknown:
        reason = UNKNOWN_BROKER.format(unknown[0])
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _unknown(name: str) -> KafkaError:
    reason = "This server does not host this topic-partition."
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)


def _result(name: str, item: RequestedChange) -> CreatePartitionsTopicResult:
    try:
        item.outcome(ErrorCode.NOT_CONTROLLER, {ErrorCode.UNKNOWN_TOPIC_ID: _unknown(name)})
    except KafkaError as error:
        return _refused(name, error)
    return CreatePartitionsTopicResult(name=name)


def _refused(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.message or None
    )
