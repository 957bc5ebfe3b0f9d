"""GetTelemetrySubscriptions and PushTelemetry (KIP-714), from a client's first question to /metrics."""

import asyncio
import contextlib

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.telemetry.subscriptions import NOTHING, subscription_id
from coordinator.commands.config_commands import ChangeConfigs, ConfigKind
from protocol import apis
from protocol.compression import Codec, compress
from protocol.errors import ErrorCode
from protocol.messages import (
    ApiVersionsRequest,
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)
from tests.kit.otlp import gauge, number, payload, total

INTERVAL_S = 1.0
PAYLOAD = payload(total("org.apache.kafka.producer.record.send.total", number(2)))
SENT = "kafka_client_producer_record_send_total"


async def subscribe(agent, name="all", **configs):
    pairs = {"metrics": "*", "interval.ms": "1000"}
    pairs |= {key.replace("_", "."): text for key, text in configs.items()}
    command = ChangeConfigs(ConfigKind.CLIENT_METRICS, name, tuple(sorted(pairs.items())))
    await agent.log_client.propose(command)


class Pusher:
    """A client that pushes, on one connection."""

    def __init__(self, agent, *, address="127.0.0.1"):
        self.connection = agent.connect(address=address)
        self.instance_id = bytes(16)
        self.subscription_id = 0

    async def introduce(self, name="a-client", version="1.0"):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        await self.connection.call(apis.API_VERSIONS, 3, request)

    async def ask(self):
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id)
        answer = await self.connection.call(apis.GET_TELEMETRY_SUBSCRIPTIONS, 0, request)
        if answer.error_code == 0:
            self.instance_id, self.subscription_id = (
                answer.client_instance_id,
                answer.subscription_id,
            )
        return answer

    async def push(self, data=PAYLOAD, *, codec=Codec.NONE, compressed=None, last=False, **more):
        request = PushTelemetryRequest(
            client_instance_id=self.instance_id,
            subscription_id=self.subscription_id,
            terminating=last,
            compression_type=codec,
            metrics=compress(codec, data) if compressed is None else compressed,
        )
        for name, value in more.items():
            setattr(request, name, value)
        answer = await self.connection.call(apis.PUSH_TELEMETRY, 0, request)
        return ErrorCode(answer.error_code)


def samples(agent):
    """Names and labels of what /metrics tells of clients, with the values."""
    text = b"".join(agent.node.telemetry.text()).decode()
    families = text_string_to_metric_families(text)
    return [(each.name, each.labels, each.value) for family in families for each in family.samples]


@contextlib.asynccontextmanager
async def subscribed(world, configs=None, **settings):
    async with world.agents("one", **settings) as (one,):
        await subscribe(one, **(configs or {}))
        yield one


async def test_a_client_that_nothing_is_asked_of_leaves_no_trace(world):
    async with subscribed(world, {"match": "client_id=others"}) as one:
        client = Pusher(one)
        answer = await client.ask()
        assert (answer.error_code, answer.requested_metrics) == (0, [])
        assert answer.push_interval_ms == 300_000
        assert answer.client_instance_id != bytes(16)
        assert answer.subscription_id == subscription_id(NOTHING, answer.client_instance_id)
        # Not even what it pushes all the same, which is not looked at.
        assert await client.push(b"no protobuf") is ErrorCode.NONE
        assert len(one.node.telemetry.instances) == 0
        assert not samples(one)


async def test_a_client_is_told_what_to_push_and_its_metrics_are_told(world):
    async with subscribed(world) as one:
        client = Pusher(one)
        await client.introduce("a-client", "4.3.1")
        answer = await client.ask()
        assert answer.requested_metrics == ["*"]
        assert answer.push_interval_ms == 1000
        assert answer.telemetry_max_bytes == 1 << 20
        assert answer.delta_temporality
        assert answer.accepted_compression_types == [4, 3, 1, 2]
        for codec in Codec:
            assert await client.push(codec=codec) is ErrorCode.NONE
            await asyncio.sleep(INTERVAL_S)
        ((name, labels, value),) = samples(one)
        assert (name, value) == (SENT, 2.0 * len(Codec))
        assert labels["client_id"] == "test"
        assert labels["client_software_name"] == "a-client"
        assert len(labels["client_instance_id"]) == 22


async def test_clients_are_matched_by_what_they_say_of_themselves(world):
    match = "client_software_name=a-.*,client_software_version=1\\.0,client_source_address=10\\.0\\.0\\.1"
    async with subscribed(world, {"match": match}) as one:
        client, older, elsewhere = Pusher(one, address="10.0.0.1"), Pusher(one), Pusher(one)
        await client.introduce()
        await elsewhere.introduce()
        assert (await client.ask()).requested_metrics == ["*"]
        assert (await older.ask()).requested_metrics == []
        assert (await elsewhere.ask()).requested_metrics == []


async def test_an_id_of_its_own_is_kept_and_every_other_client_gets_another(world):
    async with subscribed(world) as one:
        client = Pusher(one)
        client.instance_id = b"\7" * 16
        assert (await client.ask()).client_instance_id == b"\7" * 16
        ids = {(await Pusher(one).ask()).client_instance_id for _ in range(20)}
        assert len(ids) == 20


