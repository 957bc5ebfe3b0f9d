"""`frazil topic describe --storage`, and what an agent tells of where a topic's records lie."""

import asyncio
import json

import pytest

from broker.cli.admin_client import AgentPlace, ask
from broker.cli.command_result import ToolError
from broker.cli.topics import storage_tool
from broker.reports import topic_report
from tests.broker.agents import serving
from tests.broker.cli.topics.topics_kit import with_topic
from tests.kit.sockets import Running

pytestmark = pytest.mark.real_loop


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
            lambda: storage_tool.describe(agent(running), "t", as_json=True)
        )
        view = json.loads(said.lines[0])
        assert [row["partition"] for row in view["partitions"]] == list(range(7))


async def test_without_such_a_topic_the_agent_says_so() -> None:
    async with serving() as running:
        with pytest.raises(ToolError, match='no topic named "none"'):
            await asyncio.to_thread(
                lambda: storage_tool.describe(agent(running), "none", as_json=False)
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
