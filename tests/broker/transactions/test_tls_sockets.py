"""Challenges over real sockets of TLS, on both event loops: no part of a record is a reply too early."""

import asyncio
import os
import ssl
import struct
import time

import pytest

from broker.edge.unread import unread_bytes
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.framing import request_frame
from protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    CreatableTopic,
    CreateTopicsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.broker.transactions.test_sockets import LOOPS, PATIENT
from tests.kit.certificates import Authority
from tests.kit.sockets import Place, agent_of
from tests.kit.tls import client_context


class RecordClient:
    """A client that has its records in its own hands."""

    def __init__(self, reader, writer, context: ssl.SSLContext) -> None:
        self._reader, self._writer = reader, writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def shake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.write(self._outgoing.read())
                self._incoming.write(await self._reader.read(1 << 16))
                continue
            self.write(self._outgoing.read())
            return

    def sealed(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                data += self._tls.read(count - len(data))
            except ssl.SSLWantReadError:
                more = await self._reader.read(1 << 16)
                assert more, "closed"
                self._incoming.write(more)
        return data

    async def answer(self) -> bytes:
        async with asyncio.timeout(60):
            (length,) = struct.unpack(">i", await self.read(4))
            return await self.read(length)

    async def code(self) -> int:
        """Of the next answer to EndTxn v1: correlation id, throttle time, error code."""
        return struct.unpack(">iih", await self.answer())[2]

    def write_now(self, data: bytes) -> None:
        """Into the kernel, without a turn of the loop."""
        assert os.write(self._writer.get_extra_info("socket").fileno(), data) == len(data)

    def close(self) -> None:
        self._writer.close()


def end_frame(producer_id: int) -> bytes:
    request = EndTxnRequest(
        transactional_id="id", producer_id=producer_id, producer_epoch=0, committed=True
    )
    body = messages.encode_request(apis.END_TXN, 1, request)
    return request_frame(apis.END_TXN, 1, 1, "test", body)


def perform(play, loop_factory, *, patience=PATIENT) -> None:
    authority = Authority()
    signed = authority.sign()
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.certificate.chain={signed.certificate_pem}",
        f"ssl.keystore.key={signed.key_pem()}",
    )

    async def main() -> None:
        async with agent_of(Place(), *patience, *settings) as running:
            await running.until(ready=True, seconds=60)
            plain = await running.connect()
            assert await plain.create("logs") == 0
            request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
            producer = await plain.call(apis.INIT_PRODUCER_ID, 4, request)
            add = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="id",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="logs", partitions=[0])],
            )
            await plain.call(apis.ADD_PARTITIONS_TO_TXN, 3, add)
            port = running.agent.listening()["SSL"][1]
            streams = await asyncio.open_connection("127.0.0.1", port)
            client = RecordClient(*streams, client_context(authority))
            try:
                await client.shake()
                await play(running.agent, producer.producer_id, client)
            finally:
                client.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def create_frame(name: str) -> bytes:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    body = messages.encode_request(apis.CREATE_TOPICS, 4, request)
    return request_frame(apis.CREATE_TOPICS, 4, 1, "test", body)


async def created(client: RecordClient) -> ErrorCode:
    """What the next answer to CreateTopics says of its one topic."""
    body = memoryview(await client.answer())[4:]
    (topic,) = messages.decode_response(apis.CREATE_TOPICS, 4, body).topics
    return ErrorCode(topic.error_code)


async def connection_of(agent):
    """The agent's end of the client's connection, once it has an unanswered request."""
    async with asyncio.timeout(60):
        while True:
            for each in agent._server.connections.values():
                if each.listener == "SSL" and each._pending:
                    return each
            await asyncio.sleep(0.01)


def gated(agent) -> asyncio.Event:
    """Requests wait behind their barrier until it is set."""
    gate = asyncio.Event()
    real = agent.node.log_client.barrier

    async def barrier():
        await gate.wait()
        await real()

    agent.node.log_client.barrier = barrier
    return gate


@LOOPS
def test_a_client_that_sends_again_after_the_challenge_is_believed(loop_factory):
    async def play(agent, producer_id, client):
        for code in (51, 0):
            client.write(client.sealed(end_frame(producer_id)))
            assert await client.code() == code
        assert agent.node.transactions.stats.challenges == 1

    perform(play, loop_factory)


@LOOPS
def test_ends_that_were_sent_before_the_challenge_are_all_challenged(loop_factory):
    async def play(agent, producer_id, client):
        frames = [end_frame(producer_id) for _ in range(5)]
        client.write(client.sealed(b"".join(frames[:2])) + b"".join(map(client.sealed, frames[2:])))
        assert [await client.code() for _ in frames] == [51] * 5
        client.write(client.sealed(end_frame(producer_id)))
        assert await client.code() == 0

    perform(play, loop_factory)


@LOOPS
@pytest.mark.parametrize("cut", [1, 5, 30, -1])
def test_an_end_whose_record_had_begun_to_arrive_is_challenged_too(loop_factory, cut):
    async def play(agent, producer_id, client):
        gate = gated(agent)
        client.write(client.sealed(end_frame(producer_id)))
        connection = await connection_of(agent)
        record = client.sealed(end_frame(producer_id))
        before = connection.arrived()[0]
        client.write(record[:cut])
        async with asyncio.timeout(60):
            while connection.arrived()[0] < before + len(record[:cut]):
                await asyncio.sleep(0.01)
        gate.set()
        assert await client.code() == 51
        client.write(record[cut:])
        assert await client.code() == 51
        client.write(client.sealed(end_frame(producer_id)))
        assert await client.code() == 0

    perform(play, loop_factory)


@LOOPS
def test_an_end_that_waits_in_the_kernel_is_challenged_too(loop_factory):
    async def play(agent, producer_id, client):
        gate = gated(agent)
        client.write(client.sealed(end_frame(producer_id)))
        connection = await connection_of(agent)
        connection._transport.pause_reading()
        client.write(client.sealed(end_frame(producer_id)))
        async with asyncio.timeout(60):
            while unread_bytes(connection._transport) == 0:
                await asyncio.sleep(0.01)
        gate.set()
        assert await client.code() == 51
        connection._transport.resume_reading()
        assert await client.code() == 51
        client.write(client.sealed(end_frame(producer_id)))
        assert await client.code() == 0

    perform(play, loop_factory)


@LOOPS
@pytest.mark.promise("P17")
@pytest.mark.parametrize("cut", [5, -1])
def test_what_came_around_a_stall_is_refused_also_where_half_a_record_came(loop_factory, cut):
    async def play(agent, _producer_id, client):
        first, second = (client.sealed(create_frame(name)) for name in ("first", "second"))
        client.write_now(first + second[:cut])
        time.sleep(1)  # The loop stands still, as in a process that is frozen.
        assert await created(client) is ErrorCode.NOT_CONTROLLER
        client.write(second[cut:])
        assert await created(client) is ErrorCode.NOT_CONTROLLER
        topics = agent.node.log_client.machine.topics
        assert topics.by_name("first") is None
        assert topics.by_name("second") is None
        for _ in range(10):  # A busy machine may stand still once more.
            client.write(client.sealed(create_frame("third")))
            if await created(client) is ErrorCode.NONE:
                return
        raise AssertionError("never believed again")

    perform(play, loop_factory, patience=(*PATIENT[:2], "stall.ms=700"))
