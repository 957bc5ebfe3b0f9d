"""Confluent's serializers, an agent with its own schema registry, and tables of what they wrote.

Three topics, Avro, Protobuf and JSON, are written to while an export runs over and over in a
thread; the schema of each grows twice meanwhile. Where the registry is only the agent says. One record in each is no record of its schema.
"""

import io
import json
import threading
import time
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from iceberg_export.plan.agent_client import Pinned
from iceberg_export.progress import Progress
from iceberg_export.runs.export import export_topic
from iceberg_export.runs.job import Job
from iceberg_export.runs.loop import Clock, Runner, StopRequest
from iceberg_export.runs.session import Session
from iceberg_export.runs.table_choice import each_table
from iceberg_export.settings import parse
from iceberg_export.tasks import spark
from iceberg_export.verify.proof import verify_topic
from protocol.schemas.proto_text import load_files
from tests.iceberg_export.kit.tasks import HereRunner
from tests.iceberg_export.kit.world import make_job
from tests.parts.process import free_port
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

AVRO = '{"type": "record", "name": "Order", "fields": [%s]}'
AVRO_FIELDS = [
    '{"name": "id", "type": "int"}, {"name": "city", "type": "string"}',
    '{"name": "id", "type": "long"}, {"name": "city", "type": "string"}, '
    + (PRICE := '{"name": "price", "type": ["null", "double"], "default": null}'),
    '{"name": "id", "type": "long"}, {"name": "city", "type": "string"}, '
    + PRICE
    + ', {"name": "tags", "type": {"type": "map", "values": "string"}, "default": {}}',
]
PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string city = 2; %s }'
PROTO_FIELDS = [
    "",
    "optional double price = 3;",
    "optional double price = 3; map<string, string> tags = 4;",
]
JSON = (
    '{"type": "object", "title": "Order", "additionalProperties": false, "properties":'
    ' {"id": {"type": "integer"}, "city": {"type": "string"}%s}}'
)
JSON_FIELDS = [
    "",
    ', "price": {"type": "number"}',
    ', "price": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}',
]
VERSIONS = 3
ROUNDS = 2
"""Chunks of records of each version."""


class Cluster(NamedTuple):
    bootstrap: str
    admin: str
    registry_url: str


@pytest.fixture
def cluster(tmp_path):
    url = f"http://127.0.0.1:{free_port()}"
    with FrazilDev(tmp_path, "--set", f"schema.registry.listeners={url}") as agent:
        yield Cluster(agent.bootstrap, f"http://127.0.0.1:{agent.http_port}", url)
        assert agent.stop() == 0


@pytest.fixture
def job_of(cluster, tmp_path):
    made = []

    def make(run_id: str, *sets: str, runner: Any = None) -> Job:
        made.append(make_job(cluster.admin, tmp_path / "tables", run_id, sets, runner))
        return made[-1]

    yield make
    for job in made:
        job.catalog.engine.dispose()


