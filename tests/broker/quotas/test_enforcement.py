"""Clients over their quotas: what they are told, and for how long they are not heard."""

import asyncio
import contextlib

import pytest

from broker.admin import quota_metrics
from broker.quotas import sensors as sensors_module
from coordinator.commands.config_commands import (
    AlterClientQuotas,
    EntityPart,
    EntityType,
    Quota,
    QuotaChange,
)
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.kit import requests
from tests.kit.batches import batch, produce_request
from tests.kit.client import settle

ANY_CLIENT = (EntityPart(EntityType.CLIENT_ID, None),)
ANONYMOUS = (EntityPart(EntityType.USER, "ANONYMOUS"),)
HERE = (EntityPart(EntityType.IP, "10.0.0.1"),)
BYTES = 15_000


async def limit(agent, quota, value, entity=ANY_CLIENT):
    await agent.log_client.propose(AlterClientQuotas((QuotaChange(entity, quota, value),)))


@contextlib.asynccontextmanager
async def limited(world, quota, value, entity=ANY_CLIENT):
    async with world.agents("one") as (one,):
        await one.create_topic("t")
        await limit(one, quota, value, entity)
        yield one


def throttle_of(sent: int, quota: float) -> int:
    """Of somebody who has sent so much at once; a second's worth is free."""
    return round((sent - quota) / quota * 1_000)


async def produced(client, data, **more):
    """For how many ms the client is told to wait."""
    answer = await client.call(apis.PRODUCE, 9, produce_request("t", data), **more)
    assert requests.rows_of(answer)["t", 0].error_code == 0
    return answer.throttle_time_ms


def fetching(**more):
    return requests.fetch({("t", 0): 0}, max_wait_ms=0, **more)


async def test_without_quotas_nobody_waits(world):
    async with world.agents("one") as (one,):
        await one.create_topic("t")
        assert await produced(one.connect(), batch(bytes(BYTES))) == 0
        assert len(one.node.quotas.sensors) == 0


@pytest.mark.parametrize("version", [3, 9])
async def test_a_producer_over_its_quota_is_told_to_wait_and_not_heard_so_long(version, world):
    async with limited(world, Quota.PRODUCER_BYTE_RATE, 3_000.0) as one:
        client = one.connect()
        request = produce_request("t", batch(bytes(BYTES)))
        frame = client.frame(apis.PRODUCE, version, request)
        client.feed(frame)
        answer = await client.answer()
        wait_ms = throttle_of(len(frame) - 4, 3_000)
        # Less what passed until the answer.
        assert answer.throttle_time_ms == pytest.approx(wait_ms, abs=200)
        begun_ms = world.boot_ms()
        client.send(apis.METADATA, 9, requests.metadata("t"))
        assert (await client.answer()).topics
        assert world.boot_ms() - begun_ms == pytest.approx(answer.throttle_time_ms, abs=50)


async def test_a_producer_that_wants_no_answer_is_not_heard_either(world):
    async with limited(world, Quota.PRODUCER_BYTE_RATE, 1_000.0) as one:
        client = one.connect()
        client.send(apis.PRODUCE, 9, produce_request("t", batch(bytes(BYTES)), acks=0))
        while not one.server.mutes:
            await asyncio.sleep(0.01)
        assert client.frames() == []


@pytest.mark.parametrize("size", [500, 5_000, 18_000])
async def test_the_rate_of_a_producer_is_its_quota_in_every_minute(size, world):
    async with limited(world, Quota.PRODUCER_BYTE_RATE, 10_000.0) as one:
        client = one.connect()
        for _ in range(3):
            begun_ms, sent = world.boot_ms(), 0
            while world.boot_ms() - begun_ms < 60_000:
                frame = client.frame(apis.PRODUCE, 9, produce_request("t", batch(bytes(size))))
                sent += len(frame) - 4
                client.feed(frame)
                await client.answer()
            assert sent / (world.boot_ms() - begun_ms) * 1_000 == pytest.approx(10_000, rel=0.05)


