"""Retention that waits for the export, over time on a real agent: records stay while nobody exports,
go when they are in the table, and go unexported only after an alert."""

import io
import re
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from iceberg_export.progress import Progress
from iceberg_export.runs.loop import Clock, Runner, StopRequest
from iceberg_export.runs.session import Session
from iceberg_export.settings import parse
from iceberg_export.tasks import spark
from tests.iceberg_export.kit.tasks import HereRunner
from tests.parts.servers import FrazilDev, get_text
from tests.parts.topics import NotNowError, create_topic, patiently, told

pytestmark = pytest.mark.integration

SETTINGS = ("log.retention.check.interval.ms=500", "jobs.start.delay.ms=0")
RETENTION_MS = 1_000
HOUR_MS = 3_600_000
CLOCK = "clock"
"""A topic that is written so that there are entries."""
PATIENCE_S = 300.0


class Topics:
    """Topics of one partition, and how far each has lost its head."""

    def __init__(self, agent: FrazilDev) -> None:
        self.agent = agent
        self.admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        self.producer = Producer({"bootstrap.servers": agent.bootstrap})
        self.consumer = Consumer({"bootstrap.servers": agent.bootstrap, "group.id": "none"})

    def create(self, name: str, **hold: str) -> None:
        configs = {f"frazil.iceberg.retention.{key}": value for key, value in hold.items()}
        create_topic(self.admin, name, 1, {"retention.ms": str(RETENTION_MS)} | configs)

    def let_time_pass(self) -> None:
        """What is old is so by the clocks in the log's entries; an idle agent writes one a minute."""
        self.send(CLOCK, 1)

    def alter(self, name: str, configs: dict[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configs.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        patiently(
            lambda: told(self.admin.incremental_alter_configs([resource])[resource]), NotNowError
        )

    def send(self, name: str, count: int) -> None:
        for number in range(count):
            self.producer.produce(name, str(number).encode(), partition=0)
        assert self.producer.flush(60) == 0

    def start(self, name: str) -> int:
        return self.consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=60)[0]

    def left_ms(self, name: str) -> int | None:
        """What the alert goes by."""
        text = get_text(self.agent.http_port, "/metrics")
        found = re.search(rf'frazil_export_hold_left_ms{{topic="{name}"}} (\S+)', text)
        return int(float(found[1])) if found else None


def until(topics: Topics, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        topics.let_time_pass()
        time.sleep(0.1)


@pytest.fixture
def topics(tmp_path):
    settings = [f"--set={each}" for each in SETTINGS]
    with FrazilDev(tmp_path / "agent", *settings) as agent:
        found = Topics(agent)
        found.create(CLOCK)
        yield found
        found.consumer.close()
        assert agent.stop() == 0


def retention_passes(topics: Topics) -> None:
    """Records of a topic without a hold have come and gone."""
    end = topics.start("free")
    topics.send("free", 1)
    until(topics, lambda: topics.start("free") == end + 1)


def test_records_stay_while_the_exporter_is_away_and_go_when_they_are_in_the_table(
    topics, tmp_path, monkeypatch
):
    topics.create("free")
    topics.create("held", hold="true")
    topics.send("held", 5)
    # The first pass may have begun before they were old enough; in the next one they were.
    for _ in range(3):
        retention_passes(topics)
    assert topics.start("held") == 0
    assert 6 * 86_400_000 < topics.left_ms("held") <= 7 * 86_400_000

    monkeypatch.setattr(spark, "start", lambda _given, _progress: HereRunner())
    agent = f"agent=http://127.0.0.1:{topics.agent.http_port}"
    settings = parse(data=tmp_path / "data", config=None, assignments=[agent])
    session = Session(settings, Progress(io.StringIO(), time.perf_counter))
    clock = Clock(time.perf_counter, lambda: time.time_ns() // 1_000_000, time.sleep)
    out = io.StringIO()
    assert Runner(session, clock, StopRequest(), out, "held").once() == 0
    session.close()
    session.catalog.engine.dispose()
    assert out.getvalue() == "held: 5 records in 1 files into table frazil.held\n"
    until(topics, lambda: topics.start("held") == 5)
    until(topics, lambda: topics.left_ms("held") is None)


def test_records_that_nobody_exports_go_after_the_hold_and_an_alert_comes_before(topics):
    topics.create("free")
    topics.create("held", **{"hold": "true", "hold.max.ms": str(HOUR_MS)})
    topics.send("held", 5)
    until(topics, lambda: topics.left_ms("held") is not None)
    # The alert is about less than a day; whoever does nothing now loses records.
    assert 0 < topics.left_ms("held") <= HOUR_MS
    for _ in range(3):
        retention_passes(topics)
    assert topics.start("held") == 0
    topics.alter("held", {"frazil.iceberg.retention.hold.max.ms": "1"})
    until(topics, lambda: topics.start("held") == 5)
    until(topics, lambda: topics.left_ms("held") is None)
