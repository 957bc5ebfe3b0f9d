"""The tools' side of a login: against the server's, and what a file of settings may say."""

import pytest

from broker.sasl.bearer_messages import client_first_of
from broker.sasl.client import BearerClient, Login, exchange_of, login_of
from broker.sasl.exchange import Authenticated, Challenge
from broker.sasl.login_failures import LoginError
from broker.sasl.plain import PlainExchange, PlainUsers
from broker.sasl.scram import ScramExchange
from broker.sasl.scram_keys import BY_NAME, credential_of, salted_password
from coordinator.tables.administration.credentials import Credentials

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
FILE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'a.Module required username="al,ice" password="secret";',
}


def server(mechanism: str, user: str = "al,ice") -> ScramExchange:
    table, kind = Credentials(), BY_NAME[mechanism]
    salted = salted_password(kind, "secret", salt=b"salt", iterations=4096)
    table.apply(credential_of(user, kind, salted, salt=b"salt", iterations=4096))
    return ScramExchange(kind, table, nonce="server")


@pytest.mark.parametrize("mechanism", SCRAM)
def test_client_and_server_of_scram_show_each_other_who_they_are(mechanism):
    client = exchange_of(Login(mechanism, "al,ice", "secret"), nonce="client")
    agent = server(mechanism)
    first = agent.respond(client.begin())
    assert isinstance(first, Challenge)
    final = client.respond(first.data)
    assert final is not None
    last = agent.respond(final)
    assert isinstance(last, Authenticated)
    assert last.user == "al,ice"
    assert client.respond(last.data) is None


def test_a_server_that_does_not_know_the_user_is_not_believed():
    client = exchange_of(Login("SCRAM-SHA-512", "al,ice", "secret"), nonce="client")
    first = server("SCRAM-SHA-512").respond(client.begin())
    assert isinstance(first, Challenge)
    client.respond(first.data)
    with pytest.raises(LoginError):
        client.respond(b"v=AAAA")


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense", b"r=other,s=AAAA,i=4096", b"r=client1,s=A,i=4096", b"\xff"]
)
def test_an_answer_that_is_none_ends_the_attempt(answer):
    client = exchange_of(Login("SCRAM-SHA-512", "alice", "secret"), nonce="client")
    client.begin()
    with pytest.raises(LoginError):
        client.respond(answer)


@pytest.mark.parametrize("iterations", [1, 4095, 16385, 9_999_999])
def test_who_asks_for_too_few_iterations_gets_no_proof_to_guess_a_password_from(iterations):
    client = exchange_of(Login("SCRAM-SHA-512", "alice", "secret"), nonce="client")
    client.begin()
    with pytest.raises(LoginError, match=f"asks for {iterations} iterations"):
        client.respond(b"r=client1,s=c2FsdA==,i=%d" % iterations)


def test_plain_is_one_message():
    client = exchange_of(Login("PLAIN", "alice", "secret"), nonce="")
    users = PlainUsers.of({"alice": "secret"})
    assert PlainExchange(users).respond(client.begin()) == Authenticated("alice")
    assert client.respond(b"") is None


def test_a_token_is_one_message_and_the_reason_of_a_refusal_is_acknowledged():
    message = BearerClient("a.b.c", {"cluster": "one"}).begin()
    assert message == b"n,,\x01auth=Bearer a.b.c\x01cluster=one\x01\x01"
    assert client_first_of(message) == ("a.b.c", "")
    client = BearerClient("a.b.c", {})
    assert client.respond(b'{"status":"invalid_token"}') == b"\x01"
    assert client.respond(b"") is None


def test_a_file_of_kafkas_tools_says_who_they_are():
    assert login_of(FILE) == Login("SCRAM-SHA-512", "al,ice", "secret")
    assert login_of({}) is None
    assert login_of({"security.protocol": "plaintext"}) is None


@pytest.mark.parametrize(
    ("mechanism", "option", "by_token"),
    [
        ("SCRAM-SHA-512", "true", True),
        ("SCRAM-SHA-256", "True", True),
        ("SCRAM-SHA-512", "false", False),
        ("PLAIN", "true", False),
    ],
)
def test_a_file_says_whether_it_has_a_delegation_token(mechanism, option, by_token):
    """Of SCRAM alone: Kafka's module of PLAIN knows no such option."""
    config = FILE["sasl.jaas.config"].replace(";", f' tokenauth="{option}";')
    login = login_of(FILE | {"sasl.mechanism": mechanism, "sasl.jaas.config": config})
    assert login is not None
    assert login.by_token is by_token


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"sasl.jaas.config": 'a.Module required username="alice";'}, "username and password"),
        ({"sasl.jaas.config": 'a.Module required password="secret'}, "quotation mark"),
    ],
)
def test_a_file_that_is_no_use_is_told_why(changed, sentence):
    with pytest.raises(ValueError, match=sentence) as told:
        login_of(FILE | changed)
    assert "secret" not in str(told.value)


def test_a_login_is_shown_without_its_password():
    assert "secret" not in repr(login_of(FILE))
