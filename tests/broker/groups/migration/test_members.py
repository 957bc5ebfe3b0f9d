"""Rows that were cut in the middle of a migration, read as what they are becoming."""

import pytest

from broker.groups.classic import rows
from broker.groups.classic.rows import MemberBody
from broker.groups.consumer import rows as consumer_rows
from broker.groups.consumer.image import GroupImage
from broker.groups.consumer.members import ClassicMember, Member, MemberState, Subscription
from broker.groups.consumer.rows import GroupBody
from broker.groups.migration.members import as_classic, as_consumer
from coordinator.commands.group_commands import GroupKind
from coordinator.tables.groups import GroupRow, MemberRow
from coordinator.tables.topics import Topics
from protocol.consumer_protocol import read_assignment, write_assignment
from protocol.types import POSITION_ZERO
from tests.broker.groups.pure import world_of_either
from tests.broker.groups.requests import subscription


def classic_body(assignment: dict[str, list[int]], data: bytes | None = None) -> bytes:
    protocols = (("range", subscription("t") if data is None else data),)
    body = MemberBody(None, "c", "/h", 30_000, 10_000, protocols, write_assignment(assignment))
    return rows.encode_member(body)


def row_of(kind: GroupKind, members: dict[str, MemberRow]) -> GroupRow:
    row = GroupRow("g", POSITION_ZERO, 0)
    row.kind, row.epoch, row.members = kind, 6, members
    row.body = consumer_rows.encode_group(GroupBody(5, b""))
    return row


@pytest.fixture
def topics() -> Topics:
    world = world_of_either()
    world.create("t", 4)
    return world.topics


def test_members_that_are_not_converted_yet_are_in_the_epoch_of_their_generation(
    topics: Topics,
) -> None:
    (topic,) = topics
    converted = Member("a", epoch=5, assigned={topic.topic_id: frozenset({0})})
    members = {
        "b": MemberRow(5, classic_body({"t": [1, 2], "gone": [0]})),
        "a": MemberRow(5, consumer_rows.encode_member(converted)),
    }
    row = row_of(GroupKind.CONSUMER, members)
    image = GroupImage.of(as_consumer(row, topics))
    assert row.members == members, "the machine's row was touched"
    assert [*image.members] == ["b", "a"]
    assert image.members["a"] == converted
    member = image.members["b"]
    assert (member.epoch, member.state) == (5, MemberState.STABLE)
    assert member.assigned == member.target == {topic.topic_id: frozenset({1, 2})}
    assert member.subscription == Subscription(frozenset({"t"}))
    assert member.classic is not None
    assert member.classic.session_timeout_ms == 10_000


def test_a_partition_that_two_members_have_is_given_to_one(topics: Topics) -> None:
    (topic,) = topics
    first = Member("c", epoch=5, assigned={topic.topic_id: frozenset({0})})
    row = row_of(
        GroupKind.CONSUMER,
        {
            "a": MemberRow(5, classic_body({"t": [0, 1]})),
            "b": MemberRow(5, classic_body({"t": [1, 2]})),
            "c": MemberRow(5, consumer_rows.encode_member(first)),
        },
    )
    members = GroupImage.of(as_consumer(row, topics)).members
    assert [members[name].assigned[topic.topic_id] for name in "abc"] == [{1}, {2}, {0}]


def test_a_member_whose_bytes_cannot_be_read_subscribes_to_nothing(topics: Topics) -> None:
    row = row_of(GroupKind.CONSUMER, {"a": MemberRow(5, classic_body({"t": [0]}, b"\0\1junk"))})
    member = GroupImage.of(as_consumer(row, topics)).members["a"]
    assert member.subscription == Subscription()
    assert member.assigned == {}
    assert member.classic is not None


def test_a_row_that_is_whole_is_shown_as_it_is(topics: Topics) -> None:
    consumer = row_of(
        GroupKind.CONSUMER, {"a": MemberRow(5, consumer_rows.encode_member(Member("a", epoch=5)))}
    )
    assert as_consumer(consumer, topics) is consumer
    classic = row_of(GroupKind.CLASSIC, {"a": MemberRow(5, classic_body({}))})
    assert as_classic(classic, topics) is classic


def test_members_that_are_not_converted_back_yet_have_what_they_own(topics: Topics) -> None:
    (topic,) = topics
    member = Member(
        "a",
        epoch=4,
        instance_id="i",
        assigned={topic.topic_id: frozenset({0})},
        revoking={topic.topic_id: frozenset({3})},
        target={topic.topic_id: frozenset({1})},
        classic=ClassicMember(10_000, (("range", subscription("t")),)),
    )
    whole = MemberRow(5, classic_body({"t": [2]}))
    row = row_of(
        GroupKind.CLASSIC,
        {
            "a": MemberRow(4, consumer_rows.encode_member(member)),
            "b": whole,
            "c": MemberRow(5, consumer_rows.encode_member(Member("c", epoch=5))),
        },
    )
    shown = as_classic(row, topics)
    assert shown.members.keys() == {"a", "b"}
    assert shown.members["b"] == whole
    assert shown.members["a"].epoch == 4
    body = rows.decode_member(shown.members["a"].body)
    assert (body.instance_id, body.session_timeout_ms) == ("i", 10_000)
    assert read_assignment(body.assignment) == {"t": [0, 3]}


def test_bodies_of_an_unknown_version_are_refused(topics: Topics) -> None:
    body = bytes((consumer_rows.FORMAT_VERSION, 99))
    with pytest.raises(ValueError, match="no body of member 'a'"):
        as_classic(row_of(GroupKind.CLASSIC, {"a": MemberRow(1, body)}), topics)
    body = bytes((rows.FORMAT_VERSION, 99))
    with pytest.raises(ValueError, match="classic group"):
        as_consumer(row_of(GroupKind.CONSUMER, {"a": MemberRow(1, body)}), topics)
