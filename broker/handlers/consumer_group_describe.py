"""ConsumerGroupDescribe, v0-1: groups of KIP-848, with assignments and targets.

KIP-848, KIP-1099 (type of each member, v1). A group of the classic protocol is "not found" here,
which sends tools to DescribeGroups. Between the changes of a group, and behind a barrier (P8).

Errors, per group: 14, 15, 16, 24, 35 (the protocol is switched off), 69.
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.config.group_configs import consumer_protocol_enabled
from broker.groups.consumer.group import ConsumerGroup
from broker.handlers.describe_groups import group_operations, settled_group
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)


async def handle(
    node: Node, call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    if not consumer_protocol_enabled(node.kafka):
        reason = "The consumer protocol is switched off by this agent's settings."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
    await node.log_client.barrier()
    response = ConsumerGroupDescribeResponse()
    turns = node.slices.of(call)
    # Each group once: its members may be many, and its name short.
    async for group_id in turns.over(dict.fromkeys(request.group_ids)):
        try:
            group = await _describe(node, group_id)
        except KafkaError as error:
            group = _refused(group_id, error)
        else:
            if request.include_authorized_operations:
                group.authorized_operations = group_operations(node, call, group_id)
        response.groups.append(group)
        await turns.spend(len(group.members))
    return response


def refusal(
    call: Call, request: ConsumerGroupDescribeRequest, error: KafkaError
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[_refused(group_id, error) for group_id in request.group_ids]
    )


RIGHTS: Final = (Right(Operation.DESCRIBE, Resource.GROUP, ("group_ids[]",)),)
DESCRIBE_TOPIC: Final = Right(Operation.DESCRIBE, Resource.TOPIC)
_of_groups: Final = guards.each_of(RIGHTS, "group_ids", "", answers="groups", refusal=refusal)


async def narrow(node: Node, call: Call, request: ConsumerGroupDescribeRequest) -> Narrowed:
    """Of a group that has topics which may not be described, nothing is told but that."""
    assert node.rights is not None
    asks = guards.Asker(node.rights, call)
    left, add_refused = await _of_groups(node, call, request)

    def complete(response: ConsumerGroupDescribeResponse | None) -> ConsumerGroupDescribeResponse:
        completed: ConsumerGroupDescribeResponse = add_refused(response)
        for index, group in enumerate(completed.groups):
            if not all(asks.allows(DESCRIBE_TOPIC, name) for name in _topics_of(group)):
                completed.groups[index] = _refused(group.group_id, HIDDEN)
        return completed

    return Narrowed(left, complete)


HIDDEN: Final = KafkaError(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "The described group uses topics that the client is not authorized to describe.",
)


def _topics_of(group: DescribedConsumerGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


API: Final = Api(
    key=apis.CONSUMER_GROUP_DESCRIBE,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=False,
    rights=RIGHTS,
)


async def _describe(node: Node, group_id: str) -> DescribedConsumerGroup:
    """Raises KafkaError."""
    group = await settled_group(node, group_id)
    if not isinstance(group, ConsumerGroup):
        reason = f"Group {group_id} is not a consumer group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
    return group.describe_consumer(node.log_client.machine.topics)


def _refused(group_id: str, error: KafkaError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group_id=group_id, error_code=error.code, error_message=error.message or None
    )
