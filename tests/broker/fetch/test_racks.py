"""Fetch by consumers that tell a rack: who is sent on, to whom, and what the answer holds (KIP-392)."""

import asyncio

import pytest

from protocol.errors import ErrorCode
from protocol.messages import hot
from tests.broker.agents import World
from tests.broker.produce.world import Agent
from tests.kit.batches import batch


async def _until_live(world: World, *agents: Agent, count: int) -> None:
    """Wait until all of `agents` know of so many live agents."""
    for agent in agents:
        while len(list(agent.log_client.machine.incarnations)) != count:
            await asyncio.sleep(0.01)


@pytest.mark.promise("P7")
@pytest.mark.parametrize("isolation", [0, 1])
async def test_a_consumer_of_another_zone_is_sent_on_at_once_with_bounds_and_without_records(
    isolation: int, world: World
) -> None:
    async with world.with_topic("here@a", "there@b") as (here, there):
        for _ in range(3):
            await here.produce("t", batch(b"x")).wait()
        waiting = here.fetch("t", 3, rack_id="b", max_wait_ms=60_000, isolation=isolation)
        assert waiting.there
        for offset in (0, 3):
            answer = await here.fetch("t", offset, rack_id="b", isolation=isolation).partition()
            assert answer.error_code == ErrorCode.NONE
            assert answer.preferred_read_replica == there.node_id
            assert not answer.records
            bounds = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
            assert bounds == (3, 3, 0)
            assert answer.aborted_transactions is None
        assert here.fetching.stats.sent_on == 3
        assert here.fetching.stats.other_rack_bytes == 0


SERVED, SENT_ON = "served", "sent on"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"rack_id": "b"}, SENT_ON),
        ({"rack_id": "b", "version": 16}, SENT_ON),
        ({"rack_id": "b", "replica_id": -2}, SENT_ON),
        ({"rack_id": "a"}, SERVED),
        ({"rack_id": ""}, SERVED),
        ({"rack_id": "nowhere"}, SERVED),
        ({"rack_id": "b", "version": 10}, SERVED),
        ({"rack_id": "b", "replica_id": 7}, SERVED),
        ({"rack_id": "b", "offset": -2}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"rack_id": "b", "offset": 2}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"rack_id": "b", "current_leader_epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"rack_id": "b", "topic": "other"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=str,
)
async def test_who_is_sent_on(told: dict[str, object], expected: object, world: World) -> None:
    async with world.with_topic("here@a", "there@b") as (here, there):
        await here.produce("t", batch(b"x")).wait()
        given = dict(told)
        version = given.setdefault("version", 11)
        name, offset = given.pop("topic", "t"), given.pop("offset", 0)
        if version == 10:
            del given["rack_id"]  # It has no place there.
        name = here.row("t").topic_id if version == 16 else name
        row = await here.fetch(name, offset, **given).partition()
        code = ErrorCode.NONE if expected in {SERVED, SENT_ON} else expected
        where = there.node_id if expected is SENT_ON else -1
        assert (row.error_code, row.preferred_read_replica) == (code, where)
        assert bool(row.records) == (expected is SERVED)


async def test_an_agent_without_a_zone_sends_on_too(world: World) -> None:
    async with world.with_topic("here", "there@b") as (here, there):
        answer = await here.fetch("t", 0, rack_id="b").partition()
        assert answer.preferred_read_replica == there.node_id


async def test_of_several_agents_in_the_zone_the_one_is_named_that_metadata_shows(
    world: World,
) -> None:
    async with world.agents("here@a", "b0@b", "b1@b", "b2@b") as (here, *there):
        topic = await here.create_topic("t", partitions=40)
        rows = await here.fetch("t", *[0] * 40, rack_id="b").partitions()
        named = [row.preferred_read_replica for row in rows]
        placement = here.fetching._placement("PLAINTEXT")
        shown = placement.replicas(topic.topic_id, range(40), zone="")
        assert all(one in replicas for one, replicas in zip(named, shown, strict=True))
        assert set(named) == {agent.node_id for agent in there}


