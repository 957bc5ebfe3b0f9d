"""`frazil group`: list, describe, reset and delete consumer groups, over Kafka's protocol.

Works on any cluster that speaks it, through any of its agents. What a group's coordinator or a
partition's agent refuses for the moment is asked again until the time is up. Formatting and
planning are in `broker.reports.group_report` and `broker.cli.groups.group_reset`.

Leaves out: offsets of single topics of a group that runs (kafka-consumer-groups.sh has
--delete-offsets), share groups.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from broker.cli.command_result import CommandResult, ToolError
from broker.cli.groups import group_reset
from broker.cli.groups.group_reset import PartitionOffsets, ResetRule, ResetTarget
from broker.cli.kafka_client import ClientError, KafkaClient, check
from broker.cli.routing import all_of, by_agent, by_topic, leaders, told
from broker.reports import group_report
from broker.reports.group_report import CoordinatorView, GroupView, Partition, PartitionView
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError

EARLIEST: Final = -2
LATEST: Final = -1
"""Timestamps with a meaning of their own in ListOffsets."""
FETCH_OLDEST: Final = 8
"""OffsetFetch names several groups from here on (KIP-709)."""
BY_NAME_NEWEST: Final = 9
"""OffsetFetch and OffsetCommit name topics by id from v10 on; offsets of topics that are gone,
which a description shows, have no id that Metadata would tell."""


async def list_groups(
    client: KafkaClient,
    *,
    states: Collection[str] = (),
    kinds: Collection[str] = (),
    as_json: bool = False,
) -> CommandResult:
    """The groups of all agents. When some do not answer, those of the others, and a failure."""
    request = messages.ListGroupsRequest(states_filter=list(states), types_filter=list(kinds))
    found: dict[str, messages.ListedGroup] = {}

    async def ask(node: int) -> None:
        # Types are told, and sifted, from v5 on, states from v4 on.
        oldest = 5 if kinds else 4
        answer = await client.ask(apis.LIST_GROUPS, request, node=node, oldest=oldest)
        check(answer.error_code, f"{client.brokers[node]} cannot list its groups")
        found.update({row.group_id: row for row in answer.groups})

    async def attempt() -> None:
        await all_of(map(ask, client.brokers))

    failures = []
    try:
        await client.until_done(attempt)
    except ClientError as error:
        failures.append(f"some groups may be missing: {error}")
    if failures and not found:
        return CommandResult([], failures=failures)
    if as_json:
        listed = json.dumps(group_report.list_json(found.values()))
        return CommandResult([listed], failures=failures)
    if not found and (states or kinds):
        return CommandResult(["no group has that state and type"])
    return CommandResult(group_report.group_lines(found.values()), failures=failures)


async def describe(
    client: KafkaClient, group_id: str, *, members: bool = False, as_json: bool = False
) -> CommandResult:
    """One group, with the lag of every partition or with its members. Raises ToolError."""
    group = await describe_group(client, group_id)
    if group is None:
        raise ToolError(f'there is no group "{group_id}" (frazil group list shows all)')
    if members and not as_json:
        return CommandResult(group_report.member_lines(group))
    partitions = await _partitions(client, group)
    if as_json:
        return CommandResult([json.dumps(group_report.describe_json(group, partitions))])
    warnings = []
    if group.state in group_report.REBALANCING:
        warnings.append(f'"{group_id}" is rebalancing; assignments are about to change')
    return CommandResult(group_report.describe_lines(group, partitions), warnings=warnings)


async def reset(
    client: KafkaClient,
    group_id: str,
    target: ResetTarget,
    topics: Mapping[str, set[int] | None] | None,
    *,
    execute: bool,
) -> CommandResult:
    """Plan where the group goes on, and commit that when told to. Raises ToolError.

    `topics`: partitions by topic, None for all of a topic, or of all topics with offsets.
    """
    group = await describe_group(client, group_id)
    if group is not None and (group.members or group.state != group_report.EMPTY):
        raise ToolError(
            f'group "{group_id}" is in use ({group.state}): stop its consumers first, all of them'
        )
    committed = {} if group is None else await _committed(client, group_id)
    chosen = await _chosen(client, group_id, topics, committed)
    places = await _places(client, target, chosen)
    warnings = [
        f"{topic}:{partition} is left out: its topic or partition is gone"
        for topic, partition in sorted(chosen.keys() - places)
    ]
    try:
        changes, more = group_reset.plan(target, places)
    except group_reset.ResetError as error:
        raise ToolError(str(error)) from error
    lines = group_reset.plan_lines(changes)
    warnings += more
    if group is None:
        warnings.append(f'there is no group "{group_id}"; its offsets make one')
    if not execute:
        return CommandResult([*lines, "", "nothing is changed yet; --execute does it"], warnings)
    failures = await _commit(client, group_id, changes)
    done = len(changes) - len(failures)
    summary = f'{done} of {len(changes)} offsets of group "{group_id}" are reset'
    return CommandResult([*lines, "", summary], warnings, failures)


async def delete(client: KafkaClient, group_ids: Iterable[str]) -> CommandResult:
    """Delete groups without members, with their offsets."""
    lines, failures = [], []
    for group_id in dict.fromkeys(group_ids):
        try:
            await _delete(client, group_id)
        except KafkaError as error:
            words = group_report.error_text(error.code, error.message)
            failures.append(f'group "{group_id}" is not deleted: {words}')
        except ClientError as error:
            failures.append(f'it is not known whether group "{group_id}" is deleted: {error}')
        else:
            lines.append(f'group "{group_id}" is deleted')
    return CommandResult(lines, failures=failures)


async def _delete(client: KafkaClient, group_id: str) -> None:
    request = messages.DeleteGroupsRequest(groups_names=[group_id])
    in_doubt = False

    async def attempt() -> None:
        nonlocal in_doubt
        node = await client.find_coordinator(group_id)
        in_doubt, was_in_doubt = True, in_doubt
        answer = await client.ask(apis.DELETE_GROUPS, request, node=node)
        (result,) = answer.results
        # A deletion whose answer was lost may have happened.
        if was_in_doubt and result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return
        in_doubt = was_in_doubt or result.error_code == ErrorCode.REQUEST_TIMED_OUT
        check(result.error_code)

    await client.until_done(attempt)


async def describe_group(client: KafkaClient, group_id: str) -> GroupView | None:
    """The group, of either protocol; None when there is none. Raises ToolError."""

    async def attempt() -> GroupView | None:
        node = await client.find_coordinator(group_id)
        at = CoordinatorView(node, *client.brokers[node])
        group = await _described_consumer(client, group_id, node, at)
        return group or await _described_classic(client, group_id, node, at)

    return await told(f'group "{group_id}"', client.until_done(attempt))


async def _described_consumer(
    client: KafkaClient, group_id: str, node: int, coordinator: CoordinatorView
) -> GroupView | None:
    request = messages.ConsumerGroupDescribeRequest(group_ids=[group_id])
    try:
        answer = await client.ask(apis.CONSUMER_GROUP_DESCRIBE, request, node=node)
        (group,) = answer.groups
        check(group.error_code, group.error_message or "")
    except KafkaError as error:
        # Also the answer about groups of the classic protocol, and of old servers.
        if error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return None
        raise
    return group_report.of_consumer(group, coordinator)


async def _described_classic(
    client: KafkaClient, group_id: str, node: int, coordinator: CoordinatorView
) -> GroupView | None:
    request = messages.DescribeGroupsRequest(groups=[group_id])
    answer = await client.ask(apis.DESCRIBE_GROUPS, request, node=node)
    (group,) = answer.groups
    # Until v5 a group that is not there is told to be dead (KIP-1043).
    missing = group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    if missing or (group.error_code == 0 and group.group_state == group_report.DEAD):
        return None
    check(group.error_code, group.error_message or "")
    return group_report.of_classic(group, coordinator)


async def _partitions(client: KafkaClient, group: GroupView) -> list[PartitionView]:
    """All partitions that are committed or assigned, with what is known of them."""
    committed = await _committed(client, group.group_id)
    owners = group_report.owners(group)
    # After the offsets, so that no lag is below what it was at any time.
    ends = await offsets_at(client, LATEST, {*committed, *owners})
    rows = []
    for where in sorted({*committed, *owners}):
        offset, metadata = committed.get(where, (None, ""))
        rows.append(PartitionView(*where, offset, ends.get(where), metadata, owners.get(where)))
    return rows


async def _committed(client: KafkaClient, group_id: str) -> dict[Partition, tuple[int, str]]:
    """Offset and metadata of every partition that has one."""
    request = messages.OffsetFetchRequest(
        groups=[messages.OffsetFetchRequestGroup(group_id=group_id, topics=None)]
    )

    async def attempt() -> dict[Partition, tuple[int, str]]:
        node = await client.find_coordinator(group_id)
        answer = await client.ask(
            apis.OFFSET_FETCH, request, node=node, oldest=FETCH_OLDEST, newest=BY_NAME_NEWEST
        )
        (group,) = answer.groups
        check(group.error_code)
        found = {}
        for topic in group.topics:
            for row in topic.partitions:
                check(row.error_code)
                if row.committed_offset >= 0:
                    where = topic.name, row.partition_index
                    found[where] = (row.committed_offset, row.metadata or "")
        return found

    return await told(f'group "{group_id}"', client.until_done(attempt))


async def offsets_at(
    client: KafkaClient, timestamp: int, partitions: Collection[Partition]
) -> dict[Partition, int | None]:
    """The offset at a timestamp (or EARLIEST, LATEST); None when no record is that new.

    Partitions that are gone are left out. Raises ClientError, ToolError.
    """

    async def ask(node: int, wanted: list[Partition]) -> dict[Partition, int | None]:
        request = messages.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                messages.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        messages.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(wanted).items()
            ],
        )
        answer = await client.ask(apis.LIST_OFFSETS, request, node=node)
        found: dict[Partition, int | None] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    check(row.error_code, f"{topic.name}:{row.partition_index} has no answer")
                    where = topic.name, row.partition_index
                    found[where] = row.offset if row.offset >= 0 else None
        return found

    async def attempt() -> dict[Partition, int | None]:
        leading = await leaders(client, {topic for topic, _ in partitions})
        asked = by_agent(partitions, leading)
        answers = await all_of(ask(*item) for item in asked.items())
        return {where: offset for answer in answers for where, offset in answer.items()}

    if not partitions:
        return {}
    return await told("the ends of partitions are not told", client.until_done(attempt))


async def _chosen(
    client: KafkaClient,
    group_id: str,
    topics: Mapping[str, set[int] | None] | None,
    committed: Mapping[Partition, tuple[int, str]],
) -> dict[Partition, int | None]:
    """The partitions that are meant, with what is committed. Raises ToolError."""
    if topics is None:
        if not committed:
            raise ToolError(
                f'nothing is committed in group "{group_id}": say which topics (--topic)'
            )
        return {where: offset for where, (offset, _) in committed.items()}
    there = await client.until_done(lambda: leaders(client, topics))
    chosen: dict[Partition, int | None] = {}
    for name, wanted in topics.items():
        has = {partition for topic, partition in there if topic == name}
        if not has:
            raise ToolError(f'there is no topic "{name}"')
        if wanted is not None and wanted - has:
            lacking = ", ".join(map(str, sorted(wanted - has)))
            raise ToolError(f'topic "{name}" has no partition {lacking}, but 0 to {max(has)}')
        for partition in has if wanted is None else wanted:
            chosen[name, partition] = committed.get((name, partition), (None,))[0]
    return chosen


async def _places(
    client: KafkaClient, target: ResetTarget, chosen: Mapping[Partition, int | None]
) -> dict[Partition, PartitionOffsets]:
    """What a plan needs, without partitions that are gone. Raises ToolError when all are."""
    starts = await offsets_at(client, EARLIEST, chosen)
    ends = await offsets_at(client, LATEST, chosen)
    at_time: dict[Partition, int | None] = {}
    if target.rule is ResetRule.TIME:
        at_time = await offsets_at(client, target.value, chosen)
    places = {}
    for where, offset in chosen.items():
        start, end = starts.get(where), ends.get(where)
        if start is not None and end is not None:
            places[where] = PartitionOffsets(start, end, offset, at_time.get(where))
    if not places:
        raise ToolError("none of its topics is there any more: there is nothing to reset")
    return places


async def _commit(
    client: KafkaClient, group_id: str, changes: Sequence[group_reset.OffsetReset]
) -> list[str]:
    """Commit as nobody, which a group with members refuses; what was refused, in words."""
    after = {(change.topic, change.partition): change.after for change in changes}
    request = messages.OffsetCommitRequest(
        group_id=group_id,
        topics=[
            messages.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    messages.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=after[topic, index],
                        committed_metadata="",
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(after).items()
        ],
    )

    async def attempt() -> list[str]:
        node = await client.find_coordinator(group_id)
        answer = await client.ask(apis.OFFSET_COMMIT, request, node=node, newest=BY_NAME_NEWEST)
        failures = []
        for topic in answer.topics:
            for row in topic.partitions:
                try:
                    check(row.error_code)
                except KafkaError as error:
                    words = group_report.error_text(error.code, error.message)
                    failures.append(f"{topic.name}:{row.partition_index} is not reset: {words}")
        return failures

    try:
        return await client.until_done(attempt)
    except ClientError as error:
        raise ToolError(
            f'it is not known whether the offsets of group "{group_id}" are reset: {error}'
        ) from error
