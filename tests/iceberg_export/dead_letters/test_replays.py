"""A replay makes rows of the dead letters that can be decoded by now, each exactly once."""

import pyarrow as pa
import pytest

from iceberg_export.dead_letters.dead_letter_table import LostDeadLettersError, is_consistent
from iceberg_export.dead_letters.undone_replays import undone_removals
from iceberg_export.errors import FencedError, OvertakenError, SettingsError, StateError
from iceberg_export.steps import Step
from iceberg_export.table.state import Follows, State
from tests.iceberg_export.dead_letters.story import GOOD, LATE, NEVER, letters
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import DEAD_TABLE, TABLE
from tests.iceberg_export.kit.strangers import delete_row
from tests.iceberg_export.kit.tasks import between


@pytest.fixture
def here():
    with letters() as found:
        yield found


@pytest.fixture
def mended(here):
    """Of five records three are dead letters; two of those can be decoded by now."""
    here.send(GOOD, LATE, NEVER)
    here.export()
    here.send(LATE, GOOD)
    here.export()
    here.late_schema(known=True)
    return here


def test_letters_that_can_be_decoded_by_now_become_rows_and_the_others_stay(mended):
    assert mended.both() == ([0, 4], [1, 2, 3])
    done = mended.replay()
    assert (done.table, done.rows, done.left) == ("frazil.orders", 2, {"NOT_FRAMED": 1})
    assert done.first_reason.startswith("partition 0, offset 2: ")
    assert mended.both() == ([0, 1, 3, 4], [2])
    assert mended.place.columns("kafka_offset", "n") == [(0, 1), (1, 1), (3, 1), (4, 1)]
    assert mended.problems() == ()


def test_a_second_replay_finds_what_the_first_has_left(mended):
    mended.replay()
    head = mended.head()
    done = mended.replay()
    assert (done.rows, done.left) == (0, {"NOT_FRAMED": 1})
    assert (mended.head(), mended.both()) == (head, ([0, 1, 3, 4], [2]))


def test_exports_go_on_after_a_replay(mended):
    mended.replay()
    mended.send(GOOD, NEVER)
    mended.export()
    assert mended.both() == ([0, 1, 3, 4, 5], [2, 6])
    assert mended.problems() == ()


def test_a_topic_without_dead_letters_has_nothing_to_replay(here):
    here.send(GOOD)
    here.export()
    assert (here.replay().rows, here.replay().left) == (0, {})


def test_a_row_in_a_topics_table_of_bytes_is_no_letter():
    with letters() as here:
        here.place.configure()
        here.send(GOOD)
        here.export()
        assert here.replay().rows == 0


@pytest.mark.parametrize("step", list(Step), ids=str)
@pytest.mark.parametrize("then", ["export", "replay"])
def test_a_replay_that_dies_anywhere_leaves_each_record_in_one_of_both(mended, step, then):
    hook = Once(step, Killed())
    try:
        mended.replay(hook=hook)
    except Killed:
        assert hook.happened
    getattr(mended, then)()
    table, dead = mended.both()
    assert sorted(table + dead) == [0, 1, 2, 3, 4]
    mended.replay()
    assert mended.both() == ([0, 1, 3, 4], [2])
    assert mended.problems() == ()


@pytest.mark.parametrize(
    "step", [Step.TASKS_DONE, Step.COMMIT_LOADED, Step.COMMIT_WRITTEN, Step.COMMITTED], ids=str
)
def test_an_export_that_commits_while_a_replay_is_at_work_keeps_its_records(mended, step):
    mended.send(NEVER, GOOD)
    mended.replay(hook=Once(step, mended.export))
    mended.export()
    assert mended.both() == ([0, 1, 3, 4, 6], [2, 5])
    assert mended.problems() == ()


@pytest.mark.parametrize("step", [Step.TASKS_DONE, Step.CHECKED, Step.COMMIT_WRITTEN], ids=str)
def test_a_replay_that_commits_while_an_export_is_at_work_lets_it_begin_again(mended, step):
    mended.send(NEVER, GOOD)
    with pytest.raises(FencedError):
        mended.export(hook=Once(step, mended.replay))
    mended.export()
    assert mended.both() == ([0, 1, 3, 4, 6], [2, 5])
    assert mended.problems() == ()


def test_letters_that_another_replay_takes_meanwhile_come_once(mended):
    with pytest.raises((FencedError, OvertakenError)):
        mended.replay(hook=Once(Step.COMMIT_LOADED, mended.replay))
    mended.export()
    assert mended.both() == ([0, 1, 3, 4], [2])


def test_a_letter_that_people_delete_meanwhile_stays_deleted(mended):
    before = mended.head()

    def delete():
        if 1 in mended.both()[1]:
            delete_row(mended.table(DEAD_TABLE), 0, 1)

    with pytest.raises(OvertakenError, match="run again"):
        mended.replay(runner=between(delete))
    assert (mended.head(), mended.place.data_files()) == (before, mended.place.live_files())
    mended.replay()
    assert mended.both() == ([0, 3, 4], [2])


@pytest.mark.parametrize("expired", [False, True])
def test_letters_of_a_replay_that_a_rollback_undid_come_back(mended, expired):
    before = mended.head()
    mended.replay()
    if expired:
        mended.expire(DEAD_TABLE)
    mended.set_head(before)
    mended.late_schema(known=False)
    if expired:
        with pytest.raises(LostDeadLettersError, match="reset the topic's offsets to earliest"):
            mended.export()
        mended.reset(None)
        mended.late_schema(known=True)
        mended.export()
        assert mended.both() == ([0, 1, 3, 4], [2])
        return
    mended.send(GOOD)
    mended.export()
    assert mended.both() == ([0, 4, 5], [1, 2, 3])
    assert mended.problems() == ()


