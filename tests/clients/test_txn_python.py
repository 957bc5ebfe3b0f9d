"""Transactions of kafka-python and aiokafka."""

import pytest

from tests.clients.groups import Member
from tests.clients.members import AiokafkaMember, KafkaPythonMember
from tests.clients.pipes import AiokafkaPipe, KafkaPythonPipe
from tests.clients.producers import AiokafkaProducer, KafkaPythonProducer
from tests.clients.transactions import STORIES, Client

pytestmark = pytest.mark.integration


def _kafka_python(bootstrap: str, group: str, topic: str, isolation: str, fetch: int) -> Member:
    more = {"isolation_level": isolation, "max_partition_fetch_bytes": fetch}
    return KafkaPythonMember("reader", bootstrap, group, [topic], **more)


def _aiokafka(bootstrap: str, group: str, topic: str, isolation: str, fetch: int) -> Member:
    more = {"isolation_level": isolation, "max_partition_fetch_bytes": fetch}
    return AiokafkaMember("reader", bootstrap, group, [topic], **more)


KAFKA_PYTHON = Client(
    name="kafka-python",
    producer=KafkaPythonProducer,
    reader=_kafka_python,
    pipe=KafkaPythonPipe,
    fenced="Fenced",
    timed_out="Fenced",
)
AIOKAFKA = Client(
    name="aiokafka",
    producer=AiokafkaProducer,
    reader=_aiokafka,
    pipe=AiokafkaPipe,
    fenced="Fenced",
    timed_out="Fenced",
)


@pytest.mark.parametrize("story", STORIES)
def test_transactions_of_kafka_python(unchallenged: str, story: str) -> None:
    STORIES[story](KAFKA_PYTHON, unchallenged)


@pytest.mark.parametrize("story", STORIES)
def test_transactions_of_aiokafka(unchallenged: str, story: str) -> None:
    STORIES[story](AIOKAFKA, unchallenged)
