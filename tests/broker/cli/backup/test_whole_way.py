"""The whole way on a disk: an agent with its jobs keeps snapshots, is gone, and the store alone tells of them."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.agent import Agent
from broker.cli import main
from broker.composition import Parts
from broker.config.settings import load
from broker.environment import boot_ms, now_ms, open_adapters
from coordinator.commands.job_commands import JobKind, ReportJob, RequestJob
from coordinator.machine.machine import Machine
from coordinator.replica import Applied
from protocol.types import Position, era_of, revision_of
from tests.kit.sockets import SocketClient

RECORDS = 30


class Running:
    """An agent whose jobs are asked for their rounds."""

    def __init__(self, agent: Agent, client: SocketClient) -> None:
        self.client = client
        self.log_client = agent.node.log_client
        self.log_client.on_applied(self.applied)
        self.ended: dict[JobKind, Position] = {}
        """The newest rounds that told that they are over."""

    @property
    def machine(self) -> Machine:
        return self.log_client.machine

    def applied(self, applied: Applied) -> None:
        for command in applied.entry.commands:
            if isinstance(command, ReportJob) and not command.running:
                self.ended[command.job] = applied.position

    async def round(self, kind: JobKind) -> None:
        """One that begins now, to its end."""
        await self.log_client.propose(RequestJob(kind))
        while self.ended.get(kind, 0) < self.machine.jobs.get(kind).requested:
            await asyncio.sleep(0.02)

    async def until_published(self, count: int) -> list[Position]:
        for _ in range(count):
            await self.round(JobKind.SNAPSHOT)
        return [each.position for each in self.machine.snapshots.published]


@asynccontextmanager
async def running(folder: Path, *flags: str) -> AsyncIterator[Running]:
    defaults = {
        "listen": "127.0.0.1:0",
        "http": "off",
        "store": f"file://{folder}/objects",
        "log": f"sqlite://{folder}/log.db",
        "node.name": "one",
        "merge.age.ms": "0",
        "log.segment.delete.delay.ms": "0",
        # Rounds are asked for.
        **{f"{kind}.interval.ms": "86400000" for kind in ("snapshot", "merge", "collect")},
    }
    settings = load(defaults=defaults, toml=None, environ={}, flags=flags).settings
    store, log = open_adapters(settings)
    agent = Agent(
        settings,
        Parts(store=store, log=log, now_ms=now_ms, boot_ms=boot_ms, rng=random.Random(7)),
    )
    task = asyncio.ensure_future(agent.run())
    try:
        await agent.serving()
        client = await SocketClient.connect(agent.listening()["PLAINTEXT"][1])
        yield Running(agent, client)
        await client.close()
        await agent.stop()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.aclose()
        await log.aclose()


def chunks(folder: Path) -> set[str]:
    root = folder / "objects"
    return {str(file.relative_to(root)) for file in root.glob("chunks/*/*")}


async def story(folder: Path, *flags: str) -> tuple[list[Position], set[str]]:
    """Snapshots, the oldest first, of which the first is from before a merge; and the chunks from before it."""
    async with asyncio.timeout(120), running(folder, *flags) as at:
        for kind in (JobKind.MERGE, JobKind.COLLECT):
            await at.round(kind)  # What is due when a worker starts.
        assert await at.client.create("t") == 0
        for number in range(RECORDS):
            assert (await at.client.produce("t", [b"%d" % number]))[0] == 0
        before = chunks(folder)
        (first,) = await at.until_published(1)
        while at.machine.objects.unreferenced_count < RECORDS - 5:
            await at.round(JobKind.MERGE)
        newest, older = (await at.until_published(3))[:2]
        await at.round(JobKind.COLLECT)
        await at.round(JobKind.COLLECT)
        return [first, older, newest], before


def told(position: Position) -> str:
    return f"{era_of(position)}:{revision_of(position)}"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], list[str]]:
    capsys.readouterr()
    code = main.main(arguments)
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err.splitlines()


@pytest.mark.promise("P14")
def test_what_was_kept_is_verified_when_agent_and_log_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    positions, before = asyncio.run(story(tmp_path, "snapshot.retention.ms=86400000"))
    first, *_, newest = positions
    (tmp_path / "log.db").unlink()
    store = f"file://{tmp_path}/objects"

    code, lines, _ = run(capsys, "backup", "list", "--store", store)
    assert code == 0
    assert lines[1].startswith(told(newest))
    assert lines[-1].startswith(told(first))
    assert "until 20" in lines[-1]

    assert before <= chunks(tmp_path)
    code, lines, complaints = run(capsys, "backup", "verify", "--all", "--data", str(tmp_path))
    assert (code, complaints) == (0, [])
    assert len(lines) >= 4

    gone = min(before)
    (tmp_path / "objects" / gone).unlink()
    code, lines, complaints = run(capsys, "backup", "verify", "--all", "--store", store)
    assert code == 1
    assert complaints == [f"frazil backup verify: {told(first)}: {gone} is missing"]
    assert any(line.startswith(told(newest)) for line in lines)
    code, _, _ = run(capsys, "backup", "verify", told(newest), "--store", store)
    assert code == 0


def test_without_a_retention_what_was_merged_is_gone_and_the_two_newest_are_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (_, older, newest), before = asyncio.run(story(tmp_path))
    assert len(before & chunks(tmp_path)) < len(before) / 2
    for position in (older, newest):
        code, _, complaints = run(
            capsys, "backup", "verify", told(position), "--data", str(tmp_path)
        )
        assert (code, complaints) == (0, [])
    code, _, complaints = run(capsys, "backup", "verify", "--all", "--data", str(tmp_path))
    assert code == 0
    assert any("is not kept any more, and this is no failure" in each for each in complaints)
