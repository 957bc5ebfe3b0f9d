"""Transactions of kafkajs."""

from functools import partial

import pytest

from tests.clients.groups import Member
from tests.clients.members import Host
from tests.clients.pipes import HostedPipe
from tests.clients.producers import HostedProducer, TxnHost
from tests.clients.transactions import STORIES, Client

pytestmark = pytest.mark.integration


def _client(host: TxnHost, readers: Host) -> Client:
    def reader(bootstrap: str, group: str, topic: str, isolation: str, fetch_bytes: int) -> Member:
        more = {"isolation.level": isolation, "max.partition.fetch.bytes": fetch_bytes}
        return readers.open("reader", bootstrap, group, topic, **more)

    return Client(
        name="kafkajs",
        producer=partial(HostedProducer, host),
        reader=reader,
        pipe=partial(HostedPipe, host),
        fenced="older epoch|newer",
        timed_out="older epoch|newer",
    )


@pytest.mark.parametrize("story", STORIES)
def test_transactions_of_kafkajs(
    unchallenged: str, kafkajs_txn: TxnHost, kafkajs: Host, story: str
) -> None:
    STORIES[story](_client(kafkajs_txn, kafkajs), unchallenged)
