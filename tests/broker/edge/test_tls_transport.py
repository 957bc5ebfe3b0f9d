"""Connections of TLS: handshakes that come to something and those that do not, and bytes both ways."""

import asyncio
import itertools
import ssl
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.edge.handshakes import PATIENCE_MS, Handshakes, Turns
from broker.edge.limits import ServerLimits
from broker.edge.tls_transport import ENCRYPTED_BYTES_MAX, HANDSHAKE_MS_MAX, PIECE_BYTES
from protocol import apis
from tests.broker.edge.tls_stage import authority, signed, tls_connected, tls_staged
from tests.kit.certificates import Authority
from tests.kit.client import settle
from tests.kit.tls import client_context, listener_of

METADATA = (apis.METADATA, 9)
PRODUCE = (apis.PRODUCE, 9)


def failed(stage) -> dict[str, int]:
    return stage.node.stats.handshakes_failed


async def test_a_request_is_answered_over_tls():
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        await stage.answer(0, b"answer")
        assert [frame[-6:] for frame in client.frames()] == [b"answer"]
        assert stage.node.stats.handshakes_total == 1
        assert failed(stage) == {}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions_are_spoken(version):
    async with tls_staged() as stage:
        client = stage.dial()
        context = client.tls.context
        context.minimum_version = context.maximum_version = version
        client = type(client)(stage.server, context)
        await client.shake()
        assert client.tls.version() == {771: "TLSv1.2", 772: "TLSv1.3"}[version.value]
        client.send(*METADATA)
        assert len(stage.started) == 1


async def test_a_version_that_is_not_enabled_is_refused_and_counted():
    async with tls_staged(enabled_protocols="TLSv1.3") as stage:
        context = client_context(authority())
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        client = type(stage.dial())(stage.server, context)
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            await client.shake()
        assert failed(stage) == {"protocol": 1}


async def test_a_handshake_that_drips_byte_by_byte_is_done():
    async with tls_staged() as stage:
        client = stage.dial()
        feed = client.feed

        def drip(data: bytes) -> None:
            for index in range(len(data)):
                client.put(data[index : index + 1])
                client.pump()

        client.feed = drip
        await client.shake()
        client.feed = feed
        client.send(*METADATA)
        assert len(stage.started) == 1


async def test_what_follows_the_handshake_at_once_is_served():
    """A client may send its first request behind its last message of the handshake."""
    async with tls_staged() as stage:
        client = stage.dial()
        while not client.tls.cipher():
            held, client.feed = client.feed, client.put
            done = client.step()
            client.feed = held
            if done:
                break
            client.pump()
            await settle()
        client.put(client.sealed(client.frame(*METADATA)))
        client.pump()
        await settle()
        assert len(stage.started) == 1


async def test_nothing_is_asked_of_who_does_not_speak_tls():
    async with tls_staged() as stage:
        client = stage.dial()
        client.feed(client.frame(*METADATA))
        await settle()
        assert client.closed
        assert failed(stage) == {"not tls": 1}
        assert stage.node.stats.connections_closed == {"handshake": 1}


async def test_a_client_that_does_not_trust_the_certificate_is_counted():
    async with tls_staged() as stage:
        client = stage.dial(trusts=Authority("another"))
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.shake()
        await settle()
        assert client.closed
        assert failed(stage) == {"refused by client": 1}


async def test_a_client_that_goes_within_the_handshake_is_counted_and_one_that_only_looks_is_not():
    async with tls_staged() as stage:
        stage.dial().hang_up()
        assert failed(stage) == {}
        client = stage.dial()
        client.step()
        await settle()
        client.hang_up()
        assert failed(stage) == {"closed": 1}


async def test_who_has_not_done_the_handshake_in_time_is_closed():
    async with tls_staged() as stage:
        silent, begun, done = stage.dial(), stage.dial(), await stage.shaken()
        begun.step()
        await asyncio.sleep(HANDSHAKE_MS_MAX / 1000 + 1)
        assert [silent.closed, begun.closed, done.closed] == [True, True, False]
        assert failed(stage) == {"late": 2}


