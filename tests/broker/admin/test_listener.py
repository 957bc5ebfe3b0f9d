"""The admin endpoints: what the exporter, Prometheus and `frazil log tail` get."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace

import pytest

from broker.admin import metrics
from broker.admin.memory_bound import PLACE_BYTES
from broker.calls.shares import Owner
from broker.cli.admin_client import AgentPlace, ask
from broker.cli.command_result import ToolError
from broker.cli.log.log_tail import tail
from broker.store import identity
from broker.telemetry.instances import Instance
from broker.telemetry.otlp import Kind, Point, Reading
from broker.telemetry.series import labels_of
from broker.telemetry.subscriptions import NOTHING
from coordinator.log.memory import MemoryLog
from coordinator.log.metadata_log import Session
from coordinator.tables.partition import Partition
from protocol.fault_codes import FaultCode
from protocol.fetch import FetchPartition, FetchRequest
from protocol.slices import finish
from protocol.types import Position, TopicId, era_of, position
from storage.stores.object_store import StoreUnavailableError
from tests.broker.agents import serving
from tests.broker.fetch import jobs_by_hand
from tests.kit.faults import refused
from tests.kit.sockets import Place, Running

pytestmark = pytest.mark.real_loop


@contextlib.asynccontextmanager
async def with_records(place: Place | None = None, *flags: str) -> AsyncGenerator[Running, None]:
    """An agent with three records in "t"."""
    async with serving(place, *flags) as running:
        client = await running.connect()
        assert await client.create("t") == 0
        assert await client.produce("t", [b"a", b"b"]) == (0, 0)
        assert await client.produce("t", [b"c"]) == (0, 2)
        yield running


async def test_an_error_has_the_code_of_what_must_be_mended_and_tools_tell_it() -> None:
    async with serving() as running:
        running.store.before["list_after"] = refused(StoreUnavailableError("it is away"))
        status, body = await running.http("GET", "/objects/unnamed")
        assert (status, body) == (
            503,
            {"error": "the object store: it is away", "code": "store-unreachable"},
        )
        place = AgentPlace(f"http://127.0.0.1:{running.agent.listening()['http'][1]}")
        with pytest.raises(ToolError) as told:
            await asyncio.to_thread(ask, place, "/objects/unnamed")
        assert told.value.fault is FaultCode.STORE_UNREACHABLE
        with pytest.raises(ToolError) as told:
            await asyncio.to_thread(ask, place, "/topics/none")
        assert told.value.fault is None


async def test_topics_and_plan_tell_where_the_records_are() -> None:
    place = Place()
    async with with_records(place, "store.endpoint=http://s3:9000") as running:
        _, listed = await running.http("GET", "/export/topics")
        (topic,) = listed["topics"]
        assert (topic["name"], topic["partitions"]) == ("t", 1)
        assert listed["cluster_id"].startswith("frazil/")
        assert len(listed["cluster_id"]) == len("frazil/") + identity.LIFE_HEX_DIGITS
        status, plan = await running.http("GET", "/export/plan?topic=t")
        assert status == 200
        assert plan["topic_id"] == topic["topic_id"]
        assert plan["store"] == {
            "url": "memory://",
            "endpoint": "http://s3:9000",
            "region": None,
            "path_style": True,
        }
        (partition,) = plan["partitions"]
        assert (partition["log_start"], partition["end"]) == (0, 3)
        for key, start, length, *_ in partition["spans"]:
            assert len(await place.objects.get_range(key, start, length)) == length
        _, rest = await running.http("GET", "/export/plan?topic=t&partition=0&from=2")
        assert [span[3] for span in rest["partitions"][0]["spans"]] == [2]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), None),
        (("schema.registry.listeners=http://127.0.0.1:0",), "http://127.0.0.1:{port}"),
        (("schema.registry.listeners=http://0.0.0.0:0",), "http://frazil.svc:{port}"),
        (("schema.registry.advertised.url=https://one.example/r",), "https://one.example/r"),
    ],
)
async def test_plans_and_topics_tell_where_the_schema_registry_is(
    flags: tuple[str, ...], told: str | None
) -> None:
    async with with_records(None, *flags) as running:
        port = running.agent.listening().get("registry", ("", 0))[1]
        wanted = None if told is None else told.format(port=port)
        named = {"Host": "frazil.svc:9094"}
        for path in ("/export/topics", "/export/plan?topic=t"):
            _, body = await running.http("GET", path, headers=named)
            assert body["registry"] == wanted
        said = {"topic": "t", "offsets": {}, "others": 0}
        _, body = await running.http("POST", "/export/plan", json=said, headers=named)
        assert body["registry"] == wanted


async def test_plans_and_topics_tell_what_is_set_for_a_table_and_how_far_it_is() -> None:
    async with with_records() as running:
        for path in ("/export/topics", "/export/plan?topic=t"):
            _, body = await running.http("GET", path)
            told = body["topics"][0] if "topics" in body else body
            assert told["configs"]["frazil.iceberg.mode"] == "append"
            assert (told["exported"], told["exported_ms"]) == ({}, None)
        said = {"topic": "t", "topic_id": told["topic_id"], "offsets": {"0": 2}}
        assert (await running.http("POST", "/export/progress", json=said))[0] == 200
        _, plan = await running.http("GET", "/export/plan?topic=t")
        assert plan["exported"] == {"0": 2}
        assert plan["exported_ms"] > 0
        assert (plan["partitions"][0]["log_start"], plan["partitions"][0]["end"]) == (0, 3)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({}, 400),
        ({"topic": "t", "topic_id": None, "offsets": {}}, 400),
        ({"topic": "t", "topic_id": None, "offsets": {"0": -1}}, 400),
        ({"topic": "t", "topic_id": None, "offsets": {"x": 1}}, 400),
        ({"topic": "t", "topic_id": None, "offsets": {"0": 2**63}}, 400),
        ({"topic": "t", "topic_id": "00" * 16, "offsets": {"0": 1}}, 404),
        ({"topic": "u", "topic_id": None, "offsets": {"0": 1}}, 404),
        ({"topic": "t", "topic_id": None, "offsets": {"0": 4}}, 409),
        ({"topic": "t", "topic_id": None, "offsets": {"0": 1, "1": 1}}, 409),
    ],
)
async def test_progress_that_cannot_be_is_refused(said: dict, status: int) -> None:
    async with with_records() as running:
        _, plan = await running.http("GET", "/export/plan?topic=t")
        if "topic_id" in said:
            said["topic_id"] = said["topic_id"] or plan["topic_id"]
        found, body = await running.http("POST", "/export/progress", json=said)
        assert found == status
        assert body["error"]
        _, plan = await running.http("GET", "/export/plan?topic=t")
        assert plan["exported"] == {}


async def test_progress_names_the_tables_snapshot_for_operators_to_see() -> None:
    async with with_records() as running:
        _, plan = await running.http("GET", "/export/plan?topic=t")
        said = {"topic": "t", "topic_id": plan["topic_id"], "offsets": {"0": 1}}
        source = {"table": "frazil.t", "snapshot_id": 1 << 62}
        _, answer = await running.http("POST", "/export/progress", json=said | source)
        assert "note" not in answer
        for path in ("/export/plan?topic=t", "/topics/t"):
            assert (await running.http("GET", path))[1]["exported_from"] == source
        # An exporter of the release before does not say.
        _, answer = await running.http("POST", "/export/progress", json=said)
        assert "snapshot_id" in answer["note"]
        _, plan = await running.http("GET", "/export/plan?topic=t")
        assert (plan["exported"], plan["exported_from"]) == ({"0": 1}, None)
        for half in ({"table": "frazil.t"}, {"snapshot_id": 1}, {"table": "", "snapshot_id": 1}):
            assert (await running.http("POST", "/export/progress", json=said | half))[0] == 400


async def test_an_agent_remembers_dead_letters_by_reason_and_refuses_what_is_no_count_of_them() -> (
    None
):
    async with with_records() as running:
        _, plan = await running.http("GET", "/export/plan?topic=t")
        said = {"topic": "t", "topic_id": plan["topic_id"], "offsets": {"0": 1}}
        source = {"table": "frazil.t", "snapshot_id": 1}
        counts = {f"CODE_{number}": number for number in range(30)}
        told = said | source | {"dead_letters": counts}
        assert (await running.http("POST", "/export/progress", json=told))[0] == 200
        (kept,) = running.agent.admin.dead_letters.values()
        assert list(kept)[:2] == ["CODE_29", "CODE_28"]
        assert len(kept) == 20
        # An exporter of the release before says nothing of them.
        assert (await running.http("POST", "/export/progress", json=said | source))[0] == 200
        assert running.agent.admin.dead_letters
        _, html = await running.http("GET", "/console/tables", headers={"Accept": "text/html"})
        assert "frazil.t__dlq" in html
        for bad in ([1], {"": 1}, {"X": -1}, {"X" * 65: 1}, {"X": "many"}):
            wrong = said | source | {"dead_letters": bad}
            assert (await running.http("POST", "/export/progress", json=wrong))[0] == 400


async def test_progress_into_what_is_not_stable_is_refused(monkeypatch) -> None:
    async with with_records() as running:
        monkeypatch.setattr(Partition, "last_stable", property(lambda _self: 2))
        _, plan = await running.http("GET", "/export/plan?topic=t")
        for offset, status in ((3, 409), (2, 200)):
            said = {"topic": "t", "topic_id": plan["topic_id"], "offsets": {"0": offset}}
            assert (await running.http("POST", "/export/progress", json=said))[0] == status


async def test_one_request_plans_all_partitions_each_from_an_offset_of_its_own() -> None:
    async with with_records() as running:

        async def spans(body: dict) -> list[int]:
            status, plan = await running.http("POST", "/export/plan", json=body)
            assert status == 200
            assert plan["cluster_id"].startswith("frazil/")
            return [span[3] for part in plan["partitions"] for span in part["spans"]]

        assert await spans({"topic": "t", "offsets": {"0": 2}, "others": 0}) == [2]
        assert (await spans({"topic": "t", "offsets": {}, "others": 0}))[0] == 0
        assert await spans({"topic": "t", "offsets": {}, "others": 1 << 62}) == []
        assert await spans({"topic": "t", "offsets": {}}) == []
        for mistake, wanted in (
            ({"topic": "t", "offsets": {"0": -1}}, 400),
            ({"topic": "t", "offsets": {"x": 1}}, 400),
            ({"topic": "t"}, 400),
            ({"topic": "t", "offsets": {}, "others": -1}, 400),
            ({"topic": "none", "offsets": {}}, 404),
            ({"topic": "t", "offsets": {"7": 0}}, 404),
        ):
            status, body = await running.http("POST", "/export/plan", json=mistake)
            assert (status, bool(body["error"])) == (wanted, True)


async def test_a_plan_goes_through_pages_and_is_refused_for_now_when_one_cannot_be_read() -> None:
    place = Place()
    async with with_records(place) as running:
        _, before = await running.http("GET", "/export/plan?topic=t")
        node = running.agent.node
        by_hand = SimpleNamespace(
            log_client=node.log_client,
            world=SimpleNamespace(store=SimpleNamespace(inner=place.objects)),
        )
        topic = node.log_client.machine.topics.by_name("t")
        row = node.log_client.machine.partitions.get(topic.topic_id, 0)
        await jobs_by_hand.claim(by_hand)
        index = await jobs_by_hand.spill(by_hand, row)
        assert row.page_count == 1
        data = bytes(await place.objects.get(index.key))
        await jobs_by_hand.delete(by_hand, index)
        status, body = await running.http("GET", "/export/plan?topic=t")
        assert (status, "object store" in body["error"]) == (503, True)
        await place.objects.put_new(index.key, [data])
        _, after = await running.http("GET", "/export/plan?topic=t")
        assert after["partitions"] == before["partitions"]


async def test_topics_and_plan_are_told_behind_a_barrier() -> None:
    async with with_records() as running:
        for path in ("/export/topics", "/export/plan?topic=t"):
            heads = len(running.log.called("head"))
            status, _ = await running.http("GET", path)
            assert status == 200
            assert len(running.log.called("head")) > heads


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/export/plan", 400),
        ("/export/plan?topic=none", 404),
        ("/export/plan?topic=t&partition=7", 404),
        ("/export/plan?topic=t&partition=x", 400),
        ("/log?after=x", 400),
        ("/nothing", 404),
    ],
)
async def test_mistakes_of_the_caller_are_told_in_a_sentence(path: str, status: int) -> None:
    async with with_records() as running:
        answered, body = await running.http("GET", path)
        assert answered == status
        assert body["error"]


async def test_a_pin_gives_its_position_and_keeps_it_when_renewed() -> None:
    async with with_records() as running:
        pin = {"name": "export", "lifetime_ms": 60_000}
        status, first = await running.http("POST", "/export/pin", json=pin)
        assert status == 200
        _, again = await running.http("POST", "/export/pin", json=pin)
        assert again["position"] == first["position"]
        assert (await running.http("DELETE", "/export/pin/export"))[0] == 200
        _, anew = await running.http("POST", "/export/pin", json=pin)
        assert anew["position"] > first["position"]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        '{"name": "", "lifetime_ms": 1}',
        '{"name": "\\ud800", "lifetime_ms": 1}',
        '{"name": "a", "lifetime_ms": true}',
    ],
)
async def test_a_pin_that_makes_no_sense_is_refused(body: str) -> None:
    async with serving() as running:
        assert (await running.http("POST", "/export/pin", data=body))[0] == 400


async def test_pins_that_keep_snapshots_are_nobody_elses_to_set_or_to_take_away() -> None:
    async with serving() as running:
        name = "frazil.snapshots.1.2"
        pin = {"name": name, "lifetime_ms": 60_000}
        status, body = await running.http("POST", "/export/pin", json=pin)
        assert (status, "pins that keep snapshots" in body["error"]) == (400, True)
        assert (await running.http("DELETE", f"/export/pin/{name}"))[0] == 400


async def test_a_pin_while_the_log_is_away_is_refused_for_now() -> None:
    async with serving() as running:
        running.log.down = True
        await running.until(ready=False)
        pin = {"name": "export", "lifetime_ms": 60_000}
        assert (await running.http("POST", "/export/pin", json=pin))[0] == 503


async def test_the_log_is_streamed_up_to_its_end() -> None:
    async with with_records() as running:
        _, text = await running.http("GET", "/log")
        entries = [json.loads(line) for line in text.splitlines()]
        names = [command["command"] for entry in entries for command in entry["commands"]]
        assert names == ["Open", "ClaimShards", "CreateTopic", "CommitChunk", "CommitChunk"]
        _, rest = await running.http("GET", f"/log?after={entries[-2]['position']}")
        assert [json.loads(line) for line in rest.splitlines()] == entries[-1:]


async def test_the_log_is_streamed_from_its_beginning_after_a_place_before_its_era(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tail_of = MemoryLog.tail

    def strict(log: MemoryLog, after: Position):
        assert after == 0 or era_of(after) == 1  # As etcd's does.
        return tail_of(log, after)

    monkeypatch.setattr(MemoryLog, "tail", strict)
    async with with_records() as running:
        _, text = await running.http("GET", "/log")
        assert await running.http("GET", "/log?after=42") == (200, text)
        for follow in (0, 1):
            later = f"/log?after={position(2, 1)}&follow={follow}"
            status, said = await running.http("GET", later)
            assert status == 400
            assert "positions are like 1:" in said["error"]


async def test_log_tail_prints_what_the_agent_streams() -> None:
    async with with_records() as running:
        agent = f"http://127.0.0.1:{running.agent.listening()['http'][1]}"
        printed = await asyncio.to_thread(
            lambda: list(tail(AgentPlace(agent), after=0, follow=False, as_json=False))
        )
        assert any(line.startswith("    CreateTopic name=t") for line in printed)


def test_log_tail_without_an_agent_says_so() -> None:
    with pytest.raises(ToolError, match="is one running"):
        list(tail(AgentPlace("http://127.0.0.1:1"), after=0, follow=False, as_json=False))


OF_QUOTAS = {
    f"frazil_{name}"
    for name in (
        "produce_byte_rate",
        "produce_throttle_time_seconds_total",
        "fetch_byte_rate",
        "fetch_throttle_time_seconds_total",
        "request_time",
        "request_throttle_time_seconds_total",
        "controller_mutation_tokens",
        "controller_mutation_throttle_time_seconds_total",
        "connection_tokens",
        "connection_throttle_time_seconds_total",
    )
}
"""They have no value before a quota is set: tests.broker.quotas.test_enforcement."""


async def test_what_clients_pushed_is_on_the_page_behind_the_agents_own_metrics() -> None:
    async with with_records() as running:
        series = running.agent.node.telemetry.series
        labels = labels_of("i", "c", "a-client")
        client = Instance(b"i" * 16, Owner("10.0.0.1"), labels, NOTHING, 0, 0)
        points = [Point("a.b", Kind.GAUGE, is_delta=False, attributes=(), value=1.5)]
        finish(series.take(client, points, Reading()))
        _, page = await running.http("GET", "/metrics")
        assert f"kafka_client_a_b{{{labels.decode()}}} 1.5" in page.splitlines()
        assert page.index("frazil_ready") < page.index("kafka_client_a_b")


async def test_what_clients_fetch_counts_in_what_the_agent_takes_at_most() -> None:
    async with with_records() as running:

        async def bound() -> int:
            _, page = await running.http("GET", "/metrics")
            found = [
                each for each in page.splitlines() if each.startswith("frazil_memory_bound_bytes ")
            ]
            return int(float(found[0].split()[1]))

        before, fetching = await bound(), running.agent.node.fetching
        wanted = [FetchPartition(at, 0, 1 << 20) for at in range(1000)]
        topics = [(None, TopicId(bytes(16)), wanted)]
        fetching.sessions.open(13, FetchRequest(500, 1, 1 << 26, 0, topics, 0, 0), 0)
        assert await bound() - before == 1000 * PLACE_BYTES


async def test_every_metric_of_the_table_is_on_the_page() -> None:
    async with with_records() as running:
        status, page = await running.http("GET", "/metrics")
        assert status == 200
        series = {line.split("{")[0].split(" ")[0] for line in page.splitlines()}
        # No value before the first close or refusal, group, and topic that waits; without TLS, and
        # before a client pushes metrics.
        labelled = {
            "frazil_client_payloads_forwarded_total",
            "frazil_client_points_left_out_total",
            "frazil_client_pushes_total",
            "frazil_authentications_total",
            "frazil_certificate_days",
            "frazil_handshakes_failed_total",
            "frazil_connections_closed_total",
            "frazil_connections_refused_total",
            "frazil_groups",
            "frazil_export_hold_left_ms",
            *OF_QUOTAS,
        }
        assert set(metrics.NAMES) - labelled <= series
        values = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#")
        assert float(values["frazil_ready"]) == 1
        assert float(values["frazil_group_shards"]) == 64
        assert float(values["frazil_produce_records_total"]) == 3
        assert float(values['frazil_requests_total{api="Produce"}']) == 2
        assert float(values['frazil_request_seconds_count{api="Produce"}']) == 2


def test_names_of_metrics_are_unique_and_follow_prometheus_rules() -> None:
    assert len(set(metrics.NAMES)) == len(metrics.NAMES)
    assert all(name.startswith("frazil_") for name in metrics.NAMES)
    assert all(not row.name.endswith("_total") for row in metrics.TABLE)


async def test_a_log_that_was_cut_is_told_from_the_cut_on() -> None:
    place = Place()
    async with with_records(place) as running:
        entries = list(place.cluster.entries)
        node = running.agent.node
        incarnation = node.log_client.incarnation()
        session = Session(
            node.log_client.machine.incarnations.get(incarnation).session, incarnation
        )
        await running.log.publish(session, b"", older=entries[1].position)
        await running.log.cut(session, entries[1].position)
        _, text = await running.http("GET", "/log")
        told = [json.loads(line) for line in text.splitlines()]
        assert told[0]["position"] == entries[2].position
        _, text = await running.http("GET", f"/log?after={entries[0].position}")
        assert "was cut" in json.loads(text)["error"]
        through = place.cluster.head()
        await running.log.publish(session, b"", older=through)
        await running.log.cut(session, through)
        _, text = await running.http("GET", "/log")
        told = [json.loads(line) for line in text.splitlines()]
        assert all(line["position"] > through for line in told)
