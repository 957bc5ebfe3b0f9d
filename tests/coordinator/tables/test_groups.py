"""The table of groups where scripts and the model do not look: bounds, places, claims that end."""

from collections.abc import Callable

import pytest

from coordinator.commands.entries import (
    Close,
    Command,
    CreateTopic,
    DeleteTopic,
    Done,
    Rejected,
    Tick,
)
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
    GroupKind,
    GroupMember,
    OffsetsCommitted,
    SetGroupConfigs,
    SetTopicConfigs,
    ShardsClaimed,
)
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, restore
from coordinator.tables import groups as table
from coordinator.tables.groups import GroupRow, Groups, MemberRow, shard_of
from coordinator.tables.topics import TOPIC_CONFIGS_MAX
from protocol.errors import ErrorCode
from protocol.types import Incarnation, TopicId, position
from tests.coordinator.machine.story import Story, with_agents
from tests.coordinator.tables.group_model import group_state

ALL = ClaimShards(tuple(range(GROUP_SHARDS)))


class World:
    """One agent that holds every shard."""

    def __init__(self) -> None:
        self.story = Story()
        self.agent = self.story.open("a")
        self.topic_id = self.story.topic(self.agent, partitions=2000)
        self.story.do(self.agent, ALL)

    @property
    def groups(self) -> Groups:
        return self.story.machine.groups

    def row(self, group_id: str = "g") -> GroupRow:
        row = self.groups.get(group_id)
        assert row is not None
        return row

    def done(self, command: Command) -> None:
        assert self.story.do(self.agent, command) == Done()

    def refused(self, command: Command) -> ErrorCode:
        """The error; nothing has changed."""
        before = group_state(self.groups)
        outcome = self.story.do(self.agent, command)
        assert isinstance(outcome, Rejected)
        assert group_state(self.groups) == before
        return outcome.error

    def commit(self, *partitions: int, group_id: str = "g", metadata: str = "") -> CommitOffsets:
        offsets = [
            CommittedOffset(self.topic_id, partition, 5, -1, metadata) for partition in partitions
        ]
        return CommitOffsets(group_id, "", EPOCH_NONE, tuple(offsets))


def change(
    *put: str,
    before: int = GROUP_NEW,
    group_id: str = "g",
    removed: tuple[str, ...] = (),
    body: bytes = b"",
) -> ChangeGroup:
    members = tuple(GroupMember(member_id, 1, b"body") for member_id in put)
    return ChangeGroup(group_id, GroupKind.CLASSIC, before, max(before, 1), body, members, removed)


# Claims.


def test_a_restarted_agent_claims_again_what_its_former_incarnation_held():
    story, before = with_agents("a")
    story.do(before, ALL)
    after = story.open("a")
    assert [story.machine.groups.holder(shard) for shard in ALL.shards] == [None] * GROUP_SHARDS
    assert story.do(after, ALL) == ShardsClaimed(ALL.shards)
    assert story.machine.groups.held_by(after) == ALL.shards
    assert story.machine.groups.held_by(before) == ()


def test_a_closed_agent_frees_its_shards_and_nobody_elses():
    story, first, second = with_agents("a", "b")
    story.do(first, ClaimShards((0, 1)))
    story.do(second, ClaimShards((1, 2)))
    story.do(second, Close(first, 1))
    assert story.machine.groups.held_by(first) == ()
    assert story.machine.groups.held_by(second) == (2,)
    assert story.machine.groups.holder(1) is None


def test_groups_stay_when_their_shard_changes_hands():
    world = World()
    world.done(change("m1"))
    other = world.story.open("b")
    world.story.do(other, Close(world.agent, 3))
    assert world.story.do(other, ALL) == ShardsClaimed(ALL.shards)
    assert world.row().members == {"m1": MemberRow(1, b"body")}
    assert world.story.do(other, change("m1", before=1)) == Done()


