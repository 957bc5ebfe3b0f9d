"""Rollbacks, expiry and deletes by people, of either table: each record stays in one of both."""

import pyarrow as pa
import pytest

from iceberg_export.errors import FencedError, StateError
from iceberg_export.source.filters import QueryRange
from iceberg_export.source.read_options import parse_options
from iceberg_export.source.reading import read_task
from iceberg_export.source.tables import plan_table
from iceberg_export.steps import Step
from iceberg_export.table import commit
from iceberg_export.upkeep.maintain import delete_orphans
from tests.iceberg_export.dead_letters.story import GOOD, LATE, NEVER, NUMBER, letters
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import DEAD_TABLE, TABLE

COLUMNS = pa.schema([("kafka_offset", pa.int64())])


@pytest.fixture
def here():
    with letters() as found:
        yield found


def begun(here):
    """One record is exported, two are there, of which one is bad. The head before them."""
    here.send(GOOD)
    here.export()
    head = here.head()
    here.send(LATE, GOOD)
    return head


def die_between_the_tables(here):
    with pytest.raises(Killed):
        here.export(hook=Once(Step.COMMITTED, Killed()))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "step", [Step.COMMITTED, Step.DEAD_LETTERS_LOADED, Step.DEAD_LETTERS_WRITTEN]
)
def test_letters_of_a_commit_that_was_undone_do_not_join_those_of_the_next(here, step, known):
    """Also when they are already on their way."""
    before = begun(here)

    def undone():
        here.set_head(before)
        here.late_schema(known=known)
        here.export()

    with pytest.raises(FencedError):
        here.export(hook=Once(step, undone))
    here.export()
    assert here.both() == (([0, 1, 2], []) if known else ([0, 2], [1]))
    assert here.problems() == ()


@pytest.mark.parametrize("known", [False, True])
def test_letters_that_come_while_another_exporter_judges_the_same_records_count_once(here, known):
    """History goes forth and back again meanwhile, so the table looks as it did."""
    before = begun(here)
    die_between_the_tables(here)
    after = here.head()
    here.set_head(before)
    here.late_schema(known=known)

    def forth_and_back():
        here.set_head(after)
        here.export()
        assert here.both() == ([0, 2], [1])
        here.set_head(before)

    hook = Once(Step.CHECKED, forth_and_back)
    try:
        here.export(hook=hook)
    except FencedError:
        assert hook.happened
    here.export()
    table, dead = here.both()
    assert sorted(table + dead) == [0, 1, 2]
    assert here.problems() == ()


@pytest.mark.parametrize("forth", [False, True])
def test_history_may_go_to_another_branch_and_the_letters_follow(here, forth):
    before = begun(here)
    here.export()
    first = here.head()
    here.set_head(before)
    here.late_schema(known=True)
    here.send(GOOD, NEVER)
    here.export()
    assert here.both() == ([0, 2, 3], [1, 4])
    second = here.head()
    here.set_head(first)
    here.send(NEVER)
    here.export()
    if forth:
        here.set_head(second)
        here.export()
    assert here.both() == ([0, 2, 3], [1, 4, 5])
    assert here.problems() == ()


def test_what_is_a_row_on_the_branch_that_history_goes_to_is_no_letter_any_more(here):
    before = begun(here)
    here.late_schema(known=True)
    here.export()
    good = here.head()
    here.set_head(before)
    here.late_schema(known=False)
    here.export()
    assert here.both() == ([0, 2], [1])
    here.set_head(good)
    here.export()
    assert here.both() == ([0, 1, 2], [])
    here.late_schema(known=True)
    assert here.problems() == ()


@pytest.mark.parametrize("policy", ["drop", "fail"])
def test_letters_stay_alone_after_a_rollback_whatever_the_topic_says_then(here, policy):
    before = begun(here)
    here.export()
    here.set_head(before)
    here.policy(policy)
    here.late_schema(known=True)
    report = here.export()
    assert (report.rows, report.left_out) == (1, 1)
    assert here.both() == ([0, 2], [1])


def test_a_rollback_that_is_exported_again_in_small_steps_leaves_every_letter_alone(here):
    before = begun(here)
    here.send(NEVER, LATE)
    here.send(GOOD, LATE)
    here.export()
    here.set_head(before)
    here.export("commit.bytes.max=1")
    assert here.both() == ([0, 2, 5], [1, 3, 4, 6])
    here.send(LATE)
    here.set_head(before)
    with pytest.raises(Killed):
        here.export("commit.bytes.max=1", hook=Once(Step.COMMITTED, Killed()))
    here.late_schema(known=True)
    here.export("commit.bytes.max=1")
    assert here.both() == ([0, 2, 5, 7], [1, 3, 4, 6])


def test_letters_that_people_deleted_do_not_come_again_when_history_has_expired(here):
    begun(here)
    here.export()
    here.table(DEAD_TABLE).delete("kafka_offset == 1")
    fence(here)
    here.send(GOOD)
    here.expire(DEAD_TABLE)
    here.export()
    assert here.both() == ([0, 2, 3], [])


def fence(here):
    """What maintenance does before it deletes files."""
    for name, run in ((DEAD_TABLE, "x"), (TABLE, "y")):
        pause = here.job().pause
        commit.fence(here.place.catalog, name, run_id=f"fence-{run}", pause=pause)


