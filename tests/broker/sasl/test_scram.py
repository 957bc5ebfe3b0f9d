"""SCRAM's server: the RFC's own exchange, who is let in, and all that is refused."""

import base64

import pytest

from broker.sasl.exchange import Authenticated, Challenge, Refused
from broker.sasl.scram import ScramExchange, made_up
from broker.sasl.scram_keys import (
    HASHES,
    SALT_LETTERS,
    credential_of,
    escaped,
    salt_of,
    salted_password,
)
from coordinator.commands.credential_commands import ScramMechanism
from coordinator.tables.administration.credentials import Credentials
from tests.kit.scram import ScramClient

SHA_256, SHA_512 = ScramMechanism
EACH = pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
SALT = b"a salt of some length"


def credentials(*users, mechanism=SHA_512, password="secret", salt=SALT) -> Credentials:
    table = Credentials()
    for user in users:
        salted = salted_password(mechanism, password, salt=salt, iterations=4096)
        table.apply(credential_of(user, mechanism, salted, salt=salt, iterations=4096))
    return table


def exchange(table: Credentials, mechanism=SHA_512) -> ScramExchange:
    return ScramExchange(mechanism, table, nonce="server")


def attempt(table, user, password, mechanism=SHA_512, **final):
    """The server's last step, and the client."""
    client = ScramClient(user, password, digest=HASHES[mechanism])
    server = exchange(table, mechanism)
    step = server.respond(client.first())
    assert isinstance(step, Challenge)
    return server.respond(client.final(step.data, **final)), client


def test_the_exchange_of_rfc_7677_is_answered_to_the_byte():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    table = credentials("user", mechanism=SHA_256, password="pencil", salt=salt)
    server = ScramExchange(SHA_256, table, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert server.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    signature = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.respond(final) == Authenticated("user", signature)


@EACH
def test_who_knows_the_password_is_let_in_and_is_shown_that_the_server_knows_it(mechanism):
    table = credentials("alice", mechanism=mechanism)
    step, client = attempt(table, "alice", "secret", mechanism)
    assert isinstance(step, Authenticated)
    assert step.user == "alice"
    assert client.verifies(step.data)


@EACH
def test_another_password_is_refused(mechanism):
    table = credentials("alice", mechanism=mechanism)
    assert isinstance(attempt(table, "alice", "secreT", mechanism)[0], Refused)


def test_a_credential_of_one_mechanism_does_not_open_the_other():
    table = credentials("alice", mechanism=SHA_256)
    assert isinstance(attempt(table, "alice", "secret", SHA_512)[0], Refused)


@pytest.mark.parametrize("name", ["a,b", "a=b", "=2C", "ä", "a b"])
def test_names_may_have_commas_and_equals_signs(name):
    step, _ = attempt(credentials(name), escaped(name), "secret")
    assert isinstance(step, Authenticated)
    assert step.user == name


# Users that do not exist.


def test_a_user_that_does_not_exist_is_refused_as_late_and_in_the_same_words_as_a_password():
    table = credentials("alice")
    assert attempt(table, "bob", "secret")[0] == attempt(table, "alice", "wrong")[0]


def test_what_is_told_of_a_user_that_does_not_exist_is_always_the_same_and_shaped_like_others():
    table, same = credentials("alice"), credentials("alice")
    bob = made_up(table, SHA_512, "bob")
    assert bob.salt == made_up(same, SHA_512, "bob").salt
    assert (len(bob.salt), bob.iterations) == (len(SALT), 4096)
    assert bob.salt != made_up(table, SHA_512, "carol").salt
    assert bob.salt != made_up(table, SHA_256, "bob").salt


def test_a_made_up_salt_has_the_letters_of_kafkas_tools_where_the_first_user_has_them():
    table = credentials("alice", salt=salt_of(1 << 129))
    assert {*made_up(table, SHA_512, "bob").salt} <= {*SALT_LETTERS}
    assert not {*made_up(credentials("alice"), SHA_512, "bob").salt} <= {*SALT_LETTERS}


def test_where_there_never_was_a_user_nobody_is_let_in():
    assert isinstance(attempt(Credentials(), "alice", "secret")[0], Refused)


def test_no_proof_fits_a_user_that_does_not_exist():
    """Not even the proof of somebody who has found out the stored key."""
    table = credentials("alice")
    server = exchange(table)
    step = server.respond(b"n,,n=bob,r=client")
    assert isinstance(step, Challenge)
    proof = base64.b64encode(bytes(64)).decode()
    assert isinstance(server.respond(f"c=biws,r=clientserver,p={proof}".encode()), Refused)


# Messages that are none.


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=alice",
        b"n,,r=client",
        b"n,,n=,r=client",
        b"n,,n=alice,r=",
        b"n,,n=al=ice,r=client",
        b"n,,n=alice,r=cli ent",
        b"n,,m=must,n=alice,r=client",
        b"n,,n=alice,r=client,",
        b"n,,n=alice,r=client,1=x",
        b"p=tls-unique,,n=alice,r=client",
        b"n,b=alice,n=alice,r=client",
        b"\xff\xfe",
        b"n,,n=\xff,r=client",
    ],
)
def test_a_first_message_that_is_none_is_refused(message):
    assert isinstance(exchange(credentials("alice")).respond(message), Refused)


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=alice,"])
def test_headers_without_channel_binding_are_taken(header):
    client = ScramClient("alice", "secret", header=header)
    server = exchange(credentials("alice"))
    step = server.respond(client.first())
    assert isinstance(step, Challenge)
    assert isinstance(server.respond(client.final(step.data)), Authenticated)


