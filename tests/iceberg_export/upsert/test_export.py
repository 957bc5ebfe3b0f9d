"""Mode upsert from chunks to a table that DuckDB reads: the newest record of each key."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_export.errors import FencedError, StateError
from iceberg_export.steps import Step
from iceberg_export.table import commit
from iceberg_export.table.settings_kept import MODE
from iceberg_export.upsert import buckets
from iceberg_export.upsert.newest_records import newest_rows
from iceberg_export.verify import upsert
from protocol.records import Record
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import NOW_MS, TABLE
from tests.iceberg_export.kit.world import NO_PAUSE


@pytest.fixture
def here(here):
    here.configure(mode="upsert", partition_by="bucket(4, kafka_key)")
    return here


def rows(here):
    """(partition, offset, key, value) of every row."""
    return here.columns("kafka_partition", "kafka_offset", "kafka_key", "value")


def record(key, value, timestamp=NOW_MS):
    return Record(timestamp=timestamp, key=key, value=value)


def some(numbers, value=b"v"):
    return [record(b"key-%d" % number, value) for number in numbers]


def test_a_table_holds_the_newest_record_of_each_key(here):
    here.world.commit(
        "orders", {0: [some(range(20)), some(range(5), b"w")], 1: [some(range(50, 60))]}
    )
    assert here.export().rows == 35
    assert rows(here) == here.wanted_newest()
    here.world.commit("orders", {0: [some([3, 7], b"x"), some([4, 8], None)], 1: [some([99])]})
    here.export()
    assert rows(here) == here.wanted_newest()
    assert (0, 25, b"key-3", b"x") in rows(here)
    assert b"key-4" not in [row[2] for row in rows(here)]


def test_a_key_that_was_deleted_and_comes_back_has_a_row_again(here):
    here.world.commit("orders", {0: [some([1]), some([1], None)]})
    here.export()
    assert rows(here) == []
    here.world.commit("orders", {0: [some([1], b"again")]})
    here.export()
    assert rows(here) == [(0, 2, b"key-1", b"again")]


def test_many_commits_and_many_splits_make_the_same_table(here):
    for step in range(4):
        here.world.commit(
            "orders", {0: [some(range(step, 30, 3), b"%d" % step)], 1: [some([77 + step])]}
        )
    assert here.export("commit.bytes.max=1", "split.bytes.max=1").commits > 2
    assert rows(here) == here.wanted_newest()


def test_independent_readers_see_the_same_rows(here):
    here.world.commit("orders", {0: [some(range(9)), some(range(3), b"w")]})
    here.export()
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT kafka_partition, kafka_offset, kafka_key, value "
            "FROM read_parquet($1) ORDER BY ALL",
            [[str(one) for one in here.live_files()]],
        ).fetchall()
    assert found == here.wanted_newest()


def test_only_buckets_with_new_records_are_written_anew(here):
    here.world.commit("orders", {0: [some(range(40))]})
    here.export()
    before = here.live_files()
    here.world.commit("orders", {0: [some([3], b"x")]})
    here.export()
    after = here.live_files()
    assert len(before) == 4
    assert len(before & after) == 3
    assert rows(here) == here.wanted_newest()


def test_deletions_of_what_is_not_there_leave_all_files_as_they_are(here):
    here.world.commit("orders", {0: [some(range(9))]})
    here.export()
    before = here.live_files()
    here.world.commit("orders", {0: [some([500], None)]})
    assert here.export().commits == 1
    after = here.live_files()
    assert before == after


def test_records_without_keys_are_dead_letters(here):
    here.world.commit(
        "orders", {0: [[record(None, b"lost"), record(b"", b"empty"), record(b"a", b"1")]]}
    )
    assert here.export().dead == 1
    assert rows(here) == [(0, 1, b"", b"empty"), (0, 2, b"a", b"1")]
    assert here.dead("kafka_offset", "error_code", "value") == [(0, "NO_KEY", b"lost")]


def test_keys_and_values_that_are_text_are_columns_of_text(here):
    here.world.configs["orders"] |= {"key.mode": "string", "value.mode": "string"}
    here.world.commit("orders", {0: [[record("ä".encode(), b"1"), record(b"b", b"\xff")]]})
    assert here.export().dead == 1
    assert rows(here) == [(0, 0, "ä", "1")]
    here.world.commit("orders", {0: [[record("ä".encode(), b"2"), record(b"b", b"3")]]})
    here.export()
    assert rows(here) == [(0, 2, "ä", "2"), (0, 3, "b", "3")]


def test_a_key_that_moved_to_another_partition_has_one_row(here):
    here.world.commit("orders", {0: [[record(b"a", b"old", NOW_MS - 10)]]})
    here.export()
    here.world.commit("orders", {1: [[record(b"a", b"new", NOW_MS)]]})
    here.export()
    assert rows(here) == [(1, 0, b"a", b"new")]


def test_a_crash_between_any_two_steps_leaves_a_table_that_the_next_run_completes(here):
    here.world.commit("orders", {0: [some(range(9)), [record(None, b"lost")]]})
    here.export()
    for count, step in enumerate((Step.TASKS_DONE, Step.COMMIT_WRITTEN, Step.COMMIT_ANSWERED)):
        here.world.commit("orders", {0: [some([count, 100 + count], b"%d" % count)]})
        with pytest.raises(Killed):
            here.export(hook=Once(step, Killed()))
        here.export()
        assert rows(here) == here.wanted_newest()


def take_out_a_file(here):
    """Somebody's commit; the file."""
    table = here.table()
    file = next(iter(table.scan().plan_files())).file
    change = commit.FileChange((), [file], here.head())
    commit.replace_files(here.catalog, TABLE, change, rewrite_id="theirs", pause=NO_PAUSE)
    return file


