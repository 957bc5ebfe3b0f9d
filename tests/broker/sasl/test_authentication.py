"""The states of a connection on a SASL listener: what is admitted in each, and what is told.

Cases are those of Kafka's SaslServerAuthenticator; what ends the connection is in `refused`.
"""

import pytest

from broker.sasl.authentication import (
    ILLEGAL_AUTHENTICATE,
    ILLEGAL_HANDSHAKE,
    Authentication,
    State,
)
from broker.sasl.exchange import Authenticated, Step, Undecided
from broker.sasl.plain import PlainUsers
from broker.sasl.rules import SaslRules
from coordinator.tables.administration.credentials import Credentials
from protocol import apis
from protocol.errors import ErrorCode

RULES = SaslRules(
    mechanisms=("PLAIN", "SCRAM-SHA-512"),
    plain_users=PlainUsers.of({"alice": "secret", "bob": "hidden"}),
    lifetimes_ms={"PLAIN": 60_000},
)
ALICE, BOB, NOBODY = b"\0alice\0secret", b"\0bob\0hidden", b"\0alice\0wrong"


def authentication() -> Authentication:
    return Authentication(RULES, lambda name: RULES.exchange(name, Credentials(), nonce="n"))


def authenticated(*, version: int = 2, boot_ms: int = 0) -> Authentication:
    sasl = authentication()
    sasl.handshake("PLAIN", version=1, boot_ms=boot_ms)
    assert sasl.authenticate(ALICE, version=version, boot_ms=boot_ms).user == "alice"
    return sasl


def admitted(sasl: Authentication) -> set[int]:
    return {key for key in apis.APIS if sasl.admits(key)}


def test_at_first_versions_and_handshake_are_admitted_and_nothing_else():
    assert admitted(authentication()) == {apis.API_VERSIONS, apis.SASL_HANDSHAKE}


def test_versions_are_told_once():
    sasl = authentication()
    sasl.told_versions()
    assert admitted(sasl) == {apis.SASL_HANDSHAKE}


def test_after_the_handshake_messages_of_the_mechanism_are_admitted_and_nothing_else():
    sasl = authentication()
    answer = sasl.handshake("PLAIN", version=1, boot_ms=0)
    assert (answer.error, answer.mechanisms) == (ErrorCode.NONE, RULES.mechanisms)
    assert admitted(sasl) == {apis.SASL_AUTHENTICATE}
    assert not sasl.bare


def test_who_is_authenticated_may_send_everything():
    assert admitted(authenticated()) == {*apis.APIS}


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are_and_ends_it():
    sasl = authentication()
    answer = sasl.handshake("GSSAPI", version=1, boot_ms=0)
    assert answer.error is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == RULES.mechanisms
    assert answer.refused
    assert admitted(sasl) == set()


def test_names_of_mechanisms_are_taken_to_the_letter():
    assert authentication().handshake("plain", version=1, boot_ms=0).refused


def test_a_refusal_of_credentials_ends_it_and_says_what_the_mechanism_says():
    sasl = authentication()
    sasl.handshake("PLAIN", version=1, boot_ms=0)
    answer = sasl.authenticate(NOBODY, version=2, boot_ms=0)
    assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message == "Authentication failed: Invalid username or password"
    assert answer.refused == "PLAIN: Invalid username or password"
    assert answer.user is None
    assert sasl.state is State.FAILED
    assert admitted(sasl) == set()


def test_a_refusal_without_words_of_its_own_says_what_kafka_says_of_the_mechanism():
    sasl = authentication()
    sasl.handshake("SCRAM-SHA-512", version=1, boot_ms=0)
    answer = sasl.authenticate(b"nonsense", version=2, boot_ms=0)
    assert answer.message == (
        "Authentication failed during authentication due to invalid credentials with SASL"
        " mechanism SCRAM-SHA-512"
    )


def test_a_mechanism_of_several_messages_goes_on_until_its_end():
    sasl = authentication()
    sasl.handshake("SCRAM-SHA-512", version=1, boot_ms=0)
    answer = sasl.authenticate(b"n,,n=alice,r=client", version=2, boot_ms=0)
    assert (answer.error, answer.user, answer.refused) == (ErrorCode.NONE, None, "")
    assert answer.data.startswith(b"r=clientn,")
    assert admitted(sasl) == {apis.SASL_AUTHENTICATE}


def test_after_the_first_handshake_messages_come_without_headers_until_all_is_done():
    sasl = authentication()
    sasl.handshake("PLAIN", version=0, boot_ms=0)
    assert sasl.bare
    sasl.authenticate(ALICE, version=-1, boot_ms=0)
    assert not sasl.bare
    assert sasl.is_complete


def test_a_message_of_a_mechanism_when_all_is_done_is_illegal_and_ends_nothing():
    sasl = authenticated()
    assert sasl.authenticate(ALICE, version=2, boot_ms=0) == ILLEGAL_AUTHENTICATE
    assert sasl.is_complete


# Again, on the same connection (KIP-368).


def test_the_lifetime_of_a_session_is_told_and_ends_it():
    sasl = authentication()
    sasl.handshake("PLAIN", version=1, boot_ms=0)
    assert sasl.authenticate(ALICE, version=1, boot_ms=1_000).lifetime_ms == 60_000
    assert not sasl.has_expired(60_999)
    assert sasl.has_expired(61_000)


def test_a_session_of_a_client_that_was_not_told_its_lifetime_never_ends():
    assert not authenticated(version=0).has_expired(1 << 60)


