"""A real worker process of a real agent, over a folder and SQLite: made, killed, stopped, left."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.agent import Agent
from broker.composition import Parts
from broker.config.settings import load
from broker.environment import boot_ms, loop_factory, now_ms, open_adapters
from broker.jobs import worker_process
from broker.jobs.worker.memory import EXIT_CODE
from broker.store import identity
from coordinator.commands.entries import CreateTopic, TopicCreated
from coordinator.commands.job_commands import JobKind, RequestJob
from coordinator.log.sqlite import SqliteLog
from storage.formats.log_archive import range_of
from storage.stores.disk import DiskStore
from tests.bench.bench_start import IDENTITY, Cluster

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]


class Running:
    """An agent in this process, and the worker processes that it started."""

    def __init__(self, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agent = agent
        self.processes: list[asyncio.subprocess.Process] = []
        original = worker_process.spawn

        async def spawn(stdin: int) -> asyncio.subprocess.Process:
            self.processes.append(await original(stdin))
            return self.processes[-1]

        monkeypatch.setattr(
            worker_process.WorkerProcess.__init__, "__kwdefaults__", {"spawn": spawn}
        )

    @property
    def machine(self):
        return self.agent.node.log_client.machine

    async def request(self, kind: JobKind) -> None:
        await self.agent.node.log_client.propose(RequestJob(kind))

    async def snapshot(self) -> None:
        """Have one made; wait until it is in the log."""
        await self.request(JobKind.SNAPSHOT)
        asked = self.machine.jobs.get(JobKind.SNAPSHOT).requested
        await until(lambda: any(each.position > asked for each in self.machine.snapshots.published))


async def until(condition) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **more: str
) -> AsyncIterator[Running]:
    """`more`: settings, with _ for dots."""
    defaults = {
        "listen": "127.0.0.1:0",
        "http": "off",
        "store": f"file://{folder}/objects",
        "log": f"sqlite://{folder}/log.db",
        "node.name": "one",
    } | {name.replace("_", "."): value for name, value in more.items()}
    settings = load(defaults=defaults, toml=None, environ={}, flags=()).settings
    store, log = open_adapters(settings)
    parts = Parts(store=store, log=log, now_ms=now_ms, boot_ms=boot_ms, rng=random.Random(7))
    agent = Agent(settings, parts)
    made = Running(agent, monkeypatch)
    task = asyncio.ensure_future(agent.run())
    try:
        await agent.serving()
        yield made
        await agent.stop()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for process in made.processes:
            if process.returncode is None:
                process.kill()
        await store.aclose()
        await log.aclose()


def play(main) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def test_a_worker_process_makes_snapshots_and_is_replaced_when_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with running(tmp_path, monkeypatch) as at:
            await at.snapshot()
            await at.snapshot()
            (first,) = at.processes
            assert os.getpriority(os.PRIO_PROCESS, first.pid) > 0
            jobs = at.agent._shells.jobs
            await until(lambda: jobs.stats.entries_cut > 0)
            first.kill()
            await at.snapshot()
            _, second = at.processes
            assert first.returncode == -signal.SIGKILL
            assert jobs.stats.workers_failed == 1
            await until(lambda: jobs.stats.worker.memory_bytes > 0)
        assert second.returncode == 0, "it ends by itself when its agent leaves"

    play(main)
    assert capfd.readouterr().out == ""


def test_a_stopped_worker_does_not_keep_its_agent_from_leaving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path, monkeypatch) as at:
            await at.snapshot()
            (process,) = at.processes
            os.kill(process.pid, signal.SIGSTOP)
        assert process.returncode == -signal.SIGKILL

    monkeypatch.setattr(worker_process, "END_S", 0.2)
    play(main)


def test_what_a_leaving_agent_got_last_is_archived_by_its_worker_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = 0

    async def main() -> None:
        nonlocal position
        async with running(tmp_path, monkeypatch, log_archive_ms="600000") as at:
            await at.snapshot()
            archive = at.agent._shells.jobs.stats.archive
            await until(lambda: archive().objects > 0)
            await at.agent.node.log_client.propose(CreateTopic("last", 1, ()))
            position = at.machine.position
            assert archive().position < position

    play(main)
    ranges = [range_of(f"archive/{each.name}") for each in tmp_path.glob("objects/archive/*")]
    assert max(last for _, last in ranges) >= position


def test_the_jobs_run_in_a_process_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path, monkeypatch) as at:
            for kind in JobKind:
                await at.request(kind)
            get = at.machine.jobs.get
            # A round that was asked for says how it ended.
            await until(lambda: all(get(kind).reported_ms > 0 for kind in JobKind))
            assert not any("failed" in get(kind).note for kind in JobKind)
            assert len(at.processes) == 1

    play(main)


async def hold_much(folder: Path) -> str:
    """A cluster of many producers, whose snapshot has 30 MB; the snapshot's key."""
    log, store = SqliteLog(folder / "log.db"), DiskStore(folder / "objects")
    await identity.check(store, log, IDENTITY.cluster_id, random.Random(1))
    cluster = Cluster(log)
    await cluster.open()
    topics = await cluster.topics(100)
    cluster.fill(topics, paged=0, in_memory=1, windows=2500)
    assert sum(map(len, await cluster.snapshot(store))) > 30_000_000
    await log.revoke(cluster.session.id)
    await log.aclose()
    await store.aclose()
    return cluster.machine.snapshots.published[0].key


