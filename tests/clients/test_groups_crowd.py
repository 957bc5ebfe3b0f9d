"""Fifty consumers join in one second, over a hundred partitions."""

import time
from collections.abc import Iterable
from typing import Any

import pytest

from tests.clients.groups import (
    Owners,
    Place,
    Stream,
    assert_no_errors,
    read_by,
    until_read,
    until_shared,
)
from tests.clients.members import ConfluentMember

pytestmark = pytest.mark.integration

CONSUMERS = 50
PARTITIONS = 100
EACH = 20
JOINED_S = 1.0
KINDS = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class Watched(ConfluentMember):
    """A member whose partitions are taken account of at every moment."""

    def __init__(self, owners: Owners, *arguments: Any, **config: Any) -> None:
        self._owners = owners
        super().__init__(*arguments, **config)

    def assigned(self, places: Iterable[Place]) -> None:
        came = list(places)
        self._owners.assigned(self.name, came)
        super().assigned(came)

    def revoked(self, places: Iterable[Place], kind: str = "revoked") -> None:
        gone = list(places)
        self._owners.revoked(self.name, gone)
        super().revoked(gone, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_fifty_consumers_join_in_one_second_and_read_everything(bootstrap: str, kind: str) -> None:
    name = f"crowd-{kind}"
    stream = Stream(bootstrap, name, PARTITIONS)
    stream.send(EACH)
    owners = Owners()
    begun = time.monotonic()
    members = []
    for index in range(CONSUMERS):
        members.append(Watched(owners, f"m{index}", bootstrap, name, [name], **KINDS[kind]))
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
