"""Stories of whole transactions: consume-transform-produce, two generations of clients, zombies."""

import asyncio
import random
from functools import partial

import pytest

from broker.transactions.stats import Ending
from protocol.errors import ErrorCode
from tests.broker.groups.members import classic_group, fetched, rows
from tests.broker.groups.world import agents, group_of
from tests.broker.transactions.world import (
    OPEN,
    LateClient,
    Producer,
    in_transaction,
    of_member,
    producing,
    records,
    txn_metadata,
)

LOGS0 = ("logs", 0)


@pytest.mark.parametrize("generation", ["TV1", "TV2"])
async def test_consume_transform_produce_with_a_groups_offsets_is_all_or_nothing(generation):
    """Producer at one agent, the group's coordinator at the other."""
    async with agents("one", "two") as (one, two):
        group_id = group_of(two)
        (member,) = await classic_group(two, group_id, {"logs": [0, 1, 2, 3]})
        fenced = of_member(member)
        producer = await Producer.begin(one)
        new = generation == "TV2"
        expected: list[bytes] = []
        for number, commit in enumerate([True, False, True, False, True]):
            value = b"%d" % number
            if not new:
                await producer.add({"logs": [1, 2]})
                assert await producer.add_offsets(group_id) == 0
            for index in (1, 2):
                assert await producer.produce(index, value, version=12 if new else 9) == 0
            answer = await producer.commit_offsets(
                two, group_id, {LOGS0: 10 + number}, version=5 if new else 3, **fenced
            )
            assert answer == {LOGS0: 0}
            before = await fetched(two, group_id, {"logs": [0]})
            assert await producer.end(commit=commit, version=5 if new else 3) == 0
            await two.log_client.barrier()
            if commit:
                expected.append(value)
                assert await fetched(two, group_id, {"logs": [0]}) == {LOGS0: 10 + number}
            else:
                assert await fetched(two, group_id, {"logs": [0]}) == before
            for index in (1, 2):
                assert await records(two, index) == await records(one, index) == expected
        assert one.node.transactions.stats.challenges == 0
        assert producer.epoch == (5 if new else 0)


async def test_a_member_that_its_group_has_lost_commits_nothing_more():
    """KIP-447: the zombie's generation is over, whatever its transaction says."""
    async with agents() as (one,):
        (old,) = await classic_group(one, "g", {"logs": [0]})
        producer = await Producer.begin(one)
        assert await producer.add_offsets("g") == 0
        await classic_group(one, "g", {"logs": [0]}, {"logs": [1]}, before=[old])
        answer = await producer.commit_offsets(one, "g", {LOGS0: 7}, **of_member(old))
        assert answer == {LOGS0: ErrorCode.ILLEGAL_GENERATION}
        assert await producer.end(commit=False) == 0
        assert rows(one, "g") == {}


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_client_that_learns_of_the_new_generation_switches_in_mid_life(at_once):
    """Java: ends the open transaction the old way, asks for the next epoch, and goes on."""
    async with producing() as (producer, one):
        await producer.add({"logs": [0]})
        assert await producer.produce(0, b"old") == 0
        if at_once:
            # An older generation's transaction ended the new way, as franz-go may after an update.
            assert await producer.end(version=5) == 0
        else:
            assert await producer.end(version=4) == 0
            assert await producer.init(given=True, version=5) == 0
        assert producer.epoch == 1
        assert await producer.produce(0, b"new", version=12) == 0
        assert await producer.produce(3, b"more", version=12) == 0
        assert (txn_metadata(one).state, txn_metadata(one).instance) == (OPEN, 2)
        assert await producer.end(version=5) == 0
        assert await records(one, 0) == [b"old", b"new"]
        assert await records(one, 3) == [b"more"]
        # And back, when its features are taken away from it.
        await producer.add({"logs": [0]})
        assert await producer.produce(0, b"again") == 0
        assert await producer.end(version=3) == 0
        assert await records(one, 0) == [b"old", b"new", b"again"]
        assert one.node.transactions.stats.challenges == 0


@pytest.mark.parametrize("generation", ["TV1", "TV2"])
async def test_of_two_live_producers_the_older_is_fenced_everywhere(generation):
    async with agents("one", "two") as (one, two):
        new = generation == "TV2"
        old = await Producer.begin(one)
        if not new:
            await old.add()
        assert await old.produce(0, b"lost", version=12 if new else 9) == 0
        young = await Producer.begin(two)
        if not new:
            assert [*(await old.add()).values()] == [ErrorCode.PRODUCER_FENCED]
            assert await old.add_offsets("g") == ErrorCode.PRODUCER_FENCED
        assert await old.produce(0, version=12 if new else 9) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.end(version=5 if new else 3) == ErrorCode.PRODUCER_FENCED
        assert await old.init(given=True) == ErrorCode.PRODUCER_FENCED
        if not new:
            await young.add()
        assert await young.produce(0, b"kept", version=12 if new else 9) == 0
        assert await young.end(version=5 if new else 3) == 0
        assert await records(one) == [b"kept"]


