"""A group changes its protocol while its members are replaced one by one, and records flow (KIP-848)."""

from typing import Any

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

from tests.clients.groups import Member, assert_no_errors, until, until_shared
from tests.clients.members import MemberHost
from tests.faults.load import Load

pytestmark = pytest.mark.integration

MEMBERS = 3
PARTITIONS = 6
COMMITS = {"enable.auto.commit": "true", "auto.commit.interval.ms": 200}
NO_RESET = {"auto.offset.reset": "none"}
"""An offset that the group forgot would end the member."""
CLASSIC = {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.{}Assignor"}
CONSUMER = {"group.protocol": "consumer"}


def _type(bootstrap: str, group: str) -> ConsumerGroupType:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups().result(30)
    (found,) = [row.type for row in listed.valid if row.group_id == group]
    return found


def _has_read(member: Member) -> bool:
    """Of every partition that it owns."""
    return member.owned <= {(got.topic, got.partition) for got in member.records}


@pytest.mark.parametrize("assignor", ["Range", "CooperativeSticky"])
def test_a_group_goes_over_to_the_new_protocol_and_back_while_records_flow(
    bootstrap: str, java: MemberHost, assignor: str
) -> None:
    group = f"migration-{assignor.lower()}"
    load = Load(bootstrap, group, per_second=300, partitions=PARTITIONS)
    load.start()
    places = {(group, index) for index in range(PARTITIONS)}
    classic = {key: value.format(assignor) for key, value in CLASSIC.items()}
    everybody: list[Member] = []

    def join(name: str, protocol: dict[str, Any]) -> Member:
        member = java.open(name, bootstrap, group, group, **COMMITS, **protocol)
        everybody.append(member)
        return member

    live = [join(f"old{index}", classic) for index in range(MEMBERS)]
    until_shared(live, places)
    assert _type(bootstrap, group) is ConsumerGroupType.CLASSIC
    # A position that a member has not yet is not committed, and no other one would begin without.
    until(lambda: all(map(_has_read, live)), live, "each has read of each of its partitions")
    for member in live:
        member.commit()
    for name, protocol, kind in (
        ("new", CONSUMER, ConsumerGroupType.CONSUMER),
        ("back", classic, ConsumerGroupType.CLASSIC),
    ):
        for index in range(MEMBERS):
            live.pop(0).close()
            live.append(join(f"{name}{index}", protocol | NO_RESET))
            until_shared(live, places)
            load.wait_for_acks(30, seconds=30)
        assert _type(bootstrap, group) is kind
    load.stop()

    wanted = {value.decode() for value in load.acknowledged}
    until(
        lambda: wanted <= {got.value for member in everybody for got in member.records},
        everybody,
        "every record that was acknowledged is read",
    )
    for member in live:
        member.close()
    assert_no_errors(*everybody)
