"""Confluent's serializers that name schemas in headers, an agent with its registry, and the tables."""

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from iceberg_export.runs.export import export_topic
from iceberg_export.runs.job import Job
from iceberg_export.verify.proof import verify_topic
from protocol.schemas.proto_text import load_files
from tests.iceberg_export.kit.world import make_job
from tests.parts.process import free_port
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

ORDER = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"},'
    ' {"name": "city", "type": "string"}%s]}'
)
PRICE = ', {"name": "price", "type": ["null", "double"], "default": null}'
ID = '{"type": "record", "name": "Id", "fields": [{"name": "id", "type": "string"}]}'
PROTO = 'syntax = "proto3"; message Other { int32 x = 1; } message Order { int32 id = 1; }'
JSON = '{"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}}'
HEADER = {"schema.id.serializer": header_schema_id_serializer}
TOPICS = {
    "avro": {"value.mode": "avro", "key.mode": "avro"},
    "protobuf": {"value.mode": "protobuf"},
    "json": {"value.mode": "json"},
    "bare": {"value.mode": "json", "value.schema": "latest"},
}


class Sender:
    """Records whose schemas are in their headers, if anywhere."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})

    def send(self, topic: str, value: Any, by: Any = None, key: Any = None, key_by: Any = None):
        headers: list[tuple[str, bytes]] = []
        sides = [(MessageField.VALUE, value, by), (MessageField.KEY, key, key_by)]
        value, key = (
            one if how is None else how(one, SerializationContext(topic, side, headers))
            for side, one, how in sides
        )
        self._producer.produce(topic, value=value, key=key, headers=headers, partition=0)
        assert self._producer.flush(60) == 0


def produce(sender: Sender, registry: SchemaRegistryClient) -> None:
    key_by = AvroSerializer(registry, ID, conf=HEADER)
    for fields, more in (("", {"id": 5}), (PRICE, {"id": 6, "price": 0.5})):
        by, order = AvroSerializer(registry, ORDER % fields, conf=HEADER), {**more, "city": "Ulm"}
        sender.send("avro", order, by, {"id": f"k{order['id']}"}, key_by)
    sender.send("avro", {"id": 7, "city": "Ulm"}, AvroSerializer(registry, ORDER % ""))
    _, file = load_files(PROTO, {}, "order.proto")
    order_class = GetMessageClass(file.message_types_by_name["Order"])
    proto = ProtobufSerializer(order_class, registry, HEADER | {"use.deprecated.format": False})
    sender.send("protobuf", order_class(id=5), proto)
    sender.send("json", {"id": 5}, JSONSerializer(JSON, registry, conf=HEADER))
    registry.register_schema("bare-value", Schema(JSON, "JSON"))
    sender.send("bare", b'{"id": 5}')
    sender.send("bare", b"{")


def export(job: Job) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table, by topic; tables and dead letters are those of the log."""
    found = {}
    for topic in job.client.topics().topics:
        if topic.name not in TOPICS:
            continue
        export_topic(job, topic)
        verdict = verify_topic(job, topic)
        assert (verdict.problems, verdict.dead) == ((), topic.name == "bare")
        table = job.catalog.load_table(("frazil", topic.name))
        found[topic.name] = table.scan().to_arrow().sort_by("kafka_offset").to_pylist()
    return found


def first_value(bootstrap: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition("avro", 0, OFFSET_BEGINNING)])
    (message,) = consumer.consume(1, timeout=60)
    consumer.close()
    return message.value()


@pytest.mark.integration
def test_schemas_named_in_headers_decode_values_and_keys(tmp_path):
    url = f"http://127.0.0.1:{free_port()}"
    with FrazilDev(tmp_path, "--set", f"schema.registry.listeners={url}") as agent:
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        for name, more in TOPICS.items():
            configs = {f"frazil.iceberg.{key}": value for key, value in more.items()}
            create_topic(admin, name, 1, configs)
        sets = [f"schema.registry.url={url}"]
        job = make_job(f"http://127.0.0.1:{agent.http_port}", tmp_path / "tables", sets=sets)
        with SchemaRegistryClient({"url": url}) as registry:
            produce(Sender(agent.bootstrap), registry)
            assert first_value(agent.bootstrap) == b"\x0a\x06Ulm"
            newest = registry.get_latest_version("avro-value").schema_id
        rows = export(job)
        job.catalog.engine.dispose()
        assert agent.stop() == 0
    columns = ("id", "price", "kafka_key", "kafka_value_schema_id")
    first, second, third = ([row[name] for name in columns] for row in rows["avro"])
    assert (first[:3], second) == ([5, None, {"id": "k5"}], [6, 0.5, {"id": "k6"}, newest])
    # The last one has a frame, of the first one's schema.
    assert third == [7, None, None, first[3]]
    assert [row["id"] for name in ("protobuf", "json", "bare") for row in rows[name]] == [5] * 3
    assert rows["bare"][0]["kafka_value_schema_id"] is not None
