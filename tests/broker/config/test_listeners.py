"""Kafka's settings of listeners, as its brokers take them."""

import pytest

from broker.config.addresses import NamedAddress
from broker.config.listeners import (
    ClientAuth,
    ListenerSettings,
    SecurityProtocol,
    exposures,
    listeners_of,
)

KEYSTORE = {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "hush"}
TRUSTED = {"ssl.truststore.location": "/t.p12"}


def parsed(given: dict[str, str]) -> tuple[ListenerSettings, ...]:
    found = listeners_of(given)
    assert found.mistakes == []
    return found.listeners


def test_a_listener_has_the_protocol_of_its_name_by_default():
    given = {"listeners": "PLAINTEXT://:9092,SSL://10.0.0.1:9093", **KEYSTORE}
    plain, tls = parsed(given)
    assert (plain.name, plain.host, plain.port) == ("PLAINTEXT", "", 9092)
    assert (plain.protocol, plain.tls) == (SecurityProtocol.PLAINTEXT, None)
    assert (tls.host, tls.port, tls.protocol) == ("10.0.0.1", 9093, SecurityProtocol.SSL)


def test_the_map_gives_other_names_a_protocol():
    given = {
        "listeners": "inside://[::1]:1,OUTSIDE://h:2",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,outside:ssl",
        **KEYSTORE,
    }
    inside, outside = parsed(given)
    assert (inside.name, inside.host, inside.protocol.value) == ("INSIDE", "::1", "PLAINTEXT")
    assert outside.protocol is SecurityProtocol.SSL


def test_a_name_that_the_map_does_not_have_is_a_mistake():
    given = {"listeners": "INSIDE://h:1"}
    assert listeners_of(given).mistakes == ["No security protocol defined for listener INSIDE"]


def test_clients_are_told_the_address_that_is_advertised_for_the_listener():
    given = {
        "listeners": "PLAINTEXT://:9092,SSL://:9093",
        "advertised.listeners": "SSL://outside.example:19093",
        **KEYSTORE,
    }
    plain, tls = parsed(given)
    assert plain.advertised is None
    assert tls.advertised == NamedAddress("SSL", "outside.example", 19093)


@pytest.mark.parametrize(
    ("advertised", "reason"),
    [
        ("SSL://h:1", "no listener is called SSL"),
        ("PLAINTEXT://:9092", "needs a host"),
        ("PLAINTEXT://0.0.0.0:9092", "needs a host"),
        ("PLAINTEXT://h:0", "needs a port"),
        ("h:9092", "is not NAME://host:port"),
    ],
)
def test_what_no_client_could_use_is_not_advertised(advertised: str, reason: str):
    (mistake,) = listeners_of(
        {"listeners": "PLAINTEXT://:9092", "advertised.listeners": advertised}
    ).mistakes
    assert reason in mistake


@pytest.mark.parametrize(
    ("listeners", "reason"),
    [
        ("9092", "is not NAME://host:port"),
        ("PLAINTEXT://:99999", "is not NAME://host:port"),
        ("PLAINTEXT://:1,plaintext://:2", "two listeners are called PLAINTEXT"),
        ("", "there is none for clients"),
    ],
)
def test_listeners_that_cannot_be_are_a_mistake(listeners: str, reason: str):
    (mistake,) = listeners_of({"listeners": listeners}).mistakes
    assert reason in mistake


def test_two_listeners_on_one_port_are_a_mistake():
    (mistake,) = listeners_of({"listeners": "PLAINTEXT://:1,SSL://:1", **KEYSTORE}).mistakes
    assert "a port of its own" in mistake


def test_listeners_of_controllers_are_left_out_and_told():
    found = listeners_of(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
    )
    assert [each.name for each in found.listeners] == ["PLAINTEXT"]
    assert found.mistakes == []
    assert found.warnings == ["listeners: CONTROLLER is not opened: there are no controllers here"]


def test_frazils_own_listeners_are_plaintext():
    found = listeners_of(
        {}, listen=[NamedAddress("SSL", "h", 1)], advertise=[NamedAddress("SSL", "out", None)]
    )
    (listener,) = found.listeners
    assert listener.protocol is SecurityProtocol.PLAINTEXT
    assert listener.advertised == NamedAddress("SSL", "out", None)


# TLS.


def test_the_narrower_name_of_a_setting_wins():
    given = {
        "listeners": "SSL://:1,OTHER://:2",
        "listener.security.protocol.map": "SSL:SSL,OTHER:SSL",
        **KEYSTORE,
        **TRUSTED,
        "ssl.client.auth": "required",
        "listener.name.other.ssl.client.auth": "requested",
        "listener.name.other.ssl.keystore.location": "/other.p12",
    }
    first, second = parsed(given)
    assert first.tls is not None
    assert second.tls is not None
    assert first.tls.client_auth is ClientAuth.REQUIRED
    assert second.tls.client_auth is ClientAuth.REQUESTED
    assert first.tls.keystore.location == "/k.p12"
    assert second.tls.keystore.location == "/other.p12"
    assert second.tls.keystore.password == "hush"


