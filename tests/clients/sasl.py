"""Clients that log in by SASL over an unencrypted listener, and agents that have one."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from tests.parts import install
from tests.parts.servers import FrazilCluster

PLAIN_USERS = {"plain-alice": "plain secret", "plain-bob": "hidden word"}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{user}="{password}"' for user, password in PLAIN_USERS.items()
)
FIRST_USER = ("admin", "admin secret")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = (
    "num.partitions=1",
    "sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
    f"listener.name.sasl_plaintext.plain.sasl.jaas.config={JAAS};",
    f"first.users=SCRAM-SHA-512=[name={FIRST_USER[0]},password={FIRST_USER[1]}]",
    "puts.per.second=1000",
)


class SaslCluster(FrazilCluster):
    """Agents all of whose clients have to log in."""

    PROTOCOL = "SASL_PLAINTEXT"


def client_properties(
    folder: Path, user: str, password: str, mechanism: str = "SCRAM-SHA-512"
) -> str:
    """A file for Kafka's tools (`--command-config`)."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    file = folder / f"{user}-{mechanism}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required"
        f' username="{user}" password="{password}";\n'
    )
    return str(file)


def java(
    cluster: SaslCluster, topic: str, *words: str, seconds: int = 0, bootstrap: str = ""
) -> list[str]:
    """What Java's client says of each login (`java/Logins.java`): mechanism, user, password."""
    program = Path(__file__).parent / "java" / "Logins.java"
    done = subprocess.run(
        [
            *install.java_program(program, install.kafka_jars()),
            *(bootstrap or cluster.bootstrap, topic, str(seconds), *words),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [
        line for line in done.stdout.splitlines() if line.startswith((*MECHANISMS, "OAUTHBEARER"))
    ]


# Each writes a record and reads it back; what went wrong comes as its exception.


def librdkafka_config(bootstrap: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def by_librdkafka(
    bootstrap: str, topic: str, mechanism: str, user: str, password: str
) -> list[bytes]:
    config = librdkafka_config(bootstrap, mechanism, user, password)
    producer = Producer(config)
    producer.produce(topic, value=user)
    assert producer.flush(30) == 0
    consumer = Consumer({**config, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return [message.value()]
    finally:
        consumer.close()


def librdkafka_error(
    bootstrap: str, mechanism: str, user: str, password: str
) -> tuple[int, str] | None:
    """The first error that librdkafka tells, which goes on trying for ever; None: there is none."""
    errors: list[KafkaError] = []
    config = librdkafka_config(bootstrap, mechanism, user, password)
    producer = Producer({**config, "error_cb": errors.append})
    producer.produce("nothing", value=b"")
    for _ in range(200):
        if producer.poll(0.1) or errors:
            break
    producer.purge()
    told = [(error.code(), error.str()) for error in errors]
    return told[0] if told else None


def by_kafka_python(
    bootstrap: str, topic: str, mechanism: str, user: str, password: str
) -> list[bytes]:
    config = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    producer = KafkaProducer(**config, max_block_ms=20_000)
    try:
        producer.send(topic, value=user.encode()).get(timeout=30)
    finally:
        producer.close(timeout=5)
    consumer = KafkaConsumer(**config, enable_auto_commit=False)
    try:
        partition = PythonPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        polled = consumer.poll(timeout_ms=30_000, max_records=1)
        return [message.value for batch in polled.values() for message in batch]
    finally:
        consumer.close()


def round_trip_by_aiokafka(config: dict[str, Any], topic: str, value: bytes) -> list[bytes]:
    """Write a record and read the first one of the topic."""

    async def attempt() -> list[bytes]:
        producer = AIOKafkaProducer(**config)
        try:
            await producer.start()
            await producer.send_and_wait(topic, value)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            topic, **config, auto_offset_reset="earliest", enable_auto_commit=False
        )
        try:
            await consumer.start()
            message = await asyncio.wait_for(consumer.getone(), 30)
            return [message.value]
        finally:
            await consumer.stop()

    return asyncio.run(attempt())


def by_aiokafka(
    bootstrap: str, topic: str, mechanism: str, user: str, password: str
) -> list[bytes]:
    config = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    return round_trip_by_aiokafka(config, topic, user.encode())
