"""Challenges over real sockets, on both event loops: what lies in the kernel is no reply."""

import asyncio
import struct

import pytest
import uvloop

from broker.edge.unread import unread_bytes
from protocol import apis, messages
from protocol.framing import request_frame
from protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.kit.sockets import Place, SocketClient, agent_of

LOOPS = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)

PATIENT = ("lease.ttl.ms=60000", "session.deadline.ms=50000", "stall.ms=60000")
"""A busy machine must not pass for a frozen agent."""


def end_frame(producer_id: int, number: int) -> bytes:
    request = EndTxnRequest(
        transactional_id="id", producer_id=producer_id, producer_epoch=0, committed=True
    )
    body = messages.encode_request(apis.END_TXN, 1, request)
    return request_frame(apis.END_TXN, 1, number, "test", body)


async def codes(reader: asyncio.StreamReader, count: int) -> list[int]:
    """Of that many answers to EndTxn v1: correlation id, throttle time, error code."""
    found = []
    async with asyncio.timeout(60):
        for _ in range(count):
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(length)
            found.append(struct.unpack(">iih", frame)[2])
    return found


async def opened(client: SocketClient) -> int:
    """The producer id of "id", whose transaction is open, added to on this connection."""
    request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    producer = await client.call(apis.INIT_PRODUCER_ID, 4, request)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="logs", partitions=[0])],
    )
    answer = await client.call(apis.ADD_PARTITIONS_TO_TXN, 3, add)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    return producer.producer_id


def perform(play, loop_factory) -> None:
    async def main() -> None:
        async with agent_of(Place(), *PATIENT) as running:
            await running.until(ready=True, seconds=60)
            client = await running.connect()
            assert await client.create("logs") == 0
            producer_id = await opened(client)
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            try:
                await play(running.agent, producer_id, reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@LOOPS
def test_a_client_that_sends_again_after_the_challenge_is_believed(loop_factory):
    async def play(agent, producer_id, reader, writer):
        writer.write(end_frame(producer_id, 1))
        assert await codes(reader, 1) == [51]
        writer.write(end_frame(producer_id, 2))
        assert await codes(reader, 1) == [0]
        assert agent.node.transactions.stats.challenges == 1

    perform(play, loop_factory)


@LOOPS
def test_ends_that_were_sent_before_the_challenge_are_all_challenged(loop_factory):
    async def play(agent, producer_id, reader, writer):
        writer.write(b"".join(end_frame(producer_id, number) for number in range(5)))
        assert await codes(reader, 5) == [51] * 5
        assert agent.node.transactions.txn_metadata("id").state.name == "ONGOING"
        writer.write(end_frame(producer_id, 6))
        assert await codes(reader, 1) == [0]

    perform(play, loop_factory)


@LOOPS
def test_an_end_that_waits_in_the_kernel_is_challenged_too(loop_factory):
    """It arrives while the agent does not read, before the challenge for the first one leaves."""

    async def play(agent, producer_id, reader, writer):
        gate = asyncio.Event()
        real = agent.node.log_client.barrier
        connection = None

        async def barrier():
            await gate.wait()
            await real()

        agent.node.log_client.barrier = barrier
        writer.write(end_frame(producer_id, 1))
        async with asyncio.timeout(60):
            while connection is None:
                await asyncio.sleep(0.01)
                connection = next(
                    (each for each in agent._server.connections.values() if each._pending), None
                )
        connection._transport.pause_reading()
        writer.write(end_frame(producer_id, 2))
        async with asyncio.timeout(60):
            while unread_bytes(connection._transport) == 0:
                await asyncio.sleep(0.01)
        gate.set()
        assert await codes(reader, 1) == [51]
        connection._transport.resume_reading()
        assert await codes(reader, 1) == [51]
        writer.write(end_frame(producer_id, 3))
        assert await codes(reader, 1) == [0]

    perform(play, loop_factory)
