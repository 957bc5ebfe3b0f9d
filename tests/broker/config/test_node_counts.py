"""`frazil.nodes.per.agent`, of all listeners and of single ones."""

from typing import Any

import pytest

from broker.cluster.nodes import with_node_counts
from broker.config.listeners import NODES_DEFAULT, NODES_MAX
from broker.config.values import SettingsError
from coordinator.commands.entries import Listener
from tests.broker.config.test_settings import settings_of

TWO = "listen=PLAINTEXT://h:1,OUTSIDE://h:2"
OF_OUTSIDE = "listener.name.outside.frazil.nodes.per.agent"


def counts(*flags: str, **more: Any) -> dict[str, int]:
    """By listener, as the log is told."""
    settings = settings_of(*flags, **more)
    listeners = [Listener(each.name, "h", 1) for each in settings.listen]
    told = with_node_counts(listeners, settings.nodes_per_agent, settings.nodes_of_listeners)
    pairs = [each.name.split("/") for each in told[len(listeners) :]]
    return {name: int(count) for name, count in pairs}


def test_every_listener_has_the_default_where_nothing_is_said() -> None:
    count = int(NODES_DEFAULT)
    assert counts(TWO) == {"PLAINTEXT": count, "OUTSIDE": count}


def test_a_listener_has_its_own_count_before_that_of_all() -> None:
    settings = (TWO, "frazil.nodes.per.agent=4", f"{OF_OUTSIDE}=1")
    assert counts(*settings) == {"PLAINTEXT": 4, "OUTSIDE": 1}


def test_the_count_of_a_listener_is_taken_from_every_source() -> None:
    environ = {"FRAZIL_KAFKA_LISTENER_NAME_OUTSIDE_FRAZIL_NODES_PER_AGENT": "3"}
    assert counts(TWO, environ=environ)["OUTSIDE"] == 3
    toml = f'[kafka]\n"{OF_OUTSIDE}" = "5"\n'
    assert counts(TWO, toml=toml)["OUTSIDE"] == 5
    secured = ("listeners=PLAINTEXT://h:1,OUTSIDE://h:2", f"{OF_OUTSIDE}=6")
    mapped = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"
    assert counts(*secured, mapped)["OUTSIDE"] == 6


@pytest.mark.parametrize("name", ["frazil.nodes.per.agent", OF_OUTSIDE])
@pytest.mark.parametrize("text", ["0", str(NODES_MAX + 1), "many"])
def test_a_count_that_cannot_be_is_a_mistake(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{name} \(from --set\): "):
        settings_of(TWO, f"{name}={text}")


def test_a_count_of_a_listener_that_there_is_not_is_a_mistake() -> None:
    with pytest.raises(
        SettingsError, match="no listener is called INSIDE; there is PLAINTEXT, OUT"
    ):
        settings_of(TWO, "listener.name.inside.frazil.nodes.per.agent=2")
