"""EndTxn: every state, result and version, proofs, and what a repetition is told.

The tables are those of docs/design/kafka-semantics.md §5.5.
"""

import asyncio
from dataclasses import replace

import pytest

from broker.transactions.stats import Ending
from coordinator.commands.transaction_commands import AddToTransaction, EndTransaction
from protocol import apis
from protocol.errors import ErrorCode
from tests.broker.transactions.world import (
    ABORTED,
    COMMITTED,
    EMPTY,
    OPEN,
    Producer,
    commands_of,
    in_transaction,
    partition,
    producing,
    txn_metadata,
)
from tests.kit.faults import lost

OLD = range(5)


async def at_state(producer: Producer, state) -> None:
    """Bring the id to a state, from Empty."""
    if state is not EMPTY:
        await producer.add()
    if state in (COMMITTED, ABORTED):
        assert await producer.end(commit=state is COMMITTED) == 0


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(
    ("state", "commit", "old", "new"),
    [
        (EMPTY, True, (48, EMPTY), (48, EMPTY)),
        (EMPTY, False, (48, EMPTY), (0, ABORTED)),
        (OPEN, True, (0, COMMITTED), (0, COMMITTED)),
        (OPEN, False, (0, ABORTED), (0, ABORTED)),
        (COMMITTED, True, (0, COMMITTED), (48, COMMITTED)),
        (COMMITTED, False, (48, COMMITTED), (0, ABORTED)),
        (ABORTED, True, (48, ABORTED), (48, ABORTED)),
        (ABORTED, False, (0, ABORTED), (0, ABORTED)),
    ],
)
async def test_an_end_in_every_state_and_a_new_one_gives_the_next_epoch(
    version, state, commit, old, new
):
    """KIP-890: from version 5 on an abort of nothing bumps too."""
    async with producing() as (producer, one):
        await at_state(producer, state)
        code, after = new if version >= 5 else old
        assert await producer.end(commit=commit, version=version) == code
        assert txn_metadata(one).state is after
        bumped = version >= 5 and code == 0
        assert producer.epoch == txn_metadata(one).epoch == int(bumped)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"transactional_id": ""}, [42] * 6),
        ({"transactional_id": "nobody"}, [49] * 6),
        ({"producer_id": 12_345}, [49] * 6),
        ({"epoch": 5}, [47, 47, 90, 90, 90, 90]),
        ({"epoch": -2}, [47, 47, 90, 90, 90, 90]),
    ],
)
async def test_who_may_not_end_is_told_so_as_its_version_knows_it(version, commit, fields, codes):
    async with in_transaction() as (producer, one):
        wrong = replace(producer, **fields)
        assert await wrong.end(commit=commit, version=version) == codes[version]
        assert txn_metadata(one).state is OPEN
        assert one.node.transactions.stats.challenges == 0


@pytest.mark.parametrize("commit", [True, False])
async def test_a_new_end_that_is_repeated_on_whatever_connection_gives_the_same_epoch_again(commit):
    async with in_transaction("one", "two") as (producer, _one, two):
        again, opposite = producer.copy(), producer.copy()
        assert await producer.end(commit=commit, version=5) == 0
        assert await again.end(commit=commit, version=5, peer=two.connect()) == 0
        assert (again.producer_id, again.epoch) == (producer.producer_id, producer.epoch)
        assert await opposite.end(commit=not commit, version=5, peer=two.connect()) == 48
        assert two.node.transactions.stats.challenges == 0


async def test_a_new_end_needs_no_barrier_and_an_old_one_does():
    """The new one is decided by apply alone; the old one names the instance."""
    async with in_transaction() as (producer, one):
        before = one.log_client.stats.barriers
        assert await producer.end(version=5) == 0
        assert one.log_client.stats.barriers == before
        await producer.add()
        assert await producer.end(version=4) == 0
        assert one.log_client.stats.barriers == before + 1


async def test_an_agent_that_lags_ends_the_transaction_of_its_own_connection_only_when_it_knows_it():
    async with producing("one", "two") as (producer, one, two):
        await two.log_client.barrier()
        two.lag()
        peer = two.connect()
        add = asyncio.create_task(producer.add(peer=peer))
        await asyncio.sleep(0.5)
        peer.send(apis.END_TXN, 3, producer.end_request())
        await asyncio.sleep(0.5)
        assert txn_metadata(one).state is OPEN
        two.catch_up()
        assert await add == {("logs", 0): 0}
        assert (await peer.answer()).error_code == 0
        assert txn_metadata(two).state is COMMITTED


@pytest.mark.parametrize("commit", [True, False])
async def test_one_entry_ends_the_transaction_in_all_its_partitions(commit):
    async with producing() as (producer, one):
        await producer.add({"logs": [0, 1, 2]})
        for index in (0, 1):
            assert await producer.produce(index) == 0
        entries = []
        one.log_client.on_applied(entries.append)
        assert await producer.end(commit=commit) == 0
        (entry,) = entries
        (outcome,) = entry.outcomes
        assert [each.partition for each in outcome.marked] == [0, 1]
        assert [partition(one, index).last_stable for index in range(4)] == [2, 2, 0, 0]


