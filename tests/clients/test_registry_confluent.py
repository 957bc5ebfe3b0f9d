"""Confluent's own serializers (Python) with the embedded registry, records through the agent."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from protocol.schemas.proto_text import load_files
from tests.parts.process import free_port
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]}"""
PRICED = ORDER[:-2] + ', {"name": "cents", "type": "long", "default": 0}]}'
NAMED = PRICED[:-2] + ', {"name": "name", "type": "string"}]}'


class World(NamedTuple):
    bootstrap: str
    registry: SchemaRegistryClient


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    url = f"http://127.0.0.1:{free_port()}"
    settings = (f"schema.registry.listeners={url}", "schema.registry.basic.auth.user.info=ann:pw")
    words = [word for setting in settings for word in ("--set", setting)]
    with FrazilDev(tmp_path_factory.mktemp("registry"), *words) as agent:
        told = {"url": url, "basic.auth.user.info": "ann:pw"}
        with SchemaRegistryClient(told) as registry:
            yield World(agent.bootstrap, registry)
        assert agent.stop() == 0


def through_kafka(world: World, topic: str, values: list[bytes]) -> list[bytes]:
    """Write them to one partition and read them back."""
    producer = Producer({"bootstrap.servers": world.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value=value, partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    read: list[bytes] = []
    while len(read) < len(values):
        messages = consumer.consume(len(values) - len(read), timeout=60)
        assert messages
        read += [message.value() for message in messages]
    consumer.close()
    return read


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_written_with_two_versions_is_read_with_the_newer(world: World) -> None:
    topic = "avro"
    sent = [
        (ORDER, {"id": 1, "note": None}),
        (PRICED, {"id": 2, "note": "two", "cents": 200}),
        (ORDER, {"id": 3, "note": "old again"}),
    ]
    values = [AvroSerializer(world.registry, text)(order, context(topic)) for text, order in sent]
    reader = AvroDeserializer(world.registry, PRICED)
    read = [reader(value, context(topic)) for value in through_kafka(world, topic, values)]
    assert read == [{"cents": 0} | order for _, order in sent]
    assert world.registry.get_versions("avro-value") == [1, 2]
    latest = world.registry.get_latest_version("avro-value")
    assert int.from_bytes(values[1][1:5], "big") == latest.schema_id
    with pytest.raises(SchemaRegistryError) as refused:
        AvroSerializer(world.registry, NAMED)(sent[0][1] | {"name": ""}, context(topic))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)


def test_avro_with_a_reference_is_read_by_one_who_knows_nothing(world: World) -> None:
    world.registry.register_schema(
        "shop.Money", Schema('{"type":"fixed","name":"Money","namespace":"shop","size":2}', "AVRO")
    )
    text = '{"type":"record","name":"Bill","fields":[{"name":"sum","type":"shop.Money"}]}'
    schema = Schema(text, "AVRO", [SchemaReference("shop.Money", "shop.Money", 1)])
    value = AvroSerializer(world.registry, schema)({"sum": b"\x01\x02"}, context("bills"))
    (read,) = through_kafka(world, "bills", [value])
    assert AvroDeserializer(world.registry)(read, context("bills")) == {"sum": b"\x01\x02"}
    assert world.registry.get_referenced_by("shop.Money", 1)
    with pytest.raises(SchemaRegistryError) as refused:
        world.registry.delete_subject("shop.Money")
    assert refused.value.error_code == 42206


def test_json_is_checked_against_its_schema_by_both_sides(world: World) -> None:
    text = """{"type": "object", "title": "Order", "additionalProperties": false,
               "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}"""
    order = {"id": 1, "note": "é"}
    value = JSONSerializer(text, world.registry)(order, context("json"))
    (read,) = through_kafka(world, "json", [value])
    reader = JSONDeserializer(None, schema_registry_client=world.registry)
    assert reader(read, context("json")) == order
    wider = text.replace('"note"', '"cents": {"type": "integer"}, "note"')
    assert world.registry.test_compatibility("json-value", Schema(wider, "JSON"))
    other = text.replace('"integer"', '"string"')
    assert not world.registry.test_compatibility("json-value", Schema(other, "JSON"))


def message_class(text: str, references: dict[str, str], name: str) -> Any:
    _, file = load_files(text, references, "order.proto")
    return GetMessageClass(file.message_types_by_name[name])


def shop_order() -> Any:
    """A message of a file that imports another."""
    money = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
    text = (
        'syntax = "proto3"; package shop; import "money.proto";'
        ' import "google/protobuf/timestamp.proto";'
        " message Ignored { } message Order { int64 id = 1; Money sum = 2;"
        " map<string, int32> counts = 3; google.protobuf.Timestamp at = 4; }"
    )
    order = message_class(text, {"money.proto": money}, "Order")(id=7, counts={"a": 1})
    order.sum.cents = 250
    order.at.seconds = 5
    return order


def test_protobuf_with_an_import_is_registered_as_descriptors_and_kept_as_text(
    world: World,
) -> None:
    order = shop_order()
    order_class = type(order)
    config = {"use.deprecated.format": False}
    serializer = ProtobufSerializer(order_class, world.registry, config)
    (read,) = through_kafka(world, "proto", [serializer(order, context("proto"))])
    reader = ProtobufDeserializer(order_class, config, world.registry)
    assert reader(read, context("proto")) == order
    kept = world.registry.get_latest_version("proto-value").schema
    assert kept.schema_type == "PROTOBUF"
    assert "message Order {" in kept.schema_str
    assert [each.name for each in kept.references] == ["money.proto"]
    assert world.registry.test_compatibility("proto-value", kept)
    broken = Schema(kept.schema_str.replace("int64 id", "string id"), "PROTOBUF", kept.references)
    assert not world.registry.test_compatibility("proto-value", broken)


def serialized(world: World, kind: str, topic: str) -> bytes:
    if kind == "avro":
        return AvroSerializer(world.registry, ORDER)({"id": 1, "note": "é"}, context(topic))
    if kind == "json":
        text = '{"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}}'
        return JSONSerializer(text, world.registry)({"id": 1}, context(topic))
    order = shop_order()
    config = {"use.deprecated.format": False}
    return ProtobufSerializer(type(order), world.registry, config)(order, context(topic))


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_a_topic_with_validate_full_takes_only_what_decodes(world: World, kind: str) -> None:
    topic = f"checked-{kind}"
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    create_topic(admin, topic, 1, {"frazil.schema.validate": "full"})
    good = serialized(world, kind, topic)
    assert through_kafka(world, topic, [good, good]) == [good, good]
    # All three in one batch, of which nothing is taken.
    settings = {"bootstrap.servers": world.bootstrap, "linger.ms": 1000}
    producer = Producer({**settings, "enable.idempotence": True})
    failed: list[int] = []

    def told(error: KafkaError | None, _message: object) -> None:
        assert error is not None
        failed.append(error.code())

    for value in (good, good[:-1], good):
        producer.produce(topic, value=value, partition=0, on_delivery=told)
    assert producer.flush(60) == 0
    assert failed == [KafkaError.INVALID_RECORD] * 3
    assert through_kafka(world, topic, [good]) == [good]


def test_what_an_operator_does_with_the_client_works(world: World) -> None:
    registry = world.registry
    subject = "operated-value"
    schema_id = registry.register_schema(subject, Schema(ORDER, "AVRO"))
    assert registry.lookup_schema(subject, Schema(ORDER, "AVRO")).version == 1
    assert registry.get_schema(schema_id).schema_type == "AVRO"
    assert registry.set_compatibility(subject, "FULL") == {"compatibility": "FULL"}
    assert registry.get_compatibility(subject) == "FULL"
    assert subject in registry.get_subjects_by_schema_id(schema_id)
    assert registry.get_version(subject, 1).schema_id == schema_id
    registered = registry.register_schema_full_response(subject, Schema(PRICED, "AVRO"))
    assert registry.get_schema_by_guid(registered.guid).schema_str
    assert registry.delete_version(subject, 1) == 1
    assert registry.get_versions(subject) == [2]
    assert registry.delete_subject(subject) == [2]
    assert registry.delete_subject(subject, permanent=True) == [1, 2]
    assert subject not in registry.get_subjects(deleted=True)
    assert sorted(registry.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]
    assert registry.get_global_mode() == "READWRITE"
    assert registry.get_contexts() == ["."]


def test_whoever_has_no_password_cannot_read(world: World) -> None:
    (url,) = world.registry._rest_client.base_urls
    with (
        SchemaRegistryClient({"url": url}) as stranger,
        pytest.raises(SchemaRegistryError) as error,
    ):
        stranger.get_subjects()
    assert error.value.http_status_code == 401
