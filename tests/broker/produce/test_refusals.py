"""What a produce request that failed is told: no offset (P2), and whether it may still happen (P4)."""

import asyncio
from collections.abc import Callable

import pytest

from broker.calls.call import Call
from broker.handlers import produce as produce_handler
from coordinator.commands.entries import CommitChunk
from coordinator.proposer import NotDoneError
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError
from tests.broker.agents import World
from tests.broker.produce.world import Agent, Answer, expire_session, hold_puts
from tests.kit.batches import batch, produce_request
from tests.kit.faults import lost


def _gap_in_sequences(agent: Agent) -> Answer:
    agent.produce("t", batch(producer_id=7, epoch=0, sequence=0))
    return agent.produce("t", batch(producer_id=7, epoch=0, sequence=5))


def _store_down(agent: Agent) -> Answer:
    agent.world.store.down = True
    return agent.produce("t", batch(), timeout_ms=60_000)


def _out_of_time(agent: Agent) -> Answer:
    agent.lag()
    return agent.produce("t", batch(), timeout_ms=1_000)


def _stale(agent: Agent) -> Answer:
    """As after a stall of the loop (P17)."""
    body = messages.encode_request(apis.PRODUCE, 9, produce_request("t", batch()))
    call = Call(
        api_key=apis.PRODUCE,
        version=9,
        correlation_id=1,
        client_id="test",
        body=memoryview(bytes(body)),
        connection=agent.connection,
        received_ms=0,
    )
    produce_handler.refuse(agent.node, call, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "stale"))
    return Answer(call)


@pytest.mark.promise("P2")
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (lambda agent: agent.produce("none", batch()), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda agent: agent.produce("none", batch(), version=13), ErrorCode.UNKNOWN_TOPIC_ID),
        (
            lambda agent: agent.produce("t", batch(), partition=9),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            lambda agent: agent.produce("t", batch(), partition=9, version=13),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (lambda agent: agent.produce("t", batch(), acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
        (lambda agent: agent.produce("t", batch()[:-1] + b"!"), ErrorCode.CORRUPT_MESSAGE),
        (_gap_in_sequences, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (_store_down, ErrorCode.KAFKA_STORAGE_ERROR),
        (_out_of_time, ErrorCode.REQUEST_TIMED_OUT),
        (_stale, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
    ids=[
        "topic",
        "topic id",
        "partition",
        "partition of an id",
        "acks",
        "damaged",
        "gap",
        "store",
        "time",
        "stale",
    ],
)
async def test_a_failed_batch_has_no_offset_whatever_the_reason(
    failure: Callable[[Agent], Answer], error: ErrorCode, world: World
) -> None:
    async with world.with_topic("a") as (agent,):
        # There are offsets that it could be given by mistake.
        await agent.produce("t", batch(b"1", b"2")).wait()
        answer = failure(agent)
        assert await answer.written() == (error, -1)


async def test_what_waits_in_the_open_chunk_when_the_session_ends_fails_and_never_comes(
    world: World,
) -> None:
    async with world.with_topic("a", puts_in_flight="1") as (agent,):
        gate = hold_puts(world)
        agent.produce("t", batch(), timeout_ms=60_000, connection=agent.another_connection())
        await asyncio.sleep(0.1)
        answer = agent.produce("t", batch(), timeout_ms=60_000)
        await asyncio.sleep(0.1)
        assert agent.producing.stats.chunks == 1  # The second one is still being gathered.
        await expire_session(agent)
        assert answer.there
        assert await answer.code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        gate.set()
        await asyncio.sleep(30)
        assert agent.row("t").end_offset == 0


@pytest.mark.promise("P3")
async def test_what_waits_for_its_linger_when_the_session_ends_fails_and_never_comes(
    world: World,
) -> None:
    """It is due when there is a session again; that is of another incarnation than it was taken in."""
    async with world.with_topic("a", chunk_linger_ms="60000") as (agent,):
        answer = agent.produce("t", batch(), timeout_ms=120_000)
        await asyncio.sleep(0.1)
        await expire_session(agent)
        assert answer.there
        assert await answer.code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await asyncio.sleep(120)
        assert agent.row("t").end_offset == 0


@pytest.mark.promise("P4")
async def test_an_append_in_doubt_when_the_agent_ends_is_not_called_failed(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        agent.log.after["append"] = lost()
        agent.lag()
        answer = agent.produce("t", batch(), timeout_ms=20_000)
        await asyncio.sleep(1)
        await agent.log_client.leave()
        assert await answer.code() == ErrorCode.REQUEST_TIMED_OUT
        assert len(world.cluster.entries) > 2  # It did happen.


@pytest.mark.promise("P4")
async def test_acks_0_closes_the_connection_when_its_fate_is_open(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        agent.lag()
        answer = agent.produce("t", batch(), acks=0, timeout_ms=1_000)
        await answer.waits(2)
        assert agent.connection.closed


async def test_a_commit_that_is_refused_takes_later_ones_of_its_sender_with_it(
    world: World,
) -> None:
    """P11, also where both were about to be proposed at the same time."""
    async with world.with_topic("a", chunk_linger_ms="1") as (agent,):
        gate, propose = asyncio.Event(), agent.log_client.propose

        async def hold_first(key: str, *_parts: object) -> None:
            if key.endswith("0"):
                await gate.wait()

        def refuse_first(command, incarnation=None):
            if isinstance(command, CommitChunk) and command.number == 0:
                refused = asyncio.get_running_loop().create_future()
                refused.set_exception(NotDoneError("refused"))
                return refused
            return propose(command, incarnation)

        world.store.before["put_new"] = hold_first
        agent.log_client.propose = refuse_first
        first = agent.produce("t", batch(b"1"))
        await asyncio.sleep(1)
        second = agent.produce("t", batch(b"2"))
        other = agent.produce("t", batch(b"3"), connection=agent.another_connection())
        await asyncio.sleep(1)
        gate.set()
        assert await first.code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await second.code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await other.partition()).base_offset == 0
        assert agent.row("t").end_offset == 1
