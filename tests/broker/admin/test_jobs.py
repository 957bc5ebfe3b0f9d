"""`frazil job` and the endpoints below it: what an agent says of the jobs, and asking for one."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.cli import job_tool
from broker.cli.admin_client import AgentPlace
from broker.cli.command_result import CommandResult, ToolError
from broker.reports import job_report
from coordinator.commands.entries import Entry, Open
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    JobKind,
    PublishSnapshot,
    ReportJob,
    RequestJob,
)
from coordinator.machine.machine import Machine
from protocol.types import INCARNATION_NONE, position
from tests.broker.agents import serving
from tests.kit.sockets import Running


def machine_with_jobs() -> Machine:
    machine = Machine()
    opening = Open(1, "one", -1, "", (), "0", 1)
    machine.apply(position(1, 10), Entry(INCARNATION_NONE, 0, 5_000, (opening,)))
    me = position(1, 10)
    work = (
        ClaimJobs((JobKind.MERGE, JobKind.SNAPSHOT)),
        ReportJob(JobKind.MERGE, 30, 200, running=True, note="spans merged"),
        RequestJob(JobKind.COLLECT),
        BeginSnapshot(),
    )
    machine.apply(position(1, 20), Entry(me, 1, 6_000, work))
    begun = machine.snapshots.begun
    assert begun is not None
    publish = PublishSnapshot(begun.position, begun.digest, "snapshots/x/manifest")
    machine.apply(position(1, 30), Entry(me, 2, 9_000, (publish,)))
    return machine


def test_the_view_says_who_has_which_job_and_how_far_it_is() -> None:
    view = job_report.jobs_view(machine_with_jobs(), log_bytes=100, log_bytes_max=1_000)
    jobs = {job["job"]: job for job in view["jobs"]}
    assert list(jobs) == [kind.name.lower() for kind in JobKind]
    merge = jobs["merge"]
    assert (merge["node_name"], merge["running"], merge["done"], merge["total"]) == (
        "one",
        True,
        30,
        200,
    )
    assert jobs["collect"]["node_name"] is None
    assert jobs["collect"]["requested"] == position(1, 20)
    assert view["snapshots"][0]["position"] == position(1, 20)


def test_the_table_for_people() -> None:
    view = job_report.jobs_view(machine_with_jobs(), log_bytes=100, log_bytes_max=1_000)
    assert job_report.lines(view, now_ms=8_500) == [
        "snapshots: at 1:20; log since the older: 100 bytes of 1000",
        "",
        "JOB        AGENT  STATE    DONE  TOTAL  REPORTED  NOTE",
        "snapshot   one    waiting     0      -  -         -",
        "retention  -      free        0      -  -         -",
        "merge      one    running    30    200  3 s ago   spans merged",
        "spill      -      free        0      -  -         -",
        "compact    -      free        0      -  -         -",
        "collect    -      free        0      -  -         -",
    ]


def test_a_job_that_was_asked_for_and_has_not_been_heard_of_is_told_apart() -> None:
    machine = machine_with_jobs()
    asking = Entry(position(1, 10), 3, 9_000, (RequestJob(JobKind.SNAPSHOT),))
    machine.apply(position(1, 40), asking)
    view = job_report.jobs_view(machine, log_bytes=100, log_bytes_max=1_000)
    assert "snapshot   one    asked for" in job_report.lines(view, now_ms=0)[3]


def test_without_a_snapshot_it_says_so() -> None:
    view = job_report.jobs_view(Machine(), log_bytes=0, log_bytes_max=1)
    assert job_report.lines(view, now_ms=0)[0].startswith("snapshots: none yet;")


async def on_agent(at: Running, call) -> CommandResult:
    """A tool, which blocks, beside the agent's loop."""
    url = f"http://127.0.0.1:{at.agent.listening()['http'][1]}"
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        return await loop.run_in_executor(pool, call, AgentPlace(url))


@pytest.mark.real_loop
async def test_a_job_that_is_asked_for_runs_at_once_and_says_so() -> None:
    async with serving() as at:
        said = await on_agent(at, lambda url: job_tool.run_job(url, "Snapshot"))
        assert said.lines[0].startswith("asked for snapshot, at ")
        async with asyncio.timeout(10):
            while True:
                _, view = await at.http("GET", "/jobs")
                if view["snapshots"]:
                    break
                await asyncio.sleep(0.05)
        (job,) = [job for job in view["jobs"] if job["job"] == "snapshot"]
        assert job["node_name"] == "one"
        said = await on_agent(at, lambda url: job_tool.list_jobs(url, now_ms=0, as_json=False))
        assert said.lines[0].startswith("snapshots: at 1:")
        status, page = await at.http("GET", "/metrics")
        assert status == 200
        assert 'frazil_job_runs_total{kind="snapshot"} 1.0' in page
        assert "frazil_jobs_held 6.0" in page
        assert "frazil_job_worker_running 1.0" in page


@pytest.mark.real_loop
async def test_a_job_that_there_is_not_is_a_sentence() -> None:
    async with serving() as at:
        status, answer = await at.http("POST", "/jobs/brew/run")
        assert status == 404
        assert "snapshot, retention, merge" in answer["error"]
        status, _ = await at.http("GET", "/jobs/merge/run")
        assert status == 405
    with pytest.raises(ToolError, match='no job "brew"'):
        job_tool.run_job(AgentPlace("http://127.0.0.1:1"), "brew")