@pytest.mark.parametrize("size", [500, 5_000, 18_000])
async def test_the_rate_of_a_consumer_is_its_quota_in_every_minute(size, world):
    async with limited(world, Quota.CONSUMER_BYTE_RATE, 10_000.0) as one:
        for _ in range(40_000 // size):
            await one.produce("t", batch(bytes(size)))
        client = one.connect()
        for _ in range(3):
            begun_ms, got = world.boot_ms(), 0
            while world.boot_ms() - begun_ms < 60_000:
                answer = await client.call(apis.FETCH, 12, fetching())
                if answer.responses:
                    got += len(requests.rows_of(answer)["t", 0].records)
            assert got / (world.boot_ms() - begun_ms) * 1_000 == pytest.approx(10_000, rel=0.05)


async def test_clients_of_one_user_share_its_quota_and_clients_with_their_own_do_not(world):
    async with limited(world, Quota.PRODUCER_BYTE_RATE, 5_000.0, ANONYMOUS) as one:
        first = await produced(one.connect(), batch(bytes(BYTES)))
        second = await produced(one.connect(), batch(bytes(BYTES)))
        assert second > first > 0
        app = (EntityPart(EntityType.USER, "ANONYMOUS"), EntityPart(EntityType.CLIENT_ID, "test"))
        await limit(one, Quota.PRODUCER_BYTE_RATE, 1e9, app)
        assert await produced(one.connect(), batch(bytes(BYTES))) == 0


async def test_a_quota_holds_from_the_moment_that_it_is_set_and_no_longer_than_it_is(world):
    async with world.agents("one") as (one,):
        await one.create_topic("t")
        client = one.connect()
        assert await produced(client, batch(bytes(BYTES))) == 0
        await limit(one, Quota.PRODUCER_BYTE_RATE, 1_000.0)
        assert await produced(client, batch(bytes(BYTES))) > 0
        await limit(one, Quota.PRODUCER_BYTE_RATE, None)
        assert await produced(client, batch(bytes(BYTES))) == 0


@pytest.mark.parametrize("version", [4, 12])
async def test_a_consumer_over_its_quota_gets_no_records_until_it_has_waited(version, world):
    async with limited(world, Quota.CONSUMER_BYTE_RATE, 1_000.0) as one:
        await one.produce("t", batch(bytes(9_000)))
        client = one.connect()
        answers = [await client.call(apis.FETCH, version, fetching()) for _ in range(2)]
        assert answers[0].throttle_time_ms == 0
        assert len(requests.rows_of(answers[0])["t", 0].records) > 9_000
        wait_ms = answers[1].throttle_time_ms
        assert (answers[1].responses, wait_ms) == ([], pytest.approx(8_100, abs=300))
        begun_ms = world.boot_ms()
        again = await client.call(apis.FETCH, version, fetching())
        assert world.boot_ms() - begun_ms == pytest.approx(wait_ms, abs=50)
        assert len(requests.rows_of(again)["t", 0].records) > 9_000, (
            "what it had not does not count"
        )


async def test_a_consumer_waits_for_no_longer_than_the_window_at_a_time(world):
    async with limited(world, Quota.CONSUMER_BYTE_RATE, 100.0) as one:
        await one.produce("t", batch(bytes(9_000)))
        client = one.connect()
        first = await client.call(apis.FETCH, 12, fetching())
        assert len(requests.rows_of(first)["t", 0].records) > 9_000
        second = await client.call(apis.FETCH, 12, fetching())
        assert (second.responses, second.throttle_time_ms) == ([], 11_000)


async def test_one_answer_holds_no_more_than_the_quota_of_a_second(world):
    async with limited(world, Quota.CONSUMER_BYTE_RATE, 10_000.0) as one:
        for _ in range(20):
            await one.produce("t", batch(bytes(900)))
        answer = await one.call(apis.FETCH, fetching(), version=12)
        assert 8_000 < len(requests.rows_of(answer)["t", 0].records) <= 10_000


async def test_a_session_of_fetches_goes_on_behind_an_answer_without_records(world):
    async with limited(world, Quota.CONSUMER_BYTE_RATE, 1_000.0) as one:
        await one.produce("t", batch(bytes(9_000)))
        client = one.connect()

        async def fetch(session_id, epoch, request):
            request.session_id, request.session_epoch = session_id, epoch
            return await client.call(apis.FETCH, 12, request)

        first = await fetch(0, 0, fetching())
        session = first.session_id
        assert session
        nothing = messages.hot.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
        throttled = await fetch(session, 1, nothing)
        assert (throttled.error_code, throttled.session_id) == (0, session)
        assert (throttled.responses, throttled.throttle_time_ms > 0) == ([], True)
        await asyncio.sleep(11)
        after = await fetch(session, 2, nothing)
        assert len(requests.rows_of(after)["t", 0].records) > 9_000
        begun = await fetch(0, 0, fetching())
        assert (begun.session_id, begun.throttle_time_ms > 0) == (0, True)
        assert len(one.node.fetching.sessions) == 1, "none begins by an answer that tells nothing"


async def test_a_client_that_takes_too_much_of_the_loop_waits_a_second_at_most(world):
    async with limited(world, Quota.REQUEST_PERCENTAGE, 3.0) as one:
        quotas, spent_ns = one.node.quotas, 0

        def loop_ns():  # Each look at the clock is 200 ms later.
            nonlocal spent_ns
            spent_ns += 200_000_000
            return spent_ns

        quotas.loop_ns = loop_ns
        client = one.connect()
        # 200 ms for the call, and as long for its task: 40 %, for which 12 s would be right.
        answer = await client.call(apis.METADATA, 9, requests.metadata("t"))
        assert answer.throttle_time_ms == 1_000
        begun_ms = world.boot_ms()
        answer = await client.call(apis.LIST_OFFSETS, 5, requests.list_offsets([("t", 0)], -1))
        assert answer.throttle_time_ms == 1_000
        assert world.boot_ms() - begun_ms == pytest.approx(1_000, abs=50)


HEARTBEAT = messages.HeartbeatRequest(group_id="g", member_id="m")
ANSWERS = [
    (apis.METADATA, 9, requests.metadata("t")),
    (apis.LIST_OFFSETS, 5, requests.list_offsets([("t", 0)], -1)),
    (apis.HEARTBEAT, 4, HEARTBEAT),
    (apis.JOIN_GROUP, 7, messages.JoinGroupRequest(group_id="", session_timeout_ms=10_000)),
    (apis.FIND_COORDINATOR, 4, requests.find_coordinator("g", 0)),
    (apis.API_VERSIONS, 3, messages.ApiVersionsRequest(client_software_name="x")),
    (apis.FETCH, 12, fetching()),
    (apis.PRODUCE, 9, produce_request("t", batch())),
]


@pytest.mark.parametrize(
    ("key", "version", "request_"), ANSWERS, ids=[apis.APIS[key].name for key, _, _ in ANSWERS]
)
async def test_answers_of_every_kind_say_for_how_long_to_wait(key, version, request_, world):
    async with limited(world, Quota.REQUEST_PERCENTAGE, 0.01) as one:
        now_ns = iter(range(1, 10**15, 500_000_000))
        one.node.quotas.loop_ns = lambda: next(now_ns)
        client = one.connect()
        answer = await client.call(key, version, request_)
        assert answer.throttle_time_ms == 1_000
        await settle()
        assert client.transport.read_paused


async def test_a_refusal_costs_what_it_took(world):
    async with limited(world, Quota.REQUEST_PERCENTAGE, 1.0) as one:
        now_ns = iter(range(1, 10**15, 500_000_000))
        one.node.quotas.loop_ns = lambda: next(now_ns)
        client = one.connect()
        request = fetching()
        request.session_id, request.session_epoch = 77, 5
        answer = await client.call(apis.FETCH, 12, request)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        await settle()
        assert client.transport.read_paused


def creating(**partitions):
    return requests.create_topics(partitions)


async def test_mutations_are_refused_once_the_bucket_is_overdrawn_until_it_is_filled(world):
    async with limited(world, Quota.CONTROLLER_MUTATION_RATE, 2.0) as one:
        answer = await one.call(apis.CREATE_TOPICS, creating(a=20, b=10, c=1))
        codes = [row.error_code for row in answer.topics]
        exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert codes == [ErrorCode.NONE, ErrorCode.NONE, exceeded]
        # 22 tokens less 30 are -8, which take 4 s.
        assert answer.throttle_time_ms == pytest.approx(4_000, abs=100)
        growing = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="a", count=21)], timeout_ms=1_000
        )
        answer = await one.call(apis.CREATE_PARTITIONS, growing)
        assert [row.error_code for row in answer.results] == [exceeded]
        deleting = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1_000)
        client = one.connect()
        answer = await client.call(apis.DELETE_TOPICS, 6, deleting)
        assert [row.error_code for row in answer.responses] == [exceeded]
        # It is not heard meanwhile, and then there are tokens.
        answer = await client.call(apis.DELETE_TOPICS, 6, deleting)
        assert [row.error_code for row in answer.responses] == [ErrorCode.NONE]
        assert answer.throttle_time_ms == 0


