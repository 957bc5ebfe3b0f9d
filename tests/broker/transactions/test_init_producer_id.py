"""InitProducerId with a transactional id: ids, epochs, fencing, and its errors by version."""

import asyncio

import pytest

from broker.transactions.stats import Ending
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import InitProducerIdRequest
from tests.broker.groups.world import agents
from tests.broker.transactions.world import (
    ABORTED,
    EMPTY,
    OPEN,
    Producer,
    commands_of,
    partition,
    producing,
    records,
    txn_metadata,
)
from tests.kit.client import caught_up
from tests.kit.faults import lost

VERSIONS = range(6)


async def ask(agent, version=5, **fields):
    fields = {"transactional_id": "id", "transaction_timeout_ms": 60_000} | fields
    return await agent.call(apis.INIT_PRODUCER_ID, InitProducerIdRequest(**fields), version=version)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_transactional_id_keeps_its_producer_id_and_each_producer_has_an_epoch(version):
    async with agents("one", "two") as (one, two):
        first = await ask(one, version)
        assert (first.error_code, first.producer_epoch) == (0, 0)
        second = await ask(two, version)
        assert (second.error_code, second.producer_epoch) == (0, 1)
        assert second.producer_id == first.producer_id
        other = await ask(one, version, transactional_id="other")
        assert other.producer_id != first.producer_id


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_000}, ErrorCode.NONE),
        ({"transactional_id": "", "transaction_timeout_ms": 0}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x" * 32_767}, ErrorCode.NONE),
    ],
)
async def test_what_is_asked_is_looked_at_in_kafkas_order(version, fields, code):
    async with agents() as (one,):
        answer = await ask(one, version, **fields)
        assert answer.error_code == code
        assert (answer.producer_id == -1) == (code != 0)


@pytest.mark.parametrize("fields", [{"producer_id": 3}, {"producer_epoch": 3}])
async def test_an_id_without_an_epoch_or_the_reverse_is_refused_before_anything_else(fields):
    async with agents() as (one,):
        answer = await ask(one, 4, transaction_timeout_ms=0, **fields)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_the_longest_timeout_is_a_setting():
    async with agents(transaction_max_timeout_ms="1000") as (one,):
        assert (await ask(one, transaction_timeout_ms=1_001)).error_code == 50
        assert (await ask(one, transaction_timeout_ms=1_000)).error_code == 0


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90), (5, 90)])
async def test_an_epoch_that_another_producer_has_taken_over_is_fenced(version, code):
    async with agents() as (one,):
        old = await Producer.begin(one)
        await Producer.begin(one)
        assert await old.init(given=True, version=version) == code
        assert txn_metadata(one).epoch == 1


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_producer_bumps_its_own_epoch_and_may_repeat_that(version):
    """KIP-360."""
    async with producing("one", "two") as (producer, _one, two):
        before = producer.copy()
        assert await producer.init(given=True, version=version) == 0
        assert producer.epoch == 1
        assert await before.init(given=True, version=version, peer=two.connect()) == 0
        assert before.epoch == 1


async def test_a_takeover_aborts_the_open_transaction_in_the_same_entry_and_costs_one_epoch():
    async with agents("one", "two") as (one, two):
        old = await Producer.begin(one)
        await old.add()
        assert await old.produce() == 0
        assert partition(one).last_stable == 0
        entries = commands_of(two, object)
        new = await Producer.begin(two)
        assert len(entries) == 1
        assert (new.producer_id, new.epoch) == (old.producer_id, 1)
        assert txn_metadata(two).state is EMPTY
        assert partition(two).last_stable == partition(two).end_offset == 2
        assert await records(two) == []
        assert await old.end() == ErrorCode.PRODUCER_FENCED
        assert two.node.transactions.stats.ended[Ending.FENCED] == 1


async def test_an_agent_that_lags_still_gives_the_newest_epoch():
    async with agents("one", "two") as (one, two):
        await Producer.begin(one)
        two.lag()
        await Producer.begin(one)
        assert (await caught_up(two, ask(two))).producer_epoch == 2


async def test_when_the_fate_stays_open_the_connection_is_closed_and_the_client_gets_on_by_asking_again():
    """P4: the answer of the log is lost again and again."""
    async with producing() as (producer, one):
        assert (await producer.add())["logs", 0] == 0
        one.log.after["append"] = lost()
        peer = one.connect()
        peer.send(
            apis.INIT_PRODUCER_ID,
            4,
            InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000),
        )
        one.lag()
        await asyncio.sleep(12)
        assert peer.closed
        assert not peer.frames()
        assert one.node.transactions.stats.open_fates == 1
        one.log.after.clear()
        one.catch_up()
        assert txn_metadata(one).state is not ABORTED
        answer = await ask(one)
        assert (answer.error_code, answer.producer_epoch) == (0, 2)
        assert txn_metadata(one).state is not OPEN
