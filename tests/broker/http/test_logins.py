"""Who asks: what is said counts, then the certificate; what is wrong waits."""

import base64

import pytest

from broker.calls.requester import Requester
from broker.http.logins import LoginError, Logins
from broker.http.passwords import Passwords
from broker.http.tokens import Tokens
from broker.sasl.plain import PlainUsers
from coordinator.tables.administration.credentials import Credentials

TOKEN = "a-token-of-some-length"
SEEN = Requester("User:CN=ann", "10.0.0.1")


def logins(
    users: dict[str, str],
    counted: dict[tuple[str, str], int] | None = None,
    *,
    for_browsers: bool = False,
) -> Logins:
    tokens = Tokens(str)
    tokens.add("User:token", TOKEN)
    noted = {} if counted is None else counted

    def count(scheme: str, outcome: str) -> None:
        noted[scheme, outcome] = noted.get((scheme, outcome), 0) + 1

    passwords = Passwords(
        plain=PlainUsers.of(users), mechanisms=(), credentials=Credentials, key=b""
    )
    return Logins(
        tokens,
        passwords,
        by_certificate=False,
        for_browsers=for_browsers,
        delay_ms=0,
        count=count,
    )


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.mark.parametrize(
    ("header", "principal"),
    [
        ("", "User:CN=ann"),
        (f"Bearer {TOKEN}", "User:token"),
        (basic("bob", "pw"), "User:bob"),
    ],
)
async def test_what_is_said_counts_and_else_the_certificate(header, principal) -> None:
    found = await logins({"bob": "pw"}).requester(header, SEEN)
    assert found == Requester(principal, "10.0.0.1")


@pytest.mark.parametrize("header", [basic("bob", "no"), "Bearer no", "Basic ?", "Digest x"])
async def test_what_is_wrong_is_counted_and_no_certificate_makes_up_for_it(header) -> None:
    counted: dict[tuple[str, str], int] = {}
    with pytest.raises(LoginError):
        await logins({"bob": "pw"}, counted).requester(header, SEEN)
    assert [(outcome, times) for (_, outcome), times in counted.items()] == [("refused", 1)]


def test_a_401_says_what_would_help() -> None:
    bearer = ("WWW-Authenticate", "Bearer")
    password = ("WWW-Authenticate", 'Basic realm="frazil", charset="UTF-8"')
    assert logins({}).challenges == [bearer]
    assert logins({"bob": "pw"}).challenges == [bearer, password]
    assert logins({}, for_browsers=True).challenges == [bearer, password]


async def test_a_browser_says_a_token_as_the_password_of_the_user_token() -> None:
    console = logins({"bob": "pw"}, for_browsers=True)
    assert (await console.requester(basic("token", TOKEN), SEEN)).principal == "User:token"
    for wrong in (basic("token", "no"), basic("bob", TOKEN)):
        with pytest.raises(LoginError):
            await console.requester(wrong, SEEN)
    with pytest.raises(LoginError):
        await logins({"bob": "pw"}).requester(basic("token", TOKEN), SEEN)
