"""Late requests of TV1 clients: the Jepsen scenario and its relatives, frame by frame.

The holes are those of docs/design/kafka-semantics.md §6.3.
In all of them a client gives a connection up with requests on it that nobody has read, goes on
elsewhere, and then those are read. A transaction that is live then must neither end nor be cut in
two; the client that lives must get on with one challenge at most (KAFKA-17754).
"""

import asyncio

import pytest

from coordinator.commands.transaction_commands import ClientProof, EndTransaction
from protocol.errors import ErrorCode
from tests.broker.transactions.world import (
    ABORTED,
    COMMITTED,
    OPEN,
    commands_of,
    in_transaction,
    producing,
    txn_metadata,
)
from tests.kit.client import settle
from tests.kit.faults import held

BOTH = pytest.mark.parametrize("commit", [True, False])


async def wait_a_moment(*agents) -> None:
    for agent in agents:
        await agent.log_client.barrier()
    await asyncio.sleep(1)


def codes(peer) -> int:
    """How many answers the connection got."""
    return len(peer.frames())


@BOTH
@pytest.mark.parametrize("late_at", ["the same agent", "another agent"])
async def test_jepsen_an_end_that_was_held_back_does_not_touch_a_later_transaction(commit, late_at):
    """EndTxn of transaction 1 is held on A; the client retries on B, and begins 2 and 3."""
    async with producing("one", "two") as (producer, one, two):
        a, b = producer.peer, (one if late_at == "the same agent" else two).connect()
        await producer.add()
        a.put(producer.end_frame(a, commit=commit))  # In the kernel; nobody has read it.
        assert await producer.end(commit=commit, peer=b) == 51
        assert await producer.end(commit=commit, peer=b) == 0
        await producer.add({"logs": [1]}, peer=b)
        assert await producer.end(peer=b) == 0
        await producer.add({"logs": [2]}, peer=b)
        before = txn_metadata(one), txn_metadata(two)
        a.pump()
        await wait_a_moment(one, two)
        assert (await last_answer(a)).error_code == 51
        assert (txn_metadata(one), txn_metadata(two)) == before
        assert txn_metadata(one).instance == 3
        assert await producer.end(peer=b) == 0
        assert txn_metadata(one).adds.owner is None


async def last_answer(peer):
    while True:
        answer = await peer.answer()
        if not peer.awaits:
            return answer


@BOTH
async def test_an_end_that_is_read_late_but_still_means_the_live_transaction_ends_it(commit):
    """The connection is its owner's: that is what its client had asked for."""
    async with producing("one", "two") as (producer, one, two):
        a = producer.peer
        await producer.add()
        a.put(producer.end_frame(a, commit=commit))
        b = two.connect()
        assert await producer.end(commit=commit, peer=b) == 51
        a.pump()
        assert (await last_answer(a)).error_code == 0
        assert txn_metadata(one).state is (COMMITTED if commit else ABORTED)
        assert await producer.end(commit=commit, peer=b) == 0


@pytest.mark.parametrize("order", ["read before the client goes on", "read after it"])
async def test_hole_1_an_add_and_an_abort_behind_it_do_not_end_the_live_transaction(order):
    """librdkafka sends EndTxn(abort) behind an unanswered AddPartitionsToTxn."""
    async with in_transaction("one", "two") as (producer, one, two):
        a, b = producer.peer, two.connect()
        a.put(producer.add_frame(a, {"logs": [1]}) + producer.end_frame(a, commit=False))
        assert await producer.end(commit=False, peer=b) == 51
        assert await producer.end(commit=False, peer=b) == 0
        if order == "read after it":
            await producer.add({"logs": [2]}, peer=b)
            assert txn_metadata(one).instance == 2
            a.pump()
            assert (await last_answer(a)).error_code == 51
            assert (txn_metadata(one).state, txn_metadata(one).instance) == (OPEN, 2)
        else:
            a.pump()
            # Nothing was open: the late add begins a transaction of its own, which the late end
            # ends. Nobody has written anything in it.
            assert (await last_answer(a)).error_code == 0
            assert (txn_metadata(one).state, txn_metadata(one).instance) == (ABORTED, 2)
            await producer.add({"logs": [2]}, peer=b)
        live = txn_metadata(one).instance
        assert (await producer.add({"logs": [3]}, peer=b)) == {("logs", 3): 0}
        code = await producer.end(peer=b)
        assert code == (51 if order == "read after it" else 0)
        if code:
            assert await producer.end(peer=b) == 0
        assert (txn_metadata(one).state, txn_metadata(one).instance) == (COMMITTED, live)


