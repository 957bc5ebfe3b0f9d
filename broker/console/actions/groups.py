"""Actions on groups: delete one, remove a member, reset offsets. Its coordinator does them, so other agents name it."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from broker.console.actions.asking import Operator
from broker.console.actions.parameters import Parameters, group_page
from broker.console.confirming import (
    Confirmation,
    Done,
    FormField,
    RefusalError,
    check,
    counted,
    refusal_of,
)
from broker.console.views.page_of_rows import ROWS_MAX
from broker.groups.consumer.rows import decode_member
from coordinator.commands.group_commands import GroupKind
from coordinator.tables.groups import GroupRow, shard_of
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId

LIST: Final = "/console/groups"
OFFSETS_RESET_MAX: Final = 5_000
"""More are for `frazil group reset`, which need not answer within a page."""
LEAVES: Final = -1
"""The epoch of a member of KIP-848 that goes."""
REASON: Final = "an operator removed it by the console"
EARLIEST, LATEST, TIME = "earliest", "latest", "time"
_TIMESTAMPS: Final = {EARLIEST: -2, LATEST: -1}
"""Of ListOffsets."""
_WHERE: Final = (
    (EARLIEST, "the earliest records"),
    (LATEST, "the end"),
    (TIME, "a time"),
)


async def plan_deletion(by: Operator, said: Parameters) -> Confirmation:
    group = _empty(by, said.text("id"), "deleted")
    return Confirmation(
        title="Delete a group",
        sentence=f"Group “{group.group_id}” is deleted, with {counted(len(group.offsets), 'committed offset')}.",
        warning=(
            "Nothing brings its offsets back: consumers that join it again begin where auto.offset.reset says."
        ),
        typed=group.group_id,
        button="Delete it",
        path=group_page(group.group_id, "/delete"),
        back=group_page(group.group_id),
    )


async def delete(by: Operator, said: Parameters) -> Done:
    group_id = said.text("id")
    request = messages.DeleteGroupsRequest(groups_names=[group_id])
    (result,) = (await by.ask(apis.DELETE_GROUPS, request)).results
    _check(by, group_id, result.error_code)
    return Done(LIST, "group-deleted", group_id)


async def plan_removal(by: Operator, said: Parameters) -> Confirmation:
    group, member_id = _row(by, said.text("id")), said.text("member")
    _check_coordinator(by, group.group_id)
    if member_id not in group.members:
        reason = f"Group “{group.group_id}” has no member “{member_id}”"
        raise refusal_of(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, reason))
    return Confirmation(
        title="Remove a member",
        sentence=(
            f"Member “{member_id}” is removed from group “{group.group_id}”, which has"
            f" {counted(len(group.members), 'member')}; the others get its partitions. If its client still runs, it"
            " joins again."
        ),
        warning="What it has read and not committed is read again by others.",
        button="Remove it",
        path=group_page(group.group_id, "/remove", member=member_id),
        back=group_page(group.group_id),
    )


async def remove(by: Operator, said: Parameters) -> Done:
    group, member_id = _row(by, said.text("id")), said.text("member")
    row = group.members.get(member_id)
    member = None
    if row is not None and group.kind is GroupKind.CONSUMER:
        member = decode_member(member_id, row.epoch, row.body)
    try:
        if member is not None and member.classic is None:
            await _remove_consumer(by, group.group_id, member_id, member.instance_id)
        else:
            await _remove_classic(by, group.group_id, member_id)
    except KafkaError as error:
        raise _refusal(by, group.group_id, error) from error
    return Done(group_page(group.group_id), "member-removed", member_id)


async def _remove_classic(by: Operator, group_id: str, member_id: str) -> None:
    """As administrators do (KIP-345). Raises KafkaError."""
    request = messages.LeaveGroupRequest(
        group_id=group_id,
        members=[messages.MemberIdentity(member_id=member_id, reason=REASON)],
    )
    answer = await by.ask(apis.LEAVE_GROUP, request)
    code = answer.error_code or next((each.error_code for each in answer.members), 0)
    if code:
        raise KafkaError(ErrorCode(code))


async def _remove_consumer(
    by: Operator, group_id: str, member_id: str, instance_id: str | None
) -> None:
    """Says in its place what a member that goes says (KIP-848). Raises KafkaError."""
    request = messages.ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=LEAVES, instance_id=instance_id
    )
    answer = await by.ask(apis.CONSUMER_GROUP_HEARTBEAT, request)
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "")


class _Reset(NamedTuple):
    """What becomes of one committed offset."""

    topic: str
    partition: int
    before: int
    after: int


async def plan_reset(by: Operator, said: Parameters) -> Confirmation:
    group = _empty(by, said.text("id"), "reset")
    back, to = group_page(group.group_id), said.text("to")
    if to not in (EARLIEST, LATEST, TIME) or (to == TIME and not said.text("time")):
        return _question(by, group, said)
    changes = await _resets(by, group, said)
    again = sum(max(0, each.before - each.after) for each in changes)
    skipped = sum(max(0, each.after - each.before) for each in changes)
    where = {EARLIEST: "the start of the log", LATEST: "the end of the log"}.get(to)
    where = where or f"the first records from {_time(said.time_ms('time'))} on"
    shown = changes[:ROWS_MAX]
    more = f" (the first {len(shown)} are shown)" if len(shown) < len(changes) else ""
    return Confirmation(
        title="Reset offsets",
        sentence=(
            f"{counted(len(changes), 'committed offset')} of group “{group.group_id}” {'moves' if len(changes) == 1 else 'move'}"
            f" to {where}: {counted(again, 'offset')} will be read again, {counted(skipped, 'offset')} will be"
            f" skipped{more}."
        ),
        warning="The offsets that are committed now are forgotten.",
        typed=group.group_id,
        button="Reset them",
        path=group_page(group.group_id, "/reset"),
        back=back,
        hidden=tuple((name, said.text(name)) for name in ("to", "topic", "time")),
        rows=(
            ("Topic", "Partition", "Committed", "New"),
            *(
                (each.topic, str(each.partition), f"{each.before:,}", f"{each.after:,}")
                for each in shown
            ),
        ),
    )


def _question(by: Operator, group: GroupRow, said: Parameters) -> Confirmation:
    every = counted(len(group.offsets), "committed offset")
    options = (("", f"all ({every})"), *((name, name) for name in _topics(by, group)))
    return Confirmation(
        title="Reset offsets",
        sentence=f"Where should group “{group.group_id}” go on to read, and in which topic?",
        button="Go on",
        path=group_page(group.group_id, "/reset"),
        back=group_page(group.group_id),
        fields=(
            FormField("to", "From", said.text("to") or EARLIEST, "select", _WHERE),
            FormField(
                "time",
                "Time (UTC)",
                said.text("time"),
                "datetime-local",
                hint="only where “a time” is chosen",
                is_required=False,
            ),
            FormField("topic", "Topic", said.text("topic"), "select", options),
        ),
        hidden=(("id", group.group_id),),
        is_question=True,
    )


async def reset(by: Operator, said: Parameters) -> Done:
    group = _empty(by, said.text("id"), "reset")
    by_topic: defaultdict[str, list[messages.OffsetCommitRequestPartition]] = defaultdict(list)
    for change in await _resets(by, group, said):
        by_topic[change.topic].append(
            messages.OffsetCommitRequestPartition(
                partition_index=change.partition,
                committed_offset=change.after,
                committed_metadata="",
            )
        )
    # By nobody, which a group that has members by now refuses.
    request = messages.OffsetCommitRequest(
        group_id=group.group_id,
        topics=[
            messages.OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )
    answer = await by.ask(apis.OFFSET_COMMIT, request)
    codes = [each.error_code for topic in answer.topics for each in topic.partitions]
    refused = [code for code in codes if code]
    if refused and len(refused) < len(codes):
        word = ErrorCode(refused[0]).name
        said_of = f"{counted(len(refused), 'offset')} of {len(codes):,} {'was' if len(refused) == 1 else 'were'} not reset"
        raise RefusalError(f"{said_of}: {word} ({refused[0]}). Look again, and reset what is left.")
    for code in refused:
        _check(by, group.group_id, code)
    return Done(group_page(group.group_id), "group-reset", group.group_id)


async def _resets(by: Operator, group: GroupRow, said: Parameters) -> list[_Reset]:
    """In order of topics and partitions. Raises RefusalError where there is nothing to reset."""
    before = {
        (name, partition): row.offset
        for name, topic_id in sorted(_topics(by, group).items())
        if said.text("topic") in ("", name)
        for partition, row in group.offsets.of_topic(topic_id)
    }
    if not before:
        raise RefusalError("Nothing was done: the group has committed nothing there.")
    if len(before) > OFFSETS_RESET_MAX:
        raise RefusalError(
            f"Nothing was done: {len(before):,} offsets are too many for a page. frazil group reset resets them."
        )
    to = said.text("to")
    timestamp = said.time_ms("time") if to == TIME else _TIMESTAMPS[to]
    found = await _offsets_at(by, list(before), timestamp)
    missing = [where for where in before if found.get(where, -1) < 0]
    if missing:  # No record is that new, so the end is meant, as for Kafka's tools.
        found |= await _offsets_at(by, missing, _TIMESTAMPS[LATEST])
    return [_Reset(*where, offset, found[where]) for where, offset in before.items()]


async def _offsets_at(
    by: Operator, places: list[tuple[str, int]], timestamp: int
) -> dict[tuple[str, int], int]:
    """By topic and partition; -1: no record is that new. Raises RefusalError."""
    by_topic: defaultdict[str, list[messages.ListOffsetsPartition]] = defaultdict(list)
    for name, partition in places:
        wanted = messages.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        by_topic[name].append(wanted)
    request = messages.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            messages.ListOffsetsTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )
    found = {}
    for topic in (await by.ask(apis.LIST_OFFSETS, request)).topics:
        for each in topic.partitions:
            check(each.error_code)
            found[topic.name, each.partition_index] = each.offset
    return found


def _topics(by: Operator, group: GroupRow) -> Mapping[str, TopicId]:
    """Ids of the topics that it has committed offsets of, by name, as far as they are there."""
    found = (by.machine.topics.by_id(topic_id) for topic_id in group.offsets.topics())
    return {topic.name: topic.topic_id for topic in found if topic is not None}


def _row(by: Operator, group_id: str) -> GroupRow:
    """Raises RefusalError."""
    row = by.machine.groups.get(group_id)
    if row is None:
        reason = f"There is no group “{group_id}”"
        raise refusal_of(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, reason))
    return row


def _empty(by: Operator, group_id: str, done: str) -> GroupRow:
    """The group, which has no members and is coordinated here. Raises RefusalError."""
    row = _row(by, group_id)
    _check_coordinator(by, group_id)
    if row.members:
        has = counted(len(row.members), "member")
        reason = f"Group “{group_id}” has {has}, and only an empty group can be {done}"
        raise refusal_of(KafkaError(ErrorCode.NON_EMPTY_GROUP, reason))
    return row


def _check_coordinator(by: Operator, group_id: str) -> None:
    try:
        by.node.groups.coordinates(group_id)
    except KafkaError as error:
        raise _refusal(by, group_id, error) from error


def _check(by: Operator, group_id: str, code: int) -> None:
    if code == ErrorCode.UNKNOWN_MEMBER_ID:  # Of a commit by nobody.
        code = ErrorCode.NON_EMPTY_GROUP
    if code:
        raise _refusal(by, group_id, KafkaError(ErrorCode(code)))


def _refusal(by: Operator, group_id: str, error: KafkaError) -> RefusalError:
    """Whom to ask, where this agent is not the coordinator."""
    if error.code is not ErrorCode.NOT_COORDINATOR:
        return refusal_of(error)
    holder = by.machine.groups.holder(shard_of(group_id))
    agent = None if holder is None else by.machine.incarnations.get(holder)
    whose = "no agent yet" if agent is None else f"agent {agent.node_name}"
    reason = f"Group “{group_id}” is coordinated by {whose}, and only its coordinator changes it"
    return refusal_of(
        KafkaError(error.code, reason),
        advice="Open that agent's console, or use frazil group, which finds it.",
    )


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
