"""The users of `first.users`: made once in the life of a cluster, before clients are let in."""

import logging

import pytest

from broker.sasl.exchange import Authenticated, Challenge
from broker.sasl.scram import ScramExchange
from coordinator.commands.credential_commands import DeleteScramCredential, ScramMechanism
from tests.broker.agents import serving
from tests.kit.scram import ScramClient
from tests.kit.sockets import Place

pytestmark = pytest.mark.real_loop

SHA_512 = ScramMechanism.SCRAM_SHA_512
SETTING = "first.users=SCRAM-SHA-512=[name=alice,password=secret]"


def users(running) -> list[str]:
    return [*running.agent.node.log_client.machine.credentials.users()]


def can_log_in(running, user: str, password: str) -> bool:
    table = running.agent.node.log_client.machine.credentials
    server, client = ScramExchange(SHA_512, table, nonce="s"), ScramClient(user, password)
    first = server.respond(client.first())
    assert isinstance(first, Challenge)
    return isinstance(server.respond(client.final(first.data)), Authenticated)


async def test_they_are_there_when_clients_are_let_in():
    async with serving(Place(), SETTING) as running:
        assert users(running) == ["alice"]
        assert can_log_in(running, "alice", "secret")
        assert not can_log_in(running, "alice", "wrong")


async def test_once_there_was_a_user_they_are_not_made_again():
    place = Place()
    async with serving(place, SETTING) as running:
        log_client = running.agent.node.log_client
        await log_client.propose(DeleteScramCredential("alice", SHA_512))
        await running.agent.stop()
    async with serving(place, SETTING) as running:
        assert users(running) == []


async def test_their_passwords_are_in_no_log_line(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG):
        async with serving(Place(), SETTING) as running:
            assert "alice" in caplog.text
            assert "secret" not in caplog.text
            assert "secret" not in repr(running.agent.node.settings)