def test_a_delete_by_others_under_the_merge_stays_deleted(here):
    here.world.commit("orders", {0: [some(range(40))]})
    here.export()
    here.world.commit("orders", {0: [some(range(100, 140))]})
    gone = []

    def delete():
        path = take_out_a_file(here).file_path.removeprefix("file://")
        gone.extend(pq.read_table(path).column("kafka_offset").to_pylist())

    here.export(hook=Once(Step.COMMIT_WRITTEN, delete))
    assert gone
    assert rows(here) == [row for row in here.wanted_newest() if row[1] not in gone]


def test_two_exporters_at_once_leave_one_rows_and_fence_the_other(here):
    here.world.commit("orders", {0: [some(range(9))]})
    here.export()
    here.world.commit("orders", {0: [some([3, 100], b"x")]})
    with pytest.raises(FencedError):
        here.export(hook=Once(Step.CHECKED, here.export))
    assert rows(here) == here.wanted_newest()


OTHER_MODE = {"append": "upsert", "upsert": "append"}


@pytest.mark.parametrize("mode", OTHER_MODE)
def test_a_table_with_records_keeps_its_mode_though_its_partitions_would_do_for_the_other(
    here, mode
):
    """A key that was deleted would have a row in the one, records before the newest none in the other."""
    here.configure(mode=mode, partition_by="bucket(4, kafka_key)")
    here.world.commit("orders", {0: [some(range(9)), some([3], None)]})
    here.export()
    found = rows(here)
    here.configure(mode=OTHER_MODE[mode], partition_by="bucket(4, kafka_key)")
    here.world.commit("orders", {0: [some([3, 4])]})
    with pytest.raises(StateError, match=f"records that were exported with {mode}"):
        here.export()
    assert rows(here) == found


@pytest.mark.parametrize("mode", OTHER_MODE)
def test_a_table_may_get_another_mode_when_all_its_records_are_to_come_again(here, mode):
    here.configure(mode=mode, partition_by="bucket(4, kafka_key)")
    here.world.commit("orders", {0: [some(range(9)), some([3], None)]})
    here.export()
    here.configure(mode=OTHER_MODE[mode], partition_by="bucket(4, kafka_key)")
    here.log().log_start = 1
    here.reset(None)
    here.export()
    assert here.verify().problems == ()


def test_a_table_without_records_follows_the_mode(here):
    here.configure(mode="append", partition_by="bucket(4, kafka_key)")
    here.export()
    here.configure(mode="upsert", partition_by="bucket(4, kafka_key)")
    here.world.commit("orders", {0: [some(range(9)), some([3], None)]})
    here.export()
    assert rows(here) == here.wanted_newest()


def test_a_table_that_does_not_tell_its_mode_is_upserted_if_its_partitions_do(here):
    """Of a release before the property."""
    here.world.commit("orders", {0: [some(range(9))]})
    here.export()
    with here.table().transaction() as transaction:
        transaction.remove_properties(MODE)
    here.world.commit("orders", {0: [some([3], None)]})
    here.export()
    assert rows(here) == here.wanted_newest()


def test_a_table_that_was_made_for_appends_is_not_upserted(here):
    here.world.configs["orders"] = {}
    here.world.commit("orders", {0: [some(range(9))]})
    here.export()
    with here.table().transaction() as transaction:
        transaction.remove_properties(MODE)
    here.world.configs["orders"] = {"mode": "upsert"}
    here.world.commit("orders", {0: [some([3])]})
    with pytest.raises(StateError, match="partitioned by bucket"):
        here.export()


def test_a_new_table_has_sixteen_buckets_unless_the_topic_says_otherwise(here):
    here.world.configs["orders"] = {"mode": "upsert"}
    here.export()
    (field,) = here.table().spec().fields
    assert str(field.transform) == "bucket[16]"


