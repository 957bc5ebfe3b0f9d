"""kill -9 of a driver at every step, as a process of its own on a catalog and files on disk.

Processes are forked from one that has imported everything, so that each takes a fraction of a
second. Real Spark jobs are killed by `python -m tests.iceberg_export.kills`.
"""

import multiprocessing
import os
import signal
from multiprocessing import forkserver

import pytest

from iceberg_export.runs.job import export_topic
from iceberg_export.steps import Step
from iceberg_export.verify.proof import verify_topic
from tests.iceberg_export.hooks import Once
from tests.iceberg_export.world import World, make_job, served, some_records

KILLS = [(step, 1) for step in Step] + [(step, 2) for step in list(Step)[-7:]]
"""Steps, and at which passing: a run makes two commits here."""

pytestmark = pytest.mark.integration


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def drive(address, data, run_id, step, nth):
    """A whole driver: its own catalog connection, agents over HTTP; dies at that step."""
    job = make_job(World(data / "nowhere"), address, data, run_id, ("commit.bytes.max=1",))
    (topic,) = job.client.topics().topics
    export_topic(job._replace(hook=Once(step, die, nth)), topic)


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.iceberg_export.runs.test_kills"])
    yield context
    # It would stay until this process ends.
    forkserver._forkserver._stop()


def run(processes, *arguments):
    """The exit code of a driver: minus the signal that ended it."""
    process = processes.Process(target=drive, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def test_a_driver_killed_at_every_step_in_turn_leaves_an_exact_table(tmp_path, processes):
    world = World(tmp_path / "store")
    world.create("orders", 2)
    world.configs["orders"] = {"value.mode": "string"}
    data = tmp_path / "data"
    with served(world) as address:
        for number, (step, nth) in enumerate(KILLS):
            # From the 128th on they are no text.
            world.commit("orders", {0: [some_records(20, 120)], 1: [some_records(3, 127)]})
            world.commit("orders", {1: [some_records(7, 125)]})
            code = run(processes, address, data, f"kill{number}", step, nth)
            assert code == -signal.SIGKILL
        assert run(processes, address, data, "last", Step.INIT_LOADED, 99) == 0
        job = make_job(world, address, data, "verify")
        (topic,) = job.client.topics().topics
        verdict = verify_topic(job, topic)
        job.catalog.engine.dispose()
    wanted = sum(len(log.wanted) for log in world.topics["orders"][1])
    assert (verdict.problems, verdict.records + verdict.dead) == ((), wanted)
    assert verdict.dead > len(KILLS)
