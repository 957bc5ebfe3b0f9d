"""Settings: where they come from, which source wins, and what is said about mistakes."""

from dataclasses import fields

import pytest

from broker.config import reference
from broker.config.addresses import Address, NamedAddress
from broker.config.kafka_settings import TABLE as KAFKA_TABLE
from broker.config.settings import BY_NAME, TABLE, Settings, advertised, load, name_of
from broker.config.values import SettingsError
from coordinator.commands.entries import Listener
from coordinator.tables.incarnations import NODE_NAME_MAX

NEEDED = {"store": "file:///data/objects", "log": "sqlite:///data/log.db"}


def settings_of(
    *flags: str, toml: str | None = None, environ: dict[str, str] | None = None
) -> Settings:
    return load(
        defaults=NEEDED,
        toml=None if toml is None else ("frazil.toml", toml),
        environ=environ or {},
        flags=flags,
    ).settings


def mistakes_of(
    *flags: str, toml: str | None = None, environ: dict[str, str] | None = None
) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as raised:
        settings_of(*flags, toml=toml, environ=environ)
    return raised.value.mistakes


def test_every_default_of_the_table_parses() -> None:
    assert settings_of().cluster_id == "frazil"


def test_every_field_is_the_row_of_a_setting_with_a_name_of_its_own() -> None:
    derived = {"kafka", "nodes_of_listeners"}  # By names that are not in the table.
    assert {item.name for item in fields(Settings)} == {*TABLE, *derived}
    assert len(BY_NAME) == len(TABLE)


def test_file_wins_over_default() -> None:
    assert settings_of(toml='cluster.id = "of-file"').cluster_id == "of-file"


def test_environment_wins_over_file() -> None:
    loaded = settings_of(toml='zone = "of-file"', environ={"FRAZIL_ZONE": "of-environment"})
    assert loaded.zone == "of-environment"


def test_flag_wins_over_environment() -> None:
    loaded = settings_of("zone=of-flag", environ={"FRAZIL_ZONE": "of-environment"})
    assert loaded.zone == "of-flag"


def test_the_later_source_wins_whichever_of_its_two_names_a_setting_has_there() -> None:
    toml, environ = "[kafka]\nnum.partitions = 1", {"FRAZIL_NUM_PARTITIONS": "2"}
    assert settings_of(toml=toml, environ=environ).kafka.num_partitions == 2
    flag = "kafka.num.partitions=3"
    assert settings_of(flag, toml=toml, environ=environ).kafka.num_partitions == 3
    environ = {"FRAZIL_KAFKA_NUM_PARTITIONS": "2"}
    flags = ("num.partitions=3", "kafka.num.partitions=4")
    assert settings_of(*flags[:1], toml=toml, environ=environ).kafka.num_partitions == 3
    assert settings_of(*flags, toml=toml, environ=environ).kafka.num_partitions == 4


def test_kafka_setting_is_taken_under_its_own_name_from_each_source() -> None:
    assert settings_of("num.partitions=7").kafka.num_partitions == 7
    assert settings_of(toml="[kafka]\nnum.partitions = 7").kafka.num_partitions == 7
    environ = {"FRAZIL_KAFKA_NUM_PARTITIONS": "7"}
    assert settings_of(environ=environ).kafka.num_partitions == 7


def test_table_and_dotted_names_are_the_same_in_the_file() -> None:
    by_table = settings_of(toml='[store]\nurl = "s3://b/p"\nendpoint = "http://h:1"')
    by_name = settings_of(toml='store = "s3://b/p"\n"store.endpoint" = "http://h:1"')
    assert by_table == by_name
    assert by_table.store_url == "s3://b/p"


def test_store_as_text_and_as_table_is_explained() -> None:
    (mistake,) = mistakes_of(toml='store = "s3://b/p"\nstore.endpoint = "http://h:1"')
    assert "[store] with url" in mistake


def test_broken_toml_names_the_file_and_the_place() -> None:
    (mistake,) = mistakes_of(toml="listen = \n")
    assert mistake.startswith("frazil.toml is not TOML:")
    assert "line 1" in mistake


