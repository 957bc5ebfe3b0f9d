"""What clients write into a cluster whose data are kept: a little of everything that is stored.

Each step ends when it is acknowledged. What is left open is left open for good: two transactions,
and two members that are in their groups whenever somebody looks.
"""

import io
import json
import struct
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import fastavro
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.clients.bounded import Bounded
from tests.clients.raw import Connection, ask
from tests.clients.raw_txn import LIBRDKAFKA, NEW_JAVA
from tests.clients.raw_txn import Producer as RawProducer
from tests.clients.records import CODECS
from tests.parts.topics import NotNowError, create_topic, patiently, told
from tests.releases.agents import KeptAgent

TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "plain": (3, {}),
    "compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
    "transactional": (2, {}),
    "layered": (1, {}),
    "typed": (1, {"frazil.iceberg.value.mode": "avro"}),
    "upserted": (1, {"frazil.iceberg.mode": "upsert"}),
    "configured": (1, {"max.message.bytes": "65536", "retention.bytes": "1000000000"}),
    "empty": (2, {}),
}
AT_MS = 1_700_000_000_000
FOR_EVER = {"retention.ms": "-1"}
"""Whenever the data are read, no record is too old."""
OPEN = {"open-new": NEW_JAVA, "open-old": LIBRDKAFKA}
"""Transactional ids whose transactions stay open, and how their owners speak."""
OPEN_MS = 900_000
LAYERED = 520
"""Transactions of one record: with their markers, more rows than stay in memory."""
STATIC_MS = 1_800_000
"""The longest session that a member may have."""
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
}
SUBJECTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "typed-value": [
        {"schema": json.dumps(SCHEMA)},
        {"schema": json.dumps({**SCHEMA, "doc": "Another version of it."})},
    ],
    "json": [{"schemaType": "JSON", "schema": '{"type": "object", "title": "ß"}'}],
    "common": [
        {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message Colour { int32 hue = 1; }'}
    ],
    "protobuf": [
        {
            "schemaType": "PROTOBUF",
            "schema": 'syntax = "proto3"; import "common.proto"; message M { Colour colour = 1; }',
            "references": [{"name": "common.proto", "subject": "common", "version": 1}],
        }
    ],
}
DELETED = "deleted"
GROUP_CONFIG = 32


class Left(NamedTuple):
    """What was left open, for whoever goes on."""

    producers: dict[str, tuple[int, int]]
    """Producer id and epoch by transactional id."""
    members: list[Consumer]
    """They are there while this is."""


def write(agent: KeptAgent) -> Left:
    bootstrap = agent.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for name, (partitions, configs) in {**TOPICS, "deleted": (2, {})}.items():
        create_topic(admin, name, partitions, {**FOR_EVER, **configs})
    register(agent.registry)
    write_plain(bootstrap, first=0)
    write_keys(bootstrap, "compacted", rounds=4)
    write_keys(bootstrap, "upserted", rounds=2)
    write_typed(bootstrap, first=0)
    write_transactions(bootstrap)
    write_layers(agent)
    producers = leave_transactions_open(bootstrap)
    set_group_config(bootstrap, "new-static", "consumer.heartbeat.interval.ms", "7000")
    members = [*join_groups(bootstrap)]
    patiently(
        lambda: told(admin.create_partitions([NewPartitions("empty", 3)])["empty"]), NotNowError
    )
    patiently(lambda: told(admin.delete_topics(["deleted"])["deleted"]), NotNowError)
    patiently(lambda: _trim(admin, "plain", 2, 3), NotNowError)
    return Left(producers, members)


def _trim(admin: AdminClient, topic: str, partition: int, offset: int) -> None:
    place = TopicPartition(topic, partition, offset)
    told(admin.delete_records([place])[place])


def register(registry: str) -> None:
    for subject, versions in SUBJECTS.items():
        for version in versions:
            http("POST", f"{registry}/subjects/{subject}/versions", version)
    http("PUT", f"{registry}/config/json", {"compatibility": "FULL"})
    http("POST", f"{registry}/subjects/{DELETED}/versions", SUBJECTS["json"][0])
    http("DELETE", f"{registry}/subjects/{DELETED}")