def test_a_mechanism_without_a_lifetime_has_sessions_without_end():
    rules = SaslRules(mechanisms=RULES.mechanisms, plain_users=RULES.plain_users)
    sasl = Authentication(rules, lambda name: rules.exchange(name, Credentials(), nonce="n"))
    sasl.handshake("PLAIN", version=1, boot_ms=0)
    assert sasl.authenticate(ALICE, version=2, boot_ms=0).lifetime_ms == 0
    assert not sasl.has_expired(1 << 60)


def test_the_same_user_may_authenticate_again_and_begins_another_session():
    sasl = authenticated()
    assert sasl.handshake("PLAIN", version=1, boot_ms=50_000).error is ErrorCode.NONE
    assert admitted(sasl) == {apis.SASL_AUTHENTICATE}
    assert sasl.authenticate(ALICE, version=2, boot_ms=50_000).user == "alice"
    assert not sasl.has_expired(109_999)
    assert sasl.has_expired(110_000)


def test_a_session_that_has_expired_can_still_be_renewed():
    sasl = authenticated()
    assert sasl.has_expired(70_000)
    sasl.handshake("PLAIN", version=1, boot_ms=70_000)
    assert sasl.authenticate(ALICE, version=2, boot_ms=70_000).user == "alice"
    assert not sasl.has_expired(70_001)


def test_a_handshake_within_a_second_of_the_last_one_is_illegal_and_ends_nothing():
    sasl = authenticated()
    sasl.handshake("PLAIN", version=1, boot_ms=5_000)
    sasl.authenticate(ALICE, version=2, boot_ms=5_000)
    assert sasl.handshake("PLAIN", version=1, boot_ms=5_999) == ILLEGAL_HANDSHAKE
    assert sasl.is_complete
    assert sasl.handshake("PLAIN", version=1, boot_ms=6_000).error is ErrorCode.NONE


def test_another_user_is_refused_in_kafkas_words():
    sasl = authenticated()
    sasl.handshake("PLAIN", version=1, boot_ms=5_000)
    answer = sasl.authenticate(BOB, version=2, boot_ms=5_000)
    assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert answer.refused
    assert answer.user is None


def test_another_mechanism_is_refused_at_its_first_message_in_kafkas_words():
    sasl = authenticated()
    assert sasl.handshake("SCRAM-SHA-512", version=1, boot_ms=5_000).error is ErrorCode.NONE
    answer = sasl.authenticate(b"n,,n=alice,r=client", version=2, boot_ms=5_000)
    assert answer.message == (
        "SASL mechanism 'SCRAM-SHA-512' requested by client is not supported for"
        " re-authentication of mechanism 'PLAIN'"
    )
    assert answer.refused


def test_another_password_ends_a_session_that_was_good():
    sasl = authenticated()
    sasl.handshake("PLAIN", version=1, boot_ms=5_000)
    assert sasl.authenticate(NOBODY, version=2, boot_ms=5_000).refused
    assert admitted(sasl) == set()


# What is shown may end (KIP-48, KIP-255), and what takes long is decided elsewhere.


class Scripted:
    """An exchange whose steps are given."""

    def __init__(self, *steps: Step) -> None:
        self._steps = [*steps]

    def respond(self, message: bytes) -> Step:
        return self._steps.pop(0)


def scripted(*steps: Step, max_reauth_ms: int = 0) -> Authentication:
    rules = SaslRules(mechanisms=("PLAIN",), lifetimes_ms={"PLAIN": max_reauth_ms})
    exchange = Scripted(*steps)
    sasl = Authentication(rules, lambda name: exchange)
    sasl.handshake("PLAIN", version=1, boot_ms=0)
    return sasl


@pytest.mark.parametrize(
    ("max_reauth_ms", "ends_ms", "lifetime_ms"),
    [(0, 10_000, 9_000), (5_000, 10_000, 5_000), (60_000, 10_000, 9_000), (0, 900, 1)],
)
def test_a_session_ends_with_what_was_shown_at_the_latest(max_reauth_ms, ends_ms, lifetime_ms):
    sasl = scripted(Authenticated("alice", ends_ms=ends_ms), max_reauth_ms=max_reauth_ms)
    answer = sasl.authenticate(b"", version=2, boot_ms=50, now_ms=1_000)
    assert answer.lifetime_ms == lifetime_ms
    assert not sasl.has_expired(49 + lifetime_ms)
    assert sasl.has_expired(50 + lifetime_ms)


def test_a_message_that_takes_long_is_answered_when_it_is_decided():
    undecided = Undecided(lambda: Authenticated("alice", by_token=True))
    sasl = scripted(undecided)
    assert sasl.authenticate(b"", version=2, boot_ms=0) is undecided
    assert not sasl.is_complete
    answer = sasl.decided(undecided.decide(), version=2, boot_ms=0, now_ms=0)
    assert (answer.user, answer.by_token) == ("alice", True)
    assert sasl.is_complete


@pytest.mark.parametrize("message", [ALICE, NOBODY])
def test_nothing_that_is_logged_of_a_refusal_was_sent_by_the_client(message):
    sasl = authentication()
    sasl.handshake("SCRAM-SHA-512", version=1, boot_ms=0)
    answer = sasl.authenticate(message, version=2, boot_ms=0)
    assert answer.refused
    for said in (answer.refused, answer.message or ""):
        assert not any(word in said for word in ("alice", "secret", "wrong"))
