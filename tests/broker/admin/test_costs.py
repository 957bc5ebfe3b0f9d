"""What an agent counts by cause, and `frazil cost` over it."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from broker.admin.log_writes import CAUSES, LogWrites, cause_of
from broker.cli import cost_tool
from broker.cli.admin_client import AgentPlace
from broker.reports.cost_report import metrics_of
from broker.reports.prices import Prices
from coordinator.commands.config_commands import ChangeConfigs
from coordinator.commands.entries import CommitChunk, CreateTopic, Entry, Tick
from coordinator.commands.group_commands import CommitOffsets
from coordinator.commands.job_commands import ReplaceRows
from coordinator.commands.transaction_commands import EndTransaction
from coordinator.log_client import Applied, LogClient
from protocol import apis
from protocol.messages import CreatableTopic, CreateTopicsRequest
from protocol.types import Incarnation, Position
from tests.broker.agents import serving
from tests.kit.sockets import Running


def test_each_command_is_written_for_a_cause() -> None:
    assert [cause_of(each) for each in (CommitChunk, Tick, CommitOffsets, EndTransaction)] == [
        "produce",
        "clock",
        "groups",
        "transactions",
    ]
    assert [cause_of(each) for each in (ReplaceRows, CreateTopic, ChangeConfigs)] == [
        "jobs",
        "administration",
        "administration",
    ]
    assert CommitChunk in CAUSES


async def counted(at: Running, name: str, **labels: str) -> float:
    _, page = await at.http("GET", "/metrics")
    return metrics_of(page).get((name, frozenset(labels.items())), 0.0)


async def produce(at: Running, *values: bytes) -> None:
    client = await at.connect()
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    assert (await client.call(apis.CREATE_TOPICS, 5, request)).topics[0].error_code == 0
    for value in values:
        await client.produce("t", [value])


@pytest.mark.real_loop
async def test_what_is_produced_costs_a_put_and_an_entry_for_that_cause() -> None:
    async with serving() as at:
        assert await counted(at, "frazil_store_requests", cause="start", call="get") >= 1
        before = await counted(at, "frazil_log_writes", cause="produce")
        await produce(at, b"one", b"two")
        assert await counted(at, "frazil_store_requests", cause="produce", call="put") == 2
        assert await counted(at, "frazil_log_writes", cause="produce") == before + 2
        assert await counted(at, "frazil_log_writes", cause="administration") == 1


@pytest.mark.real_loop
async def test_a_job_counts_what_it_asks_of_the_store() -> None:
    async with serving() as at:
        await produce(at, b"one")
        await at.http("POST", "/jobs/snapshot/run")
        async with asyncio.timeout(10):
            while not await counted(at, "frazil_store_requests", cause="snapshot", call="put"):
                await asyncio.sleep(0.05)
        assert await counted(at, "frazil_store_bytes", cause="snapshot", way="written") > 0


@pytest.mark.real_loop
async def test_the_tool_tells_what_topics_hold_and_whom_it_asked() -> None:
    async with serving() as at:
        await produce(at, b"one", b"two")
        url = f"http://127.0.0.1:{at.agent.listening()['http'][1]}"
        with ThreadPoolExecutor(1) as pool:
            said = await asyncio.get_running_loop().run_in_executor(
                pool,
                lambda: cost_tool.cost(
                    AgentPlace(url), seconds=0.01, prices=Prices(put_1000=7.0), as_json=True
                ),
            )
        found = json.loads(said.lines[0])
        assert found["prices"]["put_1000"] == 7.0
        assert found["prices"]["source"] == "given"
        assert found["agents"] == 1
        assert [each["topic"] for each in found["topics"]] == ["t"]
        assert found["settings"]["puts_per_second"] == 1000


class LogOfTwo:
    """A log client of incarnation 7, which hears of others' entries, too."""

    def __init__(self) -> None:
        self.apply: Callable[[Applied], None] = lambda _applied: None

    def on_applied(self, callback: Callable[[Applied], None]) -> None:
        self.apply = callback

    def incarnation(self) -> Incarnation:
        return Incarnation(7)


def test_an_entry_counts_once_for_its_first_command_and_for_who_wrote_it() -> None:
    log_client = LogOfTwo()
    writes = LogWrites(cast("LogClient", log_client))
    for number, writer in enumerate((7, 7, 8), 1):
        entry = Entry(Incarnation(writer), number, 0, (CommitChunk(number, 100, ()), Tick()))
        log_client.apply(Applied(Position(number), Incarnation(writer), entry, ()))
    assert writes.counts == {"produce": 2}
