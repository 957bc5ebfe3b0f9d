"""A token as a file of a client's settings: what is in it, what is not, and that our tools log in by it."""

import pytest

from broker.cli.tokens.token_file import Way, hmac_in
from broker.client.client_settings import client_settings_of
from broker.config import properties_text
from broker.sasl.client import Login

HMAC = "+/v7" * 21 + "+w=="
OWN = {
    "bootstrap.servers": "elsewhere:1",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": 'a.Module required username="alice" password="her secret";',
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/etc/kafka/über ca.pem",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.keystore.location": "/home/alice/own.pem",
    "ssl.key.password": "of her key",
}


def way(mechanism: str | None = None, **changed: str) -> Way:
    settings = OWN | {name.replace("_", "."): text for name, text in changed.items()}
    return Way(settings, "agent:9092", mechanism)


def read(text: str) -> dict[str, str]:
    return dict(properties_text.parse("a file", text))


def test_a_token_logs_in_where_its_maker_did_and_shows_nothing_of_the_maker() -> None:
    text = way().text("an-id", HMAC)
    settings = client_settings_of(read(text))
    assert settings.login == Login("SCRAM-SHA-256", "an-id", HMAC, by_token=True)
    assert settings.bootstrap == "agent:9092"
    assert settings.tls is not None
    assert settings.tls.truststore.location == "/etc/kafka/über ca.pem"
    assert not settings.tls.checks_names
    assert not settings.tls.keystore.given
    assert settings.warnings == ()
    for secret in ("alice", "her secret", "of her key"):
        assert secret not in text


@pytest.mark.parametrize(
    ("chosen", "own", "found"),
    [
        (None, "SCRAM-SHA-512", "SCRAM-SHA-512"),
        (None, "PLAIN", "SCRAM-SHA-512"),
        ("SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-256"),
    ],
)
def test_a_token_logs_in_by_scram(chosen: str | None, own: str, found: str) -> None:
    assert read(way(chosen, sasl_mechanism=own).text("i", HMAC))["sasl.mechanism"] == found


def test_who_logged_in_by_a_certificate_does_not_say_where_a_token_may() -> None:
    by_certificate = way(security_protocol="SSL")
    assert not by_certificate.has_sasl
    found = read(by_certificate.text("i", HMAC))
    assert "bootstrap.servers" not in found
    assert found["security.protocol"] == "SASL_SSL"


def test_an_hmac_is_read_alone_and_out_of_a_tokens_file() -> None:
    assert hmac_in(f" {HMAC}\n") == hmac_in(way().text("i", HMAC)) == b"\xfb" * 64


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no HMAC in base64"),
        ("not base64", "no HMAC in base64"),
        (f"sasl.jaas.config={OWN['sasl.jaas.config']}", "the file of a user"),
        ('sasl.jaas.config=a.Module required password="her secret', "quotation mark"),
        ('sasl.jaas.config=a.M required password="her secret" tokenauth="true";', "no HMAC"),
    ],
)
def test_what_has_no_hmac_is_told_without_what_it_has(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as told:
        hmac_in(text)
    assert "her secret" not in str(told.value)
