"""librdkafka's transactions."""

import pytest

from tests.clients.groups import Member
from tests.clients.members import ConfluentMember
from tests.clients.pipes import ConfluentPipe
from tests.clients.producers import ConfluentProducer
from tests.clients.transactions import STORIES, Client

pytestmark = pytest.mark.integration


def _reader(bootstrap: str, group: str, topic: str, isolation: str, fetch_bytes: int) -> Member:
    more = {"isolation.level": isolation, "max.partition.fetch.bytes": fetch_bytes}
    return ConfluentMember("reader", bootstrap, group, [topic], **more)


CLIENT = Client(
    name="librdkafka",
    producer=ConfluentProducer,
    reader=_reader,
    pipe=ConfluentPipe,
    fenced="_FENCED",
    timed_out="_FENCED",
)


@pytest.mark.parametrize("story", STORIES)
def test_transactions_of_librdkafka(unchallenged: str, story: str) -> None:
    STORIES[story](CLIENT, unchallenged)