def test_all_mistakes_are_told_at_once() -> None:
    mistakes = mistakes_of(
        "lease.ttl.ms=soon", "nonsense", toml="cache.bytes = -1", environ={"FRAZIL_HTTP": "x:y"}
    )
    assert len(mistakes) == 4


def test_unknown_name_is_told_with_the_nearest_right_one() -> None:
    assert mistakes_of("cache.byte=1") == (
        'there is no setting named "cache.byte" (from --set); did you mean "cache.bytes"?',
    )


def test_unknown_variable_of_the_environment_is_a_mistake() -> None:
    (mistake,) = mistakes_of(environ={"FRAZIL_CLUSTERID": "x"})
    assert 'did you mean "cluster.id"?' in mistake
    assert "FRAZIL_CLUSTERID" in mistake


def test_addresses_that_kubernetes_puts_into_the_environment_are_no_settings() -> None:
    settings_of(
        environ={
            "FRAZIL_SERVICE_HOST": "10.0.0.1",
            "FRAZIL_PORT": "tcp://10.0.0.1:9092",
            "FRAZIL_PORT_9092_TCP_ADDR": "10.0.0.1",
            "FRAZIL_AGENT_SERVICE_PORT_KAFKA": "9092",
        }
    )


def test_variables_of_the_command_line_are_no_settings() -> None:
    settings_of(environ={"FRAZIL_CONFIG": "frazil.toml", "FRAZIL_CONTEXT": "prod"})


def test_kafka_name_outside_its_table_in_the_file_is_a_mistake() -> None:
    (mistake,) = mistakes_of(toml="num.partitions = 3")
    assert "[kafka]" in mistake


def test_the_exporters_table_in_the_file_is_left_alone() -> None:
    assert settings_of(toml='[export]\nagent = "http://h:1"').cluster_id == "frazil"


def test_only_node_id_is_both_ours_and_kafkas() -> None:
    assert set(BY_NAME) & set(KAFKA_TABLE) == {"node.id"}
    assert settings_of("node.id=4").node_id == 4


def test_value_of_a_secret_is_not_in_messages_or_repr() -> None:
    loaded = settings_of("store.secret.key=hush", "ssl.key.password=hush")
    assert "hush" not in repr(loaded)


def test_deadline_after_the_lease_is_a_contradiction() -> None:
    (mistake,) = mistakes_of("lease.ttl.ms=1500")
    assert "session.deadline.ms (2000) must be less than lease.ttl.ms (1500)" in mistake


def test_missing_store_and_log_are_told() -> None:
    with pytest.raises(SettingsError) as raised:
        load(defaults={}, toml=None, environ={}, flags=())
    assert [mistake.split()[0] for mistake in raised.value.mistakes] == ["store", "log"]


@pytest.mark.parametrize("text", ["9092", "h:99999", "h:1,h:2", "A://h", "", "a b:1"])
def test_listen_refuses(text: str) -> None:
    assert mistakes_of(f"listen={text}")


def test_listeners_have_names_hosts_and_ports() -> None:
    assert settings_of("listen=in://10.0.0.1:1,OUT://[::1]:2").listen == (
        NamedAddress("IN", "10.0.0.1", 1),
        NamedAddress("OUT", "::1", 2),
    )


def test_http_can_be_switched_off() -> None:
    assert settings_of("http=off").http is None
    assert settings_of("http=0.0.0.0:1").http == Address("0.0.0.0", 1)


def test_wildcard_address_is_advertised_as_the_machines_name() -> None:
    loaded = settings_of("listen=0.0.0.0:0")
    told = advertised(loaded, ports={"PLAINTEXT": 41000}, host_name="box")
    assert told == (Listener("PLAINTEXT", "box", 41000),)


def name(*flags: str, port: int = 41000) -> str:
    loaded = settings_of(*flags)
    ports = {address.name: address.port or port for address in loaded.listen}
    told = advertised(loaded, ports=ports, host_name="box")
    return name_of(loaded, listeners=told, host_name="box")


def test_an_agent_is_named_after_the_address_that_clients_are_told() -> None:
    assert name() == "box:9092"
    assert name("listen=0.0.0.0:0") == "box:41000"
    assert name("listen=A://10.0.0.1:9192,B://0.0.0.0:1") == "10.0.0.1:9192"
    assert name("advertise=kafka-1.example:9093") == "kafka-1.example:9093"
    assert name("node.name=seven") == "seven"


