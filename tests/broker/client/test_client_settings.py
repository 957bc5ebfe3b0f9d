"""What a file of a client's settings may say, and what is told of the rest."""

import pytest

from broker.client.client_settings import ClientSettings, client_settings_of
from broker.sasl.client import Login
from tests.kit.certificates import Authority

SASL = {
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'a.Module required username="alice" password="secret";',
}


def test_no_settings_are_a_client_without_tls_and_login() -> None:
    assert client_settings_of({}) == ClientSettings()


@pytest.mark.parametrize(
    ("protocol", "has_tls", "logs_in"),
    [
        ("PLAINTEXT", False, False),
        ("SSL", True, False),
        ("SASL_PLAINTEXT", False, True),
        ("sasl_ssl", True, True),
    ],
)
def test_the_protocol_says_whether_there_is_tls_and_a_login(
    protocol: str, has_tls: bool, logs_in: bool
) -> None:
    settings = client_settings_of({"security.protocol": protocol, **SASL})
    assert (settings.tls is not None) is has_tls
    assert settings.login == (Login("SCRAM-SHA-512", "alice", "secret") if logs_in else None)


def test_stores_are_read_as_listeners_read_theirs() -> None:
    tls = client_settings_of(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "trust.p12",
            "ssl.truststore.password": "trust secret",
            "ssl.truststore.type": "PKCS12",
            "ssl.keystore.location": "own.pem",
            "ssl.keystore.type": "PEM",
            "ssl.key.password": "key secret",
        }
    ).tls
    assert tls is not None
    assert (tls.truststore.location, tls.truststore.type) == ("trust.p12", "PKCS12")
    assert tls.truststore.password == "trust secret"
    assert (tls.keystore.location, tls.keystore.key_password) == ("own.pem", "key secret")
    assert tls.checks_names
    assert "secret" not in repr(tls)


def test_certificates_may_stand_in_the_settings() -> None:
    pem = Authority().pem
    tls = client_settings_of(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": pem,
            "ssl.endpoint.identification.algorithm": "",
        }
    ).tls
    assert tls is not None
    assert tls.truststore.certificates == pem
    assert not tls.checks_names


def test_bootstrap_servers_are_taken() -> None:
    assert client_settings_of({"bootstrap.servers": "a:1,b:2"}).bootstrap == "a:1,b:2"


def test_names_that_mean_nothing_are_told_in_one_sentence() -> None:
    given = {"acks": "all", "ssl.provider": "x", "security.protocl": "SSL"}
    (told,) = client_settings_of(given).warnings
    assert told == (
        'settings that have no effect: acks, security.protocl; did you mean "security.protocol"?,'
        " ssl.provider"
    )


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is none of PLAINTEXT, SSL"),
        ({"ssl.truststore.type": "BKS"}, "ssl.truststore.type: "),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols: "),
        ({"ssl.enabled.protocols": ""}, "ssl.enabled.protocols is empty"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "neither https nor empty"),
        ({"ssl.truststore.certificates": "secret"}, "set ssl.truststore.type=PEM"),
        ({"ssl.keystore.key": "secret", "ssl.keystore.type": "PEM"}, "go together"),
        ({"ssl.truststore.password": "${file:/secret:key}"}, "providers of configs"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism is none of PLAIN"),
        ({"sasl.jaas.config": 'a.Module required password="secret'}, "quotation mark"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_without_it(
    changed: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as told:
        client_settings_of({"security.protocol": "SASL_SSL", **SASL, **changed})
    assert sentence in str(told.value)
    assert "secret" not in str(told.value)


def test_all_mistakes_are_told_each_on_its_line() -> None:
    given = {"security.protocol": "SASL_SSL", "ssl.truststore.type": "BKS"}
    with pytest.raises(ValueError, match=r"sasl\.mechanism") as told:
        client_settings_of(given)
    assert len(str(told.value).splitlines()) == 2