async def test_a_handshake_waits_for_its_turn_and_who_takes_long_gives_way():
    async with tls_staged() as stage:
        stage.server._shaker._handshakes = Handshakes(under_way_max=1, per_address_max=1)
        slow, waiting = stage.dial(), stage.dial(address="10.0.0.2")
        slow.step()
        waiting.step()
        await settle()
        assert len(waiting.transport.writes) == 0
        await asyncio.sleep(2 * PATIENCE_MS / 1000)
        assert slow.closed
        assert failed(stage) == {"late": 1}
        await waiting.shake()
        waiting.send(*METADATA)
        assert len(stage.started) == 1


async def test_who_waits_for_his_turn_is_not_late():
    async with tls_staged() as stage:
        stage.server._shaker._handshakes = Handshakes(under_way_max=0, per_address_max=1)
        stage.server._shaker._handshakes.due = lambda _now_ms: Turns([], [])
        client = stage.dial()
        client.step()
        await asyncio.sleep(3 * HANDSHAKE_MS_MAX / 1000)
        assert not client.closed
        assert failed(stage) == {}


async def test_a_connection_that_is_refused_costs_no_handshake():
    limits = ServerLimits(
        connections_max=1, connections_per_address_max=0, idle_ms_max=-1, held_bytes_max=1 << 30
    )
    async with tls_staged(limits=limits) as stage:
        client = stage.dial()
        await settle()
        assert client.closed
        assert stage.node.stats.connections_refused == {"address": 1}
        assert failed(stage) == {}


async def test_an_agent_that_ends_lets_go_of_handshakes_under_way():
    async with tls_staged() as stage:
        client = stage.dial()
        client.step()
    assert client.closed


# Who it is.


async def test_a_client_without_a_certificate_is_nobody_in_particular():
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        assert stage.started[0].connection.requester.is_anonymous
        assert stage.started[0].connection.requester.host == "127.0.0.1"


async def test_a_client_is_who_its_certificate_says():
    async with tls_staged(client_auth="required") as stage:
        client = await stage.shaken(own=authority().sign("CN=client1,O=Oracle"))
        client.send(*METADATA)
        requester = stage.started[0].connection.requester
        assert (requester.principal, requester.host) == ("User:CN=client1,O=Oracle", "127.0.0.1")


async def test_rules_make_names_of_subjects():
    rules = "RULE:^CN=(.*?),.*$/$1/L"
    async with tls_staged(client_auth="required", principal_mapping_rules=rules) as stage:
        client = await stage.shaken(own=authority().sign("CN=Client1,O=Oracle"))
        client.send(*METADATA)
        assert stage.started[0].connection.requester.principal == "User:client1"
        other = await stage.shaken(own=authority().sign("CN=other"))
        await settle()
        assert other.closed
        assert failed(stage) == {"principal": 1}


async def test_where_a_certificate_is_required_nobody_comes_in_without_one():
    async with tls_staged(client_auth="required") as stage:
        client = await stage.shaken()
        await settle()
        assert client.closed
        assert failed(stage) == {"no certificate": 1}


async def test_where_one_is_only_requested_a_client_may_have_none():
    async with tls_staged(client_auth="requested") as stage:
        (await stage.shaken()).send(*METADATA)
        (await stage.shaken(own=authority().sign("CN=b"))).send(*METADATA)
        principals = [call.connection.requester.principal for call in stage.started]
        assert principals == ["User:ANONYMOUS", "User:CN=b"]


@pytest.mark.parametrize("kind", ["of another authority", "ended"])
async def test_a_certificate_that_is_not_trusted_is_refused(kind):
    own = (
        Authority("another").sign("CN=a")
        if kind != "ended"
        else authority().sign("CN=a", days=-1, begun_days=3)
    )
    async with tls_staged(client_auth="requested") as stage:
        client = await stage.shaken(own=own)
        await settle()
        assert client.closed
        assert failed(stage) == {"certificate": 1}


# Bytes.


