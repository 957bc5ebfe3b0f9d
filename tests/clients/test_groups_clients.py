"""Each client in groups: librdkafka and Kafka's Java 4.3 by the classic protocol and by KIP-848;
kafkajs, kafka-python and aiokafka."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.clients.groups import (
    Member,
    Stream,
    come_back_unnoticed,
    fresh,
    share_leave_and_go_on,
    until,
    until_read,
    until_shared,
)
from tests.clients.members import (
    AiokafkaMember,
    ConfluentMember,
    HostedMember,
    KafkaPythonMember,
    MemberHost,
    kafkajs_host,
)

pytestmark = pytest.mark.integration

SESSION_MS = 6_000
"""The least that a group takes."""
ASSIGNOR = "org.apache.kafka.clients.consumer."
RANGE = {"partition.assignment.strategy": f"{ASSIGNOR}RangeAssignor"}
STICKY = {"partition.assignment.strategy": f"{ASSIGNOR}CooperativeStickyAssignor"}
CONSUMER = {"group.protocol": "consumer"}
UNIFORM = {**CONSUMER, "group.remote.assignor": "uniform"}


class Kind(NamedTuple):
    client: type[ConfluentMember | KafkaPythonMember | AiokafkaMember] | str
    """Or the fixture that hosts it."""
    config: dict[str, Any]


KINDS = {
    "librdkafka-range": Kind(ConfluentMember, {"partition.assignment.strategy": "range"}),
    "librdkafka-cooperative-sticky": Kind(
        ConfluentMember, {"partition.assignment.strategy": "cooperative-sticky"}
    ),
    "librdkafka-consumer": Kind(ConfluentMember, CONSUMER),
    "kafka-python": Kind(KafkaPythonMember, {}),
    "aiokafka": Kind(AiokafkaMember, {}),
    "kafkajs": Kind("kafkajs", {}),
    "java-range": Kind("java", RANGE),
    "java-cooperative-sticky": Kind("java", STICKY),
    "java-uniform": Kind("java", UNIFORM),
    "java-range-848": Kind("java", {**CONSUMER, "group.remote.assignor": "range"}),
}
KNOWN_BY_INSTANCE = (
    *("librdkafka-cooperative-sticky", "librdkafka-consumer"),
    *("java-range", "java-uniform"),
)

Join = Callable[..., Member]
"""(bootstrap, group, member, settings): a new member, subscribed to the topic of the group's name."""


@pytest.fixture
def join(request: pytest.FixtureRequest, kind: str) -> Join:
    client, config = KINDS[kind]

    def joined(bootstrap: str, group: str, member: str, **more: Any) -> Member:
        if isinstance(client, str):
            host: MemberHost = request.getfixturevalue(client)
            return host.open(member, bootstrap, group, group, **config, **more)
        return client(member, bootstrap, group, [group], **config, **more)

    return joined


@pytest.mark.parametrize("kind", KINDS)
def test_members_share_leave_and_go_on(bootstrap: str, join: Join, kind: str) -> None:
    name = fresh(kind)
    stream = Stream(bootstrap, name)
    share_leave_and_go_on(stream, name, lambda member: join(bootstrap, name, member))


@pytest.mark.parametrize("kind", KNOWN_BY_INSTANCE)
def test_a_static_member_comes_back_unnoticed(bootstrap: str, join: Join, kind: str) -> None:
    name = fresh(f"static-{kind}")
    stream = Stream(bootstrap, name)

    def joined(member: str, instance: str) -> Member:
        return join(bootstrap, name, member, **{"group.instance.id": instance})

    come_back_unnoticed(stream, name, joined)


def test_the_partitions_of_members_that_died_go_to_those_that_live(
    bootstrap: str, kafkajs: MemberHost
) -> None:
    name = fresh("dying")
    stream = Stream(bootstrap, name)
    settings = {"session.timeout.ms": SESSION_MS}
    doomed = kafkajs_host()
    dying = [doomed.open(f"dying{index}", bootstrap, name, name, **settings) for index in range(2)]
    living = kafkajs.open("living", bootstrap, name, name, **settings)
    until_shared([*dying, living], stream.places)
    doomed.kill()
    began_s = time.monotonic()
    stream.send(10)
    until(lambda: living.owned == stream.places, [living], "the living one has all")
    assert time.monotonic() - began_s > SESSION_MS / 1000 - 1.0
    until_read([living], stream.records_from([0] * 4))
    living.close()
    doomed.stop()


def test_java_members_subscribe_by_a_pattern_that_the_broker_resolves(
    bootstrap: str, java: MemberHost
) -> None:
    name = fresh("pattern")
    streams = [Stream(bootstrap, f"{name}-{topic}", 2) for topic in ("one", "two")]
    other = Stream(bootstrap, f"{name}.three", 2)
    members = [
        java.open(member, bootstrap, name, f"~{name}-[a-z]+", **UNIFORM)
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
    ("config", "stays", "error"),
    [(RANGE, 1, "FencedInstanceIdException"), (UNIFORM, 0, "UnreleasedInstanceIdException")],
    ids=["range", "uniform"],
)
def test_of_two_java_members_with_one_instance_id_one_is_turned_away(
    bootstrap: str, java: MemberHost, config: dict[str, Any], stays: int, error: str
) -> None:
    """The classic protocol fences the one that was there, KIP-848 the one that comes."""
    name = fresh("instance")
    stream = Stream(bootstrap, name)
    members: list[HostedMember] = []
    for member in ("first", "second"):
        more = {**config, "group.instance.id": "one"}
        members.append(java.open(member, bootstrap, name, name, **more))
        until(lambda: members[0].owned == stream.places, members, "the first one has all")
    turned_away = members[1 - stays]
    until(lambda: bool(turned_away.errors), members, "one is turned away")
    assert error in turned_away.errors[0]
    stream.send(10)
    until_read([members[stays]], stream.records_from([0] * 4))
    members[stays].close()
