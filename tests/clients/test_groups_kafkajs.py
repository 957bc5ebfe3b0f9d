"""kafkajs in groups."""

import itertools
import time

import pytest

from tests.clients.groups import Stream, share_leave_and_go_on, until, until_read, until_shared
from tests.clients.members import Host, HostedMember, kafkajs_host

pytestmark = pytest.mark.integration

SESSION_MS = 6_000
"""The least that a group takes."""

_numbers = itertools.count()


def test_kafkajs_members_share_leave_and_go_on(bootstrap: str, kafkajs: Host) -> None:
    name = f"kafkajs-{next(_numbers)}"
    stream = Stream(bootstrap, name)

    def join(member: str) -> HostedMember:
        return kafkajs.open(member, bootstrap, name, name)

    share_leave_and_go_on(stream, name, join)


def test_the_partitions_of_members_that_died_go_to_those_that_live(
    bootstrap: str, kafkajs: Host
) -> None:
    name = f"kafkajs-{next(_numbers)}"
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
