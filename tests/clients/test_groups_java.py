"""Kafka's own Java client 4.3 in groups, by the classic protocol and by KIP-848."""

import itertools

import pytest

from tests.clients.groups import (
    Stream,
    come_back_unnoticed,
    share_leave_and_go_on,
    until,
    until_read,
    until_shared,
)
from tests.clients.members import Host, HostedMember

pytestmark = pytest.mark.integration

ASSIGNOR = "org.apache.kafka.clients.consumer."
CLASSIC = {
    "range": {"partition.assignment.strategy": f"{ASSIGNOR}RangeAssignor"},
    "cooperative-sticky": {"partition.assignment.strategy": f"{ASSIGNOR}CooperativeStickyAssignor"},
}
CONSUMER = {
    "uniform": {"group.protocol": "consumer", "group.remote.assignor": "uniform"},
    "range-848": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}
ALL = CLASSIC | CONSUMER

_numbers = itertools.count()


def _fresh(name: str) -> str:
    """A topic and group that no other test of this run uses."""
    return f"java-{name}-{next(_numbers)}"


@pytest.mark.parametrize("kind", ALL)
def test_java_members_share_leave_and_go_on(bootstrap: str, java: Host, kind: str) -> None:
    name = _fresh(kind)
    stream = Stream(bootstrap, name)

    def join(member: str) -> HostedMember:
        return java.open(member, bootstrap, name, name, **ALL[kind])

    share_leave_and_go_on(stream, name, join)


@pytest.mark.parametrize("kind", ["range", "uniform"])
def test_a_static_java_member_comes_back_unnoticed(bootstrap: str, java: Host, kind: str) -> None:
    name = _fresh(f"static-{kind}")
    stream = Stream(bootstrap, name)

    def join(member: str, instance: str) -> HostedMember:
        more = {**ALL[kind], "group.instance.id": instance}
        return java.open(member, bootstrap, name, name, **more)

    come_back_unnoticed(stream, name, join)


def test_java_members_subscribe_by_a_pattern_that_the_broker_resolves(
    bootstrap: str, java: Host
) -> None:
    name = _fresh("pattern")
    streams = [Stream(bootstrap, f"{name}-{topic}", 2) for topic in ("one", "two")]
    other = Stream(bootstrap, f"{name}.three", 2)
    members = [
        java.open(member, bootstrap, name, f"~{name}-[a-z]+", **CONSUMER["uniform"])
        for member in ("first", "second")
    ]
    until_shared(members, streams[0].places | streams[1].places)
    for stream in (*streams, other):
        stream.send(10)
    for stream in streams:
        until_read(members, stream.records_from([0, 0]))
    assert not [got for member in members for got in member.records if got.topic == other.topic]
    for member in members:
        member.close()


@pytest.mark.parametrize(
    ("kind", "stays", "error"),
    [("range", 1, "FencedInstanceIdException"), ("uniform", 0, "UnreleasedInstanceIdException")],
)
def test_of_two_java_members_with_one_instance_id_one_is_turned_away(
    bootstrap: str, java: Host, kind: str, stays: int, error: str
) -> None:
    """The classic protocol fences the one that was there, KIP-848 the one that comes."""
    name = _fresh(f"instance-{kind}")
    stream = Stream(bootstrap, name)
    members: list[HostedMember] = []
    for member in ("first", "second"):
        more = {**ALL[kind], "group.instance.id": "one"}
        members.append(java.open(member, bootstrap, name, name, **more))
        until(lambda: members[0].owned == stream.places, members, "the first one has all")
    turned_away = members[1 - stays]
    until(lambda: bool(turned_away.errors), members, "one is turned away")
    assert error in turned_away.errors[0]
    stream.send(10)
    until_read([members[stays]], stream.records_from([0] * 4))
    members[stays].close()
