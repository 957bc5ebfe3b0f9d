"""kill -9 of a driver at every step. Real Spark jobs are killed by `python -m tests.iceberg_export.kills`."""

import signal

import pytest

from iceberg_export.verify.proof import verify_topic
from tests.iceberg_export.kit.drivers import kills
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.world import World, make_job, some_records

KILLS = kills(again=7)

pytestmark = pytest.mark.integration


def test_a_driver_killed_at_every_step_in_turn_leaves_an_exact_table(tmp_path, drivers):
    world = World(tmp_path / "store")
    world.create("orders", 2)
    world.configs["orders"] = {"value.mode": "string"}
    data = tmp_path / "data"
    with served(world) as address:
        for number, at in enumerate(KILLS):
            # From the 128th on they are no text.
            world.commit("orders", {0: [some_records(20, 120)], 1: [some_records(3, 127)]})
            world.commit("orders", {1: [some_records(7, 125)]})
            code = drivers.run(address, data, f"kill{number}", at)
            assert code == -signal.SIGKILL
        assert drivers.run(address, data, "last") == 0
        job = make_job(address, data, "verify")
        (topic,) = job.client.topics().topics
        verdict = verify_topic(job, topic)
        job.catalog.engine.dispose()
    wanted = sum(len(log.wanted) for log in world.topics["orders"][1])
    assert (verdict.problems, verdict.records + verdict.dead) == ((), wanted)
    assert verdict.dead > len(KILLS)
