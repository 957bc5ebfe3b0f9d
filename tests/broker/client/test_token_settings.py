"""Where a client of OAUTHBEARER has its tokens from: what a file of settings may say of it."""

import pytest

from broker.client.client_settings import client_settings_of
from broker.client.token_settings import BearerLogin, TokenFile, TokenIssuer

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
URL = "sasl.oauthbearer.token.endpoint.url"
ID, SECRET = (f"sasl.oauthbearer.client.credentials.client.{each}" for each in ("id", "secret"))
BARE = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f"{MODULE} required;",
}
WHO = {ID: "tool", SECRET: "hidden"}
ISSUED = {**BARE, **WHO, URL: "https://issuer.example/token"}


def login(given: dict[str, str]) -> BearerLogin:
    settings = client_settings_of(given)
    assert isinstance(settings.login, BearerLogin)
    assert settings.warnings == ()
    return settings.login


def issuer(given: dict[str, str]) -> TokenIssuer:
    source = login(given).source
    assert isinstance(source, TokenIssuer)
    return source


@pytest.mark.parametrize(
    "url", ["file:/run/token", "file:///run/a%20token", "FILE://localhost/run/token"]
)
def test_a_token_may_be_in_a_file(url: str) -> None:
    assert login({**BARE, URL: url}).source == TokenFile(url)


def test_an_issuer_is_asked_with_an_id_and_a_secret() -> None:
    found = issuer({**ISSUED, "sasl.oauthbearer.scope": "kafka other"})
    assert (found.client_id, found.client_secret, found.scope) == ("tool", "hidden", "kafka other")
    assert not found.is_urlencoded
    assert issuer({**ISSUED, "sasl.oauthbearer.header.urlencode": "true"}).is_urlencoded


def test_id_and_secret_may_stand_in_the_login_module_as_before_kafka_4_1() -> None:
    options = 'clientId="old" clientSecret="older" scope="kafka"'
    given = {**BARE, URL: ISSUED[URL], "sasl.jaas.config": f"{MODULE} required {options};"}
    found = issuer(given)
    assert (found.client_id, found.client_secret, found.scope) == ("old", "older", "kafka")
    newer = issuer({**given, **WHO})
    assert (newer.client_id, newer.client_secret) == ("tool", "hidden")


def test_the_login_module_says_whom_to_trust_on_the_way_to_the_issuer() -> None:
    trust = 'ssl.truststore.location="issuer.pem" ssl.truststore.type="PEM"'
    given = {**ISSUED, "sasl.jaas.config": f"{MODULE} required {trust};"}
    settings, found = client_settings_of(given), issuer(given)
    assert found.tls is not None
    assert found.tls.truststore.location == "issuer.pem"
    assert settings.tls is not None
    assert settings.tls.truststore.location is None


def test_extensions_are_sent_along() -> None:
    given = {**ISSUED, "sasl.jaas.config": f'{MODULE} required extension_cluster="lkc-1";'}
    assert login(given).extensions == {"cluster": "lkc-1"}


@pytest.mark.parametrize(
    "url", ["http://localhost:8080/token", "http://[::1]/", "http://127.0.0.1"]
)
def test_an_issuer_on_this_machine_may_be_asked_without_tls(url: str) -> None:
    assert issuer({**ISSUED, URL: url}).tls is None


def test_kafkas_own_classes_may_be_named() -> None:
    package = "org.apache.kafka.common.security.oauthbearer"
    handler = f"{package}.secured.OAuthBearerLoginCallbackHandler"
    retriever = f"{package}.ClientCredentialsJwtRetriever"
    login(
        {
            **ISSUED,
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.jwt.retriever.class": retriever,
        }
    )


BAD = {
    "no URL": ({URL: ""}, URL),
    "a secret without TLS": ({URL: "http://issuer.example/token"}, "by http: from this machine"),
    "a host that only begins so": ({URL: "http://localhost.example/"}, "by http:"),
    "a user in the URL": ({URL: "https://tool:hidden@issuer.example/"}, "without user"),
    "a user in the URL of this machine": ({URL: "http://localhost:1@issuer.example/"}, "by http:"),
    "no secret": ({SECRET: ""}, SECRET),
    "another class": ({"sasl.login.callback.handler.class": "a.Handler"}, "OAuthBearerLogin"),
    "signed here": (
        {"sasl.oauthbearer.jwt.retriever.class": "a.JwtBearerJwtRetriever"},
        "jwt.retriever.class: it is none of",
    ),
    "no boolean": ({"sasl.oauthbearer.header.urlencode": "so"}, "header.urlencode"),
    "no module": ({"sasl.jaas.config": "hidden"}, "sasl.jaas.config"),
    "an extension with the name of the token's": (
        {"sasl.jaas.config": f'{MODULE} required extension_auth="hidden";'},
        "extension",
    ),
    "an extension that is another one": (
        {"sasl.jaas.config": f'{MODULE} required extension_a="x\\1auth=hidden";'},
        "extension",
    ),
    "a store that is none": (
        {"sasl.jaas.config": f'{MODULE} required ssl.truststore.type="hidden";'},
        "ssl.truststore.type",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_use_is_told_why(kind: str) -> None:
    changed, sentence = BAD[kind]
    with pytest.raises(ValueError, match=r"^[^\n]*$") as told:
        client_settings_of(ISSUED | changed)
    assert sentence in str(told.value)
    assert kind == "a store that is none" or "hidden" not in str(told.value)


def test_who_needs_no_login_needs_no_token() -> None:
    assert client_settings_of({"sasl.mechanism": "OAUTHBEARER"}).login is None


def test_a_login_is_shown_without_its_secret() -> None:
    assert "hidden" not in repr(client_settings_of(ISSUED))
