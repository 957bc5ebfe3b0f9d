"""Transactions of Kafka's own Java client 4.3, by both versions that it speaks.

By transaction version 2 (KIP-890) it adds no partitions, and has an epoch for each transaction. By
version 1 it speaks as those before 4.0 did; which one it is the cluster's finalized features say.
"""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.clients import raw_txn
from tests.clients.conftest import AGAINST_KAFKA
from tests.clients.groups import Member, Stream
from tests.clients.members import Host
from tests.clients.pipes import HostedPipe
from tests.clients.producers import HostedProducer, TransactionError, TxnHost
from tests.clients.transactions import STORIES, Client, everywhere, in_order, shown, until_stable
from tests.parts.servers import FrazilCluster

pytestmark = pytest.mark.integration


def _client(host: TxnHost, readers: Host, *, timed_out: str) -> Client:
    def reader(bootstrap: str, group: str, topic: str, isolation: str, fetch_bytes: int) -> Member:
        more = {"isolation.level": isolation, "max.partition.fetch.bytes": fetch_bytes}
        return readers.open("reader", bootstrap, group, topic, **more)

    return Client(
        name="java",
        producer=partial(HostedProducer, host),
        reader=reader,
        pipe=partial(HostedPipe, host),
        fenced="ProducerFenced",
        timed_out=timed_out,
    )


TIMED_OUT = "InvalidTxnState" if AGAINST_KAFKA else "TransactionAbortable"
"""A client of transaction version 2 learns from Frazil that it can abort, and go on."""


@pytest.fixture
def old_level(unchallenged: str) -> Iterator[str]:
    """A cluster whose transaction version is 1."""
    raw_txn.set_transaction_version(unchallenged, 1)
    yield unchallenged
    raw_txn.set_transaction_version(unchallenged, 2)


@pytest.mark.parametrize("story", STORIES)
def test_transactions_of_java(unchallenged: str, java_txn: TxnHost, java: Host, story: str) -> None:
    STORIES[story](_client(java_txn, java, timed_out=TIMED_OUT), unchallenged)


@pytest.mark.parametrize("story", STORIES)
def test_transactions_of_java_by_version_1(
    old_level: str, java_txn: TxnHost, java: Host, story: str
) -> None:
    STORIES[story](_client(java_txn, java, timed_out="ProducerFenced"), old_level)


def test_a_java_producer_whose_transaction_timed_out_aborts_it_and_goes_on(
    three_agents: FrazilCluster, java_txn: TxnHost, java: Host
) -> None:
    bootstrap = three_agents.bootstrap
    client = _client(java_txn, java, timed_out="")
    topic = client.fresh("outlived")
    Stream(bootstrap, topic)
    producer = client.producer(bootstrap, topic, 1_000)
    lost, last = everywhere("lost", 5), everywhere("last", 5)
    producer.begin()
    producer.send(topic, lost)
    until_stable(bootstrap, topic)
    with pytest.raises(TransactionError, match="TransactionAbortable"):
        producer.commit()
    producer.abort()
    producer.begin()
    producer.send(topic, last)
    producer.commit()
    producer.close()
    until_stable(bootstrap, topic)
    assert shown(bootstrap, topic) == in_order(last)


def test_a_java_producer_outlives_the_change_of_version(
    old_level: str, java_txn: TxnHost, java: Host
) -> None:
    client = _client(java_txn, java, timed_out="")
    topic = client.fresh("switch")
    Stream(old_level, topic)
    producer = client.producer(old_level, topic)
    sent = [everywhere(letter, 5) for letter in "abcdef"]
    for index, values in enumerate(sent):
        producer.begin()
        producer.send(topic, values)
        if index == 1:
            raw_txn.set_transaction_version(old_level, 2)
        if index % 2:
            producer.abort()
        else:
            producer.commit()
    producer.close()
    until_stable(old_level, topic)
    assert shown(old_level, topic) == in_order(*sent[::2])
