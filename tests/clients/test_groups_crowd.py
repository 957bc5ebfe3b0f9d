"""Fifty consumers join in one second, over a hundred partitions.

By KIP-848 they are Java's, in one process, and heartbeat as seldom as by Kafka's default. A member that
reports what it owns between the answer that gave it a partition and its application's callback says that
it does not own it; if the partition has another target by then, the coordinator gives it away, and two
have it for a moment. In Apache Kafka one can see the same. librdkafka 2.16 reports at such moments by
itself; Java only with a heartbeat that comes before the callback ends.
"""

import time

import pytest

from tests.clients.groups import (
    Member,
    Owners,
    Stream,
    assert_no_errors,
    read_by,
    set_group_config,
    until_read,
    until_shared,
)
from tests.clients.members import ConfluentMember, MemberHost

pytestmark = pytest.mark.integration

CONSUMERS = 50
PARTITIONS = 100
EACH = 20
JOINED_S = 1.0
HEARTBEAT_MS = "5000"
KINDS = ("range", "cooperative-sticky", "consumer")


@pytest.mark.parametrize("kind", KINDS)
def test_fifty_consumers_join_in_one_second_and_read_everything(
    bootstrap: str, java: MemberHost, kind: str
) -> None:
    name = f"crowd-{kind}"
    stream = Stream(bootstrap, name, PARTITIONS)
    stream.send(EACH)
    owners = Owners()
    if kind == "consumer":
        set_group_config(bootstrap, name, "consumer.heartbeat.interval.ms", HEARTBEAT_MS)

    def join(member: str) -> Member:
        if kind == "consumer":
            more = {"group.protocol": "consumer"}
            return java.open(member, bootstrap, name, name, owners=owners, **more)
        more = {"partition.assignment.strategy": kind}
        return ConfluentMember(member, bootstrap, name, [name], owners=owners, **more)

    begun = time.monotonic()
    members: list[Member] = []
    for index in range(CONSUMERS):
        members.append(join(f"m{index}"))
        time.sleep(max(0.0, begun + JOINED_S * index / CONSUMERS - time.monotonic()))
    until_shared(members, stream.places, seconds=60)
    print(f"{kind}: shared {time.monotonic() - begun:.1f} s after the first one began")
    until_read(members, stream.records_from([0] * PARTITIONS))
    # What was there is read again where partitions moved; what comes now is read once.
    starts = list(stream.ends)
    stream.send(EACH)
    wanted = stream.records_from(starts)
    until_read(members, wanted)
    times = read_by(members)
    assert {times[got] for got in wanted} == {1}
    for member in members:
        member.commit()
    assert stream.committed(name) == stream.ends
    for member in members:
        member.leave()
    for member in members:
        member.close()
    assert owners.violations == []
    assert_no_errors(*members)
