"""Connections on a SASL listener: what is let through, how refusals leave, whose a connection is."""

import asyncio
import struct

import pytest

from broker.handlers import SERVED
from broker.sasl.plain import PlainUsers
from broker.sasl.rules import SaslRules
from broker.sasl.scram_keys import credential_of, salted_password
from broker.sasl.tokens import TokenRules
from coordinator.commands.credential_commands import ScramMechanism
from protocol import apis, messages
from protocol.errors import ErrorCode
from tests.broker.handlers.test_every_api import errors, request_of
from tests.kit.agents import NOW_MS
from tests.kit.client import settle
from tests.kit.scram import ScramClient
from tests.kit.tokens import first_message, unsigned

SASL = "OUTSIDE"
RULES = SaslRules(
    mechanisms=("SCRAM-SHA-512", "PLAIN"),
    plain_users=PlainUsers.of({"alice": "secret"}),
    lifetimes_ms={"PLAIN": 60_000},
    frame_bytes_max=10_000,
)
ALICE = b"\0alice\0secret"
MALLORY = b"\0alice\0wrong"
CLIENT = messages.ApiVersionsRequest(client_software_name="a-client", client_software_version="1")
METADATA = (apis.METADATA, 9, messages.MetadataRequest(topics=[]))
DELAY_S = 0.1


@pytest.fixture
def world(world):
    world.sasl = {SASL: RULES}
    return world


def handshake(mechanism="PLAIN"):
    return messages.SaslHandshakeRequest(mechanism=mechanism)


def token(data):
    return messages.SaslAuthenticateRequest(auth_bytes=data)


async def log_in(client, data=ALICE, mechanism="PLAIN"):
    """The answer to the first message of the mechanism."""
    answer = await client.call(apis.SASL_HANDSHAKE, 1, handshake(mechanism))
    assert answer.error_code == ErrorCode.NONE
    return await client.call(apis.SASL_AUTHENTICATE, 2, token(data))


async def authenticated(agent, **more):
    client = agent.connect(SASL, **more)
    assert (await log_in(client)).error_code == ErrorCode.NONE
    return client


async def test_who_has_authenticated_itself_is_served_as_its_user(world):
    async with world.agents("one") as (one,):
        client = one.connect(SASL, address="10.0.0.7")
        assert client.protocol.requester.is_anonymous
        versions = await client.call(apis.API_VERSIONS, 3, CLIENT)
        assert apis.SASL_AUTHENTICATE in {row.api_key for row in versions.api_keys}
        answer = await log_in(client)
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 60_000)
        assert client.protocol.requester.principal == "User:alice"
        assert client.protocol.requester.host == "10.0.0.7"
        assert (await client.call(*METADATA)).cluster_id
        assert one.node.stats.authentications == {("PLAIN", "accepted"): 1}


async def test_scram_goes_through_two_messages(world):
    async with world.agents("one") as (one,):
        salted = salted_password(
            ScramMechanism.SCRAM_SHA_512, "secret", salt=b"salt", iterations=4096
        )
        await one.log_client.propose(
            credential_of(
                "bob", ScramMechanism.SCRAM_SHA_512, salted, salt=b"salt", iterations=4096
            )
        )
        client, scram = one.connect(SASL), ScramClient("bob", "secret")
        first = await log_in(client, scram.first(), "SCRAM-SHA-512")
        final = scram.final(first.auth_bytes)
        answer = await client.call(apis.SASL_AUTHENTICATE, 2, token(final))
        assert scram.verifies(answer.auth_bytes)
        assert client.protocol.requester.principal == "User:bob"


async def test_nonces_never_come_twice(world):
    async with world.agents("one") as (one,):
        seen = set()
        for _ in range(10):
            client = one.connect(SASL)
            first = await log_in(client, b"n,,n=bob,r=client", "SCRAM-SHA-512")
            seen.add(first.auth_bytes)
            client.hang_up()
        assert len(seen) == 10


@pytest.mark.parametrize("api", apis.APIS.values(), ids=lambda api: api.name)
async def test_nothing_else_is_served_before_and_the_connection_is_closed(api, world):
    """Kafka closes it without an answer, too."""
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        client.send(api.key, api.max_version, body=bytes(64))
        await settle()
        admitted = {apis.API_VERSIONS, apis.SASL_HANDSHAKE}
        if api.key not in admitted:
            assert client.frames() == []
            assert client.closed


async def refused_in_between(client, key):
    """A request in the middle of a mechanism's messages: 34, and the close."""
    api, before = SERVED[key], len(client.frames())
    client.send(key, apis.APIS[key].max_version, request_of(api))
    while not client.closed:
        await asyncio.sleep(0.05)
    told = client.frames()[before:]
    if getattr(api.handler, "refusal", None) is None:
        assert told == []
        return
    answer = await client.answer()
    assert ErrorCode.ILLEGAL_SASL_STATE in errors(answer)