def test_letters_that_people_deleted_do_not_come_again_after_a_rollback_either(here):
    begun(here)
    here.export()
    before = here.head()
    here.send(NEVER, GOOD)
    here.export()
    here.table(DEAD_TABLE).delete("kafka_offset == 1")
    here.expire(DEAD_TABLE)
    here.set_head(before)
    here.export()
    assert here.both() == ([0, 2, 4], [3])


def test_letters_that_a_rollback_of_their_own_table_took_come_again(here):
    begun(here)
    here.export()
    before = here.head(DEAD_TABLE)
    here.send(NEVER)
    here.export()
    here.send(NEVER, GOOD)
    here.export()
    here.set_head(before, DEAD_TABLE)
    here.export()
    assert here.both() == ([0, 2, 5], [1, 3, 4])
    assert here.problems() == ()


def test_a_rollback_of_both_tables_exports_the_same_again(here):
    main = begun(here)
    dead = here.head(DEAD_TABLE)
    here.export()
    here.set_head(main)
    here.set_head(dead, DEAD_TABLE)
    here.late_schema(known=True)
    here.export()
    assert here.both() == ([0, 1, 2], [])


def test_a_table_of_letters_that_was_dropped_begins_anew(here):
    begun(here)
    here.export()
    here.place.catalog.purge_table(DEAD_TABLE)
    here.send(NEVER, GOOD)
    here.export()
    assert here.both() == ([0, 2, 4], [3])


def test_a_rollback_behind_a_reset_brings_the_letters_of_then(here):
    begun(here)
    here.export()
    before = here.head()
    here.reset(None)
    assert here.both() == ([], [])
    here.set_head(before)
    here.export()
    assert here.both() == ([0, 2], [1])
    assert here.problems() == ()


def test_a_rollback_behind_a_reset_is_refused_when_nobody_knows_the_letters_of_then(here):
    begun(here)
    here.export()
    here.send(GOOD)
    here.export()
    before = here.head()
    here.reset(None)
    here.set_head(before)
    here.expire()
    with pytest.raises(StateError, match="rolled back behind a reset"):
        here.export()
    here.reset(None)
    here.export()
    assert here.both() == ([0, 2, 3], [1])


@pytest.mark.parametrize("table", [TABLE, DEAD_TABLE])
def test_upkeep_after_a_rollback_does_not_hide_it(here, table):
    before = begun(here)

    def undone():
        here.set_head(before)
        here.place.lose_marks()
        delete_orphans(here.job(), table, -1)
        here.late_schema(known=True)
        here.export()

    with pytest.raises(FencedError):
        here.export(hook=Once(Step.COMMITTED, undone))
    here.export()
    table, dead = here.both()
    assert sorted(table + dead) == [0, 1, 2]


@pytest.mark.parametrize("step", [s for s in Step if not s.startswith(("init-", "table-"))])
def test_a_run_that_dies_at_any_step_leaves_each_record_in_one_table(here, step):
    begun(here)
    hook = Once(step, Killed())
    with pytest.raises(Killed):
        here.export(hook=hook)
    here.send(NEVER, GOOD)
    here.late_schema(known=True)
    here.export()
    table, dead = here.both()
    assert sorted(table + dead) == [0, 1, 2, 3, 4]
    assert here.problems() == ()


def test_letters_whose_files_are_gone_are_told_and_a_reset_to_the_earliest_goes_on(here):
    begun(here)
    die_between_the_tables(here)
    for path in here.place.folder.rglob("orders__dlq/data/*.parquet"):
        path.unlink()
    with pytest.raises(StateError, match="a file of dead letters of table"):
        here.export()
    here.reset(None)
    here.export()
    assert here.both() == ([0, 2], [1])


def test_a_query_of_the_table_leaves_letters_out_that_the_export_will_leave_out(here):
    before = begun(here)
    here.export()
    here.set_head(before)
    here.registry.register("orders-value", NUMBER)
    here.send(GOOD, LATE)

    def offsets():
        told = {
            "agent": "http://localhost",
            "table": "frazil.orders",
            "schema.registry.url": here.url,
        }
        options = parse_options(told, streaming=False)
        tasks = plan_table(options, here.job().client, here.table(), QueryRange())
        rows = [rows for task in tasks for rows in read_task(task, COLUMNS, QueryRange())]
        return sorted(one for batch in rows for one in batch["kafka_offset"].to_pylist())

    found = offsets()
    here.export()
    assert found == here.both()[0] == offsets() == [0, 2, 3, 4]


def test_history_that_others_made_after_a_rollback_claims_no_rows_that_are_not_there(here):
    """Rolled back, changed by others, and all else expired: the property tells of an export whose
    rows are not in the head, though the head is newer than it."""
    before = begun(here)
    here.export()
    here.set_head(before)
    here.table().delete("kafka_offset == 0")
    here.expire()
    here.export()
    assert here.both() == ([2], [1])


def test_where_no_metadata_tells_whose_child_the_head_is_the_export_refuses(here):
    begun(here)
    here.export()
    here.table().delete("kafka_offset == 0")
    here.expire()
    here.place.forget_metadata()
    with pytest.raises(StateError, match=r'newest export ended at {"0":3}'):
        here.export()
    here.reset({0: 3})
    here.send(GOOD)
    here.export()
    assert here.both() == ([2, 3], [1])
