"""Delegation tokens at an agent: what they prove themselves by, how long they live, logins by them."""

import base64

import pytest

from broker.sasl.client import Login, exchange_of
from broker.sasl.delegation import Delegation, Lifetimes, token_id_of
from broker.sasl.exchange import Authenticated, Challenge, Refused, Undecided
from broker.sasl.scram import ScramExchange
from broker.sasl.scram_keys import NAMES, credential_of, salted_password
from coordinator.commands.credential_commands import ScramMechanism
from coordinator.commands.token_commands import CreateDelegationToken
from coordinator.tables.administration.credentials import Credentials
from coordinator.tables.administration.delegation_tokens import DelegationToken, DelegationTokens
from protocol.types import Position
from tests.kit.scram import ScramClient

SHA_256, SHA_512 = ScramMechanism
EACH = pytest.mark.parametrize("mechanism", [*ScramMechanism], ids=["SHA-256", "SHA-512"])
DIGESTS = {SHA_256: "sha256", SHA_512: "sha512"}
LIFETIMES = Lifetimes(max_ms=7_000, renewal_ms=1_000)
BY_TOKEN = ",tokenauth=true"
NOW_MS = 500


def delegation(secret: str = "hidden", *, ends_ms: int = 1_000) -> Delegation:
    table = DelegationTokens()
    command = CreateDelegationToken(
        "one", "User:alice", "User:bob", ("User:carol",), 0, ends_ms, 7_000
    )
    table.apply(command, Position(1))
    return Delegation(secret, table, lifetimes=LIFETIMES)


def password(tokens: Delegation, token_id: str = "one") -> str:
    return base64.b64encode(tokens.hmac(token_id)).decode()


def attempt(
    tokens: Delegation | None,
    shown: str,
    token_id: str = "one",
    mechanism: ScramMechanism = SHA_512,
    *,
    extensions: str = BY_TOKEN,
    credentials: Credentials | None = None,
):
    """What the attempt comes to, and the client."""
    server = ScramExchange(
        mechanism,
        credentials or Credentials(),
        nonce="server",
        tokens=tokens,
        now_ms=lambda: NOW_MS,
    )
    client = ScramClient(token_id, shown, digest=DIGESTS[mechanism], extensions=extensions)
    step = server.respond(client.first())
    if not isinstance(step, Challenge):
        return step, client
    step = server.respond(client.final(step.data))
    return (step.decide() if isinstance(step, Undecided) else step), client


@EACH
def test_who_has_the_hmac_is_the_tokens_owner_for_as_long_as_it_lives(mechanism):
    tokens = delegation()
    step, client = attempt(tokens, password(tokens), mechanism=mechanism)
    assert isinstance(step, Authenticated)
    assert (step.user, step.ends_ms, step.by_token) == ("alice", 1_000, True)
    assert client.verifies(step.data)


@EACH
def test_our_tools_log_in_by_a_token(mechanism):
    tokens = delegation()
    server = ScramExchange(mechanism, Credentials(), nonce="server", tokens=tokens)
    login = Login(NAMES[mechanism], "one", password(tokens), by_token=True)
    client = exchange_of(login, nonce="client")
    first = server.respond(client.begin())
    assert isinstance(first, Challenge)
    final = client.respond(first.data)
    assert final is not None
    step = server.respond(final)
    assert isinstance(step, Undecided)
    last = step.decide()
    assert isinstance(last, Authenticated)
    assert last.user == "alice"
    assert client.respond(last.data) is None


def test_a_login_by_a_token_is_decided_in_a_thread():
    tokens = delegation()
    server = ScramExchange(SHA_512, Credentials(), nonce="s", tokens=tokens)
    client = ScramClient("one", password(tokens), extensions=BY_TOKEN)
    first = server.respond(client.first())
    assert isinstance(first, Challenge)
    step = server.respond(client.final(first.data))
    assert isinstance(step, Undecided)
    assert password(tokens) not in repr(step)


