"""Kafka's Java client 4.3 and librdkafka push their metrics (KIP-714), and /metrics and a collector have them."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from protocol import apis
from tests.clients.kafka_tools import CLIENT_METRICS, KafkaTools
from tests.kit.otlp import message
from tests.kit.sockets import Place, Running, agent_of

pytestmark = [pytest.mark.integration, pytest.mark.real_loop]

PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
"""kafka-producer-perf-test.sh"""
INTERVAL_MS = 300
WAIT_S = 60.0
Sample = tuple[str, dict[str, str], float]


async def subscribe(tools: KafkaTools, running: Running, name: str, **configs: str) -> None:
    """By kafka-client-metrics.sh."""
    words = [word for key, value in configs.items() for word in (f"--{key}", value)]
    bootstrap = f"127.0.0.1:{running.port}"
    printed = await asyncio.to_thread(
        tools.run, CLIENT_METRICS, bootstrap, "--alter", "--name", name, *words
    )
    assert "Altered client metrics config" in printed, printed


@contextlib.asynccontextmanager
async def an_agent(*settings: str) -> AsyncIterator[Running]:
    async with agent_of(Place(), *settings) as running:
        await running.until(ready=True)
        yield running


async def samples(running: Running) -> list[Sample]:
    """Of clients, as Prometheus is told them."""
    _, page = await running.http("GET", "/metrics")
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("kafka_client_")
    ]


async def until(running: Running, found: Callable[[list[Sample]], bool]) -> list[Sample]:
    """The samples, once there is what is looked for."""
    async with asyncio.timeout(WAIT_S):
        while not found(told := await samples(running)):
            await asyncio.sleep(0.1)
    return told


def of_client(told: list[Sample], client_id: str) -> dict[str, list[Sample]]:
    """By name."""
    found: dict[str, list[Sample]] = {}
    for sample in told:
        if sample[1]["client_id"] == client_id:
            found.setdefault(sample[0], []).append(sample)
    return found


async def produce_by_java(tools: KafkaTools, running: Running, client_id: str, records: int) -> str:
    """For three seconds and more; what the tool prints."""
    arguments = (
        *("--topic", "t", "--num-records", str(records), "--record-size", "10"),
        *("--throughput", str(records // 3), "--command-property", f"client.id={client_id}"),
    )
    bootstrap = f"127.0.0.1:{running.port}"
    return await asyncio.to_thread(tools.run, PERFORMANCE, bootstrap, *arguments)


async def test_a_java_producer_pushes_and_its_counters_add_up(tools: KafkaTools) -> None:
    async with an_agent() as running:
        await subscribe(
            tools,
            running,
            "java",
            metrics="org.apache.kafka.producer.",
            interval=str(INTERVAL_MS),
            match="client_software_name=apache-kafka-java",
        )
        printed = await produce_by_java(tools, running, "perf", 900)
        assert "900 records sent" in printed, printed
        mine = of_client(await samples(running), "perf")
        assert (
            len({sample[1]["client_instance_id"] for each in mine.values() for sample in each}) == 1
        )
        assert {sample[1]["client_software_name"] for each in mine.values() for sample in each} == {
            "apache-kafka-java"
        }
        # In pieces of about a hundred. The last one is made when the producer begins to close, so what
        # it sends from then on is in none.
        ((_, _, sent),) = mine["kafka_client_producer_record_send_total"]
        assert 450 < sent <= 900
        assert all(name.startswith("kafka_client_producer_") for name in mine)
        pushes = running.agent.node.telemetry.stats.pushes
        assert set(pushes) == {"NONE"}, pushes
        assert pushes["NONE"] > 2
        assert not running.agent.node.telemetry.stats.left_out


async def test_clients_of_librdkafka_push_and_a_collector_knows_whose_metrics_it_gets(
    tools: KafkaTools,
) -> None:
    got: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        got.append(await request.read())
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/metrics", take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with an_agent(f"telemetry.otlp.endpoint={endpoint}") as running:
            await subscribe(tools, running, "all", metrics="*", interval=str(INTERVAL_MS))
            common = {"bootstrap.servers": f"127.0.0.1:{running.port}"}
            producer = Producer(common | {"client.id": "rd-producer"})
            consumer = Consumer(common | {"client.id": "rd-consumer", "group.id": "g"})
            consumer.subscribe(["t"])
            try:
                told = await _at_work(running, producer, consumer)
            finally:
                await asyncio.to_thread(consumer.close)
                await asyncio.to_thread(producer.flush)
            async with asyncio.timeout(WAIT_S):
                while not {"rd-producer", "rd-consumer"} <= {_client_of(data) for data in got}:
                    await asyncio.sleep(0.1)
    finally:
        await runner.cleanup()
    names = {name for client in ("rd-producer", "rd-consumer") for name in of_client(told, client)}
    assert "kafka_client_producer_connection_creation_total" in names
    assert any(re.match("kafka_client_consumer_", name) for name in names), names
    assert {sample[1]["client_software_name"] for sample in told} == {"confluent-kafka-python"}


async def _at_work(running: Running, producer: Producer, consumer: Consumer) -> list[Sample]:
    """What both have pushed by then."""

    def work() -> None:
        producer.produce("t", b"value")
        producer.poll(0.05)
        consumer.poll(0.05)

    async with asyncio.timeout(WAIT_S):
        while True:
            await asyncio.to_thread(work)
            told = await samples(running)
            if of_client(told, "rd-producer") and of_client(told, "rd-consumer"):
                return told


def _client_of(data: bytes) -> str:
    payload = message("MetricsData")
    payload.ParseFromString(data)
    (resource,) = payload.resource_metrics
    known = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert known["client_source_address"] == "127.0.0.1"
    return str(known["client_id"])


async def test_a_client_that_no_subscription_matches_asks_and_does_not_push(
    tools: KafkaTools,
) -> None:
    async with an_agent() as running:
        await subscribe(tools, running, "others", metrics="*", match="client_id=others")
        await produce_by_java(tools, running, "perf", 300)
        requests = running.agent.node.stats.requests
        assert 0 < requests[apis.GET_TELEMETRY_SUBSCRIPTIONS] <= 2
        assert apis.PUSH_TELEMETRY not in requests
        assert not await samples(running)
        assert len(running.agent.node.telemetry.instances) == 0
