"""An operator moves the place where an export goes on; the table stays exact."""

import pytest

from iceberg_export.errors import FencedError, OvertakenError, SettingsError, StateError
from iceberg_export.steps import Step
from iceberg_export.table.state import Gap
from tests.iceberg_export.kit.hooks import Killed, Once


@pytest.mark.parametrize("by", ["none", "day"])
def test_going_back_to_the_earliest_and_exporting_again_doubles_nothing(here, by):
    here.fill()
    here.export(f"table.partition.by={by}")
    report = here.reset(None)
    assert (report.rows_removed, report.offsets) == (10, {0: 0, 1: 0})
    assert here.rows() == []
    assert here.export().rows == 10
    assert here.rows() == here.wanted()


def test_going_back_in_one_partition_takes_its_later_rows_and_no_others(here):
    here.exported(2)
    assert here.reset({0: 3}).rows_removed == 7
    assert [row[:2] for row in here.rows()] == [(0, o) for o in range(3)] + [
        (1, o) for o in range(10)
    ]
    assert (here.state().offsets, here.state().seq) == ({0: 3, 1: 10}, 3)
    assert here.export().rows == 7
    assert here.rows() == here.wanted()


def test_files_that_hold_nothing_of_what_goes_are_left_as_they_are(here):
    here.exported()
    before = here.live_files()
    here.exported()
    here.reset({0: 5, 1: 5})
    assert here.live_files() == before


def test_rows_that_the_log_no_longer_has_stay(here):
    here.exported()
    here.log().log_start = 2
    here.reset(None)
    assert [row[:2] for row in here.rows()] == [(0, 0), (0, 1)]
    here.export()
    assert len(here.rows()) == 10


def test_going_ahead_skips_and_says_so(here):
    here.exported()
    here.fill()
    report = here.reset({1: 8})
    assert (report.rows_removed, report.skipped) == (0, 3)
    assert here.state().gaps == (Gap(1, 5, 8, skipped=True),)
    here.export()
    assert here.rows() == [row for row in here.wanted() if row[0] == 0 or row[1] not in {5, 6, 7}]
    verdict = here.verify()
    assert (verdict.problems, verdict.passed_over, verdict.gone) == ((), 3, 0)
    here.reset({1: 6})
    assert here.state().gaps == (Gap(1, 5, 6, skipped=True),)


def test_a_row_among_the_offsets_that_were_skipped_is_one_too_many(here):
    here.exported()
    table = here.table()
    rows = table.scan(row_filter="kafka_partition = 1 and kafka_offset = 4").to_arrow()
    here.reset({1: 4})
    here.reset({1: 5})
    assert here.verify().problems == ()
    here.table().append(rows)
    (problem,) = here.verify().problems
    assert "partition 1" in problem
    assert "4 records in the log, 5 in the table" in problem


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ({2: 0}, "no partition 2"),
        ({0: 6}, "offsets 0 to 5, 6 is not among them"),
    ],
)
def test_what_the_log_does_not_have_is_refused(here, to, said):
    here.exported()
    with pytest.raises(SettingsError, match=said):
        here.reset(to)


def test_a_topic_without_table_has_nothing_to_reset(here):
    with pytest.raises(StateError, match="nothing to reset"):
        here.reset(None)


def unreadable(here):
    """Rolled back behind the first known export: two exports, the first one's snapshot gone
    from history, and no earlier metadata file tells of it any more."""
    here.exported()
    table = here.table()
    table.delete("kafka_offset == 4")
    foreign = here.table().metadata.current_snapshot_id
    here.exported()
    table = here.table()
    old = [s.snapshot_id for s in table.metadata.snapshots[:-1] if s.snapshot_id != foreign]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    here.table().manage_snapshots().set_current_snapshot(foreign).commit()
    here.forget_metadata()


def test_a_table_that_does_not_say_where_it_stands_is_reset_as_a_whole(here):
    unreadable(here)
    with pytest.raises(StateError, match="rolled back"):
        here.export()
    with pytest.raises(SettingsError, match="partition 1 has none"):
        here.reset({0: 0})
    assert here.reset(None).rows_removed == 8
    # Above whatever any commit has had, also those that no history shows any more.
    assert here.state().seq == 3
    here.export()
    assert here.rows() == here.wanted()


@pytest.mark.parametrize("step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN])
def test_a_reset_that_an_export_overtakes_changes_nothing_and_leaves_no_file(here, step):
    here.exported()
    here.fill()
    with pytest.raises(OvertakenError):
        here.reset({0: 2}, hook=Once(step, here.export))
    assert here.rows() == here.wanted()
    assert here.data_files() == here.live_files()


@pytest.mark.parametrize("step", [Step.TASKS_DONE, Step.COMMIT_WRITTEN])
def test_an_export_at_work_is_fenced_by_a_reset(here, step):
    here.exported()
    here.fill()
    with pytest.raises(FencedError):
        here.export(hook=Once(step, lambda: here.reset({0: 2})))
    here.export()
    assert here.rows() == here.wanted()


@pytest.mark.parametrize("step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN, Step.COMMIT_ANSWERED])
def test_a_reset_that_dies_is_done_whole_or_not_at_all(here, step):
    here.exported()
    with pytest.raises(Killed):
        here.reset({0: 2}, hook=Once(step, Killed()))
    kept = 2 if step is Step.COMMIT_ANSWERED else 5
    assert here.state().offsets == {0: kept, 1: 5}
    assert [row[1] for row in here.rows() if row[0] == 0] == list(range(kept))
    here.export()
    assert here.rows() == here.wanted()
