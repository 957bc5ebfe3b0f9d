"""Groups against a model of plain dicts; and what must hold for any command of any writer."""

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.commands.entries import Close, Command, DeleteTopic, Done
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_NEW,
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupCommand,
    GroupKind,
    GroupMember,
    ReleaseShards,
    SetGroupConfigs,
    SetTopicConfigs,
)
from coordinator.tables.group_offsets import GroupOffsets, OffsetRow
from coordinator.tables.groups import MemberRow, shard_of
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE, Incarnation, TopicId
from tests.coordinator.machine.story import Story, with_agents
from tests.coordinator.tables.group_model import Model, found, group_state
from tests.coordinator.values import any_command

GROUPS = ("", "billing", "audit")
MEMBERS = ("", "m1", "m2", "m3")
SHARDS = tuple(sorted({shard_of(group_id) for group_id in GROUPS}))
ALL = ClaimShards(tuple(range(GROUP_SHARDS)))
any_group_command = any_command(*get_args(GroupCommand), SetTopicConfigs)


class World:
    """A story with two agents and three topics, one of them gone, beside the model."""

    def __init__(self) -> None:
        self.story = Story()
        self.agents = [self.story.open("a"), self.story.open("b")]
        self.topics = [self.story.topic(self.agents[0], name, 3) for name in ("x", "y", "z")]
        self.story.do(self.agents[0], DeleteTopic(self.topics[2]))
        self.model = Model(dict.fromkeys(self.topics[:2], 3), {*self.agents})
        for agent in self.agents:
            self.do(agent, ClaimShards(SHARDS[: 1 + self.agents.index(agent)]))

    def do(self, writer: Incarnation, command: GroupCommand) -> None:
        """By both, who must agree on the outcome and on everything afterwards."""
        outcome = self.story.do(writer, command)
        machine = self.story.machine
        expected = self.model.apply(command, writer, machine.position, machine.time_ms)
        assert found(outcome) == expected
        assert group_state(machine.groups) == self.model.state()

    def close(self, incarnation: Incarnation, writer: Incarnation) -> None:
        row = self.story.machine.incarnations.get(incarnation)
        assert row is not None
        self.story.do(writer, Close(incarnation, row.last_n))
        self.model.close(incarnation)
        self.agents[self.agents.index(incarnation)] = self.story.open("b")
        self.model.live = {*self.agents}
        assert group_state(self.story.machine.groups) == self.model.state()


bodies = st.sampled_from([b"", b"x", b"body"])
# Mostly what the group has, so that most commands are not refused.
epochs_off = st.sampled_from([0, 0, 0, 0, -1, 1])
shards = st.sets(st.sampled_from(SHARDS)).map(lambda shards: tuple(sorted(shards)))


@st.composite
def places(draw: st.DrawFn, world: World) -> tuple[tuple[TopicId, int], ...]:
    place = st.tuples(st.sampled_from(world.topics), st.integers(0, 3))
    return tuple(draw(st.lists(place, max_size=5)))


@st.composite
def changes(draw: st.DrawFn, world: World, group_id: str) -> ChangeGroup:
    group = world.model.groups.get(group_id)
    before = (group.epoch if group is not None else GROUP_NEW) + draw(epochs_off)
    member = st.builds(GroupMember, st.sampled_from(MEMBERS), st.integers(0, 2), bodies)
    known = [*group.members] if group is not None else []
    removable = st.sampled_from([*known, *MEMBERS] if draw(st.integers(0, 5)) == 0 else known)
    return ChangeGroup(
        group_id=group_id,
        kind=draw(st.sampled_from(GroupKind)),
        epoch_before=before,
        epoch=max(before, 0) + draw(st.sampled_from([0, 1, 1, -1])),
        body=draw(bodies),
        put=tuple(draw(st.lists(member, max_size=3))),
        removed=tuple(draw(st.lists(removable, max_size=2))) if known else (),
    )


@st.composite
def commits(draw: st.DrawFn, world: World, group_id: str) -> CommitOffsets:
    group = world.model.groups.get(group_id)
    by = ("", EPOCH_NONE)
    if group is not None and group.members and draw(st.integers(0, 5)):
        member_id = draw(st.sampled_from([*group.members]))
        by = (member_id, group.members[member_id][0] + draw(epochs_off))
    offsets = tuple(
        CommittedOffset(
            *place, draw(st.integers(-1, 9)), draw(st.integers(-1, 1)), draw(st.sampled_from("ab"))
        )
        for place in draw(places(world))
    )
    if draw(st.booleans()):
        offsets = tuple(committed._replace(metadata="") for committed in offsets)
    return CommitOffsets(group_id, *by, offsets)


