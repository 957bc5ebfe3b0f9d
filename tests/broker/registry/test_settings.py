"""Settings of the registry, and where `frazil dev` has one."""

import socket
from pathlib import Path

import pytest

from broker.cli import dev
from broker.config.addresses import Address
from broker.config.settings import Settings, load
from broker.config.values import SettingsError


def settings_of(*flags: str) -> Settings:
    needed = {"store": "file:///data/objects", "log": "sqlite:///data/log.db"}
    return load(defaults=needed, toml=None, environ={}, flags=flags).settings


def test_there_is_no_registry_unless_it_is_given_an_address() -> None:
    assert settings_of().registry_listen == ()
    assert settings_of("schema.registry.listeners=off").registry_listen == ()


def test_listeners_are_written_as_confluents() -> None:
    text = "schema.registry.listeners=http://0.0.0.0:8081, http://[::1]:8082/"
    assert settings_of(text).registry_listen == (Address("0.0.0.0", 8081), Address("::1", 8082))


@pytest.mark.parametrize("text", ["localhost:8081", "ftp://h:1", "http://h", "http://h:70000"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"schema\.registry\.listeners"):
        settings_of(f"schema.registry.listeners={text}")


def test_users_are_names_and_passwords_and_never_shown() -> None:
    settings = settings_of("schema.registry.basic.auth.user.info=ann:s3:cret, bob:x")
    assert settings.registry_users == (("ann", "s3:cret"), ("bob", "x"))
    assert "s3" not in repr(settings)


@pytest.mark.parametrize("text", ["ann", "ann:", ":hush", "ann:hush,ann:other"])
def test_users_that_are_none_are_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(SettingsError) as raised:
        settings_of(f"schema.registry.basic.auth.user.info={text}")
    assert "hush" not in str(raised.value)


def test_dev_goes_on_without_a_registry_when_its_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert dev.registry_listener(port) == ""
    listening = {"PLAINTEXT": ("127.0.0.1", 9092), "http": ("127.0.0.1", 9094)}
    greeting = dev.greeting(listening, data=Path("frazil-data"))
    assert "schema registry  not there" in greeting
    greeting = dev.greeting(listening | {"registry": ("127.0.0.1", 8085)}, data=Path("frazil-data"))
    assert "schema registry  http://127.0.0.1:8085" in greeting
    assert "Kafka clients    localhost:9092" in greeting