async def test_clients_of_before_the_quota_only_wait(world):
    async with limited(world, Quota.CONTROLLER_MUTATION_RATE, 2.0) as one:
        client = one.connect()
        answer = await client.call(apis.CREATE_TOPICS, 5, creating(a=30))
        assert [row.error_code for row in answer.topics] == [ErrorCode.NONE]
        assert answer.throttle_time_ms == pytest.approx(4_000, abs=100)
        begun_ms = world.boot_ms()
        answer = await one.call(apis.CREATE_TOPICS, creating(c=1), version=5)
        assert [row.error_code for row in answer.topics] == [ErrorCode.NONE]
        answer = await client.call(apis.CREATE_TOPICS, 5, creating(b=1))
        assert [row.error_code for row in answer.topics] == [ErrorCode.NONE]
        assert world.boot_ms() - begun_ms >= 3_900


async def test_new_connections_of_an_address_over_its_rate_are_let_in_later(world):
    async with limited(world, Quota.CONNECTION_CREATION_RATE, 2.0, HERE) as one:
        here = [one.connect(address="10.0.0.1") for _ in range(4)]
        elsewhere = [one.connect(address="10.0.0.2") for _ in range(4)]
        await settle()
        assert [client.transport.read_paused for client in here] == [False, False, True, True]
        assert not any(client.transport.read_paused for client in elsewhere)
        begun_ms = world.boot_ms()
        await here[3].call(apis.METADATA, 9, requests.metadata("t"))
        assert world.boot_ms() - begun_ms == pytest.approx(1_000, abs=50)


