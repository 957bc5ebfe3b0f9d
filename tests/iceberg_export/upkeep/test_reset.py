"""An operator moves the place where an export goes on; the table stays exact."""

from pathlib import Path

import pytest

from iceberg_export.errors import FencedError, OvertakenError, SettingsError, StateError
from iceberg_export.runs.job import export_topic
from iceberg_export.steps import Step
from iceberg_export.table.state import Gap
from iceberg_export.upkeep.reset import parse_target, reset_offsets
from tests.iceberg_export.direct import place
from tests.iceberg_export.hooks import Killed, Once
from tests.iceberg_export.world import some_records


@pytest.fixture
def here():
    with place() as found:
        yield found


def fill(here, count=5):
    here.world.commit("orders", {0: [some_records(count)], 1: [some_records(count)]})


def export(here, *sets, **how):
    job = here.job(*sets, **how)
    return export_topic(job, here.topic(job))


def reset(here, to, **how):
    job = here.job(**how)
    return reset_offsets(job, here.topic(job), to)


@pytest.mark.parametrize("by", ["none", "day"])
def test_going_back_to_the_earliest_and_exporting_again_doubles_nothing(here, by):
    fill(here)
    export(here, f"table.partition.by={by}")
    report = reset(here, None)
    assert (report.rows_removed, report.offsets) == (10, {0: 0, 1: 0})
    assert here.rows() == []
    assert export(here).rows == 10
    assert here.rows() == here.wanted()


def test_going_back_in_one_partition_takes_its_later_rows_and_no_others(here):
    fill(here)
    export(here)
    fill(here)
    export(here)
    assert reset(here, {0: 3}).rows_removed == 7
    assert [row[:2] for row in here.rows()] == [(0, o) for o in range(3)] + [
        (1, o) for o in range(10)
    ]
    assert (here.state().offsets, here.state().seq) == ({0: 3, 1: 10}, 3)
    assert export(here).rows == 7
    assert here.rows() == here.wanted()


def test_files_that_hold_nothing_of_what_goes_are_left_as_they_are(here):
    fill(here)
    export(here)
    before = {task.file.file_path for task in here.table().scan().plan_files()}
    fill(here)
    export(here)
    reset(here, {0: 5, 1: 5})
    assert {task.file.file_path for task in here.table().scan().plan_files()} == before


def test_rows_that_the_log_no_longer_has_stay(here):
    fill(here)
    export(here)
    here.world.topics["orders"][1][0].log_start = 2
    reset(here, None)
    assert [row[:2] for row in here.rows()] == [(0, 0), (0, 1)]
    export(here)
    assert len(here.rows()) == 10


def test_going_ahead_skips_and_says_so(here):
    fill(here)
    export(here)
    fill(here)
    report = reset(here, {1: 8})
    assert (report.rows_removed, report.skipped) == (0, 3)
    assert here.state().gaps == (Gap(1, 5, 8),)
    export(here)
    assert here.rows() == [row for row in here.wanted() if row[0] == 0 or row[1] not in {5, 6, 7}]
    reset(here, {1: 6})
    assert here.state().gaps == (Gap(1, 5, 6),)


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ({2: 0}, "no partition 2"),
        ({0: 6}, "offsets 0 to 5, 6 is not among them"),
    ],
)
def test_what_the_log_does_not_have_is_refused(here, to, said):
    fill(here)
    export(here)
    with pytest.raises(SettingsError, match=said):
        reset(here, to)


def test_a_topic_without_table_has_nothing_to_reset(here):
    with pytest.raises(StateError, match="nothing to reset"):
        reset(here, None)


def unreadable(here):
    """Rolled back behind the first known export: two exports, the first one's snapshot gone
    from history, and no earlier metadata file tells of it any more."""
    fill(here)
    export(here)
    table = here.table()
    table.delete("kafka_offset == 4")
    foreign = here.table().metadata.current_snapshot_id
    fill(here)
    export(here)
    table = here.table()
    old = [s.snapshot_id for s in table.metadata.snapshots[:-1] if s.snapshot_id != foreign]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    here.table().manage_snapshots().set_current_snapshot(foreign).commit()
    for entry in here.table().metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink()


def test_a_table_that_does_not_say_where_it_stands_is_reset_as_a_whole(here):
    unreadable(here)
    with pytest.raises(StateError, match="rolled back"):
        export(here)
    with pytest.raises(SettingsError, match="partition 1 has none"):
        reset(here, {0: 0})
    assert reset(here, None).rows_removed == 8
    # Above whatever any commit has had, also those that no history shows any more.
    assert here.state().seq == 3
    export(here)
    assert here.rows() == here.wanted()


@pytest.mark.parametrize("step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN])
def test_a_reset_that_an_export_overtakes_changes_nothing_and_leaves_no_file(here, step):
    fill(here)
    export(here)
    fill(here)
    with pytest.raises(OvertakenError):
        reset(here, {0: 2}, hook=Once(step, lambda: export(here)))
    assert here.rows() == here.wanted()
    named = {task.file.file_path for task in here.table().scan().plan_files()}
    files = {f"file://{path}" for path in here.folder.rglob("*.parquet")}
    assert files == named


@pytest.mark.parametrize("step", [Step.TASKS_DONE, Step.COMMIT_WRITTEN])
def test_an_export_at_work_is_fenced_by_a_reset(here, step):
    fill(here)
    export(here)
    fill(here)
    with pytest.raises(FencedError):
        export(here, hook=Once(step, lambda: reset(here, {0: 2})))
    export(here)
    assert here.rows() == here.wanted()


@pytest.mark.parametrize("step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN, Step.COMMIT_ANSWERED])
def test_a_reset_that_dies_is_done_whole_or_not_at_all(here, step):
    fill(here)
    export(here)
    with pytest.raises(Killed):
        reset(here, {0: 2}, hook=Once(step, Killed()))
    kept = 2 if step is Step.COMMIT_ANSWERED else 5
    assert here.state().offsets == {0: kept, 1: 5}
    assert [row[1] for row in here.rows() if row[0] == 0] == list(range(kept))
    export(here)
    assert here.rows() == here.wanted()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("earliest", None),
        ("{0:120}", {0: 120}),
        ("0:1,1:2", {0: 1, 1: 2}),
        ('{"0": 7, "3": 9}', {0: 7, 3: 9}),
    ],
)
def test_where_to_go_is_read(text, found):
    assert parse_target(text) == found


@pytest.mark.parametrize("text", ["latest", "", "{}", "0", "0:x", "-1:2", "0:1,0:2", "0:1,"])
def test_where_to_go_is_refused_when_it_cannot_be_read(text):
    with pytest.raises(SettingsError):
        parse_target(text)
