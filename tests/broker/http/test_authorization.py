"""What the header Authorization says."""

import base64

import pytest

from broker.http.authorization import Malformed, Password, Token, said_in


def basic(text: bytes) -> str:
    return f"Basic {base64.b64encode(text).decode()}"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("", None),
        ("  ", None),
        ("Bearer abc", Token("abc")),
        ("bearer  abc ", Token("abc")),
        (basic(b"ann:s3:cret"), Password("ann", "s3:cret")),
        (basic("zoë:é".encode()), Password("zoë", "é")),
        (basic(b"ann:"), Password("ann", "")),
        (basic(b":s3cret"), Malformed()),
        (basic(b"ann"), Malformed()),
        (basic(b"\xff:x"), Malformed()),
        ("Basic ???", Malformed()),
        ("Basic", Malformed()),
        ("Bearer", Malformed()),
        ("Digest abc", Malformed()),
        ("\udce9 \udce9", Malformed()),
    ],
)
def test_a_header_says_a_token_or_a_password_or_nothing_that_counts(header, said) -> None:
    assert said_in(header) == said


def test_what_was_said_is_not_shown() -> None:
    for header in ("Bearer s3cret", basic(b"ann:s3cret")):
        assert "s3cret" not in repr(said_in(header))