def http(method: str, url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url,
        data=data,
        method=method,
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def produce(
    bootstrap: str, topic: str, records: Iterable[Mapping[str, Any]], **settings: str
) -> None:
    """In one batch, or few, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **settings})
    _send(producer, topic, records)
    assert producer.flush(60) == 0


def _send(producer: Producer, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
    def delivered(error: object, _message: object) -> None:
        assert error is None, error

    for record in records:
        producer.produce(topic, on_delivery=delivered, **{"partition": 0, **record})


def write_plain(bootstrap: str, *, first: int) -> None:
    """All codecs, with and without key, value and headers; 15 records, over three partitions."""
    for turn, codec in enumerate(CODECS):
        records = [
            {
                "partition": at,
                "key": None if at == 1 else f"key-{turn}".encode(),
                "value": None if at == 2 else f"value {first + turn} ".encode() * 20,
                "headers": [("h", b"1"), ("h", None)] if turn % 2 else [],
                "timestamp": AT_MS + first + turn,
            }
            for at in range(3)
        ]
        name = {"enable.idempotence": "true"} if turn % 2 else {}
        produce(bootstrap, "plain", records, **{"compression.type": codec, **name})


def write_keys(bootstrap: str, topic: str, *, rounds: int) -> None:
    """Four keys, over and over; in the end one is deleted."""
    for turn in range(rounds):
        for key in range(4):
            value = None if (turn, key) == (rounds - 1, 3) else f"{key}-{turn}".encode()
            at_ms = AT_MS + turn
            record = {"key": b"key-%d" % key, "value": value, "timestamp": at_ms}
            produce(bootstrap, topic, [record])


def write_typed(bootstrap: str, *, first: int) -> None:
    """Three values of the first schema, and one that is none of any."""
    values = []
    for number in range(first, first + 3):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, SCHEMA, {"id": number, "city": f"city {number}"})
        values.append(struct.pack(">bI", 0, 1) + out.getvalue())
    at_ms = AT_MS + first
    records = [{"value": value, "timestamp": at_ms} for value in (*values, b"no avro")]
    produce(bootstrap, "typed", records)


def write_transactions(bootstrap: str) -> None:
    """One that is committed, with offsets of a group; one that is aborted."""
    for name, commit in (("committed", True), ("aborted", False)):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        for partition in range(2):
            at_ms = AT_MS + partition
            value = f"{name} {partition}".encode()
            record = {"value": value, "partition": partition, "timestamp": at_ms}
            _send(producer, "transactional", [record])
        assert producer.flush(30) == 0
        group = Consumer({"bootstrap.servers": bootstrap, "group.id": "in-transaction"})
        offsets = [TopicPartition("plain", 0, 2 if commit else 4, "in a transaction")]
        producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), 30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        group.close()


def write_layers(agent: KeptAgent) -> None:
    """Records in segments, then rows in pages, then records in chunks; every seventh is aborted."""
    producer = Producer(
        {
            "bootstrap.servers": agent.bootstrap,
            "transactional.id": "layers",
            "linger.ms": 0,
            "enable.idempotence": True,
        }
    )
    producer.init_transactions(30)
    jobs = Bounded(agent.bootstrap, agent.http_port)
    for number in range(LAYERED + 20):
        producer.begin_transaction()
        record = {"value": b"%d" % number, "timestamp": AT_MS + number}
        _send(producer, "layered", [record])
        assert producer.flush(30) == 0
        (producer.abort_transaction if number % 7 == 3 else producer.commit_transaction)(30)
        if number == 10:
            jobs.run_until("merge", "layered", lambda row: row["segment_bytes"] > 0)
        if number == LAYERED:
            jobs.run_until("spill", "layered", lambda row: row["pages"] > 0)
    jobs.run_until("compact", "compacted", lambda row: row["clean_to"] > 0)


def leave_transactions_open(bootstrap: str) -> dict[str, tuple[int, int]]:
    left = {}
    for name, dialect in OPEN.items():
        producer = RawProducer(name, dialect)
        with Connection(bootstrap) as connection:
            producer.init(connection, timeout_ms=OPEN_MS)
            for partition in range(2):
                producer.write(connection, ("transactional", partition), f"{name} {partition}")
            if not dialect.adds:
                _commit_pending(connection, producer)
        left[name] = (producer.producer_id, producer.epoch)
    produce(bootstrap, "transactional", [{"value": b"behind", "timestamp": AT_MS}])
    return left


def _commit_pending(connection: Connection, producer: RawProducer) -> None:
    row = TxnOffsetCommitRequestPartition(
        partition_index=1, committed_offset=3, committed_metadata="pending"
    )
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id="in-transaction",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name="plain", partitions=[row])],
    )
    answer = connection.ask(apis.TXN_OFFSET_COMMIT, 5, request)
    (found,) = answer.topics[0].partitions
    assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code)


def set_group_config(bootstrap: str, group: str, name: str, value: str) -> None:
    resource = IncrementalAlterConfigsResource(
        resource_type=GROUP_CONFIG,
        resource_name=group,
        configs=[IncrementalAlterableConfig(name=name, value=value)],
    )
    answer = ask(
        bootstrap,
        apis.INCREMENTAL_ALTER_CONFIGS,
        1,
        IncrementalAlterConfigsRequest(resources=[resource]),
    )
    assert answer.responses[0].error_code == ErrorCode.NONE, answer


def join_groups(bootstrap: str) -> Iterable[Consumer]:
    """A static member of either protocol, each alone in its group; and a group without members."""
    for group, more in (
        ("classic-static", {"session.timeout.ms": STATIC_MS, "max.poll.interval.ms": STATIC_MS}),
        ("new-static", {"group.protocol": "consumer"}),
    ):
        member = static_member(bootstrap, group, **more)
        commit(member, [TopicPartition("plain", at, at + 1, f"by {group}") for at in range(3)])
        yield member
    alone = Consumer({"bootstrap.servers": bootstrap, "group.id": "simple"})
    commit(alone, [TopicPartition("compacted", 0, 5, "ß"), TopicPartition("plain", 1, 0)])
    alone.close()


def static_member(bootstrap: str, group: str, **settings: object) -> Consumer:
    """A member that has been given all of `plain`."""
    member = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": f"{group}-1",
            "client.id": f"client of {group}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    member.subscribe(["plain"])
    for _ in range(600):
        member.poll(0.1)
        if len(member.assignment()) == TOPICS["plain"][0]:
            return member
    raise AssertionError(f"the member of {group} was given {member.assignment()}")


def commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    for row in consumer.commit(offsets=offsets, asynchronous=False):
        assert row.error is None, row


def committed(bootstrap: str, group: str, topic: str) -> list[tuple[int, str | None]]:
    """Offset and metadata of each partition, as a consumer that is no member is told."""
    asking = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, partition) for partition in range(TOPICS[topic][0])]
    found = [(row.offset, row.metadata) for row in asking.committed(places, timeout=30)]
    asking.close()
    return found