@settings(max_examples=60)
@given(
    bodies=st.lists(st.integers(0, 3_000), min_size=1, max_size=5),
    records=st.lists(st.integers(1, 2_000), min_size=1, max_size=5),
    reads=st.lists(st.integers(1, 2_000), min_size=1, max_size=5),
)
async def test_however_records_and_reads_are_cut_requests_are_the_same(bodies, records, reads):
    async with tls_connected() as (stage, client):
        sent = [bytes([index]) * size for index, size in enumerate(bodies)]
        plain = b"".join(client.frame(*PRODUCE, body=body) for body in sent)
        begun_at = client.kafka.arrived()[0]
        stream = b"".join(map(client.sealed, pieces(plain, records)))
        for data in pieces(stream, reads):
            client.feed(data)
        await settle()
        assert [bytes(call.body) for call in stage.started] == sent
        numbers = [call.first_byte for call in stage.started]
        assert numbers == sorted(numbers)
        assert begun_at <= numbers[0]
        assert client.kafka.arrived() == (begun_at + len(stream), 0)


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in itertools.cycle(sizes):
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size


async def test_a_big_request_in_many_records_is_one_request():
    async with tls_connected() as (stage, client):
        body = bytes(range(256)) * 12_000
        client.put(client.sealed(client.frame(*PRODUCE, body=body)))
        client.pump()
        await settle(400)
        assert not client.kernel
        assert len(stage.started) == 1
        assert bytes(stage.started[0].body)[-len(body) :] == body


async def test_a_big_answer_is_whole():
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        body = bytes(range(256)) * 12_000
        await stage.answer(0, b"head", body, b"tail")
        (frame,) = client.frames()
        assert frame[5:] == b"head" + body + b"tail"


async def test_of_answers_that_nobody_takes_little_is_encrypted():
    async with tls_connected() as (stage, client):
        client.transport.stuck = True
        before = len(client.transport.writes)
        client.send(*METADATA)
        await stage.answer(0, bytes(8_000_000))
        encrypted = sum(map(len, client.transport.writes[before:]))
        assert encrypted <= ENCRYPTED_BYTES_MAX + 2 * PIECE_BYTES
        waiting = client.protocol.get_write_buffer_size()
        assert waiting >= 8_000_000
        assert client.kafka.unsent_bytes == waiting


async def test_a_client_that_takes_its_answers_again_gets_all_of_them():
    async with tls_connected() as (stage, client):
        client.transport.stuck = True
        client.send(*METADATA)
        await stage.answer(0, bytes(3_000_000))
        client.transport.stuck = False
        client.protocol.resume_writing()
        await settle()
        client.send(*METADATA)
        await stage.answer(1, b"second")
        frames = client.frames()
        assert [len(frame) for frame in frames] == [3_000_005, 11]


async def test_a_connection_that_is_closed_says_goodbye_behind_its_answers():
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        client.kafka.leave()
        await stage.answer(0, b"last")
        assert client.closed
        assert [frame[-4:] for frame in client.frames()] == [b"last"]
        assert client.tls.read(10) == b""


async def test_a_client_that_says_goodbye_is_gone():
    async with tls_connected() as (stage, client):
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        client.feed(client._outgoing.read())
        await settle()
        assert client.closed
        assert stage.node.stats.connections_open == 0


async def test_ciphertext_that_was_changed_ends_the_connection():
    async with tls_connected() as (stage, client):
        data = bytearray(client.sealed(client.frame(*METADATA)))
        data[-1] ^= 1
        client.feed(bytes(data))
        await settle()
        assert client.closed
        assert stage.node.stats.connections_closed == {"malformed": 1}


# Certificates that change.


async def test_new_connections_get_the_new_certificate_and_old_ones_go_on():
    async with tls_connected() as (stage, client):
        renewed = authority().sign("renewed")
        stage.listener.context = listener_of(renewed, stage.node.stats).context
        other = await stage.shaken()
        assert client.tls.getpeercert(binary_form=True) == signed().der
        assert other.tls.getpeercert(binary_form=True) == renewed.der
        client.send(*METADATA)
        other.send(*METADATA)
        assert len(stage.started) == 2
