"""Three agents with something of everything: topics under load, a group that reads, an open transaction, schemas."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import QUICK_PUTS, SETTINGS
from tests.faults.load import Load
from tests.parts.process import free_port
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer
from tests.parts.topics import create_topic

TOPICS = {"orders": 4, "payments": 2, "shipments": 1}
SHIPMENTS = (
    ("ord-1041", '{"order": 1041, "to": "Turku", "parcels": 2}'),
    ("ord-1042", '{"order": 1042, "to": "Oslo", "parcels": 1}'),
    ("ord-1043", '{"order": 1043, "to": "Kiruna", "parcels": 5}'),
)
"""Keys and values."""
GROUP, OPEN, SUBJECT = "billing", "billing-1", "orders-value"
SCHEMAS = (
    [{"name": "id", "type": "long"}],
    [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
)
WAIT_S = 60.0
OPEN_MS = 900_000
"""Longer than anybody looks."""


@dataclass
class Scene:
    cluster: FrazilCluster
    load: Load

    @property
    def agents(self) -> list[Frazil]:
        return self.cluster.agents

    def url(self, path: str = "/", agent: int = 0) -> str:
        return f"http://127.0.0.1:{self.agents[agent].http_port}{path}"


@contextlib.contextmanager
def scene(folder: Path, etcd: EtcdServer, minio: MinioServer) -> Iterator[Scene]:
    registry = free_port()
    listener = f"schema.registry.listeners=http://127.0.0.1:{registry}"
    cluster = FrazilCluster(folder, etcd, minio, *SETTINGS, *QUICK_PUTS)
    cluster.agents[0].child.argv += ["--set", listener]
    with cluster:
        cluster.until_groups_settle()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for name, partitions in TOPICS.items():
            create_topic(admin, name, partitions)
        _write_schemas(registry)
        _ship(cluster.bootstrap)
        load = Load(cluster.bootstrap, "orders", per_second=100, topic_is_there=True)
        load.start()
        with _open_transaction(cluster.bootstrap), _member(cluster.bootstrap):
            yield Scene(cluster, load)
            load.stop()


@contextlib.contextmanager
def _open_transaction(bootstrap: str) -> Iterator[None]:
    config = {"bootstrap.servers": bootstrap, "transactional.id": OPEN}
    producer = Producer({**config, "transaction.timeout.ms": OPEN_MS})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("payments", b"12.50", key=b"1")
    assert producer.flush(WAIT_S) == 0
    yield
    producer.abort_transaction(WAIT_S)


def _ship(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in SHIPMENTS:
        producer.produce("shipments", value, key=key, headers=[("source", b"shop")])
    assert producer.flush(WAIT_S) == 0


@contextlib.contextmanager
def _member(bootstrap: str) -> Iterator[None]:
    """One that reads and commits, in a thread, until this ends."""
    ends, reads = threading.Event(), threading.Event()

    def read() -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": GROUP, "client.id": "reader"}
        consumer = Consumer({**config, "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        while not ends.is_set():
            if consumer.poll(0.1) is not None and not reads.is_set():
                consumer.commit(asynchronous=False)
                reads.set()
        consumer.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        assert reads.wait(WAIT_S), "no record was read"
        yield
    finally:
        ends.set()
        thread.join(WAIT_S)


def _write_schemas(registry: int) -> None:
    connection = HTTPConnection("127.0.0.1", registry, timeout=30)
    for fields in SCHEMAS:
        schema = {"type": "record", "name": "Order", "fields": fields}
        body = json.dumps({"schema": json.dumps(schema)})
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        connection.request("POST", f"/subjects/{SUBJECT}/versions", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    connection.close()
