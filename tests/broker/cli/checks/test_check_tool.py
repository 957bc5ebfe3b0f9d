"""`frazil check`: by its own replica, and by the agent that alone has the log."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from broker.cli import main
from broker.cli.admin_client import AgentPlace
from broker.cli.checks import check_tool
from broker.cli.command_result import ToolError
from protocol.fault_codes import FaultCode
from tests.broker.agents import serving
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


def test_the_command_names_what_is_lost_says_what_to_do_and_ends_with_1(
    no_settings_around, monkeypatch, capsys
) -> None:
    view = finding(monkeypatch, wrong=[WRONG], ranges=[LOST])
    assert check("--data", ".") == 1
    out = capsys.readouterr().out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("t ")]
    assert row == ["t", "4", "10", "12", "chunks/a/b"]
    assert "frazil check --repair declares their offsets lost" in out
    assert check("--data", ".", "--json") == 1
    assert json.loads(capsys.readouterr().out) == view
