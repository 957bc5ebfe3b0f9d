"""librdkafka (confluent-kafka) in groups, by the classic protocol and by KIP-848."""

import itertools

import pytest

from tests.clients.groups import Stream, come_back_unnoticed, share_leave_and_go_on
from tests.clients.members import ConfluentMember

pytestmark = pytest.mark.integration

KINDS = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}

_numbers = itertools.count()


def _fresh(name: str) -> str:
    """A topic and group that no other test of this run uses."""
    return f"librdkafka-{name}-{next(_numbers)}"


@pytest.mark.parametrize("kind", KINDS)
def test_librdkafka_members_share_leave_and_go_on(bootstrap: str, kind: str) -> None:
    name = _fresh(kind)
    stream = Stream(bootstrap, name)

    def join(member: str) -> ConfluentMember:
        return ConfluentMember(member, bootstrap, name, [name], **KINDS[kind])

    share_leave_and_go_on(stream, name, join)


@pytest.mark.parametrize("kind", ["cooperative-sticky", "consumer"])
def test_a_static_librdkafka_member_comes_back_unnoticed(bootstrap: str, kind: str) -> None:
    name = _fresh(f"static-{kind}")
    stream = Stream(bootstrap, name)

    def join(member: str, instance: str) -> ConfluentMember:
        more = {**KINDS[kind], "group.instance.id": instance}
        return ConfluentMember(member, bootstrap, name, [name], **more)

    come_back_unnoticed(stream, name, join)
