"""The compare-and-set on a real SQLite catalog, with a fault at every step."""

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.expressions import EqualTo

from iceberg_export import commit, schema
from iceberg_export.catalog import open_catalog, view_of
from iceberg_export.commit import RecreatedError
from iceberg_export.errors import CatalogError, CommitUnknownError, FencedError, StateError
from iceberg_export.rows import ROW_SCHEMA
from iceberg_export.state import State, read_state
from iceberg_export.write_files import FileWriter, Target
from tests.iceberg_export.world import NO_PAUSE

IDENTIFIER = ("frazil", "orders")
# PyIceberg rewrites the files of a partitioned table only with its optional Rust core.
UNPARTITIONED = {"partition_spec": schema.partition_spec("none")}


@pytest.fixture
def catalog(tmp_path):
    found = open_catalog({}, tmp_path)
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
    return commit.initialise(catalog, IDENTIFIER, **{**arguments, **changes})


def write(catalog, first, end, name):
    table = catalog.load_table(IDENTIFIER)
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


def export(catalog, state, end, run_id, files=None):
    files = files or write(catalog, state.offsets.get(0, 0), end, run_id)
    new = moved(state, end, run_id)
    commit.commit(catalog, IDENTIFIER, files, expected=state, new=new, pause=NO_PAUSE)
    return new


def offsets_in(catalog):
    rows = catalog.load_table(IDENTIFIER).scan().to_arrow()
    return sorted(rows["kafka_offset"].to_pylist())


def state_in(catalog):
    return read_state(view_of(catalog.load_table(IDENTIFIER)))


def failing(monkeypatch, catalog, *outcomes):
    """The next calls of `commit_table`: an error before it takes effect, ("after", error), or
    a function to run before."""
    real = catalog.commit_table
    queue = list(outcomes)

    def commit_table(*arguments):
        outcome = queue.pop(0) if queue else None
        if isinstance(outcome, Exception):
            raise outcome
        if callable(outcome):
            monkeypatch.setattr(catalog, "commit_table", real)
            outcome()
            monkeypatch.setattr(catalog, "commit_table", commit_table)
        answer = real(*arguments)
        if isinstance(outcome, tuple):
            raise outcome[1]
        return answer

    monkeypatch.setattr(catalog, "commit_table", commit_table)


def test_a_new_table_gets_an_empty_first_snapshot(catalog):
    state = initialise(catalog)
    assert state == State("t1", {}, 0, "run-init")
    assert len(catalog.load_table(IDENTIFIER).metadata.snapshots) == 1
    assert state_in(catalog) == state


def test_initialising_twice_changes_nothing(catalog):
    first = initialise(catalog)
    assert initialise(catalog, run_id="other") == first
    assert len(catalog.load_table(IDENTIFIER).metadata.snapshots) == 1