async def test_a_change_of_subscriptions_is_told_when_a_client_pushes_and_it_asks_at_once(world):
    async with subscribed(world) as one:
        client = Pusher(one)
        before = await client.ask()
        assert await client.push() is ErrorCode.NONE
        await subscribe(one, "more", interval_ms="500")
        assert await client.push() is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        after = await client.ask()
        assert (after.error_code, after.push_interval_ms) == (0, 500)
        assert after.subscription_id != before.subscription_id


async def test_a_change_that_does_not_concern_a_client_changes_nothing_for_it(world):
    async with subscribed(world) as one:
        client = Pusher(one)
        await client.ask()
        assert await client.push() is ErrorCode.NONE
        await subscribe(one, "others", match="client_id=others")
        assert await client.push() is ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_client_that_comes_too_soon_is_told_so(world):
    async with subscribed(world) as one:
        client = Pusher(one)
        await client.ask()
        answer = await client.ask()
        assert answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert (answer.client_instance_id, answer.push_interval_ms) == (bytes(16), 0)
        assert await client.push() is ErrorCode.NONE
        assert await client.push() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert await client.push(last=True) is ErrorCode.NONE
        assert samples(one)[0][2] == 4.0
        assert one.node.telemetry.stats.pushes == {"NONE": 2, "THROTTLING_QUOTA_EXCEEDED": 1}


@pytest.mark.parametrize(
    ("push", "code"),
    [
        ({"client_instance_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
        ({"client_instance_id": bytes(15) + b"\1"}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compressed": b"x" * 2001}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"compressed": b"\x0a"}, ErrorCode.INVALID_RECORD),
        ({"codec": Codec.ZSTD, "compressed": b"none"}, ErrorCode.INVALID_RECORD),
        ({"codec": Codec.GZIP, "data": bytes(2001)}, ErrorCode.INVALID_RECORD),
        ({"compressed": b""}, ErrorCode.NONE),
        ({"codec": Codec.ZSTD, "compressed": b""}, ErrorCode.NONE),
    ],
)
async def test_a_push_that_is_not_as_it_was_asked_for_is_refused_with_kafkas_code(
    push, code, world
):
    async with subscribed(world, telemetry_max_bytes="2000") as one:
        client = Pusher(one)
        await client.ask()
        assert await client.push(**push) is code
        assert not samples(one)


async def test_what_a_client_pushed_is_told_for_three_intervals(world):
    async with subscribed(world, {"interval_ms": "60000"}) as one:
        client = Pusher(one)
        await client.ask()
        await client.push()
        await asyncio.sleep(179)
        assert len(samples(one)) == 1
        await asyncio.sleep(2)
        assert not samples(one)
        assert len(one.node.telemetry.instances) == 0


async def test_the_last_push_is_told_for_a_minute(world):
    async with subscribed(world, {"interval_ms": "60000"}) as one:
        client = Pusher(one)
        await client.ask()
        await client.push(last=True)
        await asyncio.sleep(58)
        assert len(samples(one)) == 1
        await asyncio.sleep(3)
        assert not samples(one)


async def test_a_client_that_moves_to_another_agent_goes_on_there(world):
    async with world.agents("one", "two") as (one, two):
        await subscribe(one)
        await two.log_client.barrier()
        client = Pusher(one)
        await client.ask()
        moved = Pusher(two)
        moved.instance_id, moved.subscription_id = client.instance_id, client.subscription_id
        assert await moved.push() is ErrorCode.NONE
        assert len(samples(two)) == 1


async def test_a_client_of_an_agent_that_is_behind_hears_of_a_subscription_later(world):
    async with world.agents("one", "two") as (one, two):
        two.lag()
        await subscribe(one)
        client = Pusher(two)
        assert (await client.ask()).requested_metrics == []
        two.catch_up()
        await two.log_client.barrier()
        assert await client.push() is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert (await client.ask()).requested_metrics == ["*"]
        assert await client.push(last=True) is ErrorCode.NONE
        assert len(samples(two)) == 1


async def test_with_no_place_for_metrics_nobody_is_asked_for_any(world):
    async with subscribed(world, telemetry_metrics_bytes="0") as one:
        assert (await Pusher(one).ask()).requested_metrics == []


async def test_what_is_left_out_is_counted_by_the_reason(world):
    async with subscribed(world) as one:
        client = Pusher(one)
        await client.ask()
        assert await client.push(payload(gauge("a b", 1), gauge("c.d", 1))) is ErrorCode.NONE
        await asyncio.sleep(INTERVAL_S)
        assert await client.push(payload(gauge("c_d", 1))) is ErrorCode.NONE
        assert one.node.telemetry.stats.left_out == {"name": 1, "conflict": 1}


async def test_a_collector_gets_what_was_pushed_with_the_client_among_its_attributes(world):
    endpoint = "http://127.0.0.1:1"
    async with subscribed(world, telemetry_otlp_endpoint=endpoint) as one:
        client = Pusher(one)
        await client.introduce()
        await client.ask()
        assert await client.push(codec=Codec.LZ4) is ErrorCode.NONE
        (sent,) = one.node.telemetry.forwarder._queue
        for word in (b"client_source_address", b"127.0.0.1", b"client_software_name", b"a-client"):
            assert word in sent
        assert len(samples(one)) == 1