async def test_in_the_middle_of_it_a_request_of_a_version_still_to_come_closes_the_connection(
    world,
):
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        await client.call(apis.SASL_HANDSHAKE, 1, handshake())
        client.send(apis.API_VERSIONS, 127, body=bytes(8))
        await settle()
        assert client.closed
        assert one.node.stats.failed_handlers == 0


@pytest.mark.parametrize("api", apis.APIS.values(), ids=lambda api: api.name)
async def test_in_the_middle_of_it_another_request_is_answered_as_illegal_and_the_connection_closed(
    api, world
):
    if api.key == apis.SASL_AUTHENTICATE:
        return
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        await client.call(apis.SASL_HANDSHAKE, 1, handshake())
        await refused_in_between(client, api.key)


async def test_versions_are_told_once_and_then_the_connection_is_closed(world):
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        await client.call(apis.API_VERSIONS, 3, CLIENT)
        client.send(apis.API_VERSIONS, 3, CLIENT)
        await settle()
        assert client.closed


async def test_versions_may_be_asked_for_again_after_an_error(world):
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        unnamed = messages.ApiVersionsRequest()
        answer = await client.call(apis.API_VERSIONS, 3, unnamed)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        client.send(apis.API_VERSIONS, 99, body=bytes(4))
        await settle()
        assert len(client.frames()) == 2
        assert not client.closed
        client.send(apis.API_VERSIONS, 3, CLIENT)
        await settle()
        assert len(client.frames()) == 3


async def test_a_request_behind_one_that_is_not_answered_closes_the_connection(world):
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        client.feed(
            client.frame(apis.API_VERSIONS, 3, CLIENT)
            + client.frame(apis.SASL_HANDSHAKE, 1, handshake())
        )
        await settle()
        assert client.closed


# Refusals.


async def test_a_refusal_is_told_a_while_later_and_the_connection_closed_behind_it(world):
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        await client.call(apis.SASL_HANDSHAKE, 1, handshake())
        client.send(apis.SASL_AUTHENTICATE, 2, token(MALLORY))
        began_s = world.loop.time()
        await settle()
        assert len(client.frames()) == 1
        assert not client.closed
        answer = await client.answer()
        assert world.loop.time() - began_s >= DELAY_S
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        await settle()
        assert client.closed
        assert one.node.stats.authentications == {("PLAIN", "refused"): 1}
        assert one.node.stats.connections_closed == {"authentication": 1}


async def test_nothing_is_read_while_a_refusal_waits(world):
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        await client.call(apis.SASL_HANDSHAKE, 1, handshake())
        client.send(apis.SASL_AUTHENTICATE, 2, token(MALLORY))
        client.put(bytes(1000))
        assert client.transport.read_paused
        await settle()
        assert len(client.kernel) == 1000


async def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(world):
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        answer = await client.call(apis.SASL_HANDSHAKE, 1, handshake("GSSAPI"))
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["SCRAM-SHA-512", "PLAIN"]
        await settle()
        assert client.closed


async def test_many_refusals_wait_in_one_queue_and_leave_in_their_order(world):
    async with world.agents("one") as (one,):
        clients = [one.connect(SASL, address=f"10.0.0.{index}") for index in range(50)]
        for client in clients:
            await client.call(apis.SASL_HANDSHAKE, 1, handshake())
        for client in clients:
            client.send(apis.SASL_AUTHENTICATE, 2, token(MALLORY))
        assert len(one.server.refusals) == 50
        clients[3].hang_up()
        for client in (*clients[:3], *clients[4:]):
            answer = await client.answer()
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert len(one.server.refusals) == 0


async def test_a_frame_that_is_too_large_closes_the_connection_until_it_is_authenticated(world):
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        await client.call(apis.SASL_HANDSHAKE, 1, handshake())
        client.send(apis.SASL_AUTHENTICATE, 2, token(bytes(10_001)))
        await settle()
        assert client.closed
        client = await authenticated(one)
        names = [messages.MetadataRequestTopic(name="n" * 200) for _ in range(100)]
        request = messages.MetadataRequest(topics=names, allow_auto_topic_creation=False)
        assert (await client.call(apis.METADATA, 9, request)).topics


# Messages without headers (SaslHandshake v0).