async def test_every_agent_of_the_zone_serves_whoever_metadata_names(world: World) -> None:
    async with world.with_topic("here@a", "b0@b", "b1@b", partitions=8) as (here, *there):
        await here.produce("t", *[batch(b"x")] * 8).wait()
        for agent in there:
            await agent.log_client.barrier()
            rows = await agent.fetch("t", *[0] * 8, rack_id="b").partitions()
            assert all(row.records and row.preferred_read_replica == -1 for row in rows)
            stats = agent.fetching.stats
            assert stats.own_rack_bytes == stats.answered_bytes == 8 * len(batch(b"x"))


@pytest.mark.promise("P16")
async def test_without_a_proven_session_nobody_is_sent_on(world: World) -> None:
    async with world.with_topic("here@a", "there@b") as (here, _there):
        await here.produce("t", batch(b"x")).wait()
        await here.lose_session()
        answer = await here.fetch("t", 0, rack_id="b").partition()
        assert (bool(answer.records), answer.preferred_read_replica) == (True, -1)
        assert here.fetching.stats.other_rack_bytes == len(batch(b"x"))
        here.log.down = False
        await here.ready()
        answer = await here.fetch("t", 0, rack_id="b").partition()
        assert not answer.records


async def test_a_fetch_that_waited_when_an_agent_of_its_zone_came_is_sent_on_without_records(
    world: World,
) -> None:
    async with world.with_topic("here@a") as (here,):
        waiting = here.fetch("t", 0, rack_id="b", max_wait_ms=60_000)
        assert not waiting.there
        there = await world.add("there@b").ready()
        await _until_live(world, here, count=2)
        await here.produce("t", batch(b"x")).wait()
        answer = await waiting.partition()
        assert answer.preferred_read_replica == there.node_id
        assert not answer.records


async def test_when_the_agent_of_the_zone_has_left_its_consumers_are_served_elsewhere(
    world: World,
) -> None:
    async with world.with_topic("here@a", "there@b") as (here, there):
        await here.produce("t", batch(b"x")).wait()
        assert not (await here.fetch("t", 0, rack_id="b").partition()).records
        await there.log_client.leave()
        await _until_live(world, here, count=1)
        answer = await here.fetch("t", 0, rack_id="b").partition()
        assert (bool(answer.records), answer.preferred_read_replica) == (True, -1)


async def test_a_session_tells_where_to_go_until_the_partition_is_forgotten_and_lives_on(
    world: World,
) -> None:
    async with world.agents("here@a") as (here,):
        topic = await here.create_topic("t", partitions=2)
        await here.produce("t", batch(b"x"), batch(b"y")).wait()
        full = await here.fetch("t", 1, 1, rack_id="b", session_epoch=0).wait()
        session = full.session_id
        there = await world.add("there@b").ready()
        await _until_live(world, here, count=2)

        def ask(epoch: int, rack: str = "b", **fields):
            request = hot.FetchRequest(
                min_bytes=1, session_id=session, session_epoch=epoch, rack_id=rack, **fields
            )
            return here.send(1, 11, request)

        for epoch in (1, 2):  # Nothing else is new, and both are told each time.
            answer = await ask(epoch).wait()
            assert (answer.error_code, answer.session_id) == (0, session)
            rows = answer.responses[0].partitions
            assert [row.partition_index for row in rows] == [0, 1]
            assert {row.preferred_read_replica for row in rows} == {there.node_id}
            assert {row.high_watermark for row in rows} == {1}
        gone = hot.ForgottenTopic(topic=topic.name, partitions=[0])
        (row,) = (await ask(3, forgotten_topics_data=[gone]).wait()).responses[0].partitions
        assert (row.partition_index, row.preferred_read_replica) == (1, there.node_id)
        # Back again, as a client is whose lease of the other one is over: bounds were sent.
        assert (await ask(4, rack="").wait()).responses == []


async def test_that_a_log_diverges_is_told_before_anybody_is_sent_on(world: World) -> None:
    async with world.with_topic("here@a", "there@b") as (here, _there):
        fetched = here.fetch("t", 5, version=12, last_fetched_epoch=0, rack_id="b")
        row = await fetched.partition()
        assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 0)
        assert row.preferred_read_replica == -1
