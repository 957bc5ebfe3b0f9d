"""Records of librdkafka and of Confluent's serializers on the consoles of three agents, and a record of a console's."""

import html
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.wrappers_pb2 import StringValue

from tests.parts.process import free_port
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

SECONDS = 60
AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
JSON_SCHEMA = '{"type":"object","title":"Order","properties":{"id":{"type":"integer"}}}'


class Cluster(NamedTuple):
    agents: list[Frazil]
    bootstrap: str
    registry: str


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> Iterator[Cluster]:
    made = FrazilCluster(tmp_path_factory.mktemp("consoles"), etcd, minio)
    url = f"http://127.0.0.1:{free_port()}"
    made.agents[0].child.argv += ["--set", f"schema.registry.listeners={url}"]
    with made:
        yield Cluster(made.agents, made.bootstrap, url)
        assert made.stop() == [0, 0, 0]


def create(cluster: Cluster, topic: str) -> None:
    create_topic(AdminClient({"bootstrap.servers": cluster.bootstrap}), topic, 1)


def page(agent: Frazil, path: str, form: dict[str, str] | None = None) -> str:
    """What is read on it, spaces apart."""
    site = f"http://127.0.0.1:{agent.http_port}"
    body = None if form is None else urllib.parse.urlencode(form).encode()
    headers = {"Accept": "text/html", "Origin": site}
    request = urllib.request.Request(site + path, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        text = answer.read().decode()
    main = text[text.index("<main") : text.index("</main>")]
    return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", main).split()))


def test_every_agent_shows_what_serializers_wrote_through_another_one(cluster: Cluster) -> None:
    # A subject has schemas of one language, so each of them has a topic of its own.
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "zstd"})
    with SchemaRegistryClient({"url": cluster.registry}) as client:
        in_header = {"schema.id.serializer": header_schema_id_serializer}
        for topic, serializer, value, shown in (
            ("avro", AvroSerializer(client, AVRO), {"id": 7}, '{"id":7} Avro'),
            ("guid", AvroSerializer(client, AVRO, conf=in_header), {"id": 8}, '{"id":8} Avro'),
            ("json", JSONSerializer(JSON_SCHEMA, client), {"id": 9}, '{"id":9} JSON Schema'),
            (
                "protobuf",
                ProtobufSerializer(StringValue, client, {"use.deprecated.format": False}),
                StringValue(value="tea"),
                '{"value":"tea"} Protobuf',
            ),
        ):
            create(cluster, topic)
            context = SerializationContext(topic, MessageField.VALUE, [])
            data = serializer(value, context)
            producer.produce(topic, data, key="a", headers=context.headers)
            assert producer.flush(SECONDS) == 0
            for agent in cluster.agents:
                assert f"a {shown}" in page(agent, f"/console/records?topic={topic}"), topic


def test_a_record_that_one_console_wrote_is_read_by_consumers_and_shown_by_the_others(
    cluster: Cluster,
) -> None:
    create(cluster, "written")
    form = {"topic": "written", "key": "k", "value": '{"a": 1}', "value_form": "JSON"}
    form |= {"headers": "trace: 7"}
    one, two, three = cluster.agents
    assert "appended to partition 0 of written" in page(one, "/console/records/confirm", form)
    assert "offset 0 of partition 0" in page(two, "/console/records/produced", form)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("written", 0, 0)])
    message = consumer.poll(SECONDS)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value()) == (b"k", b'{"a": 1}')
    assert message.headers() == [("trace", b"7")]
    assert 'k {"a": 1}' in page(three, "/console/records?topic=written")
