"""Upkeep beside runs that write, of tables of both modes: at every step, and between tasks."""

import pytest

from iceberg_export.errors import CorruptSpanError, FencedError, OvertakenError
from iceberg_export.steps import Step
from iceberg_export.table.run_marks import ALIVE_MS
from iceberg_export.upkeep import maintain
from iceberg_export.upkeep.compact import CLOSED_MS, compact
from iceberg_export.upkeep.maintain import delete_orphans, expire
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import DAY_MS, FAR, TABLE, age, place
from tests.iceberg_export.kit.strangers import scatter
from tests.iceberg_export.kit.tasks import between
from tests.iceberg_export.kit.world import some_records

MODES = {
    "append": {"mode": "append", "partition.by": "none"},
    "upsert": {"mode": "upsert", "partition.by": "bucket(3, kafka_key)"},
}


@pytest.fixture(params=list(MODES))
def here(request):
    with place() as found:
        found.world.configs["orders"] = MODES[request.param]
        found.sets = ("split.bytes.max=1",)
        yield found


def fill(here):
    """Some keys are new, some were there before, some records have no key."""
    first = 5 * here.world.chunk_number
    some = {p: [some_records(12, 10_000 * p + first)] for p in range(2)}
    here.world.commit("orders", some)


def exported(here, times=1):
    for _ in range(times):
        fill(here)
        here.export()


def check(here):
    """The table is what the log makes of it."""
    verdict = here.verify()
    assert (verdict.problems, verdict.records > 0) == ((), True)


def folder(here):
    return here.folder / "warehouse" / "frazil" / "orders"


def test_upkeep_at_every_step_of_a_run_and_between_its_tasks_takes_none_of_its_files(here):
    """However old they look, and whatever age of orphans is asked for."""
    exported(here, 2)
    fill(here)
    before = here.data_files()
    seen = []

    def upkeep(*_step):
        own = here.data_files() - before
        age(own, 9 * DAY_MS)
        delete_orphans(here.job(), TABLE, -1)
        assert own <= here.data_files()
        seen.append(len(own))

    here.export(hook=upkeep, runner=between(upkeep))
    assert max(seen) > 0
    assert len(seen) > 6
    check(here)


@pytest.mark.parametrize("step", [Step.TASKS_DONE, Step.COMMIT_WRITTEN])
def test_a_run_that_slept_until_its_mark_was_old_is_refused(here, step):
    """Its files are gone by then; were its commit taken, the table could not be read."""
    exported(here)
    fill(here)
    before = here.data_files()

    def slept():
        age(folder(here).rglob("runs/*"), ALIVE_MS + DAY_MS)
        age(here.data_files() - before, 9 * DAY_MS)
        assert delete_orphans(here.job(), TABLE, 3 * DAY_MS).files_deleted > 0

    # What upserts leave for their merge is gone, too, and found to be.
    with pytest.raises((FencedError, CorruptSpanError)):
        here.export(hook=Once(step, slept))
    here.export()
    check(here)


def test_the_mark_of_a_killed_run_keeps_its_files_for_an_hour_and_no_longer(here):
    exported(here)
    fill(here)
    with pytest.raises(Killed):
        here.export(hook=Once(Step.CHECKED, Killed()))
    mark = folder(here) / "runs" / f"r{here.jobs}"
    mark.parent.mkdir(exist_ok=True)
    mark.write_bytes(b"at work")  # As SIGKILL leaves it: see `test_upsert_kills`.
    left = here.data_files() - here.live_files()
    assert left
    age([mark], ALIVE_MS - 600_000)
    assert delete_orphans(here.job(), TABLE, -1).files_deleted == 0
    assert left <= here.data_files()
    age([mark], ALIVE_MS + 600_000)
    assert delete_orphans(here.job(), TABLE, -1).files_deleted > 0
    assert here.data_files() == here.live_files()
    assert not mark.exists()
    here.export()
    check(here)


def test_expired_snapshots_take_their_files_and_no_row(here, monkeypatch):
    monkeypatch.setattr(maintain, "SNAPSHOTS_KEPT_MIN", 1)
    exported(here, 3)
    scatter(here.table())
    assert compact(here.job(), TABLE, FAR).files_before > 3
    check(here)
    assert expire(here.job(), TABLE, FAR).snapshots_expired > 2
    assert delete_orphans(here.job(), TABLE, -1).files_deleted > 0
    assert here.data_files() == here.live_files()
    check(here)
    exported(here)
    check(here)


@pytest.fixture
def users():
    with place() as found:
        found.world.configs["orders"] = MODES["upsert"]
        found.sets = ("split.bytes.max=1",)
        exported(found, 2)
        scatter(found.table())
        yield found


@pytest.mark.parametrize("step", [Step.TASKS_DONE, Step.COMMIT_LOADED, Step.COMMIT_WRITTEN])
def test_an_upsert_that_meets_a_joining_of_its_buckets_merges_them_again(users, step):
    fill(users)
    users.export(hook=Once(step, lambda: compact(users.job(), TABLE, FAR)))
    check(users)
    assert len(users.live_files()) == 3


@pytest.mark.parametrize("step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN])
def test_a_joining_that_meets_an_upsert_gives_way_and_leaves_nothing(users, step):
    fill(users)
    with pytest.raises(OvertakenError):
        compact(users.job(hook=Once(step, users.export)), TABLE, FAR)
    check(users)
    assert not [path for path in users.data_files() if maintain.COMPACTION in path.name]


def test_buckets_that_are_written_day_by_day_are_left_to_the_exports(users):
    now_ms = users.table().current_snapshot().timestamp_ms
    assert compact(users.job(), TABLE, now_ms + CLOSED_MS - 60_000).files_before == 0
    assert compact(users.job(), TABLE, now_ms + CLOSED_MS + 60_000).files_after == 3
    check(users)


def test_upkeep_beside_a_proof_takes_nothing_that_it_reads(users):
    before, kept = users.data_files(), []

    def upkeep():
        own = users.data_files() - before
        age(own, 9 * DAY_MS)
        delete_orphans(users.job(), TABLE, -1)
        assert own <= users.data_files()
        kept.append(len(own))

    assert users.verify(runner=between(upkeep)).problems == ()
    assert max(kept) > 0
    assert users.data_files() == before
