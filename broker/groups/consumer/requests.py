"""ConsumerGroupHeartbeat, v0-1: checks that need no group, and the answers.

Pure. Errors and sentences are Kafka's, in the order in which it looks for them
(`GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid`).
"""

from collections.abc import Sequence
from typing import Final

from broker.groups.consumer.members import EPOCH_AWAY, EPOCH_LEAVE, Member, Partitions, within
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TargetAssignment,
    TopicPartitions,
)
from protocol.types import TopicId

CLIENT_MAKES_ID_FROM: Final = 1
"""Version from which members come with an id of their own (KIP-1082)."""
SUBSCRIBED_MAX: Final = 25_000
"""Topics that a member names. More of the shortest names fit into no entry of the log, packed."""


def validate(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]
) -> None:
    """Raises KafkaError."""
    epoch = request.member_epoch
    if version >= CLIENT_MAKES_ID_FROM or epoch > 0 or epoch == EPOCH_LEAVE:
        _refuse_empty(request.member_id, "MemberId")
    _refuse_empty(request.group_id, "GroupId")
    _refuse_empty(request.instance_id, "InstanceId")
    _refuse_empty(request.rack_id, "RackId")
    if len(request.subscribed_topic_names or ()) > SUBSCRIBED_MAX:
        raise _invalid(f"A member subscribes to at most {SUBSCRIBED_MAX} topics by name.")
    if epoch == 0:
        _validate_join(request)
    elif epoch == EPOCH_AWAY and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < EPOCH_AWAY:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _validate_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must"
            " be non-null when (re-)joining."
        )


def _refuse_empty(value: str | None, name: str) -> None:
    if value == "":
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_epoch(member: Member, received: int, owned: Partitions | None) -> None:
    """Raises KafkaError (FENCED_MEMBER_EPOCH) when the member's request is of another life of it.

    The previous epoch is as good when all that the member has is assigned to it: the answer that
    brought the present one was lost. 0 is always good: it says that the member has nothing.
    """
    if received in (0, member.epoch):
        return
    if received > member.epoch:
        relation = "greater"
    elif received != member.previous_epoch or owned is None or not within(owned, member.assigned):
        relation = "smaller"
    else:
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({received}) than the one known "
        f"by the group coordinator ({member.epoch}). The member must abandon all its partitions "
        "and rejoin.",
    )


def owned_by(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """Returns the partitions that the member reports; None: the same as before."""
    if request.topic_partitions is None:
        return None
    owned: dict[TopicId, set[int]] = {}
    for topic in request.topic_partitions:
        if topic.partitions:
            # Added to, not made anew: a topic may be named a hundred thousand times.
            owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()}


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request says everything, as after an error: the member wants to be told all."""
    return (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def accepted(
    member: Member, heartbeat_interval_ms: int, assigned: Partitions | None
) -> ConsumerGroupHeartbeatResponse:
    """The answer to a heartbeat; without an assignment when the member knows it."""
    return ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms,
        assignment=None
        if assigned is None
        else TargetAssignment(topic_partitions=listed(assigned)),
    )


def listed(partitions: Partitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic, partitions=sorted(partitions[topic]))
        for topic in sorted(partitions)
    ]


def left(member_id: str, epoch: int) -> ConsumerGroupHeartbeatResponse:
    """The answer to a member that leaves, for good or for a while."""
    return ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)


def refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