def test_kafkas_defaults_are_the_defaults():
    (listener,) = parsed({"listeners": "SSL://:1", **KEYSTORE})
    assert listener.tls is not None
    assert listener.tls.client_auth is ClientAuth.NONE
    assert listener.tls.protocols == ("TLSv1.2", "TLSv1.3")
    assert listener.tls.cipher_suites == ()
    assert listener.tls.keystore.type == "JKS"
    assert listener.tls.principal_rules == "DEFAULT"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "needs a certificate"),
        ({**KEYSTORE, "ssl.keystore.key": "k"}, "leave either out"),
        ({"ssl.keystore.key": "k", "ssl.keystore.type": "PEM"}, "go together"),
        ({**KEYSTORE, "ssl.keystore.type": "PEM"}, "ssl.keystore.password is not for PEM"),
        ({**KEYSTORE, "ssl.client.auth": "required"}, "needs certificates to trust"),
        ({**KEYSTORE, "ssl.client.auth": "maybe"}, '"maybe" is none of'),
        ({**KEYSTORE, "ssl.enabled.protocols": "TLSv1.1"}, '"TLSv1.1" is none of'),
        ({**KEYSTORE, "ssl.enabled.protocols": " "}, "is empty"),
        ({**KEYSTORE, "ssl.keystore.type": "BKS"}, "none of pem, pkcs12, jks"),
    ],
)
def test_tls_that_cannot_be_is_a_mistake(given: dict[str, str], reason: str):
    (mistake,) = listeners_of({"listeners": "SSL://:1", **given}).mistakes
    assert mistake.startswith("listener SSL: ")
    assert reason in mistake


def test_certificates_may_stand_in_the_settings():
    given = {
        "listeners": "SSL://:1",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "chain",
        "ssl.keystore.key": "key",
        "ssl.key.password": "hush",
    }
    (listener,) = parsed(given)
    assert listener.tls is not None
    assert listener.tls.keystore.certificates == "chain"
    assert "hush" not in repr(listener)
    assert "chain" not in repr(listener)


# SASL.


def test_a_mechanism_has_its_settings_by_kafkas_precedence():
    given = {
        "listeners": "SASL_PLAINTEXT://:1",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.server.callback.handler.class": "of all",
        "sasl.jaas.config": "of nobody",
        "connections.max.reauth.ms": "1",
        "listener.name.sasl_plaintext.connections.max.reauth.ms": "2",
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "3",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": "of PLAIN",
        "listener.name.other.plain.sasl.jaas.config": "of others",
    }
    found = listeners_of(given)
    assert found.mistakes == []
    assert found.listeners[0].mechanisms == {
        "PLAIN": {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.server.callback.handler.class": "of all",
            "sasl.jaas.config": "of PLAIN",
            "connections.max.reauth.ms": "3",
        },
        "SCRAM-SHA-256": {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.server.callback.handler.class": "of all",
            "connections.max.reauth.ms": "2",
        },
    }
    assert found.warnings == ["listener.name.other.…: there is no listener OTHER"]


def test_a_listener_may_enable_mechanisms_of_its_own():
    given = {
        "listeners": "SASL_PLAINTEXT://:1",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "scram-sha-512",
    }
    (listener,) = parsed(given)
    assert list(listener.mechanisms) == ["SCRAM-SHA-512"]


def test_kerberos_counts_as_no_mechanism():
    (mistake,) = listeners_of({"listeners": "SASL_PLAINTEXT://:1"}).mistakes
    assert "without a mechanism" in mistake
    given = {"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "GSSAPI,PLAIN"}
    found = listeners_of(given)
    assert list(found.listeners[0].mechanisms) == ["PLAIN"]
    assert "Kerberos" in found.warnings[0]


def test_client_certificates_are_asked_for_beside_sasl_only_where_the_listener_says_so():
    """As in Kafka, where a principal comes by SASL there."""
    given = {
        "listeners": "SASL_SSL://:1",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.client.auth": "required",
        **KEYSTORE,
        **TRUSTED,
    }
    (listener,) = parsed(given)
    assert listener.tls is not None
    assert listener.tls.client_auth is ClientAuth.NONE
    (listener,) = parsed(given | {"listener.name.sasl_ssl.ssl.client.auth": "required"})
    assert listener.tls is not None
    assert listener.tls.client_auth is ClientAuth.REQUIRED


# Who is let in.


@pytest.mark.parametrize(
    ("given", "exposed"),
    [
        ({"listeners": "PLAINTEXT://:1"}, True),
        ({"listeners": "PLAINTEXT://10.0.0.1:1"}, True),
        ({"listeners": "PLAINTEXT://localhost:1"}, False),
        ({"listeners": "PLAINTEXT://[::1]:1"}, False),
        ({"listeners": "SSL://:1", **KEYSTORE}, True),
        ({"listeners": "SSL://:1", "ssl.client.auth": "requested", **KEYSTORE, **TRUSTED}, True),
        ({"listeners": "SSL://:1", "ssl.client.auth": "required", **KEYSTORE, **TRUSTED}, False),
        ({"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "PLAIN"}, False),
    ],
)
def test_a_listener_off_loopback_that_asks_nobody_who_he_is_is_said_aloud(given, exposed):
    assert bool(exposures(parsed(given))) is exposed