async def test_what_is_remembered_of_clients_is_bounded(world, monkeypatch):
    monkeypatch.setattr(sensors_module, "LOOKED_AT", 10)
    async with limited(world, Quota.PRODUCER_BYTE_RATE, 5_000.0) as one:
        sensors = one.node.quotas.sensors
        sensors._sensors_max = 5
        client = one.connect()
        for number in range(8):
            await produced(client, batch(bytes(100)), client_id=f"client{number}")
        assert len(sensors) == 6, "one is shared by those that came late"
        late = [
            await produced(one.connect(), batch(bytes(BYTES)), client_id=f"late{number}")
            for number in range(2)
        ]
        assert late[1] > late[0] > 0, "they use up one quota together"
        await asyncio.sleep(60)
        await produced(one.connect(), batch(bytes(100)), client_id="new")
        holders = {sensor.holder.client_id for sensor in sensors.of(Quota.PRODUCER_BYTE_RATE)}
        assert holders == {"new"}, "what knows nothing makes room"


async def test_sensors_that_nobody_used_for_an_hour_are_forgotten(world):
    async with limited(world, Quota.PRODUCER_BYTE_RATE, 1_000.0) as one:
        sensors = one.node.quotas.sensors
        await produced(one.connect(), batch(bytes(100)), client_id="old")
        await asyncio.sleep(3_000)
        await produced(one.connect(), batch(bytes(100)), client_id="young")
        await asyncio.sleep(700)
        await produced(one.connect(), batch(bytes(100)), client_id="new")
        holders = {sensor.holder.client_id for sensor in sensors.of(Quota.PRODUCER_BYTE_RATE)}
        assert holders == {"young", "new"}


async def test_metrics_tell_what_clients_use_and_for_how_long_they_wait(world):
    async with limited(world, Quota.PRODUCER_BYTE_RATE, 1_000.0) as one:
        quotas, quota = one.node.quotas, Quota.PRODUCER_BYTE_RATE
        wait_ms = await produced(one.connect(), batch(bytes(BYTES)), client_id="app")
        await produced(one.connect(), batch(bytes(100)), client_id="tool")
        rates = quota_metrics.used(quotas, quota)
        assert rates["", "app"] == pytest.approx(BYTES / 10, rel=0.1)
        assert rates["", "tool"] < 50
        waits = quota_metrics.throttled_seconds(quotas, quota)
        assert waits == {("", "app"): wait_ms / 1_000, ("", "tool"): 0}


async def test_metrics_tell_of_those_who_were_here_last_when_there_are_many(world, monkeypatch):
    monkeypatch.setattr(quota_metrics, "TOLD_MAX", 2)
    async with limited(world, Quota.PRODUCER_BYTE_RATE, 1_000.0) as one:
        for number in range(4):
            await produced(one.connect(), batch(bytes(100)), client_id=f"client{number}")
        told = quota_metrics.used(one.node.quotas, Quota.PRODUCER_BYTE_RATE)
        assert set(told) == {("", "client2"), ("", "client3")}


@pytest.mark.parametrize(
    "quota", [Quota.REQUEST_PERCENTAGE, Quota.CONTROLLER_MUTATION_RATE, Quota.PRODUCER_BYTE_RATE]
)
async def test_who_has_next_to_no_quota_waits_and_is_answered_all_the_same(quota, world):
    async with limited(world, quota, 1e-308) as one:
        client = one.connect()
        assert await produced(client, batch(bytes(BYTES))) >= 0
        assert (await one.connect().call(apis.METADATA, 9, requests.metadata("t"))).topics
        topics = [CreatePartitionsTopic(name="t", count=count) for count in (2, 3)]
        for topic in topics:
            request = CreatePartitionsRequest(topics=[topic], timeout_ms=1_000)
            (result,) = (await one.connect().call(apis.CREATE_PARTITIONS, 3, request)).results
            assert result.error_code in (ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        assert one.node.stats.failed_handlers == 0
