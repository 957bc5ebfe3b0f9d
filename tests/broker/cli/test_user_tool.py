"""`frazil user` against an agent: users are made, listed and deleted."""

import contextlib
import json

import pytest

from broker.cli import user_tool
from broker.cli.command_result import ToolError
from broker.cli.kafka_client import Address, KafkaClient
from coordinator.commands.credential_commands import ScramMechanism
from tests.broker.agents import serving

pytestmark = pytest.mark.real_loop


@contextlib.asynccontextmanager
async def client_of(running):
    address = Address("127.0.0.1", running.port)
    async with KafkaClient([address], timeout_ms=10_000) as client:
        yield client


async def create(client, user, mechanism="SCRAM-SHA-512", iterations=4096):
    return await user_tool.create(
        client, user, "secret", mechanism=mechanism, iterations=iterations
    )


async def test_users_are_made_listed_and_deleted():
    async with serving() as running, client_of(running) as client:
        assert (await user_tool.list_users(client)).lines == ["there are no users"]
        made = await create(client, "bob")
        assert made.lines == ["user bob can log in by SCRAM-SHA-512"]
        await create(client, "alice")
        await create(client, "alice", "SCRAM-SHA-256", 8192)
        assert (await user_tool.list_users(client)).lines == [
            "alice: SCRAM-SHA-256 (8192), SCRAM-SHA-512 (4096)",
            "bob: SCRAM-SHA-512 (4096)",
        ]
        (line,) = (await user_tool.list_users(client, as_json=True)).lines
        bob = {"user": "bob", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]}
        assert json.loads(line)[1] == bob
        gone = await user_tool.delete(client, "alice", mechanism=None)
        assert gone.lines == [
            "user alice cannot log in by SCRAM-SHA-256 any more",
            "user alice cannot log in by SCRAM-SHA-512 any more",
        ]
        await user_tool.delete(client, "bob", mechanism="SCRAM-SHA-512")
        assert (await user_tool.list_users(client)).lines == ["there are no users"]


@pytest.mark.parametrize("mechanism", [None, "SCRAM-SHA-256"])
async def test_a_user_that_does_not_exist_cannot_be_deleted(mechanism):
    async with serving() as running, client_of(running) as client:
        with pytest.raises(ToolError, match="alice is not deleted: there is no such user"):
            await user_tool.delete(client, "alice", mechanism=mechanism)


async def test_salts_are_not_alike():
    async with serving() as running, client_of(running) as client:
        await create(client, "alice")
        await create(client, "bob")
        table = running.agent.node.log_client.machine.credentials
        rows = [table.get(user, ScramMechanism.SCRAM_SHA_512) for user in ("alice", "bob")]
        assert rows[0].salt != rows[1].salt
        assert rows[0].stored_key != rows[1].stored_key