# Rows.


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (GroupKind.CLASSIC, ErrorCode.ILLEGAL_GENERATION),
        (GroupKind.CONSUMER, ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
@pytest.mark.promise("P5")
def test_a_commit_under_another_epoch_than_the_members_changes_nothing(kind, error):
    """Whoever proposed it knew the group as it was before."""
    world = World()
    members = (GroupMember("m1", 5, b""),)
    world.done(ChangeGroup("g", kind, GROUP_NEW, 5, b"", members, ()))
    offsets = (CommittedOffset(world.topic_id, 0, 7, -1, ""),)
    for epoch in (4, 6):
        assert world.refused(CommitOffsets("g", "m1", epoch, offsets)) is error
    assert isinstance(
        world.story.do(world.agent, CommitOffsets("g", "m1", 5, offsets)), OffsetsCommitted
    )


def test_groups_of_a_shard_are_in_order_of_creation():
    world = World()
    names = [f"group-{index}" for index in range(300)]
    for name in names:
        world.done(change(group_id=name))
    world.done(DeleteGroup(names[7], only_without_offsets=False))
    world.done(change(group_id=names[7]))
    for shard in range(GROUP_SHARDS):
        found = [row.group_id for row in world.groups.of_shard(shard)]
        assert found == [
            name for name in [*names[:7], *names[8:], names[7]] if shard_of(name) == shard
        ]


def test_a_row_tells_where_it_was_last_changed():
    world = World()
    world.done(change("m1"))
    assert world.row().changed == world.story.machine.position
    created = world.row().changed
    commit = CommitOffsets("g", "m1", 1, (CommittedOffset(world.topic_id, 0, 5, -1, ""),))
    assert isinstance(world.story.do(world.agent, commit), OffsetsCommitted)
    assert world.row().changed == created
    world.done(change("m1", before=1))
    assert world.row().changed > created


def test_a_group_is_empty_since_its_last_member_left():
    world = World()
    world.done(change("m1", "m2"))
    world.story.do(world.agent, Tick(), clock_ms=50_000)
    world.done(change(before=1, removed=("m1",)))
    world.story.do(world.agent, Tick(), clock_ms=60_000)
    world.done(change(before=1, removed=("m2",)))
    assert world.row().empty_since_ms == 60_000
    world.story.do(world.agent, Tick(), clock_ms=70_000)
    world.done(change(before=1))
    assert world.row().empty_since_ms == 60_000


def test_a_member_whose_id_and_body_are_empty_counts_like_any_other():
    world = World()
    nobody = GroupMember("", 1, b"")
    world.done(ChangeGroup("g", GroupKind.CLASSIC, GROUP_NEW, 1, b"", (nobody, nobody), ()))
    assert world.row().members == {"": MemberRow(1, b"")}
    assert world.refused(DeleteGroup("g", only_without_offsets=False)) == ErrorCode.NON_EMPTY_GROUP


# Bounds (P15).


def test_a_deleted_group_gives_its_room_back():
    world = World()
    world.done(change("m1", body=b"body"))
    world.done(change(before=1, removed=("m1",), body=b"body"))
    world.story.do(world.agent, world.commit(0, 1, metadata="tag"))
    assert (len(world.groups), world.groups.offset_rows, world.groups.size) == (1, 2, 11)
    world.done(DeleteGroup("g", only_without_offsets=False))
    assert (len(world.groups), world.groups.offset_rows, world.groups.size) == (0, 0, 0)


def test_no_more_groups_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table, "GROUPS_MAX", 2)
    world = World()
    world.done(change(group_id="a"))
    world.done(change(group_id="b"))
    assert world.refused(change(group_id="c")) == ErrorCode.POLICY_VIOLATION
    assert world.refused(world.commit(0, group_id="c")) == ErrorCode.POLICY_VIOLATION
    world.done(change(group_id="a", before=1))
    world.done(DeleteGroup("a", only_without_offsets=False))
    world.done(change(group_id="c"))


