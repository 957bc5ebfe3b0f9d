"""Transactions of each client: librdkafka, kafka-python, aiokafka, kafkajs, and Kafka's Java 4.3.

By transaction version 2 (KIP-890) Java's adds no partitions, and has an epoch for each transaction.
By version 1 it speaks as those before 4.0 did; which one it is the cluster's finalized features say.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.clients import raw_txn
from tests.clients.conftest import AGAINST_KAFKA
from tests.clients.groups import Member, Stream
from tests.clients.members import AiokafkaMember, ConfluentMember, KafkaPythonMember, MemberHost
from tests.clients.pipes import AiokafkaPipe, ConfluentPipe, HostedPipe, KafkaPythonPipe
from tests.clients.producers import (
    AiokafkaProducer,
    ConfluentProducer,
    HostedProducer,
    KafkaPythonProducer,
    TransactionError,
    TxnHost,
)
from tests.clients.transactions import STORIES, Client, everywhere, in_order, shown, until_stable
from tests.parts.servers import FrazilCluster

pytestmark = pytest.mark.integration


def _reader(
    make: Callable[..., Member], bootstrap: str, group: str, topic: str, isolation: str, fetch: int
) -> Member:
    """Of a client in Python whose settings have underscores."""
    more = {"isolation_level": isolation, "max_partition_fetch_bytes": fetch}
    return make("reader", bootstrap, group, [topic], **more)


def _librdkafka_reader(
    bootstrap: str, group: str, topic: str, isolation: str, fetch: int
) -> Member:
    more = {"isolation.level": isolation, "max.partition.fetch.bytes": fetch}
    return ConfluentMember("reader", bootstrap, group, [topic], **more)


def _in_host(name: str, host: TxnHost, readers: MemberHost, fenced: str, timed_out: str) -> Client:
    def reader(bootstrap: str, group: str, topic: str, isolation: str, fetch: int) -> Member:
        more = {"isolation.level": isolation, "max.partition.fetch.bytes": fetch}
        return readers.open("reader", bootstrap, group, topic, **more)

    producer, pipe = partial(HostedProducer, host), partial(HostedPipe, host)
    return Client(name, producer, reader, pipe, fenced, timed_out)


def _java(host: TxnHost, readers: MemberHost, *, timed_out: str) -> Client:
    return _in_host("java", host, readers, "ProducerFenced", timed_out)


IN_PYTHON = {
    client.name: client
    for client in (
        Client(
            name="librdkafka",
            producer=ConfluentProducer,
            reader=_librdkafka_reader,
            pipe=ConfluentPipe,
            fenced="_FENCED",
            timed_out="_FENCED",
        ),
        Client(
            name="kafka-python",
            producer=KafkaPythonProducer,
            reader=partial(_reader, KafkaPythonMember),
            pipe=KafkaPythonPipe,
            fenced="Fenced",
            timed_out="Fenced",
        ),
        Client(
            name="aiokafka",
            producer=AiokafkaProducer,
            reader=partial(_reader, AiokafkaMember),
            pipe=AiokafkaPipe,
            fenced="Fenced",
            timed_out="Fenced",
        ),
    )
}
OLDER = "older epoch|newer"
"""What kafkajs says of a producer that was fenced."""
TIMED_OUT = "InvalidTxnState" if AGAINST_KAFKA else "TransactionAbortable"
"""A client of transaction version 2 learns from Frazil that it can abort, and go on."""

stories = pytest.mark.parametrize("story", STORIES)


@pytest.fixture
def old_level(unchallenged: str) -> Iterator[str]:
    """A cluster whose transaction version is 1."""
    raw_txn.set_transaction_version(unchallenged, 1)
    yield unchallenged
    raw_txn.set_transaction_version(unchallenged, 2)


@stories
@pytest.mark.parametrize("client", IN_PYTHON)
def test_transactions_of_clients_in_python(unchallenged: str, client: str, story: str) -> None:
    STORIES[story](IN_PYTHON[client], unchallenged)


@stories
def test_transactions_of_kafkajs(
    unchallenged: str, kafkajs_txn: TxnHost, kafkajs: MemberHost, story: str
) -> None:
    STORIES[story](_in_host("kafkajs", kafkajs_txn, kafkajs, OLDER, OLDER), unchallenged)


@stories
def test_transactions_of_java(
    unchallenged: str, java_txn: TxnHost, java: MemberHost, story: str
) -> None:
    STORIES[story](_java(java_txn, java, timed_out=TIMED_OUT), unchallenged)


@stories
def test_transactions_of_java_by_version_1(
    old_level: str, java_txn: TxnHost, java: MemberHost, story: str
) -> None:
    STORIES[story](_java(java_txn, java, timed_out="ProducerFenced"), old_level)


def test_a_java_producer_whose_transaction_timed_out_aborts_it_and_goes_on(
    three_agents: FrazilCluster, java_txn: TxnHost, java: MemberHost
) -> None:
    bootstrap = three_agents.bootstrap
    client = _java(java_txn, java, timed_out="")
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
    old_level: str, java_txn: TxnHost, java: MemberHost
) -> None:
    client = _java(java_txn, java, timed_out="")
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