async def test_a_transaction_may_be_carried_on_at_another_agent_when_one_goes_away():
    """Any agent serves any id; the new connection costs one challenge."""
    async with in_transaction("one", "two") as (producer, one, two):
        assert await producer.produce(0, b"before") == 0
        await one.lose_session()
        producer.peer = two.connect()
        await producer.add({"logs": [1]})
        assert await producer.produce(1, b"after") == 0
        assert await producer.end() == 51
        assert await producer.end() == 0
        assert await records(two, 0) == [b"before"]
        assert await records(two, 1) == [b"after"]
        stats = two.node.transactions.stats
        assert (stats.challenges, stats.ended[Ending.COMMITTED]) == (1, 1)


async def test_nothing_is_lost_while_the_log_is_away():
    """Every request is answered with 14, and the transaction goes on where it was."""
    async with in_transaction() as (producer, one):
        assert await producer.produce(0, b"first") == 0
        await one.lose_session()
        assert await producer.add({"logs": [1]}) == {("logs", 1): 14}
        assert await producer.add_offsets("g") == 14
        assert await producer.end() == 14
        assert await producer.copy().init() == 14
        one.log.down = False
        await one.ready()
        await producer.add({"logs": [1]})
        assert await producer.produce(1, b"second") == 0
        code = await producer.end()
        assert code in (0, 51)
        assert code == 0 or await producer.end() == 0
        assert await records(one, 0) == [b"first"]
        assert await records(one, 1) == [b"second"]


class Client(LateClient):
    """A TV1 client (docs/design/kafka-semantics.md §6.1): repeats on a new connection."""

    def release(self) -> None:
        """Somebody reads one of the old connections at last."""
        if self.left and self.rng.random() < 0.3:
            self.left.pop(self.rng.randrange(len(self.left))).pump()

    async def pause(self) -> None:
        self.release()
        await asyncio.sleep(self.rng.random() * 0.05)
        self.release()

    async def insist(self, ask) -> int:
        for _ in range(20):
            await self.pause()
            code = await ask()
            if code not in (51, 14, 19):
                return code
        raise AssertionError("asked in vain")

    async def add(self, index: int) -> int:
        if self.rng.random() < 0.15:
            self.leave_unread(self.producer.add_frame(self.producer.peer, {"logs": [index]}))

        async def ask():
            return (await self.producer.add({"logs": [index]}))["logs", index]

        return await self.insist(ask)

    async def end(self, *, commit: bool) -> int:
        producer, peer = self.producer, self.producer.peer
        draw = self.rng.random()
        if draw < 0.3:
            self.leave_unread(producer.end_frame(peer, commit=commit))
        elif draw < 0.4 and not commit:  # librdkafka: the abort is sent behind an add.
            add = producer.add_frame(peer, {"logs": [2]})
            self.leave_unread(add, producer.end_frame(peer, commit=False))
        return await self.insist(lambda: producer.end(commit=commit))


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_is_read_late_every_transaction_is_whole(seed):
    """Each writes one value into two partitions; readers see it in both or in none.

    An add that is read late may open a transaction that nobody wanted, which the next one then
    joins (docs/design/kafka-semantics.md §6.3, hole 4); so nothing else is told of
    instances here. Such an add with an abort behind it, read between the end of the client's
    transaction and the client's repetition of EndTxn(commit), gives that a 48, as in Kafka: the
    producer begins anew and does not know.
    """
    async with agents("one", "two") as (one, two):
        rng = random.Random(seed)
        producer = await Producer.begin(one)
        client = Client((one, two), producer, rng)
        committed: list[bytes] = []
        in_doubt: list[bytes] = []
        for number in range(12):
            value, commit = b"%d" % number, rng.random() < 0.6
            for index in (0, 1):
                assert await client.add(index) == 0
            for index in (0, 1):
                assert await client.insist(partial(producer.produce, index, value)) == 0
            code = await client.end(commit=commit)
            if code == ErrorCode.INVALID_TXN_STATE:
                in_doubt.append(value)
                assert await client.insist(producer.init) == 0
            else:
                assert code == 0
                committed += [value] if commit else []
        for peer in client.left:
            peer.pump()
        await asyncio.sleep(1)
        seen = await records(one, 0)
        assert await records(two, 1) == seen
        assert [value for value in seen if value not in in_doubt] == committed
        assert len(in_doubt) <= 2
