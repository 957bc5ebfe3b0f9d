"""`frazil produce` and `frazil consume` by schemas of an agent's registry, records on Frazil and on Apache Kafka.

What they write, Confluent's deserializers read, and what its serializers write is the same bytes after it was text.
"""

import datetime as dt
import functools
import itertools
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from protocol.schemas.proto_text import load_files
from protocol.schemas.protobuf_values import message_at, path_of
from tests.clients import commands
from tests.clients.commands import Done
from tests.parts.process import free_port
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

SECONDS = 60
NUMBERS = itertools.count()

MONEY = {"type": "fixed", "name": "Money", "namespace": "shop", "size": 4} | {
    "logicalType": "decimal",
    "precision": 9,
    "scale": 2,
}
LINE = {"type": "record", "name": "Line", "fields": [{"name": "what", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["SMALL", "BIG"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "sum", "type": "shop.Money"},
        {"name": "raw", "type": "bytes"},
        {"name": "size", "type": ["null", "int", "string", "double"]},
        {"name": "share", "type": "double"},
    ],
}
AVRO_ORDER = {
    "id": 1 << 53 | 1,
    "note": "é",
    "lines": [{"what": "tea"}, {"what": ""}],
    "counts": {"a": 1, "b": -2},
    "kind": "BIG",
    "at": dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC),
    "day": dt.date(2026, 1, 31),
    "key": uuid.UUID(int=7),
    "sum": Decimal("-12.50"),
    "raw": b"\x00\xff",
    "size": 5,
    "share": 0.1,
}
AVRO_TEXT = {
    "id": 9007199254740993,
    "note": "é",
    "lines": [{"what": "tea"}, {"what": ""}],
    "counts": {"a": 1, "b": -2},
    "kind": "BIG",
    "at": 1769846400000,
    "day": 20484,
    "key": "00000000-0000-0000-0000-000000000007",
    "sum": "-12.50",
    "raw": "\x00ÿ",
    "size": {"int": 5},
    "share": 0.1,
}
MONEY_PROTO = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
ORDER_PROTO = """syntax = "proto3"; package shop; import "money.proto";
message Ignored { }
message Order { message Line { string what = 1; }
  int64 id = 1; repeated Line lines = 2; map<string, int32> counts = 3; Money sum = 4; Kind kind = 5;
  oneof by { string name = 6; bytes raw = 7; } optional double share = 8; }
enum Kind { SMALL = 0; BIG = 1; }
"""
PROTO_TEXT = {
    "id": "7",
    "lines": [{"what": "é"}],
    "counts": {"a": 1},
    "sum": {"cents": "250"},
    "kind": "BIG",
    "raw": "AP8=",
    "share": 0.5,
}
JSON_SCHEMA = """{"type": "object", "title": "Order", "additionalProperties": false,
  "properties": {"id": {"type": "integer"}, "note": {"$ref": "note.json"}}}"""
JSON_TEXT = {"id": 1 << 60, "note": "é"}


class Registry(NamedTuple):
    url: str
    client: SchemaRegistryClient


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    url = f"http://127.0.0.1:{free_port()}"
    folder = tmp_path_factory.mktemp("registry")
    with (
        FrazilDev(folder, "--set", f"schema.registry.listeners={url}") as agent,
        SchemaRegistryClient({"url": url}) as client,
    ):
        client.register_schema("money", Schema(json.dumps(MONEY), "AVRO"))
        client.register_schema("money.proto", Schema(MONEY_PROTO, "PROTOBUF"))
        client.register_schema("note.json", Schema('{"type": "string"}', "JSON"))
        yield Registry(url, client)
        assert agent.stop() == 0


