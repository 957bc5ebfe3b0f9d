"""What a file of a client's settings says about the schema registry."""

import pytest

from broker.client.client_settings import client_settings_of
from broker.client.registry_settings import RegistrySettings

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'a.Module required username="alice" password="hush";',
}


def registry(**said: str) -> RegistrySettings:
    settings = client_settings_of({name.replace("_", "."): value for name, value in said.items()})
    assert settings.warnings == ()
    return settings.registry


def mistake(given: dict[str, str]) -> str:
    with pytest.raises(ValueError, match=r".+") as refused:
        client_settings_of(given)
    return str(refused.value)


def test_addresses_are_separated_by_commas_and_lose_the_slash_at_their_end() -> None:
    assert registry(schema_registry_url="http://a:1/, https://b/c/").urls == (
        "http://a:1",
        "https://b/c",
    )


@pytest.mark.parametrize(
    "given",
    [
        {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "ann:hush"},
        {"schema.registry.basic.auth.user.info": "ann:hush"},
        {"basic.auth.credentials.source": "URL", "schema.registry.url": "http://ann:hush@a:1"},
        {"schema.registry.url": "http://ann:hush@a:1"},
    ],
)
def test_a_password_is_a_setting_of_its_own_or_in_the_address(given: dict[str, str]) -> None:
    settings = client_settings_of(given).registry
    assert settings.user_info == "ann:hush"
    assert "hush" not in repr(settings)


def test_the_login_to_the_cluster_counts_at_the_registry_when_that_is_said() -> None:
    settings = client_settings_of({**SASL, "basic.auth.credentials.source": "SASL_INHERIT"})
    assert settings.registry.user_info == "alice:hush"
    assert client_settings_of(SASL).registry.user_info is None


def test_a_token_is_a_setting_or_in_a_file() -> None:
    settings = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "abc"}
    assert client_settings_of(settings).registry.token == "abc"
    settings = {"schema.registry.bearer.auth.token.file": "/run/token"}
    assert client_settings_of(settings).registry.token_file == "/run/token"


def test_tls_of_the_registry_is_its_own() -> None:
    settings = client_settings_of(
        {
            "schema.registry.ssl.truststore.location": "/ca.pem",
            "schema.registry.ssl.truststore.type": "PEM",
        }
    )
    assert settings.tls is None
    assert settings.registry.tls is not None
    assert settings.registry.tls.truststore.location == "/ca.pem"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schema.registry.url": "localhost:8081"}, "it is no address like http://localhost:8081"),
        ({"basic.auth.credentials.source": "FILE"}, "is none of URL, USER_INFO, SASL_INHERIT"),
        (
            {"basic.auth.credentials.source": "USER_INFO"},
            "wants basic.auth.user.info=user:password",
        ),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "wants a login of name and password"),
        ({"basic.auth.user.info": "hush"}, "basic.auth.user.info: it is not user:password"),
        ({"bearer.auth.credentials.source": "OAUTHBEARER"}, "is not STATIC_TOKEN"),
        ({"bearer.auth.token": "two words hush"}, "bearer.auth.token: the value is not usable"),
        (
            {"basic.auth.user.info": "a:hush", "bearer.auth.token": "hush"},
            "exclude each other",
        ),
        (
            {"schema.registry.ssl.truststore.type": "ZIP"},
            "schema.registry.ssl.truststore.type: ",
        ),
    ],
)
def test_a_mistake_is_told_without_a_secret(given: dict[str, str], said: str) -> None:
    told = mistake(given)
    assert said in told
    assert "hush" not in told
