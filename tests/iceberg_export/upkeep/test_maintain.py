"""Upkeep: what may go goes, and nothing that anybody needs."""

import random
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.expressions import EqualTo
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from iceberg_export.errors import (
    CommitUnknownError,
    FencedError,
    OvertakenError,
    PlanError,
    StateError,
)
from iceberg_export.steps import Step
from iceberg_export.table.commit import Pause
from iceberg_export.table.run_marks import ALIVE_MS, RunMark, list_files, live_runs
from iceberg_export.upkeep import maintain
from iceberg_export.upkeep.compact import CLOSED_MS, Limits, compact, groups_of, within_budget
from iceberg_export.upkeep.compact import Small as SmallFile
from iceberg_export.upkeep.maintain import delete_orphans, expirable, expire, store_now_ms
from tests.iceberg_export.kit.hooks import Answers, Killed, Once
from tests.iceberg_export.kit.place import DAY_MS, FAR, NOW_MS, TABLE, age
from tests.iceberg_export.kit.tasks import Changed


def aged(here, days):
    """As if all files but marks had been written so long ago."""
    files = [one for one in here.folder.rglob("*") if one.is_file() and one.parent.name != "runs"]
    age(files, days * DAY_MS)


def die(here, step=Step.TASKS_DONE):
    """An export that leaves its files behind."""
    here.fill()
    with pytest.raises(Killed):
        here.export(hook=Once(step, Killed()))


def snapshot(number, days):
    return SimpleNamespace(snapshot_id=number, sequence_number=number, timestamp_ms=-days * DAY_MS)


def test_the_newest_hundred_the_young_and_the_named_stay():
    many = [snapshot(number, 300 - number) for number in range(300)]
    assert expirable(many, {5}, {7}, 0) == [n for n in range(199, -1, -1) if n not in {5, 7}]
    assert expirable([snapshot(n, 0.9) for n in range(300)], set(), set(), 0) == []
    assert expirable(many[:100], set(), set(), 0) == []


def test_expired_snapshots_take_neither_rows_nor_state(here, monkeypatch):
    here.exported(4)
    state = here.state()
    here.table().delete(EqualTo("kafka_offset", 1))
    monkeypatch.setattr(maintain, "SNAPSHOTS_KEPT_MIN", 1)
    assert expire(here.job(), TABLE, FAR).snapshots_expired == 4
    # The head, and the export before it that tells the state.
    assert len(here.table().metadata.snapshots) == 2
    assert here.state() == state
    assert expire(here.job(), TABLE, FAR).snapshots_expired == 0
    here.exported()
    assert here.rows() == [row for row in here.wanted() if row[1] != 1]


def test_what_a_tag_names_does_not_expire(here, monkeypatch):
    here.exported(4)
    second = here.table().metadata.snapshots[1].snapshot_id
    here.table().manage_snapshots().create_tag(second, "kept").commit()
    monkeypatch.setattr(maintain, "SNAPSHOTS_KEPT_MIN", 1)
    expire(here.job(), TABLE, FAR)
    assert second in {one.snapshot_id for one in here.table().metadata.snapshots}


def test_files_of_a_run_that_died_go_and_nothing_else_does(here):
    here.exported(2)
    die(here)
    aged(here, 4)
    assert len(here.data_files()) > len(here.live_files())
    done = delete_orphans(here.job(), TABLE, 3 * DAY_MS)
    assert done.files_deleted > 0
    assert here.data_files() == here.live_files()
    here.export()
    assert here.rows() == here.wanted()


def test_a_second_look_finds_nothing_more(here):
    here.exported()
    die(here)
    aged(here, 4)
    delete_orphans(here.job(), TABLE, 3 * DAY_MS)
    snapshots = len(here.table().metadata.snapshots)
    assert delete_orphans(here.job(), TABLE, 3 * DAY_MS).files_deleted == 0
    assert len(here.table().metadata.snapshots) == snapshots


def test_young_files_stay(here):
    here.exported()
    die(here)
    aged(here, 2)
    before = here.data_files()
    assert delete_orphans(here.job(), TABLE, 3 * DAY_MS).files_deleted == 0
    assert here.data_files() == before


def test_old_snapshots_rows_and_other_peoples_files_stay(here):
    here.exported(2)
    first = here.table().metadata.snapshots[1].snapshot_id
    here.table().delete(EqualTo("kafka_offset", 1))
    stranger = here.folder / "warehouse" / "frazil" / "orders" / "notes.txt"
    stranger.write_text("mine")
    aged(here, 9)
    delete_orphans(here.job(), TABLE, DAY_MS)
    assert here.table().scan(snapshot_id=first).to_arrow().num_rows == 10
    assert stranger.exists()


def test_a_live_run_keeps_its_files_however_old_they_are(here):
    here.exported()
    here.fill()

    def upkeep():
        aged(here, 9)
        assert delete_orphans(here.job(), TABLE, DAY_MS).files_deleted == 0

    here.export(hook=Once(Step.TASKS_DONE, upkeep))
    assert here.rows() == here.wanted()