@pytest.fixture(scope="module", params=["kafka", "embedded"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param).bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"by-schema-{next(NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topic(admin, name, 1)
    return name


class Shell(NamedTuple):
    bootstrap: str
    registry: Registry

    def run(self, *words: str, given: bytes = b"") -> Done:
        where = ("--bootstrap", self.bootstrap, "--registry", self.registry.url)
        return commands.frazil(*words, *where, given=given)

    def produce(self, topic: str, given: bytes, *words: str) -> None:
        assert self.run("produce", topic, *words, given=given) == (0, b"", "")

    def consume(self, topic: str, *words: str) -> list[str]:
        done = self.run("consume", topic, "-e", *words)
        assert (done.code, done.err) == (0, "")
        return done.out.decode().splitlines()

    def raw(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values as they are."""
        lines = self.consume(
            topic, "--key-format", "hex", "--value-format", "hex", "-f", r"%K %k %S %s\n"
        )
        found = []
        for line in lines:
            key_size, key, value_size, value = line.split(" ")
            found.append(
                (
                    None if key_size == "-1" else bytes.fromhex(key),
                    None if value_size == "-1" else bytes.fromhex(value),
                )
            )
        return found

    def send(self, topic: str, value: bytes | None, **more: Any) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})
        producer.produce(topic, value, **more)
        assert producer.flush(SECONDS) == 0


@pytest.fixture
def shell(bootstrap: str, registry: Registry) -> Shell:
    return Shell(bootstrap, registry)


def refused(done: Done) -> str:
    assert done.code == 1
    (line,) = done.err.splitlines()
    return line.partition(": ")[2]


@functools.cache
def order_class() -> Any:
    _, file = load_files(ORDER_PROTO, {"money.proto": MONEY_PROTO}, "order.proto")
    return GetMessageClass(message_at(file, path_of(file, "Order")))


class Kind(NamedTuple):
    """A kind of schema: values as Confluent's serializers take them, and as text."""

    name: str
    schema: Schema
    text: Any
    words: tuple[str, ...]
    """Of frazil produce, which chooses a message."""
    serialize: Callable[[SchemaRegistryClient, SerializationContext], bytes]
    deserialize: Callable[[SchemaRegistryClient, bytes, SerializationContext], Any]
    value: Any


def proto_order() -> Any:
    return json_format.ParseDict(PROTO_TEXT, order_class()())


AVRO = Schema(json.dumps(ORDER), "AVRO", [SchemaReference("shop.Money", "money", 1)])
PROTOBUF = Schema(ORDER_PROTO, "PROTOBUF", [SchemaReference("money.proto", "money.proto", 1)])
JSON = Schema(JSON_SCHEMA, "JSON", [SchemaReference("note.json", "note.json", 1)])
USES_REGISTERED = {"auto.register.schemas": False, "use.latest.version": True}
KINDS = [
    Kind(
        "avro",
        AVRO,
        AVRO_TEXT,
        (),
        lambda client, at: AvroSerializer(client, conf=USES_REGISTERED)(AVRO_ORDER, at),
        lambda client, data, at: AvroDeserializer(client)(data, at),
        AVRO_ORDER,
    ),
    Kind(
        "protobuf",
        PROTOBUF,
        PROTO_TEXT,
        ("--value-message", "Order"),
        lambda client, at: ProtobufSerializer(
            order_class(), client, USES_REGISTERED | {"use.deprecated.format": False}
        )(proto_order(), at),
        # With a registry it wants descriptors there, which it has not registered itself.
        lambda _, data, at: json_format.MessageToDict(
            ProtobufDeserializer(order_class(), {"use.deprecated.format": False})(data, at)
        ),
        PROTO_TEXT,
    ),
    Kind(
        "json",
        JSON,
        JSON_TEXT,
        (),
        lambda client, at: JSONSerializer(JSON, client, conf=USES_REGISTERED)(JSON_TEXT, at),
        lambda client, data, at: JSONDeserializer(JSON, schema_registry_client=client)(data, at),
        JSON_TEXT,
    ),
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def registered(registry: Registry, topic: str, kind: Kind) -> int:
    return registry.client.register_schema(f"{topic}-value", kind.schema)


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


@kinds
def test_what_is_produced_confluents_deserializer_reads(
    shell: Shell, topic: str, kind: Kind
) -> None:
    registered(shell.registry, topic, kind)
    line = json.dumps(kind.text, ensure_ascii=False).encode()
    shell.produce(topic, line + b"\n", "--value-format", kind.name, *kind.words)
    ((key, value),) = shell.raw(topic)
    assert key is None
    assert value is not None
    assert kind.deserialize(shell.registry.client, value, context(topic)) == kind.value


@kinds
def test_what_confluents_serializer_writes_is_the_same_bytes_after_it_was_text(
    shell: Shell, topic: str, kind: Kind
) -> None:
    registered(shell.registry, topic, kind)
    value = kind.serialize(shell.registry.client, context(topic))
    shell.send(topic, value)
    (line,) = shell.consume(topic, "--value-format", kind.name)
    assert json.loads(line) == kind.text
    shell.produce(topic, line.encode(), "--value-format", kind.name, *kind.words)
    assert shell.raw(topic) == [(None, value), (None, value)]


@kinds
def test_records_as_json_have_values_as_json_and_lose_nothing(
    shell: Shell, topic: str, kind: Kind
) -> None:
    schema_id = registered(shell.registry, topic, kind)
    shell.send(topic, kind.serialize(shell.registry.client, context(topic)), key=b"k")
    shell.send(topic, None, key=b"k")
    words = ("--value-format", kind.name, "--json")
    lines = shell.consume(topic, *words)
    assert [json.loads(line)["value"] for line in lines] == [kind.text, None]
    given = "\n".join(lines).encode()
    shell.produce(topic, given, *words, *kind.words, "--value-schema-id", str(schema_id))
    raw = shell.raw(topic)
    assert raw[2:] == raw[:2]
    assert raw[1] == (b"k", None)


def test_keys_have_schemas_of_their_own_and_nulls_need_none(shell: Shell, topic: str) -> None:
    shell.registry.client.register_schema(f"{topic}-key", Schema('"long"', "AVRO"))
    shell.registry.client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    formats = ("--key-format", "avro", "--value-format", "avro")
    shell.produce(
        topic, b'7\t"seven"\nNULL\t"none"\n8\tNULL\n', *formats, "-K", r"\t", "--null", "NULL"
    )
    shell.produce(topic, b'"nine"\n', *formats, "--key", "9")
    lines = shell.consume(topic, *formats, "-f", r"%k=%s %S\n", "--null", "-")
    assert lines == ['7="seven" 11', '-="none" 10', "8=- -1", '9="nine" 10']
    found = [json.loads(line) for line in shell.consume(topic, *formats, "--json")]
    assert [(one["key"], one["value"]) for one in found] == [
        (7, "seven"),
        (None, "none"),
        (8, None),
        (9, "nine"),
    ]


def test_messages_of_one_protobuf_schema_are_told_apart(shell: Shell, topic: str) -> None:
    text = """syntax = "proto3"; message A { int32 a = 1; message B { int32 b = 1; } }
    message C { int32 c = 1; }"""
    shell.registry.client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
    words = ("--value-format", "protobuf")
    shell.produce(topic, b'{"a":1}\n', *words)
    shell.produce(topic, b'{"b":2}\n', *words, "--value-message", "A.B")
    shell.produce(topic, b'{"c":3}\n', *words, "--value-message", "C")
    assert shell.consume(topic, *words) == ['{"a":1}', '{"b":2}', '{"c":3}']


def test_a_schema_of_a_file_is_registered_with_the_first_record(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "a.avsc").write_text('{"type":"record","name":"A","fields":[]}')
    words = ("--value-format", "avro", "--value-schema-file", str(tmp_path / "a.avsc"))
    shell.produce(topic, b"{}\n", *words)
    shell.produce(topic, b"{}\n", *words)
    found = shell.registry.client.get_latest_version(f"{topic}-value")
    assert found.version == 1
    head = b"\0" + found.schema_id.to_bytes(4, "big")
    assert shell.raw(topic) == [(None, head), (None, head)]


def test_files_are_values_as_a_whole(shell: Shell, topic: str, tmp_path: Path) -> None:
    shell.registry.client.register_schema(
        f"{topic}-value", Schema('{"type":"map","values":"int"}', "AVRO")
    )
    (tmp_path / "1.json").write_text('{\n  "a": 1\n}\n')
    shell.produce(topic, b"", "--value-format", "avro", "--whole", str(tmp_path / "1.json"))
    assert shell.consume(topic, "--value-format", "avro") == ['{"a":1}']


def test_json_that_was_written_on_many_lines_is_one_line(shell: Shell, topic: str) -> None:
    schema_id = shell.registry.client.register_schema(f"{topic}-value", Schema("{}", "JSON"))
    head = b"\0" + schema_id.to_bytes(4, "big")
    shell.send(topic, head + b'{\r\n "a": 1.10,\n "b": "x\\ny"}')
    assert shell.consume(topic, "--value-format", "json") == ['{   "a": 1.10,  "b": "x\\ny"}']


@kinds
def test_a_schema_that_a_header_names_by_its_guid_is_found(
    shell: Shell, topic: str, kind: Kind
) -> None:
    registered(shell.registry, topic, kind)
    framed = kind.serialize(shell.registry.client, context(topic))
    found = shell.registry.client.get_latest_version(f"{topic}-value")
    path = framed[5:7] if kind.name == "protobuf" else b""
    header = b"\x01" + uuid.UUID(found.guid).bytes + path
    shell.send(topic, framed[5 + len(path) :], headers=[("__value_schema_id", header)])
    (line,) = shell.consume(topic, "--value-format", kind.name)
    assert json.loads(line) == kind.text


def test_a_serializer_that_writes_headers_is_understood(shell: Shell, topic: str) -> None:
    client = shell.registry.client
    client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    conf = USES_REGISTERED | {"schema.id.serializer": header_schema_id_serializer}
    at = SerializationContext(topic, MessageField.VALUE, headers=[])
    value = AvroSerializer(client, conf=conf)("bare", at)
    assert value == b"\x08bare"
    shell.send(topic, value, headers=at.headers)
    assert shell.consume(topic, "--value-format", "avro") == ['"bare"']


def test_a_value_that_cannot_be_read_is_named_and_what_came_before_it_is_written(
    shell: Shell, topic: str
) -> None:
    shell.registry.client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    shell.produce(topic, b'"one"\n', "--value-format", "avro")
    shell.send(topic, b"bare")
    shell.produce(topic, b'"three"\n', "--value-format", "avro")
    done = shell.run("consume", topic, "-e", "--value-format", "avro")
    assert done.out == b'"one"\n'
    assert refused(done) == (
        f"topic {topic}, partition 0, offset 1: the value is no avro: it does not begin with a zero byte and the id of"
        " a schema (--value-format raw writes it as it is)"
    )
    assert shell.consume(topic, "-o", "2", "--value-format", "avro") == ['"three"']


def test_a_group_goes_on_with_the_record_that_could_not_be_read(shell: Shell, topic: str) -> None:
    shell.registry.client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    shell.produce(topic, b'"one"\n', "--value-format", "avro")
    shell.send(topic, b"bare")
    group = f"group-of-{topic}"
    done = shell.run("consume", topic, "-e", "--value-format", "avro", "-g", group)
    assert (done.code, done.out) == (1, b'"one"\n')
    settings = {"bootstrap.servers": shell.bootstrap, "group.id": group}
    consumer = KafkaConsumer(settings)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS)
    consumer.close()
    assert committed.offset == 1
    assert shell.consume(topic, "-g", group) == ["bare"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0\0\x01\xff\xff\x02x", "its schema is 131071, and the registry says: "),
        (b"\0%b\x04x", "it ends within its 2 bytes"),
        (b"\0%b\x02x!", "1 bytes follow the value"),
    ],
)
def test_why_a_value_cannot_be_read_is_told(
    shell: Shell, topic: str, data: bytes, said: str
) -> None:
    schema_id = shell.registry.client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    shell.send(topic, data.replace(b"%b", schema_id.to_bytes(4, "big")))
    told = refused(shell.run("consume", topic, "-e", "--value-format", "avro"))
    assert f"the value is no avro: {said}" in told
    told = refused(shell.run("consume", topic, "-e", "--value-format", "json"))
    assert "the value is no json: its schema" in told


def test_a_value_that_is_none_of_its_schema_is_named_and_those_before_it_are_sent(
    shell: Shell, topic: str
) -> None:
    registered(shell.registry, topic, KINDS[2])
    done = shell.run(
        "produce", topic, "--value-format", "json", given=b'{"id":1}\n{"id":"x"}\n{"id":3}\n'
    )
    assert refused(done) == (
        f'record 2 of the input: the value is no json: id: "x" is not of type "integer"; 1 records before it are in topic {topic}'
    )
    assert shell.consume(topic, "--value-format", "json") == ['{"id":1}']


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--value-format", "avro"), 'there is no subject "TOPIC-value": frazil schema create'),
        (("--value-format", "avro", "--value-schema-id", "99999"), "schema 99999 cannot be had: "),
        (("--value-schema-id", "1"), "--value-schema-id wants --value-format avro, protobuf, json"),
        (
            ("--value-format", "avro", "--value-message", "A"),
            "--value-message wants --value-format protobuf",
        ),
        (
            ("--value-format", "json", "--value-schema-id", "1"),
            "the schema of the value is of type AVRO: --value-format avro",
        ),
        (
            ("--value-format", "protobuf", "--value-schema-id", "2", "--value-message", "Bill"),
            'the schema of the value: its schema has no message "Bill" (shop.Money)',
        ),
    ],
)
def test_a_schema_that_cannot_be_used_is_told_before_anything_is_sent(
    shell: Shell, topic: str, words: tuple[str, ...], said: str
) -> None:
    told = refused(shell.run("produce", topic, *words, given=b"1\n"))
    assert told.replace(topic, "TOPIC").startswith(said)
    assert shell.raw(topic) == []


