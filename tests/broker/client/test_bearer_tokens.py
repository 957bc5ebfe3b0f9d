"""Tokens of the tools: from files that change, and from an issuer that refuses, is away, or answers anything."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import bearer_tokens
from broker.client.bearer_tokens import BearerTokens, issued_in
from broker.client.client_settings import client_settings_of
from broker.client.token_settings import BearerLogin
from broker.sasl.login_failures import TokenError
from tests.kit.issuer import CLIENT_ID, CLIENT_SECRET, Answer, IssuerServer

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def tokens(url: str, trusted: Path | None = None, **more: str) -> BearerTokens:
    trust = f'ssl.truststore.location="{trusted}" ssl.truststore.type="PEM"' if trusted else ""
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE} required {trust};",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
    }
    login = client_settings_of(given | more).login
    assert isinstance(login, BearerLogin)
    return BearerTokens(login)


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[IssuerServer]:
    server = IssuerServer(tmp_path)
    numbers = iter(range(100))
    server.issue = lambda: {"access_token": f"token-{next(numbers)}", "expires_in": 600}
    yield server
    server.stop()


def asked(wanted: BearerTokens, times: int = 1) -> list[str]:
    """Tokens, in one loop."""

    async def ask() -> list[str]:
        return [await wanted.token() for _ in range(times)]

    return asyncio.run(ask())


def failure(wanted: BearerTokens) -> TokenError:
    with pytest.raises(TokenError) as told:
        asked(wanted)
    assert CLIENT_SECRET not in str(told.value)
    return told.value


def test_each_login_reads_the_file_again(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    wanted = tokens(f"file://{tmp_path}/a%20token")
    for text in ("first.token\n", " second.token "):
        file.write_text(text)
        assert asked(wanted) == [text.strip()]


def test_a_file_that_has_no_token_is_told_without_what_it_has(tmp_path: Path) -> None:
    file = tmp_path / "token"
    told = failure(tokens(f"file://{file}"))
    assert "No such file" in str(told)
    assert not told.may_pass
    for text in ("", "two words", "grüße", "a" * (1 << 20) + " and more"):
        file.write_text(text)
        told = failure(tokens(f"file://{file}"))
        assert str(told) == f"no token: {file} has none"
        assert told.may_pass


def test_an_issuer_is_asked_as_rfc_6749_has_it(issuer: IssuerServer) -> None:
    wanted = tokens(issuer.tokens_url, issuer.trusted, **{"sasl.oauthbearer.scope": "a b"})
    assert asked(wanted) == ["token-0"]
    assert issuer.forms == [{"grant_type": ["client_credentials"], "scope": ["a b"]}]


def test_id_and_secret_are_encoded_where_that_is_asked_for(issuer: IssuerServer) -> None:
    issuer.answers = [Answer(200, b'{"access_token": "a"}')]
    more = {
        "sasl.oauthbearer.client.credentials.client.id": "a:b",
        "sasl.oauthbearer.header.urlencode": "true",
    }
    asked(tokens(issuer.tokens_url, issuer.trusted, **more))
    encoded = b64encode(b"a%3Ab:the+tool%27s+secret").decode()
    assert issuer.authorization == f"Basic {encoded}"


def test_a_token_is_kept_until_it_is_about_to_end(
    issuer: IssuerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(tokens(issuer.tokens_url, issuer.trusted), times=2) == ["token-0"] * 2
    monkeypatch.setattr(bearer_tokens, "KEPT", 0.0)
    assert asked(tokens(issuer.tokens_url, issuer.trusted), times=2) == ["token-1", "token-2"]


def test_a_token_of_which_nobody_knows_how_long_it_lasts_is_not_kept(issuer: IssuerServer) -> None:
    issuer.answers = [Answer(200, b'{"access_token": "a"}'), Answer(200, b'{"id_token": "b"}')]
    assert asked(tokens(issuer.tokens_url, issuer.trusted), times=3) == ["a", "b", "token-0"]


def test_all_who_need_a_token_at_once_wait_for_one(issuer: IssuerServer) -> None:
    async def ask() -> list[str]:
        wanted = tokens(issuer.tokens_url, issuer.trusted)
        return await asyncio.gather(*(wanted.token() for _ in range(5)))

    assert asyncio.run(ask()) == ["token-0"] * 5


REFUSALS = {
    "the secret is wrong": (Answer(401, b'{"error":"invalid_client"}'), "401 (invalid_client)"),
    "it is not JSON": (Answer(403, b"<html>"), "answers 403"),
    "the code is none": (Answer(400, b'{"error":"a word of the issuer"}'), "answers 400"),
    "it has no token": (Answer(200, b'{"token_type":"bearer"}'), "without one"),
    "it is no object": (Answer(200, b"[1]"), "without one"),
    "it is deep": (Answer(200, b"[" * 100_000), "without one"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_an_issuer_that_refuses_ends_the_attempt(kind: str, issuer: IssuerServer) -> None:
    answer, sentence = REFUSALS[kind]
    issuer.answers = [answer]
    told = failure(tokens(issuer.tokens_url, issuer.trusted))
    assert str(told).endswith(sentence)
    assert not told.may_pass


def test_an_issuer_that_is_busy_may_be_asked_again(issuer: IssuerServer) -> None:
    issuer.answers = [Answer(503, b"")]
    assert failure(tokens(issuer.tokens_url, issuer.trusted)).may_pass


def test_an_issuer_that_is_silent_is_told_and_may_be_asked_again(
    issuer: IssuerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bearer_tokens, "ISSUER_S_MAX", 0.2)
    issuer.takes_s = 0.5

    async def ask() -> None:
        with pytest.raises(TokenError) as told:
            await tokens(issuer.tokens_url, issuer.trusted).token()
        assert issuer.tokens_url in str(told.value)
        assert told.value.may_pass
        await asyncio.sleep(1.0)  # The connection ends when the issuer has answered.

    asyncio.run(ask())


def test_an_answer_that_is_too_long_is_none(
    issuer: IssuerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bearer_tokens, "ANSWER_BYTES_MAX", 20)
    assert "without one" in str(failure(tokens(issuer.tokens_url, issuer.trusted)))


def test_the_secret_is_not_sent_on_to_where_an_issuer_points(
    issuer: IssuerServer, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = IssuerServer(tmp_path / "other")
    try:
        issuer.answers = [Answer(307, b"", other.tokens_url)]
        assert "answers 307" in str(failure(tokens(issuer.tokens_url, issuer.trusted)))
        assert other.forms == []
    finally:
        other.stop()


def test_an_issuer_that_cannot_be_asked_is_told_with_the_reason(
    issuer: IssuerServer, tmp_path: Path
) -> None:
    told = failure(tokens(issuer.tokens_url))
    assert "certificate" in str(told)
    assert not told.may_pass
    told = failure(tokens(issuer.tokens_url, tmp_path / "nowhere.pem"))
    assert "No such file" in str(told)
    assert not told.may_pass
    assert issuer.forms == []
    issuer.stop()
    assert failure(tokens(issuer.tokens_url, issuer.trusted)).may_pass


@pytest.mark.parametrize(
    ("lasts", "seconds"),
    [
        *((3, 3.0), (2.5, 2.5), (-1, 0.0), (True, 0.0), ("3", 0.0), (None, 0.0)),
        *((10**400, 86_400.0), (float("inf"), 86_400.0), (float("nan"), 0.0)),
    ],
)
def test_how_long_a_token_lasts_is_a_number_or_not_known(lasts: Any, seconds: float) -> None:
    assert issued_in({"access_token": "a", "expires_in": lasts}) == ("a", seconds)


def test_what_is_no_token_in_an_answer_is_none() -> None:
    for token in ("", "two words", 7, None, ["a"]):
        assert issued_in({"access_token": token}) is None
    assert issued_in(json.loads('{"access_token": "", "id_token": "b"}')) == ("b", 0.0)