def test_with_a_live_run_only_what_is_proven_goes(here):
    here.exported()
    die(here)
    aged(here, 9)
    with RunMark(here.table(), "somebody"):
        # The table moved on after those files were written, so nobody can commit them any more.
        here.exported()
        done = delete_orphans(here.job(), TABLE, DAY_MS)
        assert (done.files_deleted > 0, done.orphans_left) == (True, 0)
        die(here)
        done = delete_orphans(here.job(), TABLE, -1)
        assert (done.files_deleted, done.orphans_left > 0) == (0, True)
    assert delete_orphans(here.job(), TABLE, -1).orphans_left == 0


@pytest.mark.parametrize("step", [Step.TASKS_DONE, Step.CHECKED, Step.COMMIT_WRITTEN])
def test_a_run_that_slept_until_its_mark_was_old_is_refused(here, step):
    """Its files are gone by then: were its commit taken, the table could not be read."""
    here.exported()
    here.fill()

    def slept():
        here.lose_marks()
        aged(here, 9)
        assert delete_orphans(here.job(), TABLE, DAY_MS).files_deleted > 0

    with pytest.raises(FencedError):
        here.export(hook=Once(step, slept))
    here.export()
    assert here.rows() == here.wanted()


def test_other_spellings_of_a_location_are_the_same_file(here):
    """Spark writes file:/x where others write file:///x: no live file may look like an orphan."""
    here.exported()
    table = here.table()
    named = maintain.reachable(table)
    for file in list_files(table):
        other = file.location.replace("file://", "file:")
        assert (maintain._path(other) in named) == (maintain._path(file.location) in named)
        assert maintain._path(other) == maintain._path(file.location)


def test_marks_of_ended_runs_are_gone(here):
    here.exported(2)
    store_now_ms(here.job(), TABLE)
    assert list(here.folder.rglob("runs/*")) == []


def test_a_mark_is_written_again_while_its_run_lasts(here):
    here.exported()
    with RunMark(here.table(), "slow", renew_s=0.001) as marker:
        path = Path(marker.location.removeprefix("file://"))
        path.unlink()
        while not path.exists():
            time.sleep(0.001)
    assert not path.exists()


def test_a_mark_that_was_not_renewed_is_of_no_live_run(here):
    here.exported()
    with RunMark(here.table(), "asleep"):
        files = list_files(here.table())
        (mark,) = [file for file in files if file.location.endswith("/runs/asleep")]
        assert live_runs(files, here.table(), mark.modified_ms + ALIVE_MS) == {"asleep"}
        assert live_runs(files, here.table(), mark.modified_ms + ALIVE_MS + 1) == set()


@pytest.mark.parametrize("by", ["none", "day", "hour"])
def test_small_files_are_joined_with_the_same_rows(here, by):
    here.exported(4, f"table.partition.by={by}")
    rows, state = here.rows(), here.state()
    done = compact(here.job(), TABLE, FAR)
    assert (done.files_before, done.files_after, done.rows) == (4, 1, 40)
    assert here.rows() == rows == here.wanted()
    assert here.state() == state
    here.exported()
    assert here.rows() == here.wanted()


def test_deleted_rows_stay_deleted_when_files_are_joined(here):
    here.exported(3)
    here.table().delete(EqualTo("kafka_offset", 7))
    compact(here.job(), TABLE, FAR)
    assert here.rows() == [row for row in here.wanted() if row[1] != 7]


def test_files_of_the_last_day_are_left_alone(here):
    here.exported(3)
    now = here.table().current_snapshot().timestamp_ms
    assert compact(here.job(), TABLE, now + CLOSED_MS - 10_000).files_before == 0


def test_younger_files_are_joined_when_they_are_wanted(here):
    here.exported(3)
    now = here.table().current_snapshot().timestamp_ms
    done = compact(here.job(), TABLE, now + 1000, Limits(age_ms_min=1000))
    assert (done.files_before, done.files_after) == (3, 1)
    assert here.rows() == here.wanted()


def test_a_budget_goes_to_the_smallest_files_and_the_next_time_to_the_rest(here):
    here.configure(partition_by="day(kafka_timestamp)")
    noise = random.Random(1)
    for day, size in ((0, 4000), (1, 10), (2, 400)):
        for _ in range(2):
            here.send(noise.randbytes(size), timestamp=NOW_MS + day * DAY_MS)
            here.export()
    files = []
    for _ in range(4):
        done = compact(here.job(), TABLE, FAR, Limits(bytes_max=1))
        files.append((done.files_before, done.files_after, done.left))
    assert files == [(2, 1, 4), (2, 1, 2), (2, 1, 0), (0, 0, 0)]
    assert here.rows() == here.wanted()


def test_a_budget_of_more_takes_more_groups_the_smallest_files_first():
    def group(*sizes):
        return [small(number, Record(1), size) for number, size in enumerate(sizes)]

    large, middle, least = group(100, 100), group(40, 60), group(1, 1)
    groups = [large, middle, least]
    assert within_budget(groups, None) == groups
    assert within_budget(groups, 1) == [least]
    assert within_budget(groups, 101) == [least]
    assert within_budget(groups, 102) == [least, middle]
    assert within_budget(groups, 302) == [least, middle, large]


