"""The compare-and-set on a real SQLite catalog, with a fault at every step."""

import json

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual
from pyiceberg.table.update import AssertCreate, AssertRefSnapshotId, AssertTableUUID
from pyiceberg.transforms import HourTransform
from sqlalchemy import text

from iceberg_export.errors import (
    CatalogError,
    CommitUnknownError,
    FencedError,
    OvertakenError,
    StateError,
)
from iceberg_export.files.write import FileWriter, Target
from iceberg_export.records.rows import ROW_SCHEMA
from iceberg_export.steps import Step, no_hook
from iceberg_export.table import commit, schema
from iceberg_export.table.catalog import view_of
from iceberg_export.table.commit import FileChange, RecreatedError
from iceberg_export.table.state import State, read_state
from tests.iceberg_export.kit.hooks import Answers, Killed, Once
from tests.iceberg_export.kit.place import TABLE, memory_catalog
from tests.iceberg_export.kit.strangers import expire
from tests.iceberg_export.kit.world import NO_PAUSE

UNKNOWN = CommitStateUnknownException("504")
REFUSED = CommitFailedException("409")
# PyIceberg rewrites the files of a partitioned table only with its optional Rust core.
UNPARTITIONED = {"partition_spec": schema.partition_spec("none")}


@pytest.fixture
def catalog(tmp_path):
    found = memory_catalog(tmp_path)
    yield found
    found.engine.dispose()


def initialise(catalog, **changes):
    arguments = {
        "topic": "orders",
        "topic_id": "t1",
        "cluster_id": "c1",
        "partition_spec": schema.partition_spec("day"),
        "run_id": "run-init",
        "pause": NO_PAUSE,
    }
    return commit.initialise(catalog, TABLE, **{**arguments, **changes})


def write(catalog, first, end, name):
    table = catalog.load_table(TABLE)
    setup = Target(table.metadata.model_dump_json(), dict(table.io.properties), 1 << 30)
    writer = FileWriter(setup, name)
    rows = [
        {
            "kafka_partition": 0,
            "kafka_offset": offset,
            "kafka_timestamp": 1_700_000_000_000_000,
            "kafka_timestamp_type": 0,
            "kafka_key": b"k",
            "kafka_headers": [],
            "kafka_timestamp_raw": None,
            "value": b"v",
        }
        for offset in range(first, end)
    ]
    writer.write(pa.Table.from_pylist(rows, schema=ROW_SCHEMA))
    return writer.close()


def moved(state, end, run_id):
    return State(state.topic_id, {0: end}, state.seq + 1, run_id)


def export(catalog, state, end, run_id, files=None, hook=no_hook):
    files = files or write(catalog, state.offsets.get(0, 0), end, run_id)
    new = moved(state, end, run_id)
    commit.commit(catalog, TABLE, files, expected=state, new=new, pause=NO_PAUSE, hook=hook)
    return new


def offsets_in(catalog):
    rows = catalog.load_table(TABLE).scan().to_arrow()
    return sorted(rows["kafka_offset"].to_pylist())


def state_in(catalog):
    return read_state(view_of(catalog.load_table(TABLE)))


def roll_back(catalog, snapshot_id):
    catalog.load_table(TABLE).manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def expire_all_but_head(catalog):
    expire(catalog.load_table(TABLE))


def test_a_new_table_gets_an_empty_first_snapshot(catalog):
    state = initialise(catalog)
    assert state == State("t1", {}, 0, "run-init")
    assert len(catalog.load_table(TABLE).metadata.snapshots) == 1
    assert state_in(catalog) == state


def test_initialising_twice_changes_nothing(catalog):
    first = initialise(catalog)
    assert initialise(catalog, run_id="other") == first
    assert len(catalog.load_table(TABLE).metadata.snapshots) == 1


INIT_STEPS = (Step.INIT_LOADED, Step.INIT_WRITTEN, Step.INIT_ANSWERED)