def test_another_hmac_is_refused():
    step, _ = attempt(delegation(), password(delegation("another secret")))
    assert isinstance(step, Refused)


def test_a_token_that_is_not_there_is_refused_as_late_as_another_hmac():
    tokens = delegation()
    step, _ = attempt(tokens, password(tokens, "two"), "two")
    assert isinstance(step, Refused)


def test_a_token_that_has_ended_is_refused():
    tokens = delegation(ends_ms=NOW_MS - 1)
    step, _ = attempt(tokens, password(tokens))
    assert isinstance(step, Refused)


def test_salts_are_the_same_on_every_agent_and_for_every_id_another_one():
    tokens = delegation()
    assert tokens.salt("one", SHA_512) == delegation().salt("one", SHA_512)
    salts = {tokens.salt(each, kind) for each in ("one", "two") for kind in (SHA_256, SHA_512)}
    assert len(salts) == 4
    assert delegation("another secret").salt("one", SHA_512) not in salts


def test_where_tokens_are_not_served_a_client_with_one_is_refused():
    step, _ = attempt(None, "password")
    assert isinstance(step, Refused)


@pytest.mark.parametrize("extensions", ["", ",tokenauth=false", ",tokenauth=trueish"])
def test_only_who_says_so_comes_by_a_token(extensions):
    tokens = delegation()
    step, _ = attempt(tokens, password(tokens), extensions=extensions)
    assert isinstance(step, Refused)


def test_a_token_is_no_users_password_and_a_user_is_no_token():
    tokens, credentials = delegation(), Credentials()
    salted = salted_password(SHA_512, "secret", salt=b"salt", iterations=4096)
    credentials.apply(credential_of("alice", SHA_512, salted, salt=b"salt", iterations=4096))
    for user, shown in (("alice", "secret"), ("alice", password(tokens))):
        step, _ = attempt(tokens, shown, user, credentials=credentials)
        assert isinstance(step, Refused)


def test_keys_of_a_token_are_made_once():
    tokens = delegation()
    assert tokens.credential("one", SHA_512) is tokens.credential("one", SHA_512)


def test_an_hmac_is_of_one_token():
    tokens = delegation()
    token = tokens.token("one")
    assert token is not None
    assert tokens.is_of(token, tokens.hmac("one"))
    for other in (b"", tokens.hmac("two"), tokens.hmac("one") + b"x"):
        assert not tokens.is_of(token, other)


def test_the_hmac_is_kafkas():
    """HMAC-SHA-512 of the id by the secret (DelegationTokenControlManager.createHmac)."""
    assert delegation("secret").hmac("one").hex().startswith("d071eae4")


def test_ids_are_written_as_kafkas_uuids():
    assert token_id_of(0) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert token_id_of((1 << 128) - 1) == "_____________________w"


def test_no_id_looks_like_an_option_of_a_tool():
    assert token_id_of(0b111110 << 122) == "_AAAAAAAAAAAAAAAAAAAAA"


def test_nothing_that_shows_tokens_shows_the_secret():
    assert "hidden" not in repr(delegation())


# How long they live.


@pytest.mark.parametrize(
    ("asked_ms", "expected"),
    [(-1, (1_100, 7_100)), (0, (1_100, 7_100)), (500, (600, 600)), (9_000, (1_100, 7_100))],
)
def test_a_new_token_lives_as_long_as_was_asked_and_the_settings_allow(asked_ms, expected):
    assert LIFETIMES.of_new(100, asked_ms) == expected


@pytest.mark.parametrize(
    ("now_ms", "asked_ms", "ends_ms"),
    [(100, -1, 1_100), (100, 50, 150), (100, 5_000, 1_100), (6_500, -1, 7_000)],
)
def test_a_token_is_renewed_for_as_long_as_was_asked_and_until_its_longest_life(
    now_ms, asked_ms, ends_ms
):
    token = DelegationToken("one", "User:a", "User:a", (), 0, 10, 7_000)
    assert LIFETIMES.renewed(token, now_ms, asked_ms) == ends_ms
