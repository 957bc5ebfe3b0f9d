"""Frames of Produce with batches of transactions, between other frames and read in any way."""

import pytest

from coordinator.commands.entries import DeleteTopic
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import EndTxnRequest, MetadataRequest, MetadataRequestTopic
from tests.broker.groups.world import agents
from tests.broker.transactions.world import (
    COMMITTED,
    EMPTY,
    OPEN,
    Producer,
    in_transaction,
    partition,
    producing,
    records,
    txn_metadata,
)

CODES = {9: ErrorCode.INVALID_TXN_STATE, 11: ErrorCode.TRANSACTION_ABORTABLE}
"""What a batch outside of a transaction is told."""


def frame(
    producer: Producer,
    peer,
    *indexes: int,
    value: bytes = b"v",
    sequence: int = 0,
    version: int = 9,
    acks: int = -1,
) -> bytes:
    """A Produce request with one record for each of these partitions."""
    request = producer.produce_request(*indexes or (0,), value=value, sequence=sequence, acks=acks)
    return peer.frame(apis.PRODUCE, version, request)


def code_of(answer) -> int:
    return answer.responses[0].partition_responses[0].error_code


async def next_transaction(agent, producer: Producer, *, commit: bool = True) -> None:
    """The client goes on at this agent: the open transaction ends, and another one begins."""
    peer = agent.connect()
    code = await producer.end(commit=commit, peer=peer)
    assert code == 0 or await producer.end(commit=commit, peer=peer) == 0
    assert await producer.add(peer=peer) == {("logs", 0): 0}


@pytest.mark.parametrize("commit", [True, False])
async def test_a_frame_of_which_one_half_comes_after_the_end_is_not_of_the_next_transaction(commit):
    async with in_transaction("one", "two") as (producer, one, two):
        peer = one.connect()
        late = frame(producer, peer, value=b"late")
        peer.feed(late[:100])
        await next_transaction(two, producer, commit=commit)
        await one.log_client.barrier()
        peer.feed(late[100:])
        assert code_of(await peer.answer()) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await producer.produce(0, b"next", peer=peer) == 0
        assert await records(one, committed=False) == [b"next"]


async def test_a_frame_that_waits_for_its_turn_while_its_transaction_ends_is_not_of_the_next_one():
    async with in_transaction("one", "two") as (producer, one, two):
        await one.log_client.barrier()
        peer = one.connect()
        one.lag()
        # Metadata of a name that nobody knows waits for a barrier, and Produce behind it.
        unknown = MetadataRequest(topics=[MetadataRequestTopic(name="nothing")])
        first = peer.frame(apis.METADATA, 9, unknown)
        peer.feed(first + frame(producer, peer, value=b"late"))
        await next_transaction(two, producer)
        one.catch_up()
        await peer.answer()
        assert code_of(await peer.answer()) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition(one).end_offset == 0


async def test_behind_the_end_and_the_next_add_on_one_connection_a_batch_is_sent_back_and_then_taken():
    """No client does so: what was read before the answer to EndTxn may have been meant for that."""
    async with producing() as (producer, one):
        peer = producer.peer
        await producer.add()
        assert await producer.produce(0, b"1") == 0
        frames = [
            producer.end_frame(peer),
            producer.add_frame(peer),
            frame(producer, peer, value=b"2", sequence=1),
        ]
        peer.feed(b"".join(frames))
        assert (await peer.answer()).error_code == 0
        await peer.answer()
        assert code_of(await peer.answer()) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await producer.produce(0, b"2") == 0
        assert await producer.end() == 0
        assert await records(one) == [b"1", b"2"]


async def test_behind_its_add_on_one_connection_a_batch_finds_its_transaction():
    async with producing() as (producer, one):
        peer = producer.peer
        peer.feed(producer.add_frame(peer) + frame(producer, peer) + producer.end_frame(peer))
        await peer.answer()
        assert code_of(await peer.answer()) == 0
        assert (await peer.answer()).error_code == 0
        assert txn_metadata(one).state is COMMITTED
        assert await records(one) == [b"v"]