@st.composite
def commands(draw: st.DrawFn, world: World) -> GroupCommand:
    group_id = draw(st.sampled_from(GROUPS))
    successors = st.sampled_from([INCARNATION_NONE, Incarnation(5), *world.agents])
    match draw(st.integers(0, 11)):
        case 0:
            return ClaimShards(draw(shards))
        case 1:
            return ReleaseShards(draw(shards), draw(successors))
        case 2:
            return DeleteGroup(group_id, draw(st.booleans()))
        case 3:
            return DeleteOffsets(group_id, draw(places(world)))
        case 4:
            return ExpireOffsets(group_id, draw(st.integers(0, 60)), draw(places(world)))
        case 5:
            change = st.tuples(st.sampled_from("ab"), st.none() | st.sampled_from(["", "v"]))
            return SetGroupConfigs(group_id, tuple(draw(st.lists(change, max_size=3))))
        case 6 | 7 | 8:
            return draw(commits(world, group_id))
        case _:
            return draw(changes(world, group_id))


@settings(deadline=None)
@given(st.data())
def test_the_table_agrees_with_a_model_of_plain_dicts(data: st.DataObject):
    world = World()
    for _ in range(data.draw(st.integers(1, 30))):
        command = data.draw(commands(world))
        writer = data.draw(st.sampled_from(world.agents))
        if isinstance(command, CommitOffsets | ChangeGroup) and data.draw(st.integers(0, 5)):
            holder = world.story.machine.groups.holder(shard_of(command.group_id))
            writer = holder or writer
        world.do(writer, command)
        if data.draw(st.integers(0, 20)) == 0:
            world.close(world.agents[1], world.agents[0])
    replayed = world.story.replayed()
    assert group_state(replayed.groups) == world.model.state()
    assert replayed.digest() == world.story.machine.digest()


def filled() -> tuple[Story, Incarnation, Incarnation, TopicId]:
    """One agent that holds everything, with a few groups, and one that holds nothing."""
    story, holder, other = with_agents("a", "b")
    topic_id = story.topic(holder, partitions=4)
    offsets = tuple(CommittedOffset(topic_id, index, index, -1, "tag") for index in range(4))
    story.do(holder, ALL)
    for group_id in ("", "a", "billing"):
        member = GroupMember("m1", 1, b"body")
        change = ChangeGroup(group_id, GroupKind.CLASSIC, GROUP_NEW, 1, b"", (member,), ())
        story.do(holder, change)
        story.do(holder, CommitOffsets(group_id, "m1", 1, offsets))
    story.do(holder, CommitOffsets("simple", "", EPOCH_NONE, offsets))
    assert story.machine.groups.offset_rows == 12
    return story, holder, other, topic_id


group_ids = st.sampled_from(["", "a", "billing", "simple", "none"])


@pytest.mark.promise("P5")
@settings(deadline=None)
@given(any_group_command, group_ids, st.booleans())
def test_a_command_by_a_writer_that_does_not_hold_the_shard_changes_nothing(
    command: Command, group_id: str, closed: bool
):
    story, holder, other, _ = filled()
    if isinstance(command, SetTopicConfigs | SetGroupConfigs):
        return  # Any agent may.
    if not isinstance(command, ClaimShards | ReleaseShards):
        object.__setattr__(command, "group_id", group_id)
    expected: object = ErrorCode.NOT_COORDINATOR
    if isinstance(command, ClaimShards):
        expected = ()
    elif isinstance(command, ReleaseShards):
        expected = None
    if closed:  # By another agent of its name: its claims are free, and it is fenced.
        story.open("b")
        expected = ErrorCode.STALE_BROKER_EPOCH
    before = group_state(story.machine.groups)
    assert found(story.do(other, command)) == expected
    assert group_state(story.machine.groups) == before
    assert story.machine.groups.held_by(holder) == ALL.shards


@settings(deadline=None)
@given(any_group_command, group_ids)
def test_any_command_of_the_holder_has_an_outcome_that_a_replay_repeats(
    command: Command, group_id: str
):
    story, holder, _, topic_id = filled()
    if isinstance(command, SetTopicConfigs):
        object.__setattr__(command, "topic_id", topic_id)
    elif not isinstance(command, ClaimShards | ReleaseShards):
        object.__setattr__(command, "group_id", group_id)
    story.do(holder, command)
    replayed = story.replayed()
    assert replayed.digest() == story.machine.digest()
    assert group_state(replayed.groups) == group_state(story.machine.groups)


# A change that is too large for one entry.

member_ids = [f"m{index}" for index in range(8)]


