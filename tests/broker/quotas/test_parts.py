"""A quota of the cluster, shared out among agents."""

import asyncio

import pytest

from broker.quotas.parts import IDLE_PART, UsageSoFar, demand, shares
from broker.upkeep.quota_usage import REPORT_S, UsageReports
from coordinator.commands.config_commands import Quota
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, restore
from tests.broker.quotas.test_enforcement import limit, produced
from tests.kit.batches import batch

LIMIT = 1_000.0


@pytest.mark.parametrize(
    "demands",
    [[0.0], [0.0, 0.0, 0.0], [LIMIT, 0.0], [LIMIT, LIMIT, LIMIT], [100.0, LIMIT, 5.0], [300.0] * 7],
)
def test_parts_are_the_quota_and_nobody_has_nothing(demands):
    parts = shares(demands, LIMIT)
    assert sum(parts) == pytest.approx(LIMIT)
    assert min(parts) >= IDLE_PART * LIMIT / len(demands)


@pytest.mark.parametrize(
    ("demands", "parts"),
    [
        ([0.0, 0.0], [500.0, 500.0]),
        ([LIMIT, LIMIT], [500.0, 500.0]),
        ([LIMIT, 0.0], [975.0, 25.0]),
        ([LIMIT, 200.0], [750.0, 250.0]),
        ([LIMIT, LIMIT, 40.0], [475.0, 475.0, 50.0]),
        ([100.0, 100.0], [500.0, 500.0]),
    ],
    ids=str,
)
def test_who_wants_little_gets_it_and_some_room_and_the_others_share_the_rest(demands, parts):
    assert shares(demands, LIMIT) == pytest.approx(parts)


@pytest.mark.parametrize(
    ("used", "waited_ms", "wanted"),
    [(0, 0, 0), (800, 0, 400), (800, 1_000, 800), (1_800, 1_500, LIMIT), (10, 2_000, LIMIT)],
)
def test_who_had_to_wait_wants_what_it_would_have_used_all_the_time(used, waited_ms, wanted):
    before = UsageSoFar(5_000, 100.0, 300)
    now = UsageSoFar(7_000, 100.0 + used, 300 + waited_ms)
    assert demand(before, now, LIMIT) == wanted


async def reported(*agents):
    await asyncio.sleep(REPORT_S)
    for agent, reports in agents:
        await reports.look()
        await agent.log_client.barrier()
    for _, reports in agents:
        await reports.look()


def quota_of(agent) -> float:
    (sensor,) = agent.node.quotas.sensors.of(Quota.PRODUCER_BYTE_RATE)
    return sensor.quota


async def test_agents_share_a_quota_by_what_their_clients_want(world):
    async with world.agents("one", "two") as (one, two):
        await one.create_topic("t")
        await limit(one, Quota.PRODUCER_BYTE_RATE, LIMIT)
        agents = [(agent, UsageReports(agent.node)) for agent in (one, two)]
        await reported(*agents)
        assert len(one.machine.quota_usage) == 0, "nobody says that there was nothing"
        for agent in (one, two):
            await agent.log_client.barrier()
            await produced(agent.connect(), batch(bytes(100)))
            assert quota_of(agent) == 500
        assert await produced(one.connect(), batch(bytes(15_000))) > 0
        await reported(*agents)
        assert quota_of(one) > 850
        assert quota_of(one) + quota_of(two) == pytest.approx(LIMIT, rel=0.001)
        assert await produced(two.connect(), batch(bytes(5_000))) > 0
        assert await produced(one.connect(), batch(bytes(15_000))) > 0
        await reported(*agents)
        assert [quota_of(one), quota_of(two)] == pytest.approx([500, 500], rel=0.001)
        await asyncio.sleep(30)
        await reported(*agents)
        assert len(one.machine.quota_usage) == 0, "that nothing is used was said once"


async def test_what_an_agent_uses_is_forgotten_with_it_and_kept_in_snapshots(world):
    async with world.agents("one", "two") as (one, two):
        await one.create_topic("t")
        await limit(one, Quota.PRODUCER_BYTE_RATE, LIMIT)
        await two.log_client.barrier()
        await produced(two.connect(), batch(bytes(100)))
        await UsageReports(two.node).look()
        await one.log_client.barrier()
        incarnation = two.log_client.incarnation()
        (row,) = one.machine.quota_usage.of(incarnation)
        assert (row.user, row.client_id) == ("", "test")
        again = Machine()
        restore(again, [*dump(one.machine)])
        assert again.quota_usage.of(incarnation) == (row,)
        await two.log_client.leave()
        await one.log_client.barrier()
        assert len(one.machine.quota_usage) == 0