def test_no_more_members_of_a_group_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table, "MEMBERS_MAX", 3)
    world = World()
    assert world.refused(change("1", "2", "3", "4")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.done(change("1", "2", "3"))
    assert world.refused(change("4", before=1)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.done(change("3", "2", "3", before=1))
    assert world.refused(change("3", "4", before=1)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.done(change("4", before=1, removed=("1",)))
    full = change("3", "1", before=1, removed=("3",))
    assert world.refused(full) == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.done(change("3", before=1, removed=("3",)))
    assert list(world.row().members) == ["2", "4", "3"]


@pytest.mark.promise("P15")
def test_no_more_offsets_in_a_cluster_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table, "OFFSET_ROWS_MAX", 4)
    world = World()
    errors = OffsetsCommitted((ErrorCode.NONE,) * 3)
    assert world.story.do(world.agent, world.commit(0, 1, 2)) == errors
    assert world.refused(world.commit(0, 3, 4)) == ErrorCode.POLICY_VIOLATION
    assert world.refused(world.commit(0, 1, group_id="other")) == ErrorCode.POLICY_VIOLATION
    # What is there already may move on, and what is named twice counts once.
    assert world.story.do(world.agent, world.commit(0, 3, 3)) == errors
    assert world.story.do(world.agent, world.commit(0, 1, 3)) == errors
    world.done(DeleteOffsets("g", ((world.topic_id, 0),)))
    assert world.story.do(world.agent, world.commit(5)) == OffsetsCommitted((ErrorCode.NONE,))
    assert world.groups.offset_rows == 4


def test_offsets_of_deleted_topics_count_until_they_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table, "OFFSET_ROWS_MAX", 1)
    world = World()
    world.story.do(world.agent, world.commit(0))
    gone = world.topic_id
    world.done(DeleteTopic(gone))
    world.topic_id = world.story.topic(world.agent)
    assert world.row().offsets.topics() == [gone]
    assert world.refused(world.commit(0)) == ErrorCode.POLICY_VIOLATION
    world.done(ExpireOffsets("g", 1 << 40, ((gone, 0),)))
    assert world.story.do(world.agent, world.commit(0)) == OffsetsCommitted((ErrorCode.NONE,))


@pytest.mark.promise("P15")
def test_groups_take_no_more_bytes_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table, "GROUPS_SIZE_MAX", 100)
    world = World()
    world.done(change("m1", body=b"x" * 50))  # 1 + 50 + 7.
    assert world.groups.size == 58
    assert world.refused(change("m1", before=1, body=b"x" * 93)) == ErrorCode.POLICY_VIOLATION
    world.done(change("m1", before=1, body=b"x" * 92))
    assert world.refused(change("m2", before=1, body=b"x" * 92)) == ErrorCode.POLICY_VIOLATION
    assert world.refused(world.commit(0, group_id="h")) == ErrorCode.POLICY_VIOLATION
    assert world.refused(SetGroupConfigs("h", (("", ""),))) == ErrorCode.POLICY_VIOLATION
    world.done(change(before=1, body=b"x" * 92, removed=("m1",)))
    assert world.refused(world.commit(0, metadata="12345678")) == ErrorCode.POLICY_VIOLATION
    # What is replaced makes room for what replaces it.
    for metadata in ("1234567", "7654321", "", "1234567"):
        outcome = world.story.do(world.agent, world.commit(0, metadata=metadata))
        assert outcome == OffsetsCommitted((ErrorCode.NONE,))
        assert world.groups.size == 93 + len(metadata)


def test_what_is_over_a_bound_may_still_shrink(monkeypatch: pytest.MonkeyPatch):
    world = World()
    world.done(change("m1", "m2", "m3", body=b"x" * 50))
    world.story.do(world.agent, world.commit(0, group_id="h", metadata="y" * 50))
    world.done(SetGroupConfigs("g", (("a", "z"), ("b", "z"), ("c", "z"))))
    for bound in ("GROUPS_SIZE_MAX", "GROUPS_MAX", "MEMBERS_MAX", "OFFSET_ROWS_MAX"):
        monkeypatch.setattr(table, bound, 1)
    for bound in ("CONFIGURED_GROUPS_MAX", "GROUP_CONFIGS_MAX"):
        monkeypatch.setattr(table, bound, 0)
    world.done(change(before=1, body=b"x" * 50, removed=("m3",)))
    world.done(change("m1", before=1, body=b"x" * 49))
    world.done(SetGroupConfigs("g", (("a", None),)))
    world.done(SetGroupConfigs("g", (("b", ""),)))
    committed = world.story.do(world.agent, world.commit(0, group_id="h", metadata="y" * 49))
    assert committed == OffsetsCommitted((ErrorCode.NONE,))
    world.done(DeleteGroup("h", only_without_offsets=False))


