"""What is on the page of jobs, and the numbers that pages are made of."""

import pytest

from broker.admin.metrics import LATENCY, TABLE
from broker.console.views.jobs import MEANINGS, NUMBERS, jobs_view
from broker.reports.cost_report import metrics_of
from coordinator.commands.job_commands import ClaimJobs, JobKind, ReportJob, RequestJob
from tests.broker.agents import serving
from tests.broker.console.test_pages import page, words
from tests.broker.groups.world import agents


def number(name: str, value: float, **labels: str) -> dict:
    return {(f"frazil_{name}", frozenset(labels.items())): value}


async def test_jobs_say_who_holds_them_what_they_told_and_what_was_asked_for() -> None:
    async with agents() as (one,):
        incarnation = one.log_client.incarnation()
        jobs = (JobKind.MERGE, JobKind.COLLECT)
        await one.log_client.propose(ClaimJobs(jobs), incarnation)
        report = ReportJob(JobKind.MERGE, 3, 8, running=True, note="topic logs")
        await one.log_client.propose(report, incarnation)
        await one.log_client.propose(RequestJob(JobKind.COLLECT))
        numbers = number("job_runs", 5, kind="merge") | number("archive_behind_ms", 1500)
        numbers |= number("job_worker_running", 1) | number("archive_position", 1 << 48 | 7)
        view = jobs_view(one.machine, numbers)
        rows = {row.view.name: row for row in view.jobs}
        assert set(rows) == {kind.name.lower() for kind in JobKind}
        merge, collect, spill = rows["merge"], rows["collect"], rows["spill"]
        assert (merge.view.agent, merge.view.done, merge.view.total) == ("one", 3, 8)
        assert (merge.view.note, merge.runs, merge.is_asked_for) == ("topic logs", 5, False)
        assert (collect.is_asked_for, spill.is_asked_for, spill.view.agent) == (True, False, "")
        assert (view.worker.is_running, view.worker.archive_behind_ms) == (True, 1500)
        assert view.worker.archived == "1:7"
        assert jobs_view(one.machine, {}).worker.archived == ""


def test_every_job_says_what_it_does_and_every_number_is_one_of_the_metrics() -> None:
    assert set(MEANINGS) == set(JobKind)
    assert {row.name for row in TABLE} >= NUMBERS


@pytest.mark.real_loop
async def test_numbers_of_pages_are_those_that_prometheus_reads() -> None:
    async with serving(None, "http.roles.metrics=") as running:
        client = await running.connect()
        assert await client.create("orders") == 0
        assert await client.produce("orders", [b"a", b"b"]) == (0, 0)
        view = running.agent.admin
        names = {row.name for row in TABLE} | {LATENCY}
        steady = ("produce_records", "topics", "requests", "store_requests", "request_seconds")
        found = view.numbers(names)
        text = metrics_of((await view.own_metrics()).decode())
        assert {name for name, _ in found} <= {name for name, _ in text}
        for key, value in found.items():
            if key[0].removeprefix("frazil_").startswith(steady):
                assert text[key] == value
        assert found["frazil_produce_records", frozenset()] == 2
        assert found[f"{LATENCY}_bucket", frozenset({("api", "Produce"), ("le", "+Inf")})] == 1
        assert view.numbers({"frazil_topics"}) == {("frazil_topics", frozenset()): 1}


@pytest.mark.real_loop
async def test_the_page_of_jobs_names_all_of_them() -> None:
    async with serving() as running:
        status, html = await page(running, "/console/jobs")
        assert status == 200
        for kind in JobKind:
            assert kind.name.lower() in words(html)
        assert "Log since the older" in words(html)


@pytest.mark.real_loop
async def test_where_agents_share_a_port_numbers_are_those_of_all_of_them() -> None:
    class Both:
        async def metrics(self) -> bytes:
            lines = ("frazil_produce_records_total 7.0", 'frazil_topics{worker="w1"} 3.0')
            bucket = 'frazil_request_seconds_bucket{api="Produce",le="+Inf"} 9.0'
            return "\n".join([*lines, bucket, "frazil_ready 1.0", ""]).encode()

        async def readiness(self) -> dict:
            return {"ready": True, "reasons": []}

    async with serving() as running:
        view = running.agent.admin
        alone = await view.joined_numbers({"frazil_topics"})
        assert alone == {("frazil_topics", frozenset()): 0}
        view.joined = Both()
        found = await view.joined_numbers({"frazil_produce_records", LATENCY, "frazil_topics"})
        assert sorted(found.values()) == [3.0, 7.0, 9.0]
        assert found["frazil_produce_records", frozenset()] == 7.0
        _, html = await page(running, "/console/live")
        assert "What all agents that share this port served" in words(html)
        view.joined = None