def test_records_that_do_not_fit_into_memory_at_once_are_reduced_on_the_way(here, monkeypatch):
    monkeypatch.setattr(buckets, "GATHERED_BYTES_MAX", 1)
    for step in range(3):
        here.world.commit("orders", {0: [some(range(9), b"%d" % step)]})
    here.export()
    assert rows(here) == here.wanted_newest()


def test_keys_that_do_not_fit_into_memory_at_once_lie_in_several_files(here, monkeypatch):
    monkeypatch.setattr(buckets, "GATHERED_BYTES_MAX", 1)
    files = []
    close = buckets.ShuffleWriter.close
    monkeypatch.setattr(
        buckets.ShuffleWriter, "close", lambda self: files.append(close(self)) or files[-1]
    )
    for step in range(3):
        here.world.commit("orders", {0: [some(range(3 * step, 3 * step + 3))]})
    here.export()
    assert [[file.taken for file in one] for one in files] == [[3, 3, 3]]
    assert len({file.path for file in files[0]}) == 3
    assert rows(here) == here.wanted_newest()
    assert not list(here.folder.rglob("shuffle/*.parquet"))


def test_what_tasks_left_for_each_other_is_deleted_after_the_commit(here):
    here.world.commit("orders", {0: [some(range(9))]})
    here.export()
    assert not list(here.folder.rglob("shuffle/*.parquet"))


def test_verify_finds_every_row_to_be_the_newest_of_its_key(here):
    here.world.commit("orders", {0: [some(range(20)), some(range(5), b"w"), some([7], None)]})
    here.export()
    verdict = here.verify()
    assert (verdict.records, verdict.problems, verdict.older) == (19, (), 0)
    assert not list(here.folder.rglob("shuffle/*.parquet"))


def test_verify_finds_rows_that_are_gone(here):
    here.world.commit("orders", {0: [some(range(20))]})
    here.export()
    file = take_out_a_file(here)
    (problem,) = here.verify().problems
    assert problem.startswith(f"{file.record_count} keys have no row")


def test_verify_finds_rows_that_are_not_the_newest_any_more(here, monkeypatch):
    here.world.commit("orders", {0: [some(range(20))]})
    here.export()
    here.world.commit("orders", {0: [some([3], b"new"), some([4], None)]})
    # A merge that believes the older record.
    monkeypatch.setattr(buckets, "newest_rows", lambda rows: np.arange(rows.num_rows - 2))
    here.export()
    assert set(here.verify().problems) == {
        "1 keys have no row, or not that of their newest record",
        "2 rows are not the newest records of their keys",
    }


def test_verify_finds_rows_that_are_there_twice_and_rows_that_were_changed(here, monkeypatch):
    here.world.commit("orders", {0: [some(range(20))]})
    here.export()
    here.world.commit("orders", {0: [some([3])]})
    monkeypatch.setattr(
        buckets, "newest_rows", lambda rows: np.array([0, *newest_rows(rows)], dtype=np.int64)
    )
    here.export()
    assert any("have another row" in problem for problem in here.verify().problems)


def test_verify_counts_what_only_the_table_still_has(here):
    here.world.commit("orders", {0: [some(range(5))]})
    here.world.commit("orders", {0: [some(range(3, 9), b"w")]})
    here.export()
    log = here.log(0)
    log.log_start = log.spans[0][4]
    del log.spans[0]
    verdict = here.verify()
    assert (verdict.records, verdict.older, verdict.problems) == (6, 3, ())


def test_verify_leaves_keys_of_several_partitions_out(here):
    here.world.commit("orders", {0: [some(range(5))], 1: [some([3], b"w")]})
    here.export()
    verdict = here.verify()
    assert (verdict.records, verdict.skipped, verdict.problems) == (4, 1, ())


def test_verify_compares_what_rows_hold(here, monkeypatch):
    here.world.commit("orders", {0: [some(range(9))]})
    here.export()
    real = upsert.rows_before

    def changed(*parts):
        rows = real(*parts)
        values = pa.array([b"other"] * rows.num_rows, rows.schema.field("value").type)
        return rows.set_column(rows.schema.get_field_index("value"), "value", values)

    monkeypatch.setattr(upsert, "rows_before", changed)
    (problem,) = here.verify().problems
    assert problem.startswith("9 rows lie among blocks of offsets whose contents differ")


def test_tables_of_text_are_verified_too(here):
    here.world.configs["orders"] |= {"key.mode": "string", "value.mode": "string"}
    here.world.commit(
        "orders", {0: [[record(b"a", b"1"), record(b"b", b"\xff"), record(b"a", b"2")]]}
    )
    here.export()
    assert (here.verify().records, here.verify().problems) == (1, ())