@pytest.mark.parametrize(
    "command_of",
    [
        lambda world, rows: change(*map(str, range(rows - 1)), before=1, removed=("m1",)),
        lambda world, rows: world.commit(*range(rows), group_id="simple"),
        lambda world, rows: DeleteOffsets("g", tuple(places(world, rows))),
        lambda world, rows: ExpireOffsets("g", 5, tuple(places(world, rows))),
        lambda world, rows: SetGroupConfigs("g", (("name", "value"),) * rows),
    ],
    ids=["change", "commit", "delete", "expire", "configs"],
)
def test_a_command_has_at_most_a_thousand_rows(command_of: Callable[[World, int], Command]):
    world = World()
    world.done(change("m1"))
    assert world.refused(command_of(world, 1001)) == ErrorCode.INVALID_REQUEST
    outcome = world.story.do(world.agent, command_of(world, 1000))
    assert isinstance(outcome, Done | OffsetsCommitted)


def places(world: World, rows: int) -> list[tuple[TopicId, int]]:
    return [(world.topic_id, partition) for partition in range(rows)]


def test_a_group_id_is_not_empty():
    world = World()
    assert world.refused(change(group_id="")) == ErrorCode.INVALID_GROUP_ID
    assert world.refused(world.commit(0, group_id="")) == ErrorCode.INVALID_GROUP_ID
    assert world.refused(SetGroupConfigs("", (("a", "b"),))) == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(("length", "fits"), [(32_767, True), (32_768, False)])
def test_a_group_id_is_no_longer_than_a_string_of_kafka(length: int, fits: bool):
    world = World()
    group_id = "ß" * (length // 2) + "x" * (length % 2)
    outcomes = [
        world.story.do(world.agent, SetGroupConfigs(group_id, ())),
        world.story.do(world.agent, change(group_id=group_id)),
    ]
    assert [outcome == Done() for outcome in outcomes] == [fits, fits]


def test_groups_have_no_more_configs_than_the_bounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table, "GROUP_CONFIGS_MAX", 2)
    monkeypatch.setattr(table, "CONFIGURED_GROUPS_MAX", 2)
    world = World()
    three = SetGroupConfigs("g", (("a", "1"), ("b", "1"), ("c", "1")))
    assert world.refused(three) == ErrorCode.POLICY_VIOLATION
    world.done(SetGroupConfigs("g", (("a", "1"), ("b", "1"), ("c", "1"), ("a", None))))
    assert world.groups.configs("g") == {"b": "1", "c": "1"}
    world.done(SetGroupConfigs("h", (("a", "1"),)))
    assert world.refused(SetGroupConfigs("i", (("a", "1"),))) == ErrorCode.POLICY_VIOLATION
    world.done(SetGroupConfigs("i", (("a", None),)))
    world.done(SetGroupConfigs("h", (("a", None),)))
    world.done(SetGroupConfigs("i", (("a", "1"),)))
    assert world.groups.groups_with_configs() == ["g", "i"]
    assert world.groups.configs("h") == {}


def test_the_bounds_are_these():
    assert (table.GROUPS_MAX, table.MEMBERS_MAX, table.OFFSET_ROWS_MAX) == (
        100_000,
        5_000,
        2_000_000,
    )
    assert (table.CONFIGURED_GROUPS_MAX, table.GROUP_CONFIGS_MAX) == (10_000, 100)
    assert (table.GROUP_COMMAND_ROWS_MAX, table.GROUP_ID_BYTES_MAX) == (1_000, 32_767)