@pytest.mark.fault_code("memory-short")
def test_a_budget_too_small_for_the_snapshot_ends_the_worker_and_nobody_else_until_it_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def too_small(key: str) -> None:
        settings = {"cluster_id": IDENTITY.cluster_id, "jobs_memory_bytes": "128MiB"}
        async with running(tmp_path, monkeypatch, **settings) as at:
            await at.request(JobKind.SNAPSHOT)
            jobs = at.agent._shells.jobs
            await until(lambda: jobs.stats.workers_short_of_memory == 1)
            (process,) = at.processes
            assert process.returncode == EXIT_CODE
            assert jobs.stats.worker.memory_bytes_max == 128 << 20
            (note,) = at.agent.notes()
            assert re.fullmatch(
                r"the jobs do not run: the worker of the jobs takes \d+ MiB of memory, and needs \d+ MiB"
                rf" more for loading {key}, of a snapshot of \d+ MiB; it may take 128 MiB"
                r" \(by jobs\.memory\.bytes\), of which 24 MiB are kept free: raise .*",
                note,
            )
            assert at.agent.not_ready() == []
            outcome = await at.agent.node.log_client.propose(CreateTopic("served", 1, ()))
            assert isinstance(outcome, TopicCreated)
            await until(
                lambda: "MiB more for loading" in at.machine.jobs.get(JobKind.SNAPSHOT).note
            )
            assert len(at.processes) == 1
        assert any(getattr(record, "code", "") == "memory-short" for record in caplog.records)

    async def enough() -> None:
        settings = {"cluster_id": IDENTITY.cluster_id, "jobs_memory_bytes": "512MiB"}
        async with running(tmp_path, monkeypatch, **settings) as at:
            await at.snapshot()
            assert len(at.processes) == 1
            assert at.agent.notes() == []

    async def main() -> None:
        await too_small(await hold_much(tmp_path))
        await enough()

    play(main)


def test_a_worker_that_has_not_even_room_for_itself_gives_up_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path, monkeypatch, jobs_memory_bytes="32MiB") as at:
            await at.request(JobKind.MERGE)
            jobs = at.agent._shells.jobs
            await until(lambda: jobs.stats.workers_short_of_memory == 1)
            assert "MiB of memory while starting; it may take 32 MiB" in at.agent.notes()[0]

    play(main)


def _is_alive(pid: int) -> bool:
    """Whether it runs; who was adopted by nobody that waits stays as a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def test_a_worker_ends_when_its_agent_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    command = [sys.executable, "-m", "broker", "dev", "--port", "0", "--data", str(tmp_path / "d")]
    flags = ["jobs.start.delay.ms=0", "logs.level=info"]
    command += [word for flag in flags for word in ("--set", flag)]
    with log.open("w") as output:
        agent = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        # The worker's own line says whose it is.
        found = _wait_for(lambda: re.search(r"have a replica.* worker=(\d+)", log.read_text()))
        pid = int(found[1])
        assert _is_alive(pid)
    finally:
        agent.kill()
        agent.wait(10)
    _wait_for(lambda: not _is_alive(pid))


def _wait_for(condition):
    deadline = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_worker_is_not_started_by_hand() -> None:
    command = [sys.executable, "-m", "broker.jobs"]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert b"started by an agent" in done.stderr