async def test_hole_1_a_late_add_joined_by_the_live_client_gives_the_late_abort_nothing():
    """The late add opened a transaction; the live client's add joined before the late end came."""
    async with producing("one", "two") as (producer, one, two):
        a, b = producer.peer, two.connect()
        late_add, late_end = (
            producer.add_frame(a, {"logs": [1]}),
            producer.end_frame(a, commit=False),
        )
        a.feed(late_add)
        await settle()
        while txn_metadata(one).state is not OPEN:
            await asyncio.sleep(0.01)
        assert await producer.add({"logs": [2]}, peer=b) == {("logs", 2): 0}
        a.feed(late_end)
        assert (await last_answer(a)).error_code == 51
        assert txn_metadata(one).state is OPEN
        assert await producer.end(peer=b) == 51
        assert await producer.end(peer=b) == 0


@BOTH
async def test_hole_2_two_ends_on_a_dead_connection_do_not_pass_for_question_and_answer(commit):
    """librdkafka with socket.max.fails != 1: the first takes the challenge, so does the second."""
    async with in_transaction("one", "two") as (producer, one, two):
        a, b = producer.peer, two.connect()
        a.put(producer.end_frame(a, commit=commit) + producer.end_frame(a, commit=commit))
        assert await producer.end(commit=commit, peer=b) == 51
        assert await producer.end(commit=commit, peer=b) == 0
        await producer.add({"logs": [1]}, peer=b)
        a.pump()
        assert (await last_answer(a)).error_code == 51
        assert (txn_metadata(one).state, txn_metadata(one).instance) == (OPEN, 2)
        assert one.node.transactions.stats.challenges == 2
        assert await producer.end(peer=b) == 0


async def test_hole_2_the_second_end_may_lie_in_the_kernel_while_the_first_is_challenged():
    async with in_transaction("one", "two") as (producer, one, two):
        a, b = producer.peer, two.connect()
        first, second = producer.end_frame(a), producer.end_frame(a)
        assert await producer.end(peer=b) == 51
        assert await producer.end(peer=b) == 0
        await producer.add({"logs": [1]}, peer=b)
        await one.log_client.barrier()
        a.feed(first)
        a.put(second)  # It came while the first was being looked at.
        await asyncio.sleep(1)
        assert codes(a) == 3
        a.pump()
        assert (await last_answer(a)).error_code == 51
        assert txn_metadata(one).state is OPEN


@BOTH
async def test_hole_3_an_agents_own_delayed_proposal_does_not_end_a_later_transaction(commit):
    """Cut off with an append under way, it writes after its client has long gone on elsewhere."""
    patient = {"lease_ttl_ms": "60000", "session_deadline_ms": "50000"}
    async with in_transaction("one", "two", **patient) as (producer, one, two):
        a, b = producer.peer, two.connect()
        gate = asyncio.Event()
        one.log.before["append"] = held(gate)
        a.feed(producer.end_frame(a, commit=commit))
        await asyncio.sleep(1)
        assert txn_metadata(two).state is OPEN
        assert await producer.end(commit=commit, peer=b) == 51
        assert await producer.end(commit=commit, peer=b) == 0
        await producer.add({"logs": [1]}, peer=b)
        ends = commands_of(two, EndTransaction)
        gate.set()
        await wait_a_moment(one, two)
        assert len(ends) == 1, "the late command is in the log"
        assert (txn_metadata(two).state, txn_metadata(two).instance) == (OPEN, 2)
        assert (await last_answer(a)).error_code == 51
        assert await producer.end(peer=b) == 0


async def test_a_command_that_is_written_again_and_again_ends_what_it_names_once():
    async with in_transaction() as (producer, one):
        number = producer.peer.protocol.number
        proof = ClientProof(1, number, one.machine.position, challenged=True)
        command = EndTransaction("id", producer.producer_id, 0, True, proof)
        await one.log_client.propose(command)
        assert txn_metadata(one).state is COMMITTED
        for _ in range(3):
            await producer.add()
            outcome = await one.log_client.propose(command)
            assert outcome.error is ErrorCode.CONCURRENT_TRANSACTIONS
            assert txn_metadata(one).state is OPEN
            assert await producer.end() == 0


@BOTH
async def test_a_late_end_of_the_new_protocol_is_a_repetition_and_no_more(commit):
    """Each end bumps the epoch, so no challenge is needed."""
    async with producing("one", "two") as (producer, one, two):
        a, b = producer.peer, two.connect()
        await producer.add(peer=b)
        a.put(producer.end_frame(a, commit=commit, version=5))
        assert await producer.end(commit=commit, version=5, peer=b) == 0
        assert await producer.produce(1, version=12, peer=b) == 0
        assert txn_metadata(one).instance == 2
        a.pump()
        assert (await last_answer(a)).error_code == ErrorCode.PRODUCER_FENCED
        await wait_a_moment(one, two)
        assert (txn_metadata(two).state, txn_metadata(two).instance) == (OPEN, 2)
        assert await producer.end(version=5, peer=b) == 0
        assert two.node.transactions.stats.challenges == 0