def test_joined_files_are_not_joined_again(here):
    here.exported(3)
    compact(here.job(), TABLE, FAR)
    assert compact(here.job(), TABLE, FAR).files_before == 0


def small(number, partition, size):
    return SmallFile(None, partition, size, (0, number))


def test_small_files_of_before_and_after_a_column_became_wider_are_joined_in_order(here):
    """By the files' bounds, which have another width since."""
    here.exported(2)
    with here.table().update_schema() as update:
        update.update_column("kafka_partition", LongType())
    here.exported(2)
    assert compact(here.job(), TABLE, FAR).files_before == 4
    (path,) = here.live_files()
    offsets = pq.read_table(path, columns=["kafka_offset"]).column(0).to_pylist()
    assert offsets == [5 * export + at for export in range(4) for _ in (0, 1) for at in range(5)]
    assert here.rows() == here.wanted()


def test_a_table_that_lost_the_places_of_its_records_is_not_compacted(here):
    here.exported(2)
    with here.table().update_schema() as update:
        update.rename_column("kafka_offset", "place")
    with pytest.raises(StateError, match="has lost its column kafka_offset"):
        compact(here.job(), TABLE, FAR)


def test_groups_are_of_one_table_partition_in_order_and_no_larger_than_a_file():
    files = [
        small(3, "b", 4),
        small(2, "a", 6),
        small(0, "a", 5),
        small(1, "a", 5),
        small(4, "b", 4),
    ]
    groups = [[(one.partition, one.order[1]) for one in group] for group in groups_of(files, 10)]
    assert groups == [[("b", 3), ("b", 4)], [("a", 0), ("a", 1)]]


@pytest.mark.parametrize("step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN])
def test_an_export_meanwhile_does_not_hinder_the_joining(here, step):
    here.exported(3)
    here.fill()
    compact(here.job(hook=Once(step, here.export)), TABLE, FAR)
    assert here.rows() == here.wanted()
    assert len(here.live_files()) == 2


@pytest.mark.parametrize("step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN])
def test_a_delete_meanwhile_stops_the_joining_and_no_file_is_left(here, step):
    here.exported(3)
    here.table().delete(EqualTo("kafka_offset", 2))
    hook = Once(step, lambda: here.table().delete(EqualTo("kafka_offset", 7)))
    before = here.data_files()
    with pytest.raises(OvertakenError):
        compact(here.job(hook=hook), TABLE, FAR)
    assert here.rows() == [row for row in here.wanted() if row[1] not in {2, 7}]
    assert not [path for path in here.data_files() - before if "compact" in path.name]


def test_a_joining_that_slept_while_orphans_were_deleted_is_refused(here):
    here.exported(3)

    def slept():
        here.lose_marks()
        aged(here, 9)
        assert delete_orphans(here.job(), TABLE, DAY_MS).files_deleted > 0

    with pytest.raises(OvertakenError):
        compact(here.job(hook=Once(Step.COMMIT_WRITTEN, slept)), TABLE, FAR)
    assert here.rows() == here.wanted()


def test_a_joining_that_slept_while_another_run_was_alive_finds_its_files(here):
    """Exports only append, so nothing refuses its commit."""
    here.exported(3)

    def slept():
        here.lose_marks()
        aged(here, 9)
        here.exported()
        with RunMark(here.table(), "somebody"):
            done = delete_orphans(here.job(), TABLE, DAY_MS)
        assert (done.files_deleted, done.orphans_left) == (0, 1)

    done = compact(here.job(hook=Once(Step.COMMIT_LOADED, slept)), TABLE, FAR)
    assert done.files_before == 3
    assert here.rows() == here.wanted()


def losing(results):
    """They tell of a row less than they have read."""
    return [one._replace(rows_read=one.rows_read - 1) for one in results]


def test_a_joining_that_would_lose_a_row_is_not_committed(here):
    here.exported(3)
    with pytest.raises(PlanError, match="is as it was"):
        compact(here.job(runner=Changed(losing)), TABLE, FAR)
    assert here.rows() == here.wanted()


def test_files_of_a_joining_without_an_answer_stay_though_its_snapshot_is_not_shown(here):
    """Nessie shows the newest snapshot alone: an export that came next hides the joining's."""
    here.exported(3)
    lost = CommitStateUnknownException("the answer is lost")

    def others(_seconds):
        here.fill()
        here.export()
        table = here.table()
        keep = {table.current_snapshot().snapshot_id}
        ids = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in keep]
        update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids})
        here.catalog.commit_table(table, (), (update,))

    job = here.job(hook=Answers(("after", lost)))._replace(pause=Pause(others, random.Random(1)))
    with pytest.raises(CommitUnknownError):
        compact(job, TABLE, FAR)
    assert here.rows() == here.wanted()