def test_to_act_for_another_user_is_refused_in_kafkas_words():
    step = exchange(credentials("alice")).respond(b"n,a=bob,n=alice,r=client")
    assert isinstance(step, Refused)
    assert step.message == (
        "Authentication failed: Client requested an authorization id that is different from"
        " username"
    )


def test_a_delegation_token_is_refused():
    step = exchange(credentials("alice")).respond(b"n,,n=alice,r=client,tokenauth=true")
    assert isinstance(step, Refused)


def test_extensions_that_nobody_knows_are_ignored():
    step = exchange(credentials("alice")).respond(b"n,,n=alice,r=client,other=thing")
    assert isinstance(step, Challenge)


@pytest.mark.parametrize("binding", ["eSws", "biwsYQ==", "===="])
def test_another_channel_binding_than_at_first_is_refused(binding):
    step, _ = attempt(credentials("alice"), "alice", "secret", binding=binding)
    assert isinstance(step, Refused)


@pytest.mark.parametrize("nonce", ["client", "server", "clientserve", "clientserver2"])
def test_a_nonce_that_is_not_the_whole_one_is_refused(nonce):
    step, _ = attempt(credentials("alice"), "alice", "secret", nonce=nonce)
    assert isinstance(step, Refused)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws,r=clientserver",
        b"c=biws,r=clientserver,p=",
        b"c=biws,r=clientserver,p=!!!!",
        b"c=biws,r=clientserver,p=AAA",
        b"c=biws,r=clientserver,p=AAAA",
        b"r=clientserver,c=biws,p=AAAA",
        b"\xff",
    ],
)
def test_a_final_message_that_is_none_is_refused(message):
    server = exchange(credentials("alice"))
    server.respond(b"n,,n=alice,r=client")
    assert isinstance(server.respond(message), Refused)


def test_nothing_that_shows_a_credential_shows_a_key():
    table = credentials("alice")
    shown = repr(table.get("alice", SHA_512)) + repr(
        credential_of("alice", SHA_512, b"salted", salt=SALT, iterations=4096)
    )
    row = table.get("alice", SHA_512)
    assert row is not None
    for secret in (row.stored_key, row.server_key, row.salt):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown
