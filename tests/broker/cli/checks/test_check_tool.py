"""`frazil check`: by its own replica, and by the agent that alone has the log."""

import asyncio
import contextlib
import functools
import io
import json
import os
import random
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from broker.admin import check_stream
from broker.cli import main
from broker.cli.admin_client import AgentPlace
from broker.cli.checks import check_tool
from broker.cli.command_result import ToolError
from broker.store import identity
from coordinator.commands.loss_commands import LOSS_LEVEL
from coordinator.log.memory import MemoryLogCluster
from protocol.errors import ErrorCode
from protocol.fault_codes import FaultCode, fault_of
from storage.stores.memory import MemoryStore
from storage.stores.object_store import StoreRefusedError
from tests.broker.agents import serving
from tests.kit.faults import refused, slow
from tests.kit.sockets import Place, Running, settings_of

pytestmark = pytest.mark.real_loop


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    """A cluster that the tool finds, too."""
    made = Place()

    def open_adapters(_settings: object) -> object:
        return made.store(), made.log()

    monkeypatch.setattr(check_tool, "open_adapters", open_adapters)
    return made


@contextlib.asynccontextmanager
async def with_records(place: Place) -> AsyncGenerator[Running, None]:
    """An agent with three chunks of a record each in "t"."""
    async with serving(place, "jobs.enabled=false") as running:
        client = await running.connect()
        assert await client.create("t") == 0
        for number in range(3):
            assert await client.produce("t", [b"value"]) == (0, number)
        yield running


def agent_at(running: Running) -> AgentPlace:
    return AgentPlace(f"http://127.0.0.1:{running.agent.listening()['http'][1]}")


def silent(_line: str) -> None:
    pass


async def asked(running: Running, *, deep: bool = False) -> dict:
    return await asyncio.to_thread(check_tool.ask, agent_at(running), deep=deep, tell=silent)


@pytest.mark.parametrize("deep", [False, True])
async def test_the_tool_and_an_agent_find_the_same_and_disturb_nobody(
    place: Place, deep: bool
) -> None:
    async with with_records(place) as running:
        keys = sorted(place.objects._objects)
        whole = await check_tool.look(settings_of(), deep=deep, tell=silent)
        assert (whole["wrong"], whole["ranges"]) == ([], [])
        assert (whole["foreign"]["objects"], whole["unnamed"]["unnamed"]) == (0, 0)
        assert whole == await asked(running, deep=deep)
        assert sorted(place.objects._objects) == keys
        chunk = [key for key in keys if key.startswith("chunks/")][1]
        del place.objects._objects[chunk]
        found = await check_tool.look(settings_of(), deep=deep, tell=silent)
        assert found == await asked(running, deep=deep)
        assert [each["key"] for each in found["wrong"]] == [chunk]
        (lost,) = found["ranges"]
        assert (lost["topic"], lost["partition"]) == ("t", 0)
        assert (lost["base_offset"], lost["next_offset"]) == (1, 2)
        client = await running.connect()
        assert await client.produce("t", [b"value"]) == (0, 3)


async def test_the_store_of_another_cluster_is_not_compared(place: Place) -> None:
    async with with_records(place):
        with pytest.raises(ToolError, match="not to 'other'") as refused:
            await check_tool.look(settings_of("cluster.id=other"), deep=False, tell=silent)
    assert refused.value.fault is FaultCode.OTHER_CLUSTER


async def test_a_log_that_is_not_the_store_s_is_not_compared(place: Place) -> None:
    async with with_records(place):
        pass
    place.cluster = MemoryLogCluster()
    rng = random.Random("another life")
    await identity.check(MemoryStore(), place.log(), settings_of().cluster_id, rng)
    with pytest.raises(ToolError, match="belongs to another metadata log") as refused:
        await check_tool.look(settings_of(), deep=False, tell=silent)
    assert refused.value.fault is FaultCode.OTHER_CLUSTER


async def test_who_asks_while_a_check_runs_is_told_to_ask_again(place: Place) -> None:
    async with with_records(place) as running:
        waits, listed = asyncio.Event(), asyncio.Event()

        async def until_set(*_arguments: object) -> None:
            listed.set()
            await waits.wait()

        running.store.before["list_after"] = until_set
        first = asyncio.create_task(asked(running))
        await listed.wait()
        with pytest.raises(ToolError, match="ask again"):
            await asked(running)
        waits.set()
        assert (await first)["wrong"] == []


async def test_an_agent_that_checks_for_long_says_so_and_one_that_is_dead_ends_the_command(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_stream, "STILL_S", 0.2)
    monkeypatch.setattr(check_tool, "SILENT_S_MAX", 1.0)
    async with with_records(place) as running:
        agent, told = agent_at(running), []
        running.store.before["list_after"] = slow(2)
        ask = functools.partial(check_tool.ask, agent, deep=False, tell=told.append)
        assert (await asyncio.to_thread(ask))["wrong"] == []
        assert told.count("the check goes on") >= 3
        monkeypatch.setattr(check_stream, "STILL_S", 60)
        with pytest.raises(ToolError, match="timed out") as ended:
            await asyncio.to_thread(ask)
        assert ended.value.fault is FaultCode.CLUSTER_UNREACHABLE


async def test_the_store_s_error_comes_from_an_agent_in_its_own_words(place: Place) -> None:
    async with with_records(place) as running:
        denied = StoreRefusedError("no right to list", fault=FaultCode.STORE_DENIED)
        running.store.before["list_after"] = refused(denied)
        with pytest.raises(ToolError, match="no right to list") as ended:
            await asked(running)
        assert ended.value.fault is FaultCode.STORE_DENIED


# Repairs.


async def repaired(
    running: Running, found: dict, told: list[str] | None = None
) -> check_tool.Repaired:
    tell = silent if told is None else told.append
    return await asyncio.to_thread(check_tool.repair, agent_at(running), found, tell=tell)


async def test_readers_go_on_behind_a_chunk_that_is_lost_and_others_never_notice(
    place: Place,
) -> None:
    async with with_records(place) as running:
        client = await running.connect()
        assert await client.create("other") == 0
        assert await client.produce("other", [b"value"]) == (0, 0)
        keys = sorted(key for key in place.objects._objects if key.startswith("chunks/"))
        del place.objects._objects[keys[1]]
    async with serving(place, "jobs.enabled=false", "node.name=two") as running:
        client = await running.connect()
        error, _ = await client.fetch("t", 1)
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch("other", 0))[0] == 0
        found = await asked(running)
        told: list[str] = []
        assert await repaired(running, found, told) == (1, 0, ())
        assert told == ["t-0, offsets 1 to 1: declared lost"]
        error, length = await client.fetch("t", 1)
        assert (error, length > 0) == (0, True)
        assert (await client.fetch("t", 2))[0] == 0
        again = await asked(running, deep=True)
        assert (again["wrong"], again["ranges"]) == ([], [])
        # Asked twice, nothing happens the second time.
        refused = await repaired(running, found)
        assert "other rows lie there now" in refused.failures[0]


async def test_what_is_refused_stops_no_other_repair(place: Place) -> None:
    async with with_records(place) as running:
        keys = sorted(key for key in place.objects._objects if key.startswith("chunks/"))
        data = {key: place.objects._objects.pop(key) for key in keys[::2]}
        found = await asked(running)
        assert [each["base_offset"] for each in found["ranges"]] == [0, 2]
        place.objects._objects[keys[0]] = data[keys[0]]
        told: list[str] = []
        refused = ("t-0, offsets 0 to 0: offsets 0 to 0 can be read: check again",)
        assert await repaired(running, found, told) == (1, 0, refused)
        assert told == ["t-0, offsets 2 to 2: declared lost"]


def test_each_repair_is_told_when_it_is_done_and_a_page_that_is_put_back_is_no_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    heard: list[int] = []
    monkeypatch.setattr(
        check_tool.admin_client, "ask", lambda *_arguments, **_body: heard.append(len(told))
    )
    ranges = [LOST, LOST | {"page_body": "cGFnZQ=="}, LOST]
    done = check_tool.repair(AgentPlace("http://a"), {"ranges": ranges}, tell=told.append)
    assert (done.declared_lost, done.put_back) == (2, 1)
    assert heard == [0, 1, 2]
    assert [line.rpartition(": ")[2] for line in told[:3]] == [
        "declared lost",
        "put back",
        "declared lost",
    ]
    assert told[3].startswith("check again")


async def test_beside_an_agent_of_an_older_release_nothing_is_declared_lost(place: Place) -> None:
    async with with_records(place) as running:
        keys = sorted(key for key in place.objects._objects if key.startswith("chunks/"))
        del place.objects._objects[keys[1]]
        found = await asked(running)
        (row,) = running.agent.node.log_client.machine.incarnations
        row.feature_level_max = LOSS_LEVEL - 1
        (failure,) = (await repaired(running, found)).failures
        assert fault_of(failure) is FaultCode.VERSION_MISMATCH
        row.feature_level_max = LOSS_LEVEL
        assert not (await repaired(running, found)).failures


@pytest.mark.parametrize(
    ("topic", "change", "status"),
    [
        ("none", {}, 404),
        ("t", {"topic_id": "00" * 16}, 404),
        ("t", {"rows": "one"}, 400),
        ("t", {"partition": 7}, 409),
    ],
    ids=str,
)
async def test_what_names_no_rows_is_refused(
    place: Place, topic: str, change: dict, status: int
) -> None:
    async with with_records(place) as running:
        keys = sorted(key for key in place.objects._objects if key.startswith("chunks/"))
        del place.objects._objects[keys[1]]
        (lost,) = (await asked(running))["ranges"]
        body = json.dumps(lost | change)
        assert (await running.http("POST", f"/topics/{topic}/lost", data=body))[0] == status


# The command.


def check(*arguments: str) -> int:
    try:
        return main.main(["check", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.fixture
def no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("FRAZIL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_a_log_that_is_not_there_is_not_made(no_settings_around, capsys) -> None:
    assert check("--data", "nowhere") == 1
    assert "is not there: --config or --data names another" in capsys.readouterr().err
    assert not Path("nowhere").exists()


VIEW = {
    "position": 1,
    "deep": False,
    "spans_read": 0,
    "kinds": [{"kind": "chunk", "objects": 3, "bytes": 30, "missing": 0, "damaged": 0}],
    "wrong": [],
    "ranges": [],
    "unnamed": {"unnamed": 0, "bytes": 0, "orphans": 0, "examples": []},
    "foreign": {"objects": 0, "bytes": 0, "examples": []},
}
LOST = {
    "topic": "t",
    "topic_id": "00" * 16,
    "partition": 4,
    "base_offset": 10,
    "next_offset": 13,
    "rows": 1,
    "digest": "00" * 16,
    "is_page": False,
    "page_body": "",
    "objects": ["chunks/a/b"],
}
WRONG = {"key": "chunks/a/b", "kind": "chunk", "trouble": "missing", "text": "it is not there"}


def finding(monkeypatch: pytest.MonkeyPatch, **found: object) -> dict:
    view = VIEW | found
    monkeypatch.setattr(check_tool, "check", lambda *_, **__: view)
    return view


def test_the_command_ends_with_0_when_nothing_is_wrong(
    no_settings_around, monkeypatch, capsys
) -> None:
    finding(monkeypatch)
    assert check("--data", ".") == 0
    out = capsys.readouterr().out
    assert "The store has all that the log points at." in out


@pytest.mark.fault_code("object-lost")
def test_the_command_names_what_is_lost_says_what_to_do_and_ends_with_1(
    no_settings_around, monkeypatch, capsys
) -> None:
    view = finding(monkeypatch, wrong=[WRONG], ranges=[LOST])
    assert check("--data", ".") == 1
    out, err = capsys.readouterr()
    assert "1 object is missing or damaged [object-lost]" in err
    (row,) = [line.split() for line in out.splitlines() if line.startswith("t ")]
    assert row == ["t", "4", "10", "12", "records", "chunks/a/b"]
    assert "frazil check --repair declares their offsets lost" in out
    assert check("--data", ".", "--json") == 1
    assert json.loads(capsys.readouterr().out) == view


def test_nothing_is_declared_lost_unasked(no_settings_around, monkeypatch, capsys) -> None:
    finding(monkeypatch, wrong=[WRONG], ranges=[LOST])
    monkeypatch.setattr(check_tool, "repair", lambda *_: pytest.fail("unasked"))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert check("--data", ".", "--repair") == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("Put the objects back if a copy is to be had")
    assert "there is no terminal to ask" in said.err


@pytest.mark.parametrize(("failures", "code"), [((), 0), (("t-4: it was refused",), 1)])
def test_the_command_ends_with_0_when_all_was_declared(
    no_settings_around, monkeypatch, capsys, failures, code
) -> None:
    finding(monkeypatch, wrong=[WRONG], ranges=[LOST])
    result = check_tool.Repaired(1, 0, failures)

    def repair(*_arguments, tell):
        tell("t-4: declared lost")
        return result

    monkeypatch.setattr(check_tool, "repair", repair)
    assert check("--data", ".", "--repair", "--yes") == code
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == "t-4: declared lost"
    assert ("it was refused" in said.err) == bool(failures)
    assert check("--data", ".", "--repair", "--yes", "--json") == code
    assert json.loads(capsys.readouterr().out)["declared_lost"] == 1


def test_a_snapshot_that_is_damaged_is_not_repaired_by_declaring_anything(
    no_settings_around, monkeypatch, capsys
) -> None:
    finding(monkeypatch, wrong=[WRONG | {"kind": "snapshot"}])
    assert check("--data", ".", "--repair", "--yes") == 1
    assert "frazil job run snapshot makes a new one" in capsys.readouterr().out
