"""Files of clients: what each kind of client reads there is what was meant."""

import ast

from broker.client.client_settings import client_settings_of
from broker.config import properties_text
from broker.sasl.client import Login
from broker.trial import client_files
from broker.trial.client_files import ClientAccess

ACCESS = ClientAccess(
    bootstrap="localhost:9092",
    ca="/home/jörg/my data\\ca.pem",
    mechanism="SCRAM-SHA-512",
    user="app",
    password="s3cret_-",
)


def test_tools_read_the_file_of_java() -> None:
    text = client_files.java(ACCESS)
    settings = client_settings_of(dict(properties_text.parse("client.properties", text)))
    assert settings.bootstrap == ACCESS.bootstrap
    assert settings.login == Login("SCRAM-SHA-512", "app", "s3cret_-")
    assert settings.tls is not None
    assert settings.tls.truststore.location == ACCESS.ca
    assert settings.warnings == ()


def test_java_reads_latin_1_so_the_file_is_ascii() -> None:
    assert client_files.java(ACCESS).isascii()


def test_librdkafka_reads_lines_of_names_and_values() -> None:
    lines = client_files.librdkafka(ACCESS).splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    assert settings["ssl.ca.location"] == ACCESS.ca
    assert settings["sasl.password"] == ACCESS.password
    assert settings["security.protocol"] == "SASL_SSL"


def test_kafka_python_gets_keyword_arguments() -> None:
    module = ast.parse(client_files.kafka_python(ACCESS))
    (assigned,) = [node for node in module.body if isinstance(node, ast.Assign)]
    settings = ast.literal_eval(assigned.value)
    assert settings["ssl_cafile"] == ACCESS.ca
    assert settings["sasl_plain_password"] == ACCESS.password


def test_who_connects_is_shown_without_the_password() -> None:
    assert ACCESS.password not in repr(ACCESS)
