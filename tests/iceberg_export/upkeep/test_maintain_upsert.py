"""Upkeep beside runs that write, of tables of both modes: at every step, and between tasks."""

import os
import time

import pytest

from iceberg_export.errors import CorruptSpanError, FencedError, OvertakenError
from iceberg_export.runs.job import export_topic
from iceberg_export.steps import Step
from iceberg_export.table.run_marks import ALIVE_MS
from iceberg_export.upkeep import maintain
from iceberg_export.upkeep.compact import CLOSED_MS, compact
from iceberg_export.upkeep.maintain import delete_orphans, expire
from iceberg_export.verify.proof import verify_topic
from iceberg_export.verify.upsert import verify_upsert
from tests.iceberg_export.direct import TABLE, place
from tests.iceberg_export.hooks import Killed, Once
from tests.iceberg_export.strangers import scatter
from tests.iceberg_export.world import HereRunner, some_records

DAY = 86_400_000
FAR = 1 << 50
MODES = {
    "append": {"mode": "append", "partition.by": "none"},
    "upsert": {"mode": "upsert", "partition.by": "bucket(3, kafka_key)"},
}


@pytest.fixture(params=list(MODES))
def here(request):
    with place() as found:
        found.world.configs["orders"] = MODES[request.param]
        yield found


def fill(here):
    """Some keys are new, some were there before, some records have no key."""
    first = 5 * here.world.chunk_number
    some = {p: [some_records(12, 10_000 * p + first)] for p in range(2)}
    here.world.commit("orders", some)


def export(here, **how):
    job = here.job("split.bytes.max=1", **how)
    return export_topic(job, here.topic(job))


def exported(here, times=1):
    for _ in range(times):
        fill(here)
        export(here)


def check(here):
    """The table is what the log makes of it."""
    job = here.job()
    mode = here.world.configs["orders"]["mode"]
    verify = verify_upsert if mode == "upsert" else verify_topic
    verdict = verify(job, here.topic(job))
    assert (verdict.problems, verdict.records > 0) == ((), True)


def folder(here):
    return here.folder / "warehouse" / "frazil" / "orders"


def files(here):
    """Data files, and what tasks leave for each other."""
    return set(folder(here).rglob("*.parquet"))


def live(here):
    named = {task.file.file_path for task in here.table().scan().plan_files()}
    return {path for path in files(here) if f"file://{path}" in named}


def age(paths, age_ms):
    """As if they had been written so long ago."""
    for path in paths:
        told = time.time() - age_ms / 1000
        os.utime(path, (told, told))


class Between(HereRunner):
    """Calls something after each task."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def run(self, task, payloads, *, sizes, title):
        def one(payload, attempt):
            found = task(payload, attempt)
            self.act()
            return found

        return super().run(one, payloads, sizes=sizes, title=title)


def test_upkeep_at_every_step_of_a_run_and_between_its_tasks_takes_none_of_its_files(here):
    """However old they look, and whatever age of orphans is asked for."""
    exported(here, 2)
    fill(here)
    before = files(here)
    seen = []

    def upkeep(*_step):
        own = files(here) - before
        age(own, 9 * DAY)
        delete_orphans(here.job(), TABLE, -1)
        assert own <= files(here)
        seen.append(len(own))

    export(here, hook=upkeep, runner=Between(upkeep))
    assert max(seen) > 0
    assert len(seen) > 6
    check(here)


@pytest.mark.parametrize("step", [Step.TASKS_DONE, Step.COMMIT_WRITTEN])
def test_a_run_that_slept_until_its_mark_was_old_is_refused(here, step):
    """Its files are gone by then; were its commit taken, the table could not be read."""
    exported(here)
    fill(here)
    before = files(here)

    def slept():
        age(folder(here).rglob("runs/*"), ALIVE_MS + DAY)
        age(files(here) - before, 9 * DAY)
        assert delete_orphans(here.job(), TABLE, 3 * DAY).files_deleted > 0

    # What upserts leave for their merge is gone, too, and found to be.
    with pytest.raises((FencedError, CorruptSpanError)):
        export(here, hook=Once(step, slept))
    export(here)
    check(here)


def test_the_mark_of_a_killed_run_keeps_its_files_for_an_hour_and_no_longer(here):
    exported(here)
    fill(here)
    with pytest.raises(Killed):
        export(here, hook=Once(Step.CHECKED, Killed()))
    mark = folder(here) / "runs" / f"r{here.jobs}"
    mark.parent.mkdir(exist_ok=True)
    mark.write_bytes(b"at work")  # As SIGKILL leaves it: see `test_upsert_kills`.
    left = files(here) - live(here)
    assert left
    age([mark], ALIVE_MS - 600_000)
    assert delete_orphans(here.job(), TABLE, -1).files_deleted == 0
    assert left <= files(here)
    age([mark], ALIVE_MS + 600_000)
    assert delete_orphans(here.job(), TABLE, -1).files_deleted > 0
    assert files(here) == live(here)
    assert not mark.exists()
    export(here)
    check(here)


def test_expired_snapshots_take_their_files_and_no_row(here, monkeypatch):
    monkeypatch.setattr(maintain, "SNAPSHOTS_KEPT_MIN", 1)
    exported(here, 3)
    scatter(here.table())
    assert compact(here.job(), TABLE, FAR).files_before > 3
    check(here)
    assert expire(here.job(), TABLE, FAR).snapshots_expired > 2
    assert delete_orphans(here.job(), TABLE, -1).files_deleted > 0
    assert files(here) == live(here)
    check(here)
    exported(here)
    check(here)


@pytest.fixture
def users():
    with place() as found:
        found.world.configs["orders"] = MODES["upsert"]
        exported(found, 2)
        scatter(found.table())
        yield found


@pytest.mark.parametrize("step", [Step.TASKS_DONE, Step.COMMIT_LOADED, Step.COMMIT_WRITTEN])
def test_an_upsert_that_meets_a_joining_of_its_buckets_merges_them_again(users, step):
    fill(users)
    export(users, hook=Once(step, lambda: compact(users.job(), TABLE, FAR)))
    check(users)
    assert len(live(users)) == 3


@pytest.mark.parametrize("step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN])
def test_a_joining_that_meets_an_upsert_gives_way_and_leaves_nothing(users, step):
    fill(users)
    with pytest.raises(OvertakenError):
        compact(users.job(hook=Once(step, lambda: export(users))), TABLE, FAR)
    check(users)
    assert not [path for path in files(users) if maintain.COMPACTION in path.name]


def test_buckets_that_are_written_day_by_day_are_left_to_the_exports(users):
    now_ms = users.table().current_snapshot().timestamp_ms
    assert compact(users.job(), TABLE, now_ms + CLOSED_MS - 60_000).files_before == 0
    assert compact(users.job(), TABLE, now_ms + CLOSED_MS + 60_000).files_after == 3
    check(users)


def test_upkeep_beside_a_proof_takes_nothing_that_it_reads(users):
    before, kept = files(users), []

    def upkeep():
        own = files(users) - before
        age(own, 9 * DAY)
        delete_orphans(users.job(), TABLE, -1)
        assert own <= files(users)
        kept.append(len(own))

    job = users.job(runner=Between(upkeep))
    assert verify_upsert(job, users.topic(job)).problems == ()
    assert max(kept) > 0
    assert files(users) == before