def test_a_crash_between_table_and_first_snapshot_is_mended(catalog, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit_table", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            initialise(catalog)
    assert state_in(catalog) is None
    assert initialise(catalog, run_id="second").run_id == "second"


def test_two_that_initialise_at_once_end_with_one_state(catalog, monkeypatch):
    failing(monkeypatch, catalog, lambda: initialise(catalog, run_id="faster"))
    assert initialise(catalog, run_id="slower").run_id == "faster"


def test_files_state_and_property_arrive_together(catalog):
    state = export(catalog, initialise(catalog), 10, "run-1")
    assert offsets_in(catalog) == list(range(10))
    assert state_in(catalog) == state
    assert catalog.load_table(IDENTIFIER).metadata.properties["frazil.offsets"] == '{"0":10}'


def test_a_refused_commit_is_tried_again_on_the_new_head(catalog, monkeypatch):
    state = initialise(catalog)
    failing(monkeypatch, catalog, CommitFailedException("409"), CommitFailedException("409"))
    export(catalog, state, 10, "run-1")
    assert offsets_in(catalog) == list(range(10))


@pytest.mark.parametrize("error", [CommitStateUnknownException("504"), OSError("cut")])
def test_a_lost_answer_is_not_applied_twice(catalog, monkeypatch, error):
    state = initialise(catalog)
    failing(monkeypatch, catalog, ("after", error))
    export(catalog, state, 10, "run-1")
    assert offsets_in(catalog) == list(range(10))
    assert state_in(catalog).seq == 1


def test_an_unknown_failure_that_did_not_land_is_tried_again(catalog, monkeypatch):
    state = initialise(catalog)
    failing(monkeypatch, catalog, CommitStateUnknownException("504"))
    export(catalog, state, 10, "run-1")
    assert offsets_in(catalog) == list(range(10))


def test_a_lost_answer_is_no_fencing_when_another_exporter_follows_at_once(catalog, monkeypatch):
    state = initialise(catalog)
    real = commit._send

    def send(table, files, new, previous):
        real(table, files, new, previous)
        monkeypatch.setattr(commit, "_send", real)
        export(catalog, new, 20, "other")
        raise CommitStateUnknownException("504")

    monkeypatch.setattr(commit, "_send", send)
    export(catalog, state, 10, "run-1")
    assert offsets_in(catalog) == list(range(20))


def test_a_catalog_that_never_answers_leaves_the_outcome_open(catalog, monkeypatch):
    state = initialise(catalog)
    failing(monkeypatch, catalog, *[CommitStateUnknownException("504")] * commit.ATTEMPTS_MAX)
    with pytest.raises(CommitUnknownError, match="run again"):
        export(catalog, state, 10, "run-1")


def test_a_catalog_that_always_refuses_ends_with_an_error(catalog, monkeypatch):
    state = initialise(catalog)
    failing(monkeypatch, catalog, *[CommitFailedException("409")] * commit.ATTEMPTS_MAX)
    with pytest.raises(CatalogError, match="changed 10 times"):
        export(catalog, state, 10, "run-1")
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


def test_a_race_at_the_moment_of_the_commit_is_fenced(catalog, monkeypatch):
    state = initialise(catalog)
    mine = write(catalog, 0, 10, "slow")
    failing(monkeypatch, catalog, lambda: export(catalog, state, 12, "fast"))
    with pytest.raises(FencedError):
        export(catalog, state, 10, "slow", mine)
    assert offsets_in(catalog) == list(range(12))


def test_files_of_a_run_that_was_overtaken_twice_may_not_be_deleted(catalog):
    state = initialise(catalog)
    mine = write(catalog, 0, 10, "slow")
    export(catalog, export(catalog, state, 12, "fast"), 15, "faster")
    with pytest.raises(FencedError) as caught:
        export(catalog, state, 10, "slow", mine)
    assert not caught.value.files_unused


def test_a_foreign_delete_in_between_is_kept_and_the_export_lands_on_it(catalog, monkeypatch):
    state = export(catalog, initialise(catalog, **UNPARTITIONED), 10, "run-1")
    table = catalog.load_table(IDENTIFIER)
    failing(monkeypatch, catalog, lambda: table.delete(EqualTo("kafka_offset", 3)))
    export(catalog, state, 15, "run-2")
    assert offsets_in(catalog) == [o for o in range(15) if o != 3]


def test_a_rollback_rewinds_and_the_same_records_are_exported_again(catalog):
    state = export(catalog, initialise(catalog), 10, "run-1")
    before = catalog.load_table(IDENTIFIER).metadata.current_snapshot_id
    export(catalog, state, 20, "run-2")
    catalog.load_table(IDENTIFIER).manage_snapshots().rollback_to_snapshot(before).commit()
    rewound = state_in(catalog)
    assert rewound == state
    export(catalog, rewound, 20, "run-3")
    assert offsets_in(catalog) == list(range(20))


def test_expired_history_keeps_the_state(catalog):
    state = export(catalog, initialise(catalog, **UNPARTITIONED), 10, "run-1")
    table = catalog.load_table(IDENTIFIER)
    table.delete(EqualTo("kafka_offset", 3))
    table = catalog.load_table(IDENTIFIER)
    old = [s.snapshot_id for s in table.metadata.snapshots][:-1]
    table.maintenance.expire_snapshots().by_ids(old).commit()
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
    catalog.create_table(IDENTIFIER, schema.TABLE_SCHEMA)
    with pytest.raises(StateError, match="was not made by the exporter"):
        initialise(catalog)


def test_a_table_dropped_meanwhile_is_told(catalog):
    state = initialise(catalog)
    files = write(catalog, 0, 3, "run-1")
    catalog.drop_table(IDENTIFIER)
    with pytest.raises(CatalogError, match="was dropped"):
        export(catalog, state, 3, "run-1", files)
