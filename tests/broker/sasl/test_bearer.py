"""OAUTHBEARER (RFC 7628): the messages of a client, and how a refusal is told."""

import pytest

from broker.sasl.bearer import BearerExchange
from broker.sasl.exchange import Authenticated, Challenge, Refused, Undecided
from broker.sasl.tokens import NO_KEYS, KeyPlace, TokenRules, keys_of
from tests.kit.tokens import RsaIssuer, first_message, key_set, unsigned

NOW_S = 1_700_000_000
URL = "https://issuer/keys"
CLAIMS = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}
ALICE = Authenticated("alice", ends_ms=(NOW_S + 60) * 1000)
UNSIGNED = TokenRules(keys=None)
SIGNED = TokenRules(keys=KeyPlace(url=URL))
INVALID = b'{"status":"invalid_token"}'
ISSUER = RsaIssuer()


def exchange(rules=UNSIGNED, keys=lambda url: NO_KEYS):
    return BearerExchange(rules, keys=keys, now_ms=lambda: NOW_S * 1000)


def respond(exchanging, message):
    step = exchanging.respond(message)
    return step.decide() if isinstance(step, Undecided) else step


@pytest.mark.parametrize(
    "message",
    [
        first_message(unsigned(CLAIMS)),
        first_message(unsigned(CLAIMS), authorization_id="alice"),
        first_message(unsigned(CLAIMS), more="logicalCluster=lkc-1\x01traceId=7\x01"),
        f"n,,\x01host=a\x01auth=bearer  {unsigned(CLAIMS)}\x01\x01".encode(),
    ],
    ids=["alone", "named", "with extensions", "in another case"],
)
def test_a_good_token_is_one_message(message):
    assert respond(exchange(), message) == ALICE


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\xff",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,a=,\x01auth=Bearer abc\x01\x01",
        b"n,a=x=y,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01au7h=x\x01auth=Bearer abc\x01\x01",
    ],
)
def test_what_is_no_first_message_is_refused(message):
    step = exchange().respond(message)
    assert isinstance(step, Refused)
    assert step.message is None


def test_a_bad_token_is_told_as_json_and_refused_when_the_client_has_read_it():
    exchanging = exchange()
    assert respond(exchanging, first_message("a.b.c")) == Challenge(INVALID)
    step = exchanging.respond(b"\x01")
    assert isinstance(step, Refused)
    assert step.message == INVALID.decode()


def test_a_bad_token_is_refused_whatever_the_client_says_to_the_reason():
    exchanging = exchange()
    respond(exchanging, first_message("a.b.c"))
    step = exchanging.respond(first_message(unsigned(CLAIMS)))
    assert isinstance(step, Refused)
    assert step.message is None


def test_a_scope_that_lacks_is_told_with_the_scope():
    exchanging = exchange(TokenRules(keys=None, required_scope=("read", "write")))
    step = respond(exchanging, first_message(unsigned(CLAIMS)))
    assert step == Challenge(b'{"status":"insufficient_scope","scope":"read write"}')


def test_who_wants_to_be_somebody_else_is_refused():
    message = first_message(unsigned(CLAIMS), authorization_id="bob")
    step = respond(exchange(), message)
    assert isinstance(step, Refused)
    assert "alice" not in step.reason
    assert "bob" not in (step.message or "")


# Keys.


def test_a_key_that_is_known_decides_at_once():
    keys = keys_of(key_set(ISSUER))
    asked = []
    exchanging = exchange(SIGNED, lambda url: asked.append(url) or keys)
    step = exchanging.respond(first_message(ISSUER.token(CLAIMS)))
    assert isinstance(step, Undecided)
    assert step.keys_at == ""
    assert step.decide() == ALICE
    assert asked == [URL]


def test_for_a_key_that_is_not_known_keys_are_fetched_once():
    known = [NO_KEYS]
    exchanging = exchange(SIGNED, lambda url: known[0])
    step = respond(exchanging, first_message(ISSUER.token(CLAIMS)))
    assert isinstance(step, Undecided)
    assert step.keys_at == URL
    known[0] = keys_of(key_set(ISSUER))
    assert step.decide() == ALICE


def test_a_key_that_is_not_there_then_either_is_a_bad_token():
    exchanging = exchange(SIGNED)
    step = respond(exchanging, first_message(ISSUER.token(CLAIMS)))
    assert isinstance(step, Undecided)
    assert step.decide() == Challenge(INVALID)


def test_steps_are_shown_without_tokens():
    token = ISSUER.token(CLAIMS)
    step = exchange(SIGNED).respond(first_message(token))
    assert token not in repr(step)
