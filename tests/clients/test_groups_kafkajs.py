"""kafkajs in groups."""

import itertools

import pytest

from tests.clients.groups import Stream, share_leave_and_go_on
from tests.clients.members import Host, HostedMember

pytestmark = pytest.mark.integration

_numbers = itertools.count()


def test_kafkajs_members_share_leave_and_go_on(bootstrap: str, kafkajs: Host) -> None:
    name = f"kafkajs-{next(_numbers)}"
    stream = Stream(bootstrap, name)

    def join(member: str) -> HostedMember:
        return kafkajs.open(member, bootstrap, name, name)

    share_leave_and_go_on(stream, name, join)
