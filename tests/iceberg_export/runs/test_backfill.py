"""What a reset has skipped is filled by a backfill, each record once, as far as the log has it."""

import pytest

from iceberg_export.errors import AheadError, FencedError, SettingsError
from iceberg_export.steps import Step
from iceberg_export.table.state import Gap
from tests.iceberg_export.dead_letters.story import GOOD, LATE, NEVER, letters
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import DEAD_TABLE, NOW_MS


@pytest.fixture
def here(here):
    """Of each partition ten records are in the log; 5 to 7 of partition 0, and 5 to 9 of partition 1, were
    skipped."""
    here.exported()
    here.fill()
    here.reset({0: 8, 1: 10})
    here.export()
    assert here.state().gaps == (Gap(0, 5, 8, skipped=True), Gap(1, 5, 10, skipped=True))
    return here


def left_out(here, *places):
    return [row for row in here.wanted() if row[:2] not in places]


def test_all_that_was_skipped_is_filled_and_the_export_goes_on_where_it_was(here):
    offsets = here.state().offsets
    done = here.backfill()
    assert (done.offsets, done.exported.rows, done.gone, done.left) == (8, 8, 0, 0)
    assert here.rows() == here.wanted()
    assert (here.state().offsets, here.state().gaps) == (offsets, ())
    here.exported()
    assert here.rows() == here.wanted()
    verdict = here.verify()
    assert (verdict.problems, verdict.passed_over) == ((), 0)


def test_the_log_is_recognised_by_the_newest_records_after_a_backfill_as_before(here):
    last = here.state().last_records
    assert {number: one.offset for number, one in last.items()} == {0: 9}
    here.backfill()
    assert here.state().last_records == last


def test_a_part_of_it_is_filled_and_the_rest_stays_skipped(here):
    done = here.backfill({0: (0, 6), 1: (7, 9)})
    assert (done.offsets, done.left) == (3, 5)
    assert here.state().gaps == (
        Gap(0, 6, 8, skipped=True),
        Gap(1, 5, 7, skipped=True),
        Gap(1, 9, 10, skipped=True),
    )
    assert here.rows() == left_out(here, (0, 6), (0, 7), (1, 5), (1, 6), (1, 9))
    assert here.verify().problems == ()
    here.backfill()
    assert here.rows() == here.wanted()


def test_many_commits_fill_it_piece_by_piece(here):
    for _ in range(3):
        here.fill(2)
    here.reset({0: 16, 1: 16})
    assert here.backfill(None, "commit.bytes.max=1").exported.commits == 4
    assert here.rows() == here.wanted()


def test_nothing_that_was_skipped_is_nothing_to_fill(here):
    here.backfill()
    head = here.head()
    done = here.backfill()
    assert (done.offsets, done.exported.commits, here.head()) == (0, 0, head)


def test_a_second_backfill_doubles_nothing(here):
    with pytest.raises(FencedError):
        here.backfill(hook=Once(Step.TASKS_DONE, here.backfill))
    assert here.rows() == here.wanted()


@pytest.mark.parametrize("step", list(Step), ids=str)
def test_a_backfill_that_dies_anywhere_is_made_whole_by_the_same_command(here, step):
    hook = Once(step, Killed())
    try:
        here.backfill(None, "commit.bytes.max=1", hook=hook)
    except Killed:
        assert hook.happened
    here.exported()
    here.backfill()
    assert here.rows() == here.wanted()
    assert here.verify().problems == ()


def test_an_export_meanwhile_is_in_and_the_backfill_comes_again(here):
    here.fill()
    with pytest.raises(FencedError):
        here.backfill(hook=Once(Step.TASKS_DONE, here.export))
    here.backfill()
    assert here.rows() == here.wanted()


def test_a_rollback_brings_the_gaps_back(here):
    before = here.head()
    here.backfill()
    here.roll_back(before)
    assert len(here.state().gaps) == 2
    assert here.verify().problems == ()
    here.exported()
    here.backfill()
    assert here.rows() == here.wanted()


def test_what_retention_has_removed_since_is_told_and_stays_a_gap(here):
    here.log(1).log_start = 7
    done = here.backfill()
    assert (done.offsets, done.gone, done.left) == (6, 2, 0)
    assert here.state().gaps == (Gap(1, 5, 7, skipped=True),)
    assert here.rows() == left_out(here, (1, 5), (1, 6))
    assert here.verify().problems == ()


def test_redacted_records_among_what_was_skipped_stay_away(here):
    from iceberg_export.upkeep.redact import plan_redaction, redact

    here.backfill()
    job = here.job(now_ms=NOW_MS)
    plan = plan_redaction(job, here.topic(job), "kafka_partition = 0 and kafka_offset = 6")
    redact(job, here.topic(job), plan, by="ada", reason="")
    here.reset({0: 5, 1: 5})
    here.reset({0: 10, 1: 10})
    done = here.backfill()
    assert (done.exported.rows, done.exported.left_out) == (9, 1)
    assert here.rows() == left_out(here, (0, 6))
    assert here.verify().problems == ()


def test_an_older_log_that_was_put_back_fills_nothing(here):
    older = here.world.backup()
    here.exported()
    here.world.put_back(older)
    with pytest.raises(AheadError):
        here.backfill()
    assert len(here.state().gaps) == 2


def test_a_table_of_newest_records_is_not_filled(here):
    here.configure(mode="upsert")
    with pytest.raises(SettingsError, match="mode upsert"):
        here.backfill()


def test_letters_among_what_was_skipped_come_into_their_table_and_stay_there_after_a_rollback():
    with letters() as here:
        here.send(GOOD)
        here.export()
        here.send(LATE, NEVER, GOOD)
        here.reset({0: 4})
        here.send(GOOD)
        here.export()
        before = here.head()
        done = here.place.backfill()
        assert (done.offsets, done.exported.rows, done.exported.dead) == (3, 1, 2)
        assert here.both() == ([0, 3, 4], [1, 2])
        assert here.problems() == ()
        here.set_head(before)
        here.late_schema(known=True)
        here.export()
        assert here.both() == ([0, 4], [1, 2])
        assert here.problems() == ()
        here.place.backfill()
        here.replay()
        assert here.both() == ([0, 1, 3, 4], [2])
        assert here.offsets(DEAD_TABLE) == [(0, 2)]
        assert here.problems() == ()