def create_topics(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for mode, more in [
        ("avro", {"frazil.iceberg.partition.by": "bucket(2, id)"}),
        ("protobuf", {"frazil.iceberg.key.mode": "string"}),
        ("json", {"frazil.iceberg.layout": "nested"}),
    ]:
        create_topic(admin, mode, 2, {"frazil.iceberg.value.mode": mode, **more})


def serialized(registry: SchemaRegistryClient, version: int, first: int) -> dict[str, list[bytes]]:
    """Ten orders in each format, written by that version's schema."""
    at = {mode: SerializationContext(mode, MessageField.VALUE) for mode in ("avro", "json")}
    avro = AvroSerializer(registry, AVRO % AVRO_FIELDS[version])
    json = JSONSerializer(JSON % JSON_FIELDS[version], registry)
    _, file = load_files(PROTO % PROTO_FIELDS[version], {}, "order.proto")
    order_class = GetMessageClass(file.message_types_by_name["Order"])
    proto = ProtobufSerializer(order_class, registry, {"use.deprecated.format": False})
    made: dict[str, list[bytes]] = {"avro": [], "protobuf": [], "json": []}
    for number in range(first, first + 10):
        order: dict[str, Any] = {"id": number, "city": f"city {number}"}
        if version >= 1:
            order["price"] = number / 2
        tags = {"n": str(number)} if version >= 2 else {}
        made["avro"].append(avro(order | ({"tags": tags} if version >= 2 else {}), at["avro"]))
        made["json"].append(json(order | ({"tags": list(tags)} if tags else {}), at["json"]))
        made["protobuf"].append(
            proto(order_class(**order, **({"tags": tags} if tags else {})),
                  SerializationContext("protobuf", MessageField.VALUE))
        )  # fmt: skip
    return made


def cut(value: bytes) -> bytes:
    """Framed as the others; then a text that says it is longer than the record."""
    return value[:6] + b"\x12\x7f"


def send(producer: Producer, values: dict[str, list[bytes]]) -> None:
    for topic, some in values.items():
        for number, value in enumerate(some):
            producer.produce(topic, key=b"k", value=value, partition=number % 2)
    assert producer.flush(60) == 0


def export_all(job: Job) -> None:
    with Pinned(job.client, f"export-{job.run_id}", 60_000):
        for topic in job.client.topics().topics:
            if topic.name in {"avro", "protobuf", "json"}:
                export_topic(job, topic)


def wanted() -> list[tuple[int, str, float | None, bool]]:
    found = []
    for number in range(VERSIONS * ROUNDS * 10):
        version = number // (ROUNDS * 10)
        price = number / 2 if version >= 1 else None
        found.append((number, f"city {number}", price, version >= 2))
    return found


def test_three_topics_whose_schemas_grow_while_they_are_exported(cluster, job_of, tasks):
    create_topics(cluster)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    stopped = threading.Event()
    failures: list[BaseException] = []
    runs: list[str] = []

    def go_on_exporting() -> None:
        try:
            while not stopped.is_set():
                export_all(job_of(f"r{len(runs)}"))
                runs.append("done")
        except BaseException as error:
            failures.append(error)
            raise

    exporter = threading.Thread(target=go_on_exporting)
    try:
        with SchemaRegistryClient({"url": cluster.registry_url}) as registry:
            for version in range(VERSIONS):
                seen = len(runs)
                for number in range(ROUNDS):
                    values = serialized(registry, version, (version * ROUNDS + number) * 10)
                    if exporter.ident is None:
                        # A table is partitioned by a column, which the first schema brings.
                        exporter.start()
                    send(producer, values)
                    if (version, number) == (1, 1):
                        send(producer, {mode: [cut(some[0])] for mode, some in values.items()})
                # So that some are exported before the next version is there.
                while len(runs) == seen and not failures:
                    stopped.wait(0.01)
    finally:
        stopped.set()
        if exporter.ident is not None:
            exporter.join()
    assert failures == []
    job = job_of("last", "verify.decoder=reference", runner=tasks)
    export_all(job)
    for topic in job.client.topics().topics:
        verdict = verify_topic(job, topic)
        assert (verdict.problems, verdict.records, verdict.dead) == ((), len(wanted()), 1)
        table = job.catalog.load_table(("frazil", topic.name))
        rows = table.scan().to_arrow().to_pylist()
        if topic.name == "json":
            rows = [row | row["value"] for row in rows]
        rows.sort(key=lambda row: row["id"])
        assert [
            (row["id"], row["city"], row["price"], bool(row["tags"])) for row in rows
        ] == wanted()
        assert len({row["kafka_value_schema_id"] for row in rows}) == VERSIONS
        letters = job.catalog.load_table(("frazil", f"{topic.name}__dlq")).scan().to_arrow()
        (letter,) = letters.to_pylist()
        assert (letter["error_code"], letter["schema_id"] in {r["kafka_value_schema_id"] for r in rows}) == (
            "UNDECODABLE", True,
        )  # fmt: skip
        assert letter["error_message"]
    avro = job.catalog.load_table(("frazil", "avro"))
    assert str(avro.schema().find_field("id").field_type) == "long"
    assert [field.name for field in avro.spec().fields] == ["id_bucket"]
    keys = job.catalog.load_table(("frazil", "protobuf")).scan().to_arrow()["kafka_key"]
    assert set(keys.to_pylist()) == {"k"}


@pytest.mark.integration
def test_a_topic_of_json_with_a_schema_of_its_own_needs_no_registry(tmp_path):
    with FrazilDev(tmp_path) as agent:
        tags = {"type": "array", "items": {"type": "string"}}
        schema = json.dumps({"properties": {"id": {"type": "integer"}, "tags": tags}})
        configs = {"value.mode": "json", "value.schema": "inline", "value.schema.json": schema}
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        create_topic(
            admin, "bare", 2, {f"frazil.iceberg.{name}": text for name, text in configs.items()}
        )
        producer = Producer({"bootstrap.servers": agent.bootstrap})
        for number in range(100):
            producer.produce("bare", json.dumps({"id": number, "tags": [str(number)]}))
        assert producer.flush(60) == 0
        job = make_job(f"http://127.0.0.1:{agent.http_port}", tmp_path / "tables")
        (topic,) = (one for one in job.client.topics().topics if one.name == "bare")
        with Pinned(job.client, "export-bare", 60_000):
            report = export_topic(job, topic)
        assert (report.rows, report.dead) == (100, 0)
        rows = job.catalog.load_table(("frazil", "bare")).scan().to_arrow().select(["id", "tags"])
        assert sorted(map(tuple, (row.values() for row in rows.to_pylist()))) == [
            (number, [str(number)]) for number in range(100)
        ]
        assert verify_topic(job, topic).problems == ()
        job.catalog.engine.dispose()


@pytest.mark.integration
def test_events_of_several_kinds_go_to_their_tables_and_agents_hear_of_what_all_have(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(spark, "start", lambda _given, _progress: HereRunner())
    configs = {
        "value.mode": "json",
        "value.schema": "infer",
        "route.by": "payload.kind",
        "route.tables": "refund:refunds,gift:gifts",
    }
    kinds = ["order", "refund", "gift", "refund"]
    with FrazilDev(tmp_path) as agent:
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        named = {f"frazil.iceberg.{name}": text for name, text in configs.items()}
        create_topic(admin, "events", 3, named)
        producer = Producer({"bootstrap.servers": agent.bootstrap})
        settings = parse(
            data=tmp_path / "tables",
            config=None,
            assignments=[f"agent=http://127.0.0.1:{agent.http_port}"],
        )
        session = Session(settings, Progress(io.StringIO(), lambda: 0.0))
        clock = Clock(time.monotonic, lambda: int(time.time() * 1000), time.sleep)
        runner = Runner(session, clock, StopRequest(), io.StringIO(), "events")
        for first in range(0, 900, 300):
            for number in range(first, first + 300):
                event = {"id": number, "payload": {"kind": kinds[number % 4]}}
                producer.produce("events", json.dumps(event), partition=number % 3)
            assert producer.flush(60) == 0
            assert runner.once() == 0
        found = {
            table: sorted(
                session.catalog.load_table(("frazil", table)).scan().to_arrow()["id"].to_pylist()
            )
            for table in ("events", "refunds", "gifts")
        }
        assert found == {
            "events": [number for number in range(900) if number % 4 == 0],
            "refunds": [number for number in range(900) if number % 2],
            "gifts": [number for number in range(900) if number % 4 == 2],
        }
        topics = session.client.topics()
        (topic,) = (one for one in topics.topics if one.name == "events")
        assert topic.exported == dict.fromkeys(range(3), 300)
        job = session.job(topics.cluster_id)
        assert [verify_topic(job, one).records for one in each_table(topic)] == [225, 450, 225]
        session.close()
        session.catalog.engine.dispose()
