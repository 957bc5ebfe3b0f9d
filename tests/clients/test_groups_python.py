"""kafka-python and aiokafka in groups."""

import itertools

import pytest

from tests.clients.groups import Member, Stream, share_leave_and_go_on
from tests.clients.members import AiokafkaMember, KafkaPythonMember

pytestmark = pytest.mark.integration

_numbers = itertools.count()


@pytest.mark.parametrize(
    "client", [KafkaPythonMember, AiokafkaMember], ids=["kafka-python", "aiokafka"]
)
def test_python_members_share_leave_and_go_on(
    bootstrap: str, client: type[KafkaPythonMember | AiokafkaMember]
) -> None:
    name = f"python-{next(_numbers)}"
    stream = Stream(bootstrap, name)

    def join(member: str) -> Member:
        return client(member, bootstrap, name, [name])

    share_leave_and_go_on(stream, name, join)