def test_history_may_go_behind_a_replay_and_forth_again(mended):
    before = mended.head()
    mended.replay()
    after = mended.head()
    for head, both in [
        (before, ([0, 4], [1, 2, 3])),
        (after, ([0, 1, 3, 4], [2])),
        (before, ([0, 4], [1, 2, 3])),
    ]:
        mended.set_head(head)
        mended.export()
        assert mended.both() == both
    mended.replay()
    assert mended.both() == ([0, 1, 3, 4], [2])


def test_letters_that_a_rollback_of_their_own_table_brings_back_go_again(mended):
    before = mended.head(DEAD_TABLE)
    mended.replay()
    mended.set_head(before, DEAD_TABLE)
    mended.export()
    assert mended.both() == ([0, 1, 3, 4], [2])


def test_letters_that_were_never_committed_to_their_table_again_are_none_after_a_replay(mended):
    """Their table goes back behind the commit of them all."""
    (first, *_) = mended.table(DEAD_TABLE).metadata.snapshots
    mended.replay()
    mended.set_head(first.snapshot_id, DEAD_TABLE)
    mended.export()
    assert mended.both() == ([0, 1, 3, 4], [2])


def test_a_rollback_behind_two_replays_brings_back_the_letters_of_both(here):
    here.send(GOOD, LATE)
    here.export()
    before = here.head()
    here.late_schema(known=True)
    here.replay()
    here.late_schema(known=False)
    here.send(LATE)
    here.export()
    here.late_schema(known=True)
    here.replay()
    assert here.both() == ([0, 1, 2], [])
    here.set_head(before)
    here.late_schema(known=False)
    here.export()
    assert here.both() == ([0], [1, 2])


def test_a_reset_after_a_replay_exports_again_what_it_removed(mended):
    mended.replay()
    mended.reset({0: 3})
    assert mended.both() == ([0, 1], [2])
    mended.export()
    assert mended.both() == ([0, 1, 3, 4], [2])
    assert mended.problems() == ()


def test_letters_beyond_the_tables_offsets_wait_for_an_export(mended):
    """A rollback: the export judges them first."""
    head = mended.table().metadata.snapshots[1].snapshot_id
    mended.set_head(head)
    done = mended.replay()
    assert (done.rows, done.left) == (1, {"NOT_FRAMED": 1, "SCHEMA_UNKNOWN": 1})
    mended.export()
    assert mended.both() == ([0, 1, 4], [2, 3])
    mended.replay()
    assert mended.both() == ([0, 1, 3, 4], [2])
    assert mended.problems() == ()


def test_a_record_that_people_have_added_to_the_letters_twice_is_refused(mended):
    table = mended.table(DEAD_TABLE)
    table.append(table.scan(row_filter="kafka_offset = 1").to_arrow())
    with pytest.raises(StateError, match="twice"):
        mended.replay()
    assert 1 not in mended.both()[0]


def test_a_row_that_people_have_put_among_the_letters_is_left_there(mended):
    table = mended.table(DEAD_TABLE)
    rows = table.scan(row_filter="kafka_offset = 1").to_arrow()
    where = rows.schema.get_field_index("kafka_offset")
    rows = rows.set_column(where, rows.schema.field(where), pa.array([0]))
    code = rows.schema.get_field_index("error_code")
    rows = rows.set_column(
        code, rows.schema.field(code), pa.array([None], rows.schema.field(code).type)
    )
    table.append(rows)
    done = mended.replay()
    assert (done.rows, done.left) == (2, {"NOT_FRAMED": 1, "none": 1})


def test_a_replay_into_a_table_of_newest_records_is_refused(here):
    here.place.configure(value_mode="avro", mode="upsert")
    here.place.send(GOOD, keys=[b"k"])
    here.export()
    with pytest.raises(SettingsError, match="mode upsert"):
        here.replay()


def test_each_partition_of_a_topic_has_letters_of_its_own():
    with letters(2) as here:
        for partition in (0, 1):
            here.send(LATE, GOOD, partition=partition)
        here.export()
        here.late_schema(known=True)
        assert here.replay("split.bytes.max=1").rows == 2
        assert here.offsets(TABLE) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert here.offsets(DEAD_TABLE) == []
        assert here.problems() == ()


def test_a_table_with_a_replay_that_its_letters_do_not_name_is_not_consistent_with_them():
    """As after a reset that could not read where they stood."""
    main = State("ab" * 16, {0: 1}, 1, "r1-1", replays=("r1-1",))
    dead = State("ab" * 16, {0: 1}, 1, "r1-1-dead", follows=Follows(main.mark, {"": 1}))
    assert not is_consistent(main, dead)
    followed = dead.follows._replace(replays={"r1-1": "r1-settle"})
    assert is_consistent(main, dead._replace(follows=followed))


@pytest.mark.parametrize(
    ("followed", "behind", "undone"),
    [
        ("abc", "abc", ""),
        ("abc", "ab", "c"),
        ("abc", "", "abc"),
        ("abc", "abd", "c"),
        ("a", "b", "a"),
        ("abc", "bcd", ""),
        ("", "ab", ""),
    ],
    ids=["same", "rollback", "of all", "branch", "other branch", "forgotten", "new"],
)
def test_replays_that_a_rollback_undid_are_told_from_those_that_were_forgotten(
    followed, behind, undone
):
    main = State("ab" * 16, {}, 1, "r1-1", replays=tuple(behind))
    follows = Follows("", {}, replays={one: one.upper() for one in followed})
    dead = State("ab" * 16, {}, 1, "r1-1-dead", follows=follows)
    assert undone_removals(main, dead) == list(undone.upper())