@settings(deadline=None)
@given(
    old=st.sets(st.sampled_from(member_ids), min_size=1),
    new=st.lists(st.sampled_from(member_ids), unique=True, min_size=1),
    cuts=st.sets(st.integers(1, 7), max_size=4),
    applied=st.integers(0, 8),
)
def test_every_prefix_of_a_split_change_is_a_row_that_another_coordinator_goes_on_from(
    old: set[str], new: list[str], cuts: set[int], applied: int
):
    story, agent, successor = with_agents("a", "b")
    story.do(agent, ALL)
    first = tuple(GroupMember(member_id, 1, b"old") for member_id in sorted(old))
    story.do(agent, ChangeGroup("g", GroupKind.CLASSIC, GROUP_NEW, 1, b"one", first, ()))
    put = tuple(GroupMember(member_id, 2, b"new") for member_id in new)
    gone = tuple(sorted(old - {*new}))
    edges = [0, *sorted(cut for cut in cuts if cut < len(put)), len(put)]
    parts = [put[start:end] for start, end in pairwise(edges)]
    commands = [ChangeGroup("g", GroupKind.CLASSIC, 1, 1, b"one", part, ()) for part in parts[:-1]]
    commands.append(ChangeGroup("g", GroupKind.CLASSIC, 1, 2, b"two", parts[-1], gone))
    for command in commands[:applied]:
        assert story.do(agent, command) == Done()
    story.do(agent, ReleaseShards(ALL.shards, successor))
    row = story.machine.groups.get("g")
    assert row is not None
    if applied >= len(commands):
        assert (row.epoch, row.body) == (2, b"two")
        assert row.members == {member_id: MemberRow(2, b"new") for member_id in new}
    else:
        ahead = {member.member_id for part in parts[:applied] for member in part}
        assert (row.epoch, row.body) == (1, b"one")
        assert row.members == {
            member_id: MemberRow(2, b"new") if member_id in ahead else MemberRow(1, b"old")
            for member_id in old | ahead
        }
    everybody = tuple(GroupMember(member_id, 3, b"") for member_id in row.members)
    rest = ChangeGroup("g", GroupKind.CLASSIC, row.epoch, 3, b"", everybody, ())
    assert story.do(successor, rest) == Done()
    assert {member.epoch for member in row.members.values()} == {3}


# The columns of offsets alone.

X, Y = TopicId(bytes(16)), TopicId(bytes(15) + b"\1")
# Few different ones, so that they are met again.
partitions = st.one_of(st.integers(0, 4), st.integers(0, 4), st.sampled_from([70, 2**31 - 1]))
rows = st.builds(
    CommittedOffset,
    topic_id=st.sampled_from([X, Y]),
    partition=partitions,
    offset=st.one_of(st.integers(-1, 5), st.integers(-(2**63), 2**63 - 1)),
    leader_epoch=st.one_of(st.just(-1), st.integers(-(2**31), 2**31 - 1)),
    metadata=st.one_of(st.just(""), st.text(max_size=3)),
)


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(rows, st.integers(0, 2**62)),
            st.tuples(rows, st.integers(0, 2**62)),
            st.tuples(st.sampled_from([X, Y]), partitions),
        ),
        max_size=60,
    )
)
def test_columns_hold_what_a_dict_would(steps: list[tuple]):
    offsets = GroupOffsets()
    model: dict[tuple[TopicId, int], OffsetRow] = {}
    for first, second in steps:
        if isinstance(first, CommittedOffset):
            offsets.put(first, second)
            model[first[:2]] = OffsetRow(first.offset, first.leader_epoch, first.metadata, second)
        else:
            offsets.remove(first, second)
            model.pop((first, second), None)
        assert offsets.get(*_place(first, second)) == model.get(_place(first, second))
    for topic_id in (X, Y):
        expected = sorted((place[1], row) for place, row in model.items() if place[0] == topic_id)
        assert list(offsets.of_topic(topic_id)) == expected
        assert (topic_id in offsets.topics()) == bool(expected)
    assert len(offsets) == len(model)
    assert offsets.metadata_size == sum(len(row.metadata) for row in model.values())


def _place(first: object, second: int) -> tuple[TopicId, int]:
    if isinstance(first, CommittedOffset):
        return first.topic_id, first.partition
    assert isinstance(first, bytes)
    return TopicId(first), second


def test_offsets_may_change_while_somebody_reads_them():
    offsets = GroupOffsets()
    for partition in (3, 1):
        offsets.put(CommittedOffset(X, partition, partition, -1, "m"), 5)
    reading = offsets.of_topic(X)
    assert next(reading) == (1, OffsetRow(1, -1, "m", 5))
    offsets.put(CommittedOffset(X, 2, 2, -1, ""), 6)
    offsets.remove(X, 3)
    assert list(reading) == [(3, OffsetRow(3, -1, "m", 5))]
    assert [partition for partition, _ in offsets.of_topic(X)] == [1, 2]


@pytest.mark.parametrize(
    ("group_id", "shard"), [("", 0), ("billing", 8), ("ß", 5), ("consumer-group-17", 27)]
)
def test_the_shard_of_a_group_is_pinned(group_id: str, shard: int):
    assert shard_of(group_id) == shard
