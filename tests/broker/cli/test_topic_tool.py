"""`frazil topic describe`, and what an agent tells of a topic; project files, planned and applied."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence

import pytest

from broker.cli import topic_tool
from broker.cli.admin_client import AgentPlace, ask
from broker.cli.command_result import ToolError
from broker.cli.kafka_client import Address, KafkaClient
from broker.reports import topic_report
from protocol import apis
from protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.agents import serving
from tests.kit.sockets import Running, SocketClient

pytestmark = pytest.mark.real_loop


@contextlib.asynccontextmanager
async def with_topic(partitions: int = 1) -> AsyncGenerator[tuple[Running, int], None]:
    """An agent with a topic, which has three records in its first partition; their bytes."""
    async with serving() as running:
        client = await running.connect()
        await create(client, "t", partitions)
        await client.produce("t", [b"a", b"b"])
        await client.produce("t", [b"c"])
        _, plan = await running.http("GET", "/export/plan?topic=t")
        yield running, sum([span[2] for span in plan["partitions"][0]["spans"]])


async def create(client: SocketClient, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    (row,) = (await client.call(apis.CREATE_TOPICS, 5, request)).topics
    assert row.error_code == 0


def agent(running: Running) -> AgentPlace:
    host, port = running.agent.listening()["http"]
    return AgentPlace(f"http://{host}:{port}")


async def test_a_topic_is_told_with_where_its_records_lie() -> None:
    async with with_topic() as (running, size):
        heads = len(running.log.called("head"))
        status, view = await running.http("GET", "/topics/t")
        assert status == 200
        assert len(running.log.called("head")) > heads, "behind a barrier"
        assert (view["name"], view["partition_count"], view["configs"]) == ("t", 1, {})
        assert view["partitions"] == [
            {
                "partition": 0,
                "log_start": 0,
                "last_stable": 3,
                "end": 3,
                "chunk_bytes": size,
                "segment_bytes": 0,
                "rows": 2,
                "pages": 0,
                "rows_in_pages": 0,
                "clean_to": 0,
                "exported": None,
            }
        ]
        assert view["export_age_ms"] is None
        said = {"topic": "t", "topic_id": view["topic_id"], "offsets": {"0": 2}}
        assert (await running.http("POST", "/export/progress", json=said))[0] == 200
        _, view = await running.http("GET", "/topics/t")
        assert view["export_age_ms"] >= 0
        assert view["partitions"][0]["exported"] == 2


@pytest.mark.parametrize(("path", "status"), [("/topics/none", 404), ("/topics/t?from=x", 400)])
async def test_mistakes_are_told_in_a_sentence(path: str, status: int) -> None:
    async with with_topic() as (running, _size):
        answered, body = await running.http("GET", path)
        assert answered == status
        assert body["error"]


async def test_a_topic_of_many_partitions_is_asked_for_in_slices(monkeypatch) -> None:
    monkeypatch.setattr(topic_report, "PARTITIONS_MAX", 3)

    async with with_topic(7) as (running, _size):
        said = await asyncio.to_thread(
            lambda: topic_tool.describe(agent(running), "t", as_json=True)
        )
        view = json.loads(said.lines[0])
        assert [row["partition"] for row in view["partitions"]] == list(range(7))


async def test_without_such_a_topic_the_agent_says_so() -> None:
    async with serving() as running:
        with pytest.raises(ToolError, match='no topic named "none"'):
            await asyncio.to_thread(
                lambda: topic_tool.describe(agent(running), "none", as_json=False)
            )


@pytest.mark.parametrize(
    ("address", "sentence"),
    [("nowhere", "is not an address"), ("http://127.0.0.1:1", "is one running?")],
)
def test_an_agent_that_cannot_be_asked_is_told_in_a_sentence(address: str, sentence: str) -> None:
    with pytest.raises(ToolError, match=sentence):
        ask(AgentPlace(address), "/topics/t")


def row(partition: int, **fields: int) -> dict[str, int]:
    names = topic_report._COLUMNS.values()
    return dict.fromkeys(names, 0) | {"partition": partition, "exported": None} | fields


def test_the_table_has_a_line_for_each_partition_and_sums_above() -> None:
    rows = [
        row(0, end=10, chunk_bytes=1000, rows=3, pages=1, rows_in_pages=70),
        row(1, log_start=4, last_stable=8, end=9, chunk_bytes=24, segment_bytes=3 << 20, rows=1),
    ]
    view = {"name": "t", "topic_id": "00ff", "partition_count": 2, "partitions": rows}
    lines = topic_report.lines(view | {"configs": {"retention.ms": "5"}})
    assert lines[:4] == [
        "t: id 00ff, 2 partitions",
        "records: 1 KiB in chunks, 3 MiB in segments; rows: 4 in memory, 70 in 1 page",
        "retention.ms=5",
        "",
    ]
    assert lines[4].split()[:4] == ["PARTITION", "LOG-START", "LAST-STABLE", "END"]
    assert lines[5].split() == ["0", "0", "0", "10", "1000", "0", "3", "1", "70", "0"]
    assert lines[6].split() == ["1", "4", "8", "9", "24", "3145728", "1", "0", "0", "0"]


def test_a_topic_that_is_exported_is_told_with_how_far_its_table_is() -> None:
    rows = [
        row(0, log_start=2, last_stable=10, end=12, exported=7),
        row(1, log_start=4, last_stable=9, end=9, exported=None),
        row(2, log_start=8, last_stable=9, end=9, exported=9),
    ]
    view = {"name": "t", "topic_id": "00ff", "partition_count": 3, "partitions": rows}
    lines = topic_report.lines(view | {"configs": {}, "export_age_ms": 61_500})
    assert lines[2:4] == ["export: 8 offsets to go, last report 61 s ago", ""]
    assert lines[4].split()[-1] == "EXPORTED"
    assert [line.split()[-1] for line in lines[5:]] == ["7", "-", "9"]


def test_the_age_of_the_last_report_is_not_told_when_nothing_is_left_to_export() -> None:
    rows = [row(0, log_start=2, last_stable=10, end=12, exported=10)]
    view = {"name": "t", "topic_id": "00ff", "partition_count": 1, "partitions": rows}
    lines = topic_report.lines(view | {"configs": {}, "export_age_ms": 86_400_000})
    assert lines[2] == "export: nothing to go"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1_500_000, "1.43 MiB"),
        (5 << 40, "5 TiB"),
    ],
)
def test_sizes_have_three_digits(size: int, text: str) -> None:
    assert topic_report._size(size) == text


@contextlib.asynccontextmanager
async def client_of(running: Running) -> AsyncGenerator[KafkaClient, None]:
    async with KafkaClient([Address("127.0.0.1", running.port)], timeout_ms=10_000) as client:
        yield client


PREFIX = "frazil.iceberg."


async def test_a_project_file_is_planned_and_applied_and_then_there_is_nothing_to_change() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        first = {"t": {f"{PREFIX}value.mode": "json", f"{PREFIX}value.schema": "infer"}}
        said = ["t: value.mode: (default) -> json", "t: value.schema: (default) -> infer"]
        assert (await topic_tool.plan(client, first)).lines == [*said, "2 settings of 1 topics"]
        assert (await topic_tool.apply(client, first)).lines == [*said, "2 settings of 1 topics"]
        nothing = ["nothing to change: all topics are as the file says"]
        assert (await topic_tool.plan(client, first)).lines == nothing
        assert (await topic_tool.apply(client, first)).lines == nothing
        second = {"t": {f"{PREFIX}value.mode": "string"}}
        assert (await topic_tool.apply(client, second)).lines == [
            "t: value.mode: json -> string",
            "t: value.schema: infer -> (default)",
            "2 settings of 1 topics",
        ]
        _, view = await running.http("GET", "/topics/t")
        assert view["configs"] == {f"{PREFIX}value.mode": "string"}


async def test_of_a_project_file_with_a_mistake_nothing_is_set() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        wanted = {"t": {f"{PREFIX}layout": "nested", f"{PREFIX}value.mode": "xml"}}
        told = await topic_tool.apply(client, wanted)
        assert told.lines == []
        assert (
            "t: Invalid value xml for configuration frazil.iceberg.value.mode" in told.failures[0]
        )
        assert told.failures[-1] == "nothing was changed"
        _, view = await running.http("GET", "/topics/t")
        assert view["configs"] == {}


async def test_a_project_file_that_names_a_topic_that_there_is_not_changes_nothing() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        wanted = {"t": {f"{PREFIX}layout": "nested"}, "u": {}}
        with pytest.raises(ToolError, match="there is no topic u; nothing was changed"):
            await topic_tool.apply(client, wanted)
        _, view = await running.http("GET", "/topics/t")
        assert view["configs"] == {}


class DeletedMeanwhile(KafkaClient):
    """Deletes topics once what is wanted of them has been checked."""

    names: Sequence[str] = ()

    async def ask(self, api, request, **how):
        if api == apis.INCREMENTAL_ALTER_CONFIGS and not request.validate_only:
            topics = [DeleteTopicState(name=name) for name in self.names]
            await super().ask(
                apis.DELETE_TOPICS, DeleteTopicsRequest(topics=topics, timeout_ms=5000)
            )
        return await super().ask(api, request, **how)


@pytest.mark.parametrize("names", [("u",), ("t", "u")])
async def test_topics_that_are_refused_at_last_are_not_told_as_changed(names) -> None:
    async with with_topic() as (running, _):
        await create(await running.connect(), "u")
        place = [Address("127.0.0.1", running.port)]
        async with DeletedMeanwhile(place, timeout_ms=10_000) as client:
            client.names = names
            wanted = {name: {f"{PREFIX}layout": "nested"} for name in ("t", "u")}
            told = await topic_tool.apply(client, wanted)
        done = ["t: layout: (default) -> nested", "1 settings of 1 topics"]
        assert told.lines == ([] if "t" in names else done)
        assert [one.partition(":")[0] for one in told.failures] == list(names)