# Proofs and challenges.


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("commit", [True, False])
async def test_an_end_on_another_connection_is_asked_once_to_come_again(version, commit):
    async with in_transaction("one", "two") as (producer, one, two):
        other = two.connect()
        commands = commands_of(one, EndTransaction)
        code = await producer.end(commit=commit, version=version, peer=other)
        assert code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert txn_metadata(one).state is OPEN
        assert commands == []
        assert await producer.end(commit=commit, version=version, peer=other) == 0
        assert txn_metadata(two).state is (COMMITTED if commit else ABORTED)
        stats = two.node.transactions.stats
        assert (stats.challenges, stats.ended[Ending.COMMITTED]) == (1, int(commit))
        assert one.node.transactions.stats.challenges == 0


async def test_an_end_on_the_connection_of_the_adds_is_never_challenged():
    """Claim 4 of the issue: what every client does in normal traffic."""
    async with producing() as (producer, one):
        for number in range(10):
            await producer.add({"logs": [number % 4]})
            await producer.add_offsets("g")
            await producer.add({"logs": [(number + 1) % 4]})
            assert await producer.end(commit=number % 2 == 0) == 0
        stats = one.node.transactions.stats
        assert (stats.challenges, stats.moved) == (0, 0)
        assert (stats.ended[Ending.COMMITTED], stats.ended[Ending.ABORTED]) == (5, 5)


async def test_after_a_challenge_an_opposite_end_on_that_connection_is_believed_too():
    """The client has made up its mind anew; a late one does not read answers."""
    async with in_transaction() as (producer, one):
        other = one.connect()
        assert await producer.end(peer=other) == 51
        assert await producer.end(commit=False, peer=other) == 0


async def test_a_challenge_for_one_transaction_proves_nothing_about_the_next():
    async with producing() as (producer, one):
        other = one.connect()
        await producer.add()
        assert await producer.end(peer=other) == 51
        assert await producer.end() == 0
        await producer.add()
        assert await producer.end(peer=other) == 51
        assert txn_metadata(one).state is OPEN


async def test_an_add_that_joins_from_elsewhere_costs_the_client_one_challenge():
    """Also one that adds nothing: symmetric, so a late one gains nothing."""
    async with in_transaction("one", "two") as (producer, _one, two):
        await producer.add(peer=two.connect())
        assert await producer.end() == 51
        assert await producer.end() == 0


async def test_an_end_that_was_read_before_another_connections_add_does_not_count():
    """Its clock is older than the add, though its connection was challenged before."""
    async with in_transaction("one", "two") as (producer, one, two):
        other = one.connect()
        assert await producer.end(peer=other) == 51
        frame = producer.end_frame(other)
        other.feed(frame[:6])  # Read by now, as far as the clock goes.
        await producer.add({"logs": [1]}, peer=two.connect())
        await one.log_client.barrier()
        other.feed(frame[6:])
        assert (await other.answer()).error_code == 51
        assert txn_metadata(one).state is OPEN
        assert await producer.end(peer=other) == 0


async def test_an_add_that_overtakes_an_end_on_its_way_into_the_log_turns_it_away():
    """Judged here as owner, but another connection's add was appended first."""
    async with in_transaction("one", "two") as (producer, one, two):
        await two.log_client.barrier()
        ends = commands_of(one, EndTransaction)
        joined = []

        real = one.log_client.barrier

        async def barrier():
            await real()
            one.lag()  # What comes now is not seen before the end is proposed.
            joined.append(await two.log_client.propose(other_add))

        other_add = AddToTransaction("id", producer.producer_id, producer.epoch, 1, 77, (), ("g",))
        one.log_client.barrier = barrier
        asked = asyncio.create_task(producer.end())
        await asyncio.sleep(1)
        one.catch_up()
        assert await asked == 51
        assert len(ends) == 1
        assert txn_metadata(one).state is OPEN
        one.log_client.barrier = real
        assert await producer.end() == 0


# When the log is away.


@pytest.mark.parametrize("version", [3, 5])
async def test_without_a_session_an_end_is_sent_again_and_carried_out_then(version):
    async with in_transaction() as (producer, one):
        await one.lose_session()
        assert await producer.end(version=version) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        one.log.down = False
        await one.ready()
        code = await producer.end(version=version)
        # A new incarnation may have begun: its connections are others, as far as the log knows.
        assert code == 0 or (version == 3 and code == 51 and await producer.end() == 0)
        assert txn_metadata(one).state is COMMITTED


@pytest.mark.promise("P4")
@pytest.mark.parametrize("version", [3, 5])
async def test_an_end_whose_fate_stays_open_closes_the_connection_and_is_told_when_asked_again(
    version,
):
    """P4: never an answer that is not true, and REQUEST_TIMED_OUT is fatal to most clients."""
    async with in_transaction("one", "two") as (producer, one, two):
        again = producer.copy()
        real = one.log_client.barrier

        async def barrier():
            await real()
            one.lag()
            one.log.after["append"] = lost()

        one.log_client.barrier = barrier
        if version == 5:
            one.lag()
            one.log.after["append"] = lost()
        producer.peer.send(apis.END_TXN, version, producer.end_request())
        await asyncio.sleep(15)
        assert producer.peer.closed
        assert len(producer.peer.frames()) == 2
        assert one.node.transactions.stats.open_fates == 1
        assert await again.end(version=version, peer=two.connect()) == 0
        assert txn_metadata(two).state is COMMITTED
        one.log.after.clear()


@pytest.mark.promise("P17")
async def test_after_a_stall_an_end_is_refused_and_its_repetition_is_carried_out():
    """P17, with the code that clients of transactions take as "send it again"."""
    async with in_transaction() as (producer, one):
        now = one.server.node.boot_ms
        one.server.node.boot_ms = lambda: now() + 5_000
        assert await producer.end() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await producer.end() == 0