@pytest.mark.parametrize("version", [9, 11])
async def test_an_end_behind_batches_on_one_connection_ends_all_of_them(version):
    async with producing() as (producer, one):
        peer = producer.peer
        await producer.add({"logs": [0, 1]})
        values = [b"%d" % number for number in range(20)]
        frames = [
            frame(producer, peer, 0, 1, value=value, sequence=number, version=version)
            for number, value in enumerate(values)
        ]
        peer.feed(b"".join(frames) + producer.end_frame(peer))
        for _ in values:
            assert code_of(await peer.answer()) == 0
        assert (await peer.answer()).error_code == 0
        assert await records(one, 0) == await records(one, 1) == values
        assert partition(one).end_offset == len(values) + 1


async def test_after_a_stall_a_batch_is_refused_and_its_repetition_is_taken_once():
    async with in_transaction() as (producer, one):
        peer = one.connect()
        assert await producer.produce(0, b"1", peer=peer) == 0
        now = one.server.node.boot_ms
        one.server.node.boot_ms = lambda: now() + 5_000
        assert await producer.produce(0, b"2", peer=peer) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await producer.produce(0, b"2", peer=peer) == 0
        assert await records(one, committed=False) == [b"1", b"2"]


@pytest.mark.parametrize("version", [9, 11])
async def test_offsets_alone_make_no_partition_take_part(version):
    async with producing() as (producer, one):
        assert await producer.add_offsets("g") == 0
        assert await producer.produce(0, version=version) == CODES[version]
        assert txn_metadata(one).state is OPEN
        assert partition(one).end_offset == 0


async def test_a_transaction_that_a_newer_batch_began_is_ended_by_an_older_request_after_a_challenge():
    """No client mixes the generations within a transaction; nothing is lost if one does."""
    async with producing() as (producer, one):
        assert await producer.produce(0, b"1", version=12) == 0
        assert await producer.end() == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await producer.end() == 0
        assert (txn_metadata(one).state, txn_metadata(one).epoch) == (COMMITTED, 0)
        assert await records(one) == [b"1"]
        # The epoch has stayed, so its sequences go on.
        assert await producer.produce(0, b"2", version=12) == 0
        assert await producer.end(version=5) == 0
        assert await records(one) == [b"1", b"2"]


async def test_a_batch_that_an_earlier_request_with_the_new_epoch_overtook_is_refused():
    async with producing("one", "two") as (producer, one, two):
        assert await producer.produce(0, b"1", version=12) == 0
        zombie = producer.copy()
        zombie.sequences = {0: 1}
        assert await producer.end(commit=False, version=5) == 0
        assert await producer.produce(0, b"2", version=12, peer=two.connect()) == 0
        code = await zombie.produce(0, b"late", version=12)
        assert code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.end(version=5, peer=two.connect()) == 0
        assert await records(one) == [b"2"]


@pytest.mark.parametrize("version", [9, 12])
async def test_what_is_told_to_be_committed_is_seen_at_once_at_that_agent(version):
    async with agents("one", "two") as (one, two):
        producer = await Producer.begin(two)
        for number in range(5):
            if version < 12:
                await producer.add()
            assert (
                await producer.produce(0, b"%d" % number, version=version, peer=one.connect()) == 0
            )
            assert await producer.end(version=5 if version >= 12 else 3) == 0
            assert partition(two).last_stable == partition(two).end_offset == 2 * number + 2
        assert await records(one) == [b"%d" % number for number in range(5)]
        assert two.node.transactions.stats.challenges == 0


async def test_a_topic_that_was_deleted_drops_out_of_the_transaction_and_the_rest_is_committed():
    async with agents() as (one,):
        other = await one.create_topic("other", 1)
        producer = await Producer.begin(one)
        assert await producer.add({"logs": [0], "other": [0]}) == {
            ("logs", 0): 0,
            ("other", 0): 0,
        }
        assert await producer.produce(0, b"1") == 0
        await one.log_client.propose(DeleteTopic(other.topic_id))
        assert await producer.end() == 0
        assert await records(one) == [b"1"]


async def test_an_end_of_another_producers_transaction_by_its_id_alone_changes_nothing():
    async with agents() as (one,):
        mine, other = await Producer.begin(one, "mine"), await Producer.begin(one, "other")
        await mine.add()
        assert await mine.produce(0, b"1") == 0
        for transactional_id, code in (("mine", 49), ("other", 48), ("nobody", 49)):
            request = EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=other.producer_id,
                producer_epoch=other.epoch,
                committed=True,
            )
            for version in (0, 3, 5):
                answer = await one.connect().call(apis.END_TXN, version, request)
                assert answer.error_code == code
        assert txn_metadata(one, "mine").state is OPEN
        assert txn_metadata(one, "other").state is EMPTY
