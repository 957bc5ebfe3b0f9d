"""The exporter as a user starts it: own process, real Spark; the one shared Spark for the rest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_export.errors import CorruptSpanError, SparkError
from iceberg_export.runs.export import export_topic
from iceberg_export.verify.proof import verify_topic
from tests.iceberg_export.dead_letters.story import GOOD, LATE, NEVER, letters
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.world import InTransaction, World, make_job, some_records

ROOT = Path(__file__).parents[3]


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("orders", 4)
    for _ in range(3):
        for codec in range(5):
            found.commit("orders", {p: [some_records(50)] for p in range(4)}, codec=codec)
    return found


def test_an_export_through_spark_is_proven_by_verify(tasks, world, tmp_path):
    with served(world) as address:
        sets = ["split.bytes.max=1", "verify.decoder=reference"]
        job = make_job(address, tmp_path / "data", sets=sets, runner=tasks)
        (topic,) = job.client.topics().topics
        assert export_topic(job, topic).rows == 3 * 5 * 4 * 50
        verdict = verify_topic(job, topic)
        assert verdict.problems == ()
        assert verdict.records == 3 * 5 * 4 * 50
        job.catalog.engine.dispose()


def test_an_export_through_spark_holds_committed_records_only(tasks, tmp_path):
    world = World(tmp_path / "store")
    world.create("orders", 4)
    for number in range(12):
        parts = {p: [InTransaction(p, some_records(20)), some_records(5)] for p in range(4)}
        world.commit("orders", parts, codec=number % 5)
        for partition in range(4):
            if (number + partition) % 3 < 2:
                world.end("orders", partition, partition, commit=(number + partition) % 3 == 0)
    wanted = [(p, r.offset) for p, log in enumerate(world.topics["orders"][1]) for r in log.wanted]
    assert 0 < len(wanted) < 12 * 4 * 25
    with served(world) as address:
        sets = ["split.bytes.max=1", "verify.decoder=reference"]
        job = make_job(address, tmp_path / "data", sets=sets, runner=tasks)
        (topic,) = job.client.topics().topics
        assert export_topic(job, topic).rows == len(wanted)
        rows = job.catalog.load_table(("frazil", "orders")).scan().to_arrow().to_pylist()
        assert sorted((row["kafka_partition"], row["kafka_offset"]) for row in rows) == wanted
        assert verify_topic(job, topic).problems == ()
        job.catalog.engine.dispose()


def test_letters_are_replayed_through_spark(tasks):
    with letters(2) as here:
        for partition in (0, 1):
            here.send(LATE, GOOD, NEVER, partition=partition)
        here.export(runner=tasks)
        here.late_schema(known=True)
        done = here.replay(runner=tasks)
        assert (done.rows, done.left) == (2, {"NOT_FRAMED": 2})
        assert here.offsets() == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert here.problems() == ()


def test_an_error_of_a_task_arrives_as_itself(tasks):
    with pytest.raises(CorruptSpanError, match="broken on purpose"):
        tasks.run(raise_corrupt, [1, 2], sizes=[1, 1], title="t")


def test_a_task_that_fails_is_tried_again(tasks, tmp_path):
    assert tasks.run(fail_once, [str(tmp_path / "mark")], sizes=[1], title="t") == ["done"]


def test_a_task_that_always_fails_ends_with_one_sentence(tasks):
    with pytest.raises(SparkError, match="a Spark task failed: ValueError: always") as caught:
        tasks.run(fail_always, [1], sizes=[1], title="t")
    assert "\n" not in str(caught.value)


def raise_corrupt(_payload, _attempt):
    raise CorruptSpanError("broken on purpose")


def fail_once(path, attempt):
    if not Path(path).exists():
        Path(path).write_text(str(attempt))
        raise ValueError("the first time")
    assert int(Path(path).read_text()) != attempt
    return "done"


def fail_always(_payload, _attempt):
    raise ValueError("always")


@pytest.mark.integration
def test_the_command_line_exports_and_verifies(world, tmp_path):
    with served(world) as address:

        def frazil(*arguments):
            command = [sys.executable, "-m", "iceberg_export", *arguments, "--agent", address]
            return subprocess.run(
                [*command, "--data", "data", "--set", "spark.master=local[1]"],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )

        ran = frazil("run", "--once")
        assert ran.stdout == "orders: 3000 records in 1 files into table frazil.orders\n", (
            ran.stderr
        )
        verified = frazil("verify", "--topic", "orders")
        assert verified.returncode == 0, verified.stderr
        assert "3000 records, each exactly once" in verified.stdout
