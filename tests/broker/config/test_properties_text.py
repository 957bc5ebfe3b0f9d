"""Java's properties, as `java.util.Properties` reads them; and a server.properties as settings."""

import pytest

from broker.config import properties_text
from broker.config.settings import Loaded, listeners_of, load
from broker.config.values import SettingsError

NEEDED = {"store": "file:///data/objects", "log": "sqlite:///data/log.db"}

SERVER_PROPERTIES = """\
# Licensed to somebody.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
log.dirs=/tmp/kraft-combined-logs
num.partitions=7
zookeeper.connect=localhost:2181
"""
"""What Kafka 4.3 comes with, shortened, and a name of former days."""


def loaded(text: str, *flags: str) -> Loaded:
    return load(
        defaults=NEEDED,
        toml=None,
        properties=("server.properties", text),
        environ={},
        flags=flags,
    )


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("a=b", "a", "b"),
        ("  a : b c ", "a", "b c "),
        ("a b=c", "a", "b=c"),
        ("a", "a", ""),
        ("a\\=b=c", "a=b", "c"),
        ("a=b\\\n   c", "a", "bc"),
        ("a=b\\\\", "a", "b\\"),
        ("a=x\\ty\\u00e9\\q", "a", "x\tyéq"),
        ("a==b", "a", "=b"),
    ],
)
def test_names_and_values_are_read_as_java_reads_them(text: str, name: str, value: str):
    assert properties_text.parse("f", text) == [(name, value)]


def test_comments_and_empty_lines_are_left_out():
    text = "\n# a=1\n  ! b=2\r\n\r\nc=3\r# d=4\\\ne=5\n"
    assert properties_text.parse("f", text) == [("c", "3"), ("e", "5")]


def test_an_escape_that_is_none_is_told_with_its_line():
    with pytest.raises(ValueError, match=r"f, line 2: a .u is followed by four"):
        properties_text.parse("f", "a=1\nb=\\u12")


def test_a_brokers_server_properties_are_settings():
    settings = loaded(SERVER_PROPERTIES).settings
    assert settings.node_id == 1
    assert settings.kafka.num_partitions == 7
    (listener,) = listeners_of(settings)
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "", 9092)
    assert settings.advertise[0].host == "localhost"


def test_what_has_no_meaning_is_told_name_by_name():
    warnings = loaded(SERVER_PROPERTIES).warnings
    told = {warning.partition(":")[0] for warning in warnings}
    assert told == {
        "process.roles",
        "controller.quorum.bootstrap.servers",
        "inter.broker.listener.name",
        "controller.listener.names",
        "num.network.threads",
        "log.dirs",
        "zookeeper.connect",
        "listeners",
    }


def test_flags_win_over_the_file():
    assert loaded("num.partitions=7", "num.partitions=8").settings.kafka.num_partitions == 8


def test_frazils_own_names_may_stand_beside_kafkas():
    settings = loaded("store=s3://bucket/prefix\nkafka.num.partitions=3").settings
    assert settings.store_url == "s3://bucket/prefix"
    assert settings.kafka.num_partitions == 3


def test_a_value_of_another_type_is_a_mistake_as_in_kafka():
    with pytest.raises(SettingsError, match=r"num\.partitions"):
        loaded("num.partitions=many")


def test_values_that_a_provider_would_have_to_fetch_are_refused():
    with pytest.raises(SettingsError, match="providers of configs are not served"):
        loaded("ssl.key.password=${file:/secrets:password}")


def test_kafkas_listeners_and_frazils_do_not_go_together():
    with pytest.raises(SettingsError, match="listen and listeners are both set"):
        loaded("listeners=PLAINTEXT://:1", "listen=localhost:1")


def test_kafkas_listeners_take_the_place_of_a_commands_own():
    given = loaded("listeners=PLAINTEXT://localhost:1\nadvertised.listeners=PLAINTEXT://h:2")
    assert [(each.host, each.port) for each in given.settings.listen] == [("localhost", 1)]
    assert [(each.host, each.port) for each in given.settings.advertise] == [("h", 2)]