# Topics.


def create(world: World, name: str = "t") -> TopicId:
    return world.story.topic(world.agent, name)


def test_the_version_of_the_topics_grows_when_one_comes_or_goes():
    world = World()
    topics = world.story.machine.topics
    versions = [topics.version]
    topic_id = create(world)
    versions.append(topics.version)
    world.done(DeleteTopic(topic_id))
    versions.append(topics.version)
    assert versions == sorted({*versions})
    assert len(versions) == 3


def test_the_version_of_the_topics_stands_still_otherwise():
    world = World()
    version = world.story.machine.topics.version
    world.refused(CreateTopic("events", 1, ()))
    world.refused(DeleteTopic(TopicId(bytes(16))))
    world.done(SetTopicConfigs(world.topic_id, (("a", "b"),)))
    world.story.do(world.agent, world.commit(0))
    assert world.story.machine.topics.version == version


def test_configs_of_a_topic_are_set_in_a_new_row():
    world = World()
    topics = world.story.machine.topics
    before = topics.by_id(world.topic_id)
    world.done(SetTopicConfigs(world.topic_id, (("b", "1"), ("a", "2"), ("c", None))))
    after = topics.by_id(world.topic_id)
    assert before is not None
    assert after is not None
    assert before.configs == {}
    assert list(after.configs.items()) == [("a", "2"), ("b", "1")]
    assert topics.by_name("events") is after
    assert [topic.name for topic in topics] == ["events"]
    assert after.partition_count == before.partition_count
    world.done(SetTopicConfigs(world.topic_id, (("a", None), ("b", "3"))))
    changed = topics.by_id(world.topic_id)
    assert changed is not None
    assert changed.configs == {"b": "3"}


def test_configs_of_a_topic_are_bounded():
    world = World()
    for first in range(0, TOPIC_CONFIGS_MAX, 500):
        names = range(first, first + 500)
        world.done(SetTopicConfigs(world.topic_id, tuple((f"{name}", "") for name in names)))
    one_more = SetTopicConfigs(world.topic_id, (("more", ""),))
    assert world.refused(one_more) == ErrorCode.POLICY_VIOLATION
    world.done(SetTopicConfigs(world.topic_id, (("more", ""), ("7", None))))


def test_configs_of_a_deleted_topic_are_not_set():
    world = World()
    world.done(DeleteTopic(world.topic_id))
    gone = SetTopicConfigs(world.topic_id, ())
    assert world.refused(gone) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_shard_that_was_never_claimed_has_no_holder():
    story, agent = with_agents("a")
    assert story.machine.groups.holder(5) is None
    assert story.machine.groups.held_by(agent) == ()
    assert story.machine.groups.held_by(Incarnation(0)) == ()


# Eras.


@pytest.mark.promise("P1")
def test_a_member_of_the_era_before_commits_nothing_and_what_was_committed_stays():
    """It may have read what is lost: the group would never see what has those offsets now."""
    world = World()
    world.done(change("m1", "m2", body=b"of the group"))
    early = CommitOffsets("g", "m1", 1, (CommittedOffset(world.topic_id, 0, 5, -1, ""),))
    assert isinstance(world.story.do(world.agent, early), OffsetsCommitted)
    world.done(change("lone", group_id="other"))
    machine = world.story.machine
    machine.begin_era(position(2, 1), snapshot_key="snapshots/of-the-second-era/manifest")
    world.agent = world.story.open_in_era(2)
    world.story.do(world.agent, ALL)
    late = CommitOffsets("g", "m1", 1, (CommittedOffset(world.topic_id, 0, 9, -1, ""),))
    assert world.refused(late) is ErrorCode.UNKNOWN_MEMBER_ID
    row = world.row()
    assert (row.members, row.kind, row.epoch, row.body) == ({}, GroupKind.CLASSIC, 2, b"")
    assert row.offsets.counts()[0] == 1
    restored = Machine()
    restore(restored, dump(machine))
    assert restored.groups.size == machine.groups.size
    world.done(change("m1", before=2))
