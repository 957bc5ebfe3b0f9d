"""PLAIN: one message, held against the users of a listener, with Kafka's sentences."""

import pytest

from broker.sasl.exchange import Authenticated, Refused
from broker.sasl.plain import PlainExchange, PlainUsers

USERS = PlainUsers.of({"alice": "secret", "ünal": "pässword"})


def respond(message: bytes):
    return PlainExchange(USERS).respond(message)


@pytest.mark.parametrize("message", ["\0alice\0secret", "alice\0alice\0secret"])
def test_who_knows_the_password_is_let_in(message):
    assert respond(message.encode()) == Authenticated("alice")


def test_names_and_passwords_are_utf_8():
    assert respond("\0ünal\0pässword".encode()) == Authenticated("ünal")


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("\0alice\0wrong", "Invalid username or password"),
        ("\0alice\0secret2", "Invalid username or password"),
        ("\0bob\0secret", "Invalid username or password"),
        ("\0\0secret", "username not specified"),
        ("\0alice\0", "password not specified"),
        (
            "bob\0alice\0secret",
            "Client requested an authorization id that is different from username",
        ),
    ],
)
def test_a_refusal_says_what_kafkas_does(message, sentence):
    step = respond(message.encode())
    assert isinstance(step, Refused)
    assert step.message == f"Authentication failed: {sentence}"


@pytest.mark.parametrize("message", [b"", b"alice", b"alice\0secret", b"\0a\0b\0c", b"\0\xff\0x"])
def test_what_has_not_three_parts_of_utf_8_is_refused(message):
    step = respond(message)
    assert isinstance(step, Refused)
    assert step.message is None


def test_users_are_shown_without_passwords():
    assert "secret" not in repr(USERS)
    assert "secret" not in repr(USERS.digests)