def test_an_address_of_loopback_names_an_agent_together_with_its_machine() -> None:
    assert name("listen=localhost:9092") == "box/localhost:9092"
    assert name("listen=127.0.0.2:9092") == "box/127.0.0.2:9092"
    assert name("listen=[::1]:9092") == "box/::1:9092"
    assert name("advertise=localhost") == "box/localhost:9092"


def test_a_name_is_never_longer_than_the_log_takes_and_keeps_the_port() -> None:
    long = name(f"advertise={'h' * 300}:9092")
    assert len(long) == NODE_NAME_MAX
    assert long.endswith(":9092")


def test_advertised_address_without_port_has_the_bound_one() -> None:
    loaded = settings_of("listen=A://0.0.0.0:0,B://h:2", "advertise=a://outside,B://out:9")
    told = advertised(loaded, ports={"A": 5, "B": 2}, host_name="box")
    assert told == (Listener("A", "outside", 5), Listener("B", "out", 9))


def test_settings_of_one_listener_are_taken_from_every_source() -> None:
    name = "listener.name.ssl.ssl.keystore.location"
    own = ("listeners=SSL://h:1", f"{name}=/of-flag")
    assert settings_of(*own).kafka.given[name] == "/of-flag"
    toml = f'[kafka]\nlisteners = "SSL://h:1"\n"{name}" = "/of-file"\n'
    assert settings_of(toml=toml).kafka.given[name] == "/of-file"
    environ = {"FRAZIL_KAFKA_LISTENER_NAME_SSL_SSL_KEYSTORE_LOCATION": "/of-environment"}
    assert settings_of(toml=toml, environ=environ).kafka.given[name] == "/of-environment"


def test_kafkas_name_of_a_listener_belongs_under_kafka_in_the_file() -> None:
    (mistake,) = mistakes_of(toml='"listener.name.ssl.ssl.client.auth" = "none"')
    assert "put it under [kafka]" in mistake


def test_advertising_a_listener_that_is_not_there_is_a_mistake() -> None:
    (mistake,) = mistakes_of("listen=A://h:1", "advertise=C://h:1")
    assert "no listener is called C" in mistake


def test_units_are_understood() -> None:
    loaded = settings_of("cache.bytes=2GiB", "lease.ttl.ms=1min", "session.deadline.ms=30s")
    assert (loaded.cache_bytes, loaded.lease_ttl_ms) == (2 << 30, 60_000)


def test_the_reference_in_the_tree_is_current() -> None:
    written = reference.PAGE.read_text(encoding="utf-8")
    assert written == reference.page(), "run python -m broker.config.reference"


def test_a_collector_is_an_address_with_headers() -> None:
    settings = settings_of(
        "telemetry.otlp.endpoint=https://[::1]:4318/otlp/v1/metrics",
        "telemetry.otlp.headers=Authorization=Basic YWxpY2U=, x-scope = tenant one",
    )
    assert settings.telemetry_otlp_endpoint == "https://[::1]:4318/otlp/v1/metrics"
    assert settings.telemetry_otlp_headers == (
        ("Authorization", "Basic YWxpY2U="),
        ("x-scope", "tenant one"),
    )
    assert "YWxpY2U" not in repr(settings)
    assert settings_of().telemetry_otlp_endpoint is None
    assert settings_of().telemetry_otlp_headers == ()


@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "grpc://collector", "http://", "http://a b", "http://h/a\nb"]
)
def test_an_endpoint_of_a_collector_that_is_no_address_is_a_mistake(endpoint: str) -> None:
    (mistake,) = mistakes_of(f"telemetry.otlp.endpoint={endpoint}")
    assert "is not an address" in mistake


@pytest.mark.parametrize("headers", ["hush", "a b=hush", "=hush", "a=hush\r\nb: c"])
def test_headers_that_could_not_be_sent_are_a_mistake_that_does_not_say_them(headers: str) -> None:
    (mistake,) = mistakes_of(f"telemetry.otlp.headers={headers}")
    assert "hush" not in mistake
