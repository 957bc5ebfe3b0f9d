"""How clients reach a cluster over SASL_SSL, as texts of files that they take as they are. Pure.

Java's clients and Kafka's tools read properties, librdkafka's `kcat -F` lines of its own names, and
kafka-python takes keyword arguments. The texts have passwords.
"""

from dataclasses import dataclass, field

from broker.config import properties_text
from broker.sasl import jaas


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAccess:
    """Who connects, and where to."""

    bootstrap: str
    """`host:port`."""
    ca: str
    """The file of certificates to trust."""
    mechanism: str
    """SCRAM-SHA-256 or SCRAM-SHA-512."""
    user: str
    password: str = field(repr=False)
    """Of characters that need no quoting anywhere."""


def java(access: ClientAccess) -> str:
    """For Java's clients, Kafka's tools, and ours (`--command-config`)."""
    settings = {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": access.ca,
        "sasl.mechanism": access.mechanism,
        "sasl.jaas.config": f"{jaas.SCRAM_MODULE} required"
        f' username="{access.user}" password="{access.password}";',
    }
    lines = [f"{name}={properties_text.escaped(text)}\n" for name, text in settings.items()]
    return "".join(lines)


def librdkafka(access: ClientAccess) -> str:
    """For `kcat -F FILE`; other clients by librdkafka take the same names and values."""
    settings = {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": access.ca,
        "sasl.mechanism": access.mechanism,
        "sasl.username": access.user,
        "sasl.password": access.password,
    }
    return "".join(f"{name}={text}\n" for name, text in settings.items())


def kafka_python(access: ClientAccess) -> str:
    """A module with a dict of keyword arguments."""
    settings = {
        "bootstrap_servers": access.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": access.ca,
        "sasl_mechanism": access.mechanism,
        "sasl_plain_username": access.user,
        "sasl_plain_password": access.password,
    }
    lines = [f"    {name!r}: {text!r},\n" for name, text in settings.items()]
    return (
        '"""How kafka-python reaches this cluster: KafkaProducer(**SETTINGS)."""\n\n'
        f"SETTINGS = {{\n{''.join(lines)}}}\n"
    )