@pytest.mark.parametrize("step", INIT_STEPS)
def test_a_crash_while_initialising_is_mended_by_the_next_run(catalog, step):
    with pytest.raises(Killed):
        initialise(catalog, hook=Once(step, Killed()))
    survived = "run-init" if step is Step.INIT_ANSWERED else "second"
    assert initialise(catalog, run_id="second").run_id == survived


@pytest.mark.parametrize("step", INIT_STEPS)
def test_two_that_initialise_at_once_end_with_one_state(catalog, step):
    hook = Once(step, lambda: initialise(catalog, run_id="other"))
    winner = "slow" if step is Step.INIT_ANSWERED else "other"
    initialise(catalog, run_id="slow", hook=hook)
    assert hook.happened
    assert state_in(catalog) == State("t1", {}, 0, winner)
    assert len(catalog.load_table(TABLE).metadata.snapshots) == 1


@pytest.mark.parametrize("step", [Step.INIT_WRITTEN, Step.INIT_ANSWERED])
def test_a_lost_answer_to_the_first_snapshot_makes_no_second_one(catalog, step):
    initialise(catalog, hook=Once(step, UNKNOWN))
    assert len(catalog.load_table(TABLE).metadata.snapshots) == 1


def test_files_state_and_property_arrive_together(catalog):
    hook = Answers(lambda: initialise(catalog, run_id="faster"))
    state = export(catalog, initialise(catalog), 10, "run-1", hook=hook)
    assert offsets_in(catalog) == list(range(10))
    assert state_in(catalog) == state
    assert catalog.load_table(TABLE).metadata.properties["frazil.offsets"] == '{"0":10}'


