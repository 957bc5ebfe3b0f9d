"""SIGKILL on a topic of mode upsert: of drivers, at every step and at random times, and of every
task that Spark runs. Whole Spark jobs are killed by `python -m tests.iceberg_export.kills --mode
upsert`.

What a random kill meets is left to chance, and what must hold does not depend on it.
"""

import os
import random
import signal
from pathlib import Path

import pytest

from iceberg_export.runs.export import export_topic
from iceberg_export.table.catalog import find_table
from iceberg_export.upkeep.compact import CLOSED_MS, compact
from iceberg_export.upkeep.maintain import delete_orphans
from iceberg_export.verify.upsert import verify_upsert
from protocol.records import Record
from tests.iceberg_export.kit.drivers import die, kills
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.place import FAR
from tests.iceberg_export.kit.strangers import scatter
from tests.iceberg_export.kit.world import World, make_job

KILLS = kills(again=4)
RANDOM_KILLS = 6
TABLE = ("frazil", "users")

pytestmark = pytest.mark.integration


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("users", 2)
    found.configs["users"] = {"mode": "upsert", "partition.by": "bucket(3, kafka_key)"}
    return found


def produce(world, rng, count=30):
    """Few keys, again and again; some deleted, one record of each commit without a key."""
    for partition in range(2):
        some = [
            Record(
                timestamp=1_780_000_000_000 + number,
                key=b"%d-%d" % (partition, rng.randrange(40)) if number else None,
                value=b"v%d" % rng.randrange(1000) if rng.random() < 0.8 else None,
            )
            for number in range(count)
        ]
        world.commit("users", {partition: [some]})


def wanted(world):
    """(partition, offset, key, value) of the newest record of each key that has a value."""
    found = []
    for partition, log in enumerate(world.topics["users"][1]):
        last = {one.key: one for one in log.wanted if one.key is not None}
        found += [
            (partition, one.offset, one.key, one.value)
            for one in last.values()
            if one.value is not None
        ]
    return sorted(found)


def rows(job):
    table = find_table(job.catalog, TABLE).scan().to_arrow()
    columns = ("kafka_partition", "kafka_offset", "kafka_key", "value")
    return sorted(zip(*(table.column(one).to_pylist() for one in columns), strict=True))


def proven(job, world):
    """The table is exact, to a reader and to verify, and nothing is left beside it."""
    (topic,) = job.client.topics().topics
    assert rows(job) == wanted(world)
    verdict = verify_upsert(job, topic)
    assert (verdict.problems, verdict.records) == ((), len(wanted(world)))


def test_drivers_killed_at_every_step_and_at_any_time_leave_an_exact_table(
    world, tmp_path, drivers
):
    rng = random.Random(11)
    data = tmp_path / "data"
    with served(world) as address:
        for number, at in enumerate(KILLS):
            produce(world, rng)
            code = drivers.run(address, data, f"step{number}", at)
            assert code == -signal.SIGKILL
        for number in range(RANDOM_KILLS):
            produce(world, rng)
            after_s = rng.uniform(0.0, 1.0)
            drivers.run(address, data, f"time{number}", kill_after_s=after_s)
        assert drivers.run(address, data, "last", commit_bytes=1 << 30) == 0
        job = make_job(address, data, "verify")
        proven(job, world)
        # What they left is kept while their marks are young, and gone an hour later.
        folder = data / "warehouse" / "frazil" / "users"
        marks = set(folder.rglob("runs/*"))
        assert marks
        files = set(folder.rglob("*.parquet"))
        assert delete_orphans(job, TABLE, -1).files_deleted == 0
        for mark in marks:
            told = mark.stat().st_mtime - 7200
            os.utime(mark, (told, told))
        assert delete_orphans(job, TABLE, -1).files_deleted > 0
        assert files > set(folder.rglob("*.parquet"))
        assert not set(folder.rglob("runs/*"))
        proven(job, world)
        job.catalog.engine.dispose()


class KilledTasks:
    """Runs tasks in Spark; each is killed when it has done its work and not yet told of it."""

    def __init__(self, tasks, folder):
        self.tasks = tasks
        self.folder = folder
        self.count = 0

    @property
    def parallelism(self):
        return self.tasks.parallelism

    def run(self, task, payloads, *, sizes, title):
        marks = [self.folder / f"mark-{self.count + number}" for number in range(len(payloads))]
        self.count += len(payloads)
        wrapped = [
            (task, payload, str(mark)) for payload, mark in zip(payloads, marks, strict=True)
        ]
        return self.tasks.run(die_once, wrapped, sizes=sizes, title=title)


def die_once(payload, attempt):
    task, own, mark = payload
    found = task(own, attempt)
    if not Path(mark).exists():
        Path(mark).touch()
        die()
    return found


def test_tasks_that_spark_loses_are_done_again_in_exports_and_in_compaction(tasks, world, tmp_path):
    """What the lost ones wrote is nobody's, and goes with the orphans."""
    rng = random.Random(7)
    runner = KilledTasks(tasks, tmp_path)
    with served(world) as address:
        for number in range(2):
            produce(world, rng, 60)
            job = make_job(address, tmp_path / "data", f"r{number}", runner=runner)
            (topic,) = job.client.topics().topics
            export_topic(job, topic)
            proven(make_job(address, tmp_path / "data", "see", runner=None), world)
        assert runner.count > 4
        scatter(find_table(job.catalog, TABLE))
        done = compact(job, TABLE, FAR + CLOSED_MS)
        assert (done.files_before > 3, done.files_after) == (True, 3)
        live = {one.file.file_path for one in find_table(job.catalog, TABLE).scan().plan_files()}
        assert delete_orphans(job, TABLE, -1).files_deleted > 0
        there = {f"file://{one}" for one in (tmp_path / "data").rglob("users/data/**/*.parquet")}
        assert there >= live
        proven(job, world)
        job.catalog.engine.dispose()
