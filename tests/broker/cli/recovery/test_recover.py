"""`frazil recover`: what it says, that it asks, and what it refuses."""

import json
from contextlib import aclosing
from pathlib import Path

import pytest

from broker.cli.command_result import ToolError
from broker.cli.main import main
from broker.cli.recovery import recovery_tool
from broker.recovery.rebuilding import Until
from coordinator.log.memory import MemoryLog
from coordinator.log.sqlite import SqliteLog
from protocol.types import first_position
from tests.broker.recovery.disaster import CLUSTER, NOTHING, Disaster, unheard
from tests.kit.sockets import settings_of


async def lost(monkeypatch: pytest.MonkeyPatch) -> Disaster:
    """A cluster that the tool finds, whose log is gone."""
    world = await Disaster().begin()
    await world.topic("first")
    snapshot = await world.snapshot(cut=False)
    await world.topic("second")
    await world.archive(snapshot.position, world.head)
    world.lose()

    def open_adapters(_settings: object) -> object:
        return world.store, MemoryLog(world.cluster)

    monkeypatch.setattr(recovery_tool, "open_adapters", open_adapters)
    return world


def settings() -> object:
    return settings_of(f"cluster.id={CLUSTER}")


async def test_a_dry_run_tells_where_the_cluster_goes_on_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await lost(monkeypatch)
    lines = await recovery_tool.dry_run(settings(), NOTHING, as_json=False, tell=unheard)
    assert lines[0].startswith(f"cluster '{CLUSTER}' goes on in era 2, behind 1:")
    assert "2 entries that were archived" in lines[1]
    assert lines[-1] == "nothing was changed"
    assert await MemoryLog(world.cluster).identity() == b""


async def test_what_a_dry_run_found_is_one_object_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    await lost(monkeypatch)
    (line,) = await recovery_tool.dry_run(settings(), NOTHING, as_json=True, tell=unheard)
    told = json.loads(line)
    assert (told["cluster"], told["era"], told["entries"]) == (CLUSTER, 2, 2)
    assert (told["agents"], told["is_all"]) == (["writer"], True)
    assert told["refused"] is None
    assert told["troubles"] == told["unarchived"] == told["lacking"] == []


async def test_it_asks_once_it_has_said_what_it_will_do_and_then_does_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await lost(monkeypatch)
    asked: list[str] = []
    done = await recovery_tool.recover(settings(), NOTHING, ask=asked.extend, tell=unheard)
    assert any("era 2" in line for line in asked)
    assert done[0].startswith("era 2 has begun behind 1:")
    assert (await world.started(MemoryLog(world.cluster))).position == first_position(2)


async def test_nothing_is_begun_when_the_answer_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await lost(monkeypatch)

    def no(_lines: list[str]) -> None:
        raise ToolError("no")

    with pytest.raises(ToolError):
        await recovery_tool.recover(settings(), NOTHING, ask=no, tell=unheard)
    assert await MemoryLog(world.cluster).identity() == b""


async def test_a_time_before_all_snapshots_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await lost(monkeypatch)
    for info in await world.store.list_after("archive/", ""):
        await world.store.delete([info.key])
    with pytest.raises(ToolError, match="none of the 1 snapshots"):
        await recovery_tool.dry_run(settings(), Until(time_ms=-1), as_json=False, tell=unheard)


async def test_agents_that_live_are_told_of_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await lost(monkeypatch)
    await world.recover(MemoryLog(world.cluster))
    world.writer.log, world.writer.n = MemoryLog(world.cluster), 0
    await world.writer.open()
    until = Until(position=first_position(2))
    with pytest.raises(ToolError, match="end all agents first"):
        await recovery_tool.recover(settings(), until, ask=lambda _lines: None, tell=unheard)


async def test_a_log_that_is_not_lost_is_refused_before_anything_is_asked_and_told_by_a_dry_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await lost(monkeypatch)
    await world.recover(MemoryLog(world.cluster))
    world.writer.log, world.writer.n = MemoryLog(world.cluster), 0
    await world.writer.open()
    asked: list[str] = []
    with pytest.raises(ToolError, match="start the agents with it"):
        await recovery_tool.recover(settings(), NOTHING, ask=asked.extend, tell=unheard)
    assert not asked
    lines = await recovery_tool.dry_run(settings(), NOTHING, as_json=False, tell=unheard)
    assert lines[-2:-1] == ["nothing was changed"]
    assert lines[-1].startswith("it would be refused: the metadata log is there")
    (line,) = await recovery_tool.dry_run(settings(), NOTHING, as_json=True, tell=unheard)
    assert "start the agents with it" in json.loads(line)["refused"]


async def test_a_dry_run_makes_no_log_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = await lost(monkeypatch)
    path = tmp_path / "log.db"

    def open_adapters(_settings: object) -> object:
        return world.store, SqliteLog(path)

    monkeypatch.setattr(recovery_tool, "open_adapters", open_adapters)
    given = settings_of(f"cluster.id={CLUSTER}", f"log=sqlite://{path}")
    (line,) = await recovery_tool.dry_run(given, NOTHING, as_json=True, tell=unheard)
    assert json.loads(line)["refused"] is None
    assert not path.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--to", "yesterday"),
        ("--to-position", "one"),
        ("--to", "2026-01-31T08:00:00", "--to-position", "1:42"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["recover", *arguments])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("frazil recover: ")


@pytest.mark.real_loop
async def test_a_log_file_that_is_damaged_is_told_to_be_moved_away_and_one_in_use_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = await lost(monkeypatch)
    path = tmp_path / "log.db"
    path.write_bytes(b"no database at all" * 999)
    given = settings_of(f"cluster.id={CLUSTER}", f"log=sqlite://{path}")

    def open_adapters(_settings: object) -> object:
        return world.store, SqliteLog(path)

    monkeypatch.setattr(recovery_tool, "open_adapters", open_adapters)
    with pytest.raises(ToolError, match="Move what is damaged away"):
        await recovery_tool.recover(given, NOTHING, ask=unasked, tell=unheard)
    (line,) = await recovery_tool.dry_run(given, NOTHING, as_json=True, tell=unheard)
    assert "Move what is damaged away" in json.loads(line)["refused"]
    path.unlink()
    async with aclosing(SqliteLog(path)) as owner:
        await owner.head()
        with pytest.raises(ToolError, match=r"in use by another process; [^.]*$"):
            await recovery_tool.recover(given, NOTHING, ask=unasked, tell=unheard)
    await recovery_tool.recover(given, NOTHING, ask=lambda _lines: None, tell=unheard)


def unasked(_lines: list[str]) -> None:
    pytest.fail("it asks")


@pytest.mark.parametrize("flags", [["--dry-run"], ["--yes"]])
def test_a_store_that_is_not_there_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    assert main(["recover", *flags, "--data", str(folder)]) == 1
    assert "objects is not there: --config or --data names another" in capsys.readouterr().err
    assert not [*folder.iterdir()]
