"""Settings of the HTTP listeners: where they are, whom they trust, who has which role."""

import pytest

from broker.config.addresses import Address
from broker.config.listeners import ClientAuth
from broker.config.settings import http_listener_of, load, token_of
from broker.config.values import SettingsError
from tests.kit.sockets import settings_of

KEYS = ("ssl.keystore.type=PEM", "ssl.keystore.location=/all.pem")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9094", Address("127.0.0.1", 9094)),
        ("http://[::1]:9094", Address("::1", 9094)),
        ("https://0.0.0.0:9094", Address("0.0.0.0", 9094, secure=True)),
    ],
)
def test_https_is_tls(text: str, address: Address) -> None:
    assert settings_of(f"http={text}", *KEYS).http == address


def test_the_certificate_is_that_of_all_listeners_or_its_own() -> None:
    settings = settings_of(
        "http=https://127.0.0.1:0",
        "schema.registry.listeners=http://127.0.0.1:0,https://127.0.0.1:0",
        "listener.name.registry.ssl.keystore.location=/registry.pem",
        *KEYS,
    )
    found = {}
    for name in ("http", "registry"):
        secured = http_listener_of(settings, name).secured
        assert secured is not None
        assert secured.tls is not None
        found[name] = secured.tls.keystore.location
    assert found == {"http": "/all.pem", "registry": "/registry.pem"}


def test_certificates_of_clients_are_asked_for_only_below_the_listeners_own_name() -> None:
    trust = ("ssl.truststore.type=PEM", "ssl.truststore.location=/ca.pem")
    for own, auth in ((), ClientAuth.NONE), (("requested",), ClientAuth.REQUESTED):
        more = [f"listener.name.http.ssl.client.auth={each}" for each in own]
        settings = settings_of(
            "http=https://127.0.0.1:0", "ssl.client.auth=required", *KEYS, *trust, *more
        )
        secured = http_listener_of(settings, "http").secured
        assert secured is not None
        assert secured.tls is not None
        assert secured.tls.client_auth is auth


def test_https_without_a_certificate_is_a_mistake() -> None:
    with pytest.raises(SettingsError, match="listener http: TLS needs a certificate"):
        settings_of("http=https://127.0.0.1:0")


def test_a_name_of_an_http_listener_is_not_called_strange() -> None:
    flags = (
        "listener.name.http.sasl.enabled.mechanisms=SCRAM-SHA-512",
        "listener.name.x.ssl.client.auth=none",
    )
    defaults = {"store": "memory://", "log": "memory://"}
    loaded = load(defaults=defaults, toml=None, environ={}, flags=flags)
    assert [each for each in loaded.warnings if "listener.name" in each] == [
        "listener.name.x.…: there is no listener X"
    ]


def test_roles_name_principals() -> None:
    settings = settings_of(
        "http.roles.operator=User:ann; User:CN=bob,O=b", "http.tokens=ann:/run/ann"
    )
    assert settings.http_roles_operator == {"User:ann", "User:CN=bob,O=b"}
    assert settings.http_tokens == (("ann", "/run/ann"),)


def test_roles_that_nobody_can_be_shown_to_have_are_a_mistake() -> None:
    with pytest.raises(SettingsError, match="nobody can say who they are"):
        settings_of("http.roles.exporter=User:ann")


@pytest.mark.parametrize(
    "flag", ["http.roles.operator=ann", "http.tokens=/run/ann", "http.tokens=a:/x,a:/y"]
)
def test_what_names_nobody_is_a_mistake(flag: str) -> None:
    with pytest.raises(SettingsError, match=flag.partition("=")[0]):
        settings_of(flag)


def test_tools_on_the_agents_machine_say_an_operators_token() -> None:
    settings = settings_of(
        "http.tokens=exporter:/run/exporter,ann:/run/ann",
        "http.roles.exporter=User:exporter",
        "http.roles.operator=User:ann",
    )
    token = "a-token-of-some-length"
    assert token_of(settings, {"/run/ann": f"{token}\n"}.__getitem__) == token