def test_a_registry_that_does_not_answer_is_told(shell: Shell, topic: str) -> None:
    shell.send(topic, b"\0\0\0\0\1x")
    away = shell._replace(registry=shell.registry._replace(url="http://127.0.0.1:1"))
    told = refused(away.run("consume", topic, "-e", "--value-format", "avro"))
    assert told.startswith(
        f"topic {topic}, partition 0, offset 0: no schema registry answers at http://127.0.0.1:1: "
    )
    told = refused(away.run("produce", topic, "--value-format", "avro", given=b"1\n"))
    assert told.startswith("no schema registry answers at http://127.0.0.1:1: ")


def test_records_without_schemas_are_read_without_what_schemas_need(
    shell: Shell, topic: str
) -> None:
    told = (
        "import sys; from broker.cli.main import main; main(); print(*sys.modules, file=sys.stderr)"
    )
    words = ("consume", topic, "-e", "--bootstrap", shell.bootstrap)
    done = subprocess.run(
        [sys.executable, "-c", told, *words], capture_output=True, text=True, check=True
    )
    modules = set(done.stderr.split())
    assert "broker.cli.records.consume_tool" in modules
    unneeded = {
        "broker.cli.schemas.registry",
        "google.protobuf",
        "urllib.request",
        "protocol.schemas",
    }
    assert modules & unneeded == set()