def bare(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


async def test_after_the_first_version_of_the_handshake_messages_come_without_headers(world):
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        await client.call(apis.SASL_HANDSHAKE, 0, handshake())
        client.feed(bare(ALICE))
        await settle()
        assert b"".join(client.transport.writes).endswith(bytes(4))
        assert client.frames()[1] == b""
        client.forget()
        client.feed(client.frame(*METADATA))
        await settle()
        assert client.correlation_ids() == [2]
        assert client.protocol.requester.principal == "User:alice"


@pytest.mark.parametrize("data", [MALLORY, b"", b"x"])
async def test_without_headers_a_refusal_is_a_close(data, world):
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        await client.call(apis.SASL_HANDSHAKE, 0, handshake())
        written = len(client.transport.writes)
        client.feed(bare(data))
        await settle()
        assert not client.closed
        while not client.closed:
            await asyncio.sleep(0.05)
        assert len(client.transport.writes) == written


# Again, on the same connection (KIP-368).


async def test_a_client_may_authenticate_itself_again_between_two_requests(world):
    async with world.agents("one") as (one,):
        client = await authenticated(one)
        await client.call(*METADATA)
        assert (await log_in(client)).error_code == ErrorCode.NONE
        assert (await client.call(*METADATA)).cluster_id
        assert one.node.stats.authentications == {("PLAIN", "accepted"): 2}


async def test_a_client_that_lets_its_session_pass_is_disconnected_without_an_answer(world):
    async with world.agents("one") as (one,):
        client = await authenticated(one)
        world.loop.call_later(61, client.feed, client.frame(*METADATA))
        while not client.closed:
            await asyncio.sleep(0.05)
        assert len(client.frames()) == 2
        assert one.node.stats.connections_closed == {"expired": 1}


async def test_another_password_when_it_authenticates_again_ends_the_connection(world):
    async with world.agents("one") as (one,):
        client = await authenticated(one)
        answer = await log_in(client, MALLORY)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await settle()
        assert client.closed


async def test_while_it_authenticates_itself_again_nothing_else_is_served(world):
    async with world.agents("one") as (one,):
        client = await authenticated(one)
        await client.call(apis.SASL_HANDSHAKE, 1, handshake())
        await refused_in_between(client, apis.METADATA)


# Bearer tokens (RFC 7628).


BEARER = SaslRules(mechanisms=("OAUTHBEARER",), tokens=TokenRules(keys=None))


def bearer_token(**claims):
    return first_message(unsigned({"sub": "alice", "exp": NOW_MS // 1000 + 60} | claims))


async def test_a_session_by_a_token_ends_with_the_token(world):
    world.sasl = {SASL: BEARER}
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        answer = await log_in(client, bearer_token(), "OAUTHBEARER")
        assert 0 < answer.session_lifetime_ms <= 60_000
        assert client.protocol.requester.principal == "User:alice"
        assert not client.protocol.requester.by_token
        assert (await client.call(*METADATA)).cluster_id
        world.loop.call_later(61, client.feed, client.frame(*METADATA))
        while not client.closed:
            await asyncio.sleep(0.05)
        assert one.node.stats.connections_closed == {"expired": 1}


async def test_why_a_token_is_not_taken_is_told_before_the_refusal(world):
    world.sasl = {SASL: BEARER}
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        answer = await log_in(client, bearer_token(exp=1), "OAUTHBEARER")
        assert answer.error_code == ErrorCode.NONE
        assert answer.auth_bytes == b'{"status":"invalid_token"}'
        answer = await client.call(apis.SASL_AUTHENTICATE, 2, token(b"\x01"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == '{"status":"invalid_token"}'
        await settle()
        assert client.closed
        assert one.node.stats.authentications == {("OAUTHBEARER", "refused"): 1}


async def test_while_a_token_is_being_judged_nothing_else_is_taken(world):
    world.sasl = {SASL: BEARER}
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        await client.call(apis.SASL_HANDSHAKE, 1, handshake("OAUTHBEARER"))
        client.feed(
            client.frame(apis.SASL_AUTHENTICATE, 2, token(bearer_token())) + client.frame(*METADATA)
        )
        await settle()
        assert client.closed


async def test_who_leaves_while_its_token_is_being_judged_is_forgotten(world):
    world.sasl = {SASL: BEARER}
    async with world.agents("one") as (one,):
        client = one.connect(SASL)
        await client.call(apis.SASL_HANDSHAKE, 1, handshake("OAUTHBEARER"))
        client.send(apis.SASL_AUTHENTICATE, 2, token(bearer_token()))
        client.hang_up()
        await settle()
        assert one.node.stats.authentications == {}


# Listeners without SASL.


@pytest.mark.parametrize("version", [0, 1])
async def test_a_handshake_where_there_is_no_sasl_is_illegal_and_the_connection_stays(
    version, world
):
    async with world.agents("one") as (one,):
        client = one.connect()
        answer = await client.call(apis.SASL_HANDSHAKE, version, handshake())
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.mechanisms == []
        answer = await client.call(apis.SASL_AUTHENTICATE, 2, token(ALICE))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.call(*METADATA)).cluster_id
        assert client.protocol.requester.is_anonymous
        assert one.node.stats.authentications == {}