def test_every_commit_demands_the_head_that_was_looked_at(catalog, monkeypatch):
    """Some catalogs would merge it into any head: a race on SQLite alone does not show that."""
    demanded = []
    real = catalog.commit_table

    def commit_table(table, requirements, updates):
        demanded.append([one for one in requirements if not isinstance(one, AssertTableUUID)])
        return real(table, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    state = initialise(catalog)
    first = head_of(catalog)
    export(catalog, state, 10, "run-1")
    head = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": first})
    assert demanded == [[AssertCreate()], [head]]


@pytest.mark.parametrize(
    "answers",
    [[("after", UNKNOWN)], [("after", OSError("cut"))], [UNKNOWN], [REFUSED, REFUSED]],
    ids=["the answer is lost", "the connection is cut", "nothing landed", "refused twice"],
)
def test_a_commit_that_is_not_answered_well_at_first_lands_once(catalog, answers):
    export(catalog, initialise(catalog), 10, "run-1", hook=Answers(*answers))
    assert offsets_in(catalog) == list(range(10))
    assert state_in(catalog).seq == 1


def test_a_lost_answer_is_no_fencing_when_another_exporter_follows_at_once(catalog):
    state = initialise(catalog)

    def other_follows():
        export(catalog, moved(state, 10, "run-1"), 20, "other")
        raise UNKNOWN

    export(catalog, state, 10, "run-1", hook=Once(Step.COMMIT_ANSWERED, other_follows))
    assert offsets_in(catalog) == list(range(20))


def test_a_catalog_that_never_answers_leaves_the_outcome_open(catalog):
    state = initialise(catalog)
    hook = Answers(*[UNKNOWN] * commit.ATTEMPTS_MAX)
    with pytest.raises(CommitUnknownError, match="run again"):
        export(catalog, state, 10, "run-1", hook=hook)


def test_a_catalog_that_always_refuses_ends_with_an_error(catalog):
    state = initialise(catalog)
    hook = Answers(*[REFUSED] * commit.ATTEMPTS_MAX)
    with pytest.raises(CatalogError, match="changed 10 times"):
        export(catalog, state, 10, "run-1", hook=hook)
    assert offsets_in(catalog) == []


@pytest.mark.parametrize("exported_before", [False, True])
def test_a_second_exporter_is_fenced(catalog, exported_before):
    state = initialise(catalog)
    if exported_before:
        state = export(catalog, state, 5, "run-0")
    mine = write(catalog, state.offsets.get(0, 0), 10, "slow")
    export(catalog, state, 12, "fast")
    with pytest.raises(FencedError) as caught:
        export(catalog, state, 10, "slow", mine)
    assert caught.value.files_unused
    assert offsets_in(catalog) == list(range(12))


def test_a_race_at_the_moment_of_the_commit_is_fenced(catalog):
    state = initialise(catalog)
    mine = write(catalog, 0, 10, "slow")
    race = Answers(lambda: export(catalog, state, 12, "fast"))
    with pytest.raises(FencedError):
        export(catalog, state, 10, "slow", mine, hook=race)
    assert offsets_in(catalog) == list(range(12))


def test_files_of_a_run_that_was_overtaken_twice_may_not_be_deleted(catalog):
    state = initialise(catalog)
    mine = write(catalog, 0, 10, "slow")
    export(catalog, export(catalog, state, 12, "fast"), 15, "faster")
    with pytest.raises(FencedError) as caught:
        export(catalog, state, 10, "slow", mine)
    assert not caught.value.files_unused


def test_files_whose_fate_the_catalog_never_told_are_not_deleted_when_fenced(catalog):
    """The attempt without an answer may still be under way, and a rollback would let it in."""
    state = initialise(catalog)
    mine = write(catalog, 0, 10, "slow")

    def overtaken():
        export(catalog, state, 12, "fast")
        raise UNKNOWN

    with pytest.raises(FencedError) as caught:
        export(catalog, state, 10, "slow", mine, hook=Answers(overtaken))
    assert not caught.value.files_unused


def test_a_commit_whose_snapshot_expired_before_its_answer_came_is_in(catalog):
    state = initialise(catalog, **UNPARTITIONED)

    def others():
        catalog.load_table(TABLE).delete(EqualTo("kafka_offset", 3))
        expire_all_but_head(catalog)
        raise UNKNOWN

    export(catalog, state, 10, "run-1", hook=Once(Step.COMMIT_ANSWERED, others))
    assert offsets_in(catalog) == [o for o in range(10) if o != 3]


def test_a_foreign_append_in_between_stays_and_the_export_lands_on_it(catalog):
    state = export(catalog, initialise(catalog), 10, "run-1")

    def foreign():
        table = catalog.load_table(TABLE)
        with table.transaction() as transaction, transaction._append_snapshot_producer({}) as add:
            for file in write(catalog, 100, 102, "foreign"):
                add.append_data_file(file)

    export(catalog, state, 15, "run-2", hook=Answers(foreign))
    assert offsets_in(catalog) == [*range(15), 100, 101]
    assert state_in(catalog).seq == 2


def partition_anew(catalog):
    """As another engine does: by hour and not by day, as many fields of the same type."""
    table = catalog.load_table(TABLE)
    with table.update_spec() as update:
        update.remove_field(table.spec().fields[0].name)
        update.add_field("kafka_timestamp", HourTransform(), "hour")


def offsets_found(catalog):
    """Of those who filter by time."""
    day = GreaterThanOrEqual("kafka_timestamp", "2023-11-14T00:00:00+00:00")
    rows = catalog.load_table(TABLE).scan(row_filter=day).to_arrow()
    return sorted(rows["kafka_offset"].to_pylist())


def test_files_of_another_partition_spec_than_the_table_has_by_now_are_refused(catalog):
    """In a manifest of the new spec their days would be read as hours, and no reader would find them."""
    state = export(catalog, initialise(catalog), 10, "run-1")
    files = write(catalog, 10, 15, "run-2")
    partition_anew(catalog)
    with pytest.raises(OvertakenError, match="was partitioned anew by others"):
        export(catalog, state, 15, "run-2", files)
    assert state_in(catalog) == state
    export(catalog, state, 15, "run-3")
    assert offsets_found(catalog) == list(range(15))


def test_files_of_an_older_partition_spec_may_be_in_when_the_catalog_did_not_answer(catalog):
    """The change of the spec is no change of the head that an attempt under way demands."""
    state = export(catalog, initialise(catalog), 10, "run-1")

    def others():
        partition_anew(catalog)
        raise UNKNOWN

    with pytest.raises(CommitUnknownError, match="nothing is lost or doubled"):
        export(catalog, state, 15, "run-2", hook=Once(Step.COMMIT_WRITTEN, others))
    assert state_in(catalog) == state


def upgrade(catalog):
    """To format version 3, as another engine does, which PyIceberg reads and does not write."""
    table = catalog.load_table(TABLE)
    with table.io.new_input(table.metadata_location).open() as source:
        metadata = json.loads(source.read())
    metadata |= {"format-version": 3, "next-row-id": 0}
    location = table.metadata_location.replace(".metadata", "-3.metadata")
    with table.io.new_output(location).create() as sink:
        sink.write(json.dumps(metadata).encode())
    with catalog.engine.begin() as connection:
        statement = text("update iceberg_tables set metadata_location = :location")
        connection.execute(statement, {"location": location})


def test_a_table_that_others_have_upgraded_is_told_before_anything_is_written(catalog):
    state = export(catalog, initialise(catalog), 10, "run-1")
    files = write(catalog, 10, 15, "run-2")
    upgrade(catalog)
    with pytest.raises(StateError, match="upgraded to format version 3"):
        initialise(catalog)
    with pytest.raises(StateError, match="upgraded to format version 3"):
        export(catalog, state, 15, "run-2", files)


def spoil(catalog):
    """A property that anybody may set, and PyIceberg does not read."""
    with catalog.load_table(TABLE).transaction() as transaction:
        transaction.set_properties({"write.summary.partition-limit": "few"})


def test_a_table_for_which_no_commit_can_be_made_is_told(catalog):
    state = export(catalog, initialise(catalog), 10, "run-1")
    spoil(catalog)
    with pytest.raises(CatalogError, match="cannot make a commit for the table as it is"):
        export(catalog, state, 15, "run-2")
    assert state_in(catalog) == state


def test_a_commit_that_is_not_answered_may_be_in_though_no_other_can_be_made(catalog):
    state = export(catalog, initialise(catalog), 10, "run-1")

    def others():
        spoil(catalog)
        raise UNKNOWN

    with pytest.raises(CommitUnknownError, match="nothing is lost or doubled"):
        export(catalog, state, 15, "run-2", hook=Once(Step.COMMIT_WRITTEN, others))


def test_a_foreign_expiry_in_between_is_no_matter(catalog):
    state = export(catalog, initialise(catalog), 10, "run-1")
    export(catalog, state, 15, "run-2", hook=Answers(lambda: expire_all_but_head(catalog)))
    assert offsets_in(catalog) == list(range(15))


def test_a_rollback_under_the_commit_fences_it(catalog):
    empty = initialise(catalog)
    before = head_of(catalog)
    state = export(catalog, empty, 10, "run-1")
    with pytest.raises(FencedError):
        export(catalog, state, 15, "run-2", hook=Answers(lambda: roll_back(catalog, before)))
    assert offsets_in(catalog) == []
    assert state_in(catalog) == empty._replace(line="run-1>run-init")


def test_a_commit_that_waited_through_a_rollback_to_its_own_base_is_refused(catalog):
    """A zombie: its state is the table's again, but what others did since may have left dead
    letters of its records."""
    empty = initialise(catalog)
    before = head_of(catalog)

    def there_and_back():
        export(catalog, empty, 12, "fast")
        roll_back(catalog, before)

    with pytest.raises(FencedError) as fenced:
        export(catalog, empty, 10, "slow", hook=Answers(there_and_back))
    assert not fenced.value.files_unused
    export(catalog, state_in(catalog), 10, "next")
    assert offsets_in(catalog) == list(range(10))


def files_in(catalog):
    return [task.file for task in catalog.load_table(TABLE).scan().plan_files()]


def head_of(catalog):
    return catalog.load_table(TABLE).metadata.current_snapshot_id


def two_small_files(catalog):
    """A table of two files; (state, a rewrite of both into one)."""
    state = export(catalog, initialise(catalog, **UNPARTITIONED), 5, "run-1")
    state = export(catalog, state, 10, "run-2")
    removed = files_in(catalog)
    assert len(removed) == 2
    return state, FileChange(write(catalog, 0, 10, "compact"), removed, head_of(catalog))


def replace_files(catalog, change, hook=no_hook):
    commit.replace_files(catalog, TABLE, change, rewrite_id="w1", pause=NO_PAUSE, hook=hook)


def test_a_rewrite_changes_files_and_neither_rows_nor_state(catalog):
    state, change = two_small_files(catalog)
    replace_files(catalog, change)
    assert [file.file_path for file in files_in(catalog)] == [change.added[0].file_path]
    assert offsets_in(catalog) == list(range(10))
    assert state_in(catalog) == state
    head = catalog.load_table(TABLE).current_snapshot()
    assert head.summary.additional_properties["frazil.offsets"] == '{"0":10}'


def test_a_rewrite_lands_behind_exports_that_came_in_between(catalog):
    state, change = two_small_files(catalog)
    replace_files(catalog, change, hook=Answers(lambda: export(catalog, state, 15, "run-3")))
    assert offsets_in(catalog) == list(range(15))
    assert state_in(catalog).seq == 3


def test_an_export_lands_behind_a_rewrite_that_came_in_between(catalog):
    state, change = two_small_files(catalog)
    export(catalog, state, 15, "run-3", hook=Answers(lambda: replace_files(catalog, change)))
    assert offsets_in(catalog) == list(range(15))
    assert len(files_in(catalog)) == 2


def test_a_rewrite_never_undoes_a_delete_that_came_in_between(catalog):
    _, change = two_small_files(catalog)
    table = catalog.load_table(TABLE)
    delete = Answers(lambda: table.delete(EqualTo("kafka_offset", 3)))
    with pytest.raises(OvertakenError, match="run again"):
        replace_files(catalog, change, hook=delete)
    assert offsets_in(catalog) == [o for o in range(10) if o != 3]


def test_a_rewrite_of_what_was_rolled_back_is_refused(catalog):
    _, change = two_small_files(catalog)
    first = catalog.load_table(TABLE).metadata.snapshots[1].snapshot_id
    with pytest.raises(OvertakenError):
        replace_files(catalog, change, hook=Answers(lambda: roll_back(catalog, first)))
    assert offsets_in(catalog) == list(range(5))


def test_a_lost_answer_to_a_rewrite_is_not_applied_twice(catalog):
    _, change = two_small_files(catalog)
    replace_files(catalog, change, hook=Answers(("after", UNKNOWN)))
    assert offsets_in(catalog) == list(range(10))
    assert len(catalog.load_table(TABLE).metadata.snapshots) == 4


def test_a_commit_may_take_files_out_and_move_the_state_at_once(catalog):
    state, change = two_small_files(catalog)
    new = moved(state, 12, "run-3")
    added = [*change.added, *write(catalog, 10, 12, "run-3")]
    commit.commit(
        catalog, TABLE, added, expected=state, new=new, pause=NO_PAUSE,
        removed=change.removed, base_id=change.base_id, notes={"frazil.note": "kept"},
    )  # fmt: skip
    assert offsets_in(catalog) == list(range(12))
    assert state_in(catalog) == new
    head = catalog.load_table(TABLE).current_snapshot()
    assert head.summary.additional_properties["frazil.note"] == "kept"


def test_the_state_is_moved_only_on_the_head_that_was_seen(catalog):
    state = export(catalog, initialise(catalog), 10, "run-1")
    seen = view_of(catalog.load_table(TABLE))
    reset = moved(state, 4, "reset")
    race = Answers(lambda: export(catalog, state, 12, "run-2"))
    with pytest.raises(OvertakenError):
        commit.set_state(
            catalog, TABLE, FileChange(), seen=seen, new=reset, pause=NO_PAUSE, hook=race
        )
    assert state_in(catalog).offsets == {0: 12}


def test_a_foreign_delete_in_between_is_kept_and_the_export_lands_on_it(catalog):
    state = export(catalog, initialise(catalog, **UNPARTITIONED), 10, "run-1")
    table = catalog.load_table(TABLE)
    delete = Answers(lambda: table.delete(EqualTo("kafka_offset", 3)))
    export(catalog, state, 15, "run-2", hook=delete)
    assert offsets_in(catalog) == [o for o in range(15) if o != 3]


def test_a_rollback_rewinds_and_the_same_records_are_exported_again(catalog):
    state = export(catalog, initialise(catalog), 10, "run-1")
    before = head_of(catalog)
    export(catalog, state, 20, "run-2")
    roll_back(catalog, before)
    rewound = state_in(catalog)
    assert rewound == state._replace(line="run-2>run-1")
    export(catalog, rewound, 20, "run-3")
    assert offsets_in(catalog) == list(range(20))


def test_expired_history_keeps_the_state(catalog):
    state = export(catalog, initialise(catalog, **UNPARTITIONED), 10, "run-1")
    table = catalog.load_table(TABLE)
    table.delete(EqualTo("kafka_offset", 3))
    expire_all_but_head(catalog)
    assert state_in(catalog) == state


def test_a_table_of_another_topic_is_refused(catalog):
    initialise(catalog)
    with pytest.raises(StateError, match="belongs to topic orders"):
        initialise(catalog, topic="orders2", topic_id="t2")


def test_a_re_created_topic_is_refused(catalog):
    initialise(catalog)
    with pytest.raises(RecreatedError, match="deleted and created again"):
        initialise(catalog, topic_id="t2")


def test_a_table_made_from_another_cluster_is_refused_though_topic_ids_agree(catalog):
    initialise(catalog)
    with pytest.raises(StateError, match="made from cluster c1, the agent belongs to c2"):
        initialise(catalog, cluster_id="c2")


def test_a_table_that_the_exporter_did_not_make_is_refused(catalog):
    catalog.create_namespace("frazil")
    catalog.create_table(TABLE, schema.TABLE_SCHEMA)
    with pytest.raises(StateError, match="was not made by the exporter"):
        initialise(catalog)


def table_without_snapshot(catalog):
    catalog.create_namespace("frazil")
    owner = {"frazil.topic": "orders", "frazil.topic-id": "t1", "frazil.cluster-id": "c1"}
    return catalog.create_table(TABLE, schema.TABLE_SCHEMA, properties=owner)


def test_records_never_go_into_a_table_without_any_snapshot(catalog):
    """Nessie 0.99 does not refuse a second first snapshot: so the first one is always empty."""
    table_without_snapshot(catalog)
    with pytest.raises(StateError, match="was replaced"):
        export(catalog, State("t1", {}, 0, "run-init"), 5, "run-1")
    assert catalog.load_table(TABLE).metadata.snapshots == []


def test_a_table_without_any_snapshot_gets_one_before_all_else(catalog):
    table_without_snapshot(catalog)
    state = initialise(catalog)
    assert state_in(catalog) == state == State("t1", {}, 0, "run-init")
    export(catalog, state, 5, "run-1")
    assert offsets_in(catalog) == list(range(5))


def test_a_table_dropped_meanwhile_is_told(catalog):
    state = initialise(catalog)
    files = write(catalog, 0, 3, "run-1")
    catalog.drop_table(TABLE)
    with pytest.raises(CatalogError, match="was dropped"):
        export(catalog, state, 3, "run-1", files)
