"""Which offsets are old, and which groups are nothing any more: Kafka's rules, by table."""

import pytest

from broker.groups.expiry import EMPTY_MS_MIN, expired, is_deletable
from coordinator.commands.group_commands import CommittedOffset, GroupKind
from coordinator.tables.groups import GroupRow, MemberRow
from coordinator.tables.topics import Topic, Topics
from protocol.types import Position, TopicId

LOGS = Topic(TopicId(bytes(16)), "logs", 10, {}, Position(1))
GONE = TopicId(bytes([9] * 16))
CLASSIC, CONSUMER = GroupKind.CLASSIC, GroupKind.CONSUMER


class Group:
    """A live group as expiry sees it."""

    def __init__(self, kind=CLASSIC, state="Empty", *, subscribes=False, members=False) -> None:
        self.kind = kind
        self._state = state
        self._subscribes = subscribes
        self._members = members

    def state(self) -> str:
        return self._state

    def subscribes(self, topic_name: str) -> bool:
        assert topic_name == "logs"
        return self._subscribes

    def member_size(self, member_id: str) -> int:
        return 0

    def has_members(self) -> bool:
        return self._members


def a_row(*, empty_since_ms: int = 0, members: bool = False) -> GroupRow:
    """Committed at 100 (partition 0), 200 (1), 300 (5)."""
    row = GroupRow("g", Position(1), empty_since_ms)
    for partition, time_ms in ((0, 100), (1, 200), (5, 300)):
        for topic_id in (LOGS.topic_id, GONE):
            row.offsets.put(CommittedOffset(topic_id, partition, 7, -1, ""), time_ms)
    if members:
        row.members["m"] = MemberRow(1, b"")
    return row


def old(row, group, *, time_ms: int, topic_id=LOGS.topic_id, retention_ms: int = 1000):
    topics = Topics()
    topics.add(LOGS)
    return expired(row, group, topic_id, topics=topics, time_ms=time_ms, retention_ms=retention_ms)


@pytest.mark.parametrize(
    ("time_ms", "partitions"),
    [(1099, []), (1100, [0]), (1199, [0]), (1200, [0, 1]), (1300, [0, 1, 5])],
)
def test_in_a_group_that_never_had_members_an_offset_ages_from_its_commit(time_ms, partitions):
    assert old(a_row(), Group(), time_ms=time_ms) == partitions


@pytest.mark.parametrize(
    ("time_ms", "partitions"), [(1249, []), (1250, [0, 1]), (1299, [0, 1]), (1300, [0, 1, 5])]
)
def test_in_an_empty_group_it_ages_from_when_the_last_member_left(time_ms, partitions):
    assert old(a_row(empty_since_ms=250), Group(), time_ms=time_ms) == partitions


@pytest.mark.parametrize(
    ("group", "partitions"),
    [
        (Group(CLASSIC, "Stable", subscribes=False), [0, 1, 5]),
        (Group(CLASSIC, "Stable", subscribes=True), []),
        (Group(CLASSIC, "PreparingRebalance"), []),
        (Group(CLASSIC, "CompletingRebalance"), []),
        (Group(CLASSIC, "Dead"), []),
        (Group(CONSUMER, "Stable", subscribes=False), [0, 1, 5]),
        (Group(CONSUMER, "Assigning", subscribes=False), [0, 1, 5]),
        (Group(CONSUMER, "Reconciling", subscribes=True), []),
    ],
)
def test_in_a_group_with_members_only_what_nobody_subscribes_to_is_old(group, partitions):
    assert old(a_row(members=True, empty_since_ms=99_999), group, time_ms=10_000) == partitions


@pytest.mark.parametrize(
    "group", [Group(), Group(CLASSIC, "PreparingRebalance"), Group(CONSUMER, subscribes=True)]
)
def test_what_a_deleted_topic_had_is_old_at_once(group):
    assert old(a_row(members=True), group, time_ms=300, topic_id=GONE) == [0, 1, 5]


def test_a_topic_that_has_no_offsets_has_no_old_ones():
    assert old(GroupRow("g", Position(1), 0), Group(), time_ms=10_000) == []


LONG_AGO = EMPTY_MS_MIN + 50


@pytest.mark.parametrize(
    ("row", "group", "time_ms", "nothing"),
    [
        (GroupRow("g", Position(1), 50), Group(), LONG_AGO, True),
        (GroupRow("g", Position(1), 50), Group(CONSUMER), LONG_AGO, True),
        (GroupRow("g", Position(1), 50), Group(), LONG_AGO - 1, False),
        (GroupRow("g", Position(1), 50), Group(members=True), LONG_AGO, False),
        (GroupRow("g", Position(1), 50), Group(state="PreparingRebalance"), LONG_AGO, False),
        (a_row(), Group(), LONG_AGO, False),
    ],
)
def test_a_group_without_members_and_offsets_is_nothing_after_a_while(row, group, time_ms, nothing):
    assert is_deletable(row, group, time_ms=time_ms) is nothing


def test_a_group_whose_row_has_members_is_something():
    row = GroupRow("g", Position(1), 0)
    row.members["m"] = MemberRow(1, b"")
    assert not is_deletable(row, Group(), time_ms=LONG_AGO)
