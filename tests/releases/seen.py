"""What clients see of a cluster, as values that JSON can hold: equal data are seen alike.

Left out is what differs for no reason: addresses, and member ids, which are random.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from protocol import apis
from protocol.messages import DescribeTransactionsRequest, MetadataRequest
from tests.clients.bounded import until
from tests.clients.raw import ask
from tests.releases.agents import KeptAgent
from tests.releases.story import OPEN, http

GROUPS = ("classic-static", "new-static", "simple", "in-transaction")
TRANSACTIONAL_IDS = ("committed", "aborted", "layers", *OPEN)
LISTED_MAX = 100
"""Of more records a digest is told, and the first and the last one."""

Seen = dict[str, Any]


def seen(agent: KeptAgent) -> Seen:
    """When the agent is the only one that is taken for live."""
    until(lambda: _named(agent.bootstrap), lambda named: named == {agent.bootstrap})
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    names = sorted(admin.list_topics(timeout=30).topics)
    return {
        "topics": {name: _topic(agent.bootstrap, admin, name) for name in names},
        "groups": {name: seen_group(agent.bootstrap, name) for name in GROUPS},
        "transactions": seen_transactions(agent.bootstrap),
        "subjects": _subjects(agent.registry),
    }


def differences(was: Any, now: Any, path: str = "") -> list[str]:
    """Where two values differ, and what is there."""
    if isinstance(was, dict) and isinstance(now, dict) and was.keys() == now.keys():
        return [each for key in was for each in differences(was[key], now[key], f"{path}.{key}")]
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        pairs = enumerate(zip(was, now, strict=True))
        return [each for at, pair in pairs for each in differences(*pair, f"{path}[{at}]")]
    return [] if was == now else [f"{path}: {was!r:.200} became {now!r:.200}"]


def _named(bootstrap: str) -> set[str]:
    """The agents that clients are told of."""
    answer = ask(bootstrap, apis.METADATA, 8, MetadataRequest(topics=[]))
    return {f"{broker.host}:{broker.port}" for broker in answer.brokers}


def _topic(bootstrap: str, admin: AdminClient, name: str) -> Seen:
    partitions = sorted(admin.list_topics(name, timeout=30).topics[name].partitions)
    resource = ConfigResource(ResourceType.TOPIC, name)
    configs = admin.describe_configs([resource])[resource].result(30)
    committed = read_topic(bootstrap, name, partitions)
    everything = read_topic(bootstrap, name, partitions, isolation="read_uncommitted")
    return {
        "configs": {
            key: entry.value for key, entry in sorted(configs.items()) if not entry.is_default
        },
        "partitions": [
            {
                "start": everything[partition].start,
                "stable": committed[partition].end,
                "end": everything[partition].end,
                "committed": told_records(committed[partition].records),
                "all": told_records(everything[partition].records),
            }
            for partition in partitions
        ],
    }


def told_records(records: Sequence[Seen]) -> Any:
    if len(records) <= LISTED_MAX:
        return list(records)
    text = json.dumps(records).encode()
    digest = hashlib.sha256(text).hexdigest()
    return {"count": len(records), "first": records[0], "last": records[-1], "sha256": digest}


class Read(NamedTuple):
    """A partition from its start to its end, or to the last stable offset."""

    start: int
    end: int
    records: list[Seen]


def read(bootstrap: str, topic: str, partition: int = 0) -> list[Seen]:
    """The committed records."""
    return read_topic(bootstrap, topic, [partition])[partition].records


def read_topic(
    bootstrap: str, topic: str, partitions: Sequence[int], *, isolation: str = "read_committed"
) -> dict[int, Read]:
    """By partition."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
        }
    )
    places = [TopicPartition(topic, partition) for partition in partitions]
    bounds = [reader.get_watermark_offsets(place, timeout=30) for place in places]
    found = {
        partition: Read(start, end, [])
        for partition, (start, end) in zip(partitions, bounds, strict=True)
    }
    reader.assign([TopicPartition(topic, at, row.start) for at, row in found.items()])
    reading = set(partitions)
    while reading:
        message = reader.poll(30)
        assert message is not None, f"{topic} has no end in {reading}"
        error = message.error()
        if error is None:
            found[message.partition()].records.append(_record(message))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            reading.discard(message.partition())
    reader.close()
    return found


def _record(message: Message) -> Seen:
    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode("latin-1")

    kind, timestamp = message.timestamp()
    found = {
        "offset": message.offset(),
        "timestamp": [kind, timestamp],
        "key": text(message.key()),
        "value": text(message.value()),
    }
    if message.headers():
        found["headers"] = [[name, text(value)] for name, value in message.headers()]
    return found


def seen_group(bootstrap: str, group: str) -> Seen:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(30)
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {
        "state": described.state.name,
        "type": described.type.name,
        "assignor": described.partition_assignor,
        "members": [
            {
                "instance": member.group_instance_id,
                "client": member.client_id,
                "assignment": sorted(
                    [row.topic, row.partition] for row in member.assignment.topic_partitions
                ),
            }
            for member in described.members
        ],
        "offsets": sorted(
            [row.topic, row.partition, row.offset, row.metadata or ""]
            for row in offsets[group].result(30).topic_partitions
        ),
    }


def seen_transactions(bootstrap: str) -> Seen:
    request = DescribeTransactionsRequest(transactional_ids=list(TRANSACTIONAL_IDS))
    answer = ask(bootstrap, apis.DESCRIBE_TRANSACTIONS, 0, request)
    return {
        row.transactional_id: {
            "error": row.error_code,
            "state": row.transaction_state,
            "timeout_ms": row.transaction_timeout_ms,
            "producer": [row.producer_id, row.producer_epoch],
            "partitions": sorted([it.topic, sorted(it.partitions)] for it in row.topics),
        }
        for row in answer.transaction_states
    }


def _subjects(registry: str) -> Seen:
    found = {}
    for subject in http("GET", f"{registry}/subjects"):
        numbers = http("GET", f"{registry}/subjects/{subject}/versions")
        found[subject] = [
            http("GET", f"{registry}/subjects/{subject}/versions/{number}") for number in numbers
        ]
    return {
        "versions": found,
        "deleted too": http("GET", f"{registry}/subjects?deleted=true"),
        "config of json": http("GET", f"{registry}/config/json"),
    }
