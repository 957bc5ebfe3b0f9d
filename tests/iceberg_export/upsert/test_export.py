"""Mode upsert from chunks to a table that DuckDB reads: the newest record of each key."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_export.errors import FencedError, StateError
from iceberg_export.runs.job import export_topic
from iceberg_export.steps import Step
from iceberg_export.table import commit
from iceberg_export.table.catalog import find_table
from iceberg_export.upsert import buckets
from iceberg_export.upsert.newest_records import newest_rows
from iceberg_export.verify import upsert
from iceberg_export.verify.upsert import verify_upsert
from protocol.records import Record
from tests.iceberg_export.world import NO_PAUSE, World, make_job, served

NOW_MS = 1_780_000_000_000


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("users", 2)
    found.configs["users"] = {"mode": "upsert", "partition.by": "bucket(4, kafka_key)"}
    return found


@pytest.fixture
def jobs(world, tmp_path):
    """Makes jobs over the world; each its own run, all on one warehouse."""
    made = []
    with served(world) as address:

        def make(*sets, **more):
            run_id = f"r{len(made)}"
            job = make_job(world, address, tmp_path / "data", run_id=run_id, sets=sets)
            made.append(job._replace(clock_ms=lambda: NOW_MS, **more))
            return made[-1]

        yield make
    for job in made:
        job.catalog.engine.dispose()


def record(key, value, timestamp=NOW_MS):
    return Record(timestamp=timestamp, key=key, value=value)


def export(job):
    (topic,) = job.client.topics().topics
    return export_topic(job, topic)


def rows(job, name="users"):
    """(partition, offset, key, value) of every row, by PyIceberg."""
    table = find_table(job.catalog, ("frazil", name)).scan().to_arrow()
    columns = ("kafka_partition", "kafka_offset", "kafka_key", "value")
    return sorted(zip(*(table.column(one).to_pylist() for one in columns), strict=True))


def paths(job):
    """Of all data files."""
    tasks = find_table(job.catalog, ("frazil", "users")).scan().plan_files()
    return {one.file.file_path for one in tasks}


def wanted(world):
    """Of topics whose keys stay in their partitions."""
    last = {}
    for partition, log in enumerate(world.topics["users"][1]):
        for one in log.wanted:
            if one.key is not None:
                last[one.key] = (partition, one.offset, one.key, one.value)
    return sorted(row for row in last.values() if row[3] is not None)


def some(numbers, value=b"v"):
    return [record(b"key-%d" % number, value) for number in numbers]


def test_a_table_holds_the_newest_record_of_each_key(world, jobs):
    world.commit("users", {0: [some(range(20)), some(range(5), b"w")], 1: [some(range(50, 60))]})
    job = jobs()
    assert export(job).rows == 35
    assert rows(job) == wanted(world)
    world.commit("users", {0: [some([3, 7], b"x"), some([4, 8], None)], 1: [some([99])]})
    export(jobs())
    assert rows(job) == wanted(world)
    assert (0, 25, b"key-3", b"x") in rows(job)
    assert b"key-4" not in [row[2] for row in rows(job)]


def test_a_key_that_was_deleted_and_comes_back_has_a_row_again(world, jobs):
    world.commit("users", {0: [some([1]), some([1], None)]})
    job = jobs()
    export(job)
    assert rows(job) == []
    world.commit("users", {0: [some([1], b"again")]})
    export(jobs())
    assert rows(job) == [(0, 2, b"key-1", b"again")]


def test_many_commits_and_many_splits_make_the_same_table(world, jobs):
    for step in range(4):
        world.commit("users", {0: [some(range(step, 30, 3), b"%d" % step)], 1: [some([77 + step])]})
    job = jobs("commit.bytes.max=1", "split.bytes.max=1")
    assert export(job).commits > 2
    assert rows(job) == wanted(world)


def test_independent_readers_see_the_same_rows(world, jobs):
    world.commit("users", {0: [some(range(9)), some(range(3), b"w")]})
    job = jobs()
    export(job)
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT kafka_partition, kafka_offset, kafka_key, value "
            "FROM read_parquet($1) ORDER BY ALL",
            [[one.removeprefix("file://") for one in paths(job)]],
        ).fetchall()
    assert found == wanted(world)


def test_only_buckets_with_new_records_are_written_anew(world, jobs):
    world.commit("users", {0: [some(range(40))]})
    job = jobs()
    export(job)
    before = paths(job)
    world.commit("users", {0: [some([3], b"x")]})
    export(jobs())
    after = paths(job)
    assert len(before) == 4
    assert len(before & after) == 3
    assert rows(job) == wanted(world)


def test_deletions_of_what_is_not_there_leave_all_files_as_they_are(world, jobs):
    world.commit("users", {0: [some(range(9))]})
    job = jobs()
    export(job)
    before = paths(job)
    world.commit("users", {0: [some([500], None)]})
    assert export(jobs()).commits == 1
    after = paths(job)
    assert before == after


def test_records_without_keys_are_dead_letters(world, jobs):
    world.commit("users", {0: [[record(None, b"lost"), record(b"", b"empty"), record(b"a", b"1")]]})
    job = jobs()
    assert export(job).dead == 1
    assert rows(job) == [(0, 1, b"", b"empty"), (0, 2, b"a", b"1")]
    dead = find_table(job.catalog, ("frazil", "users__dlq")).scan().to_arrow().to_pylist()
    assert [(one["kafka_offset"], one["error_code"], one["value"]) for one in dead] == [
        (0, "NO_KEY", b"lost")
    ]


def test_keys_and_values_that_are_text_are_columns_of_text(world, jobs):
    world.configs["users"] |= {"key.mode": "string", "value.mode": "string"}
    world.commit("users", {0: [[record("ä".encode(), b"1"), record(b"b", b"\xff")]]})
    job = jobs()
    assert export(job).dead == 1
    assert rows(job) == [(0, 0, "ä", "1")]
    world.commit("users", {0: [[record("ä".encode(), b"2"), record(b"b", b"3")]]})
    export(jobs())
    assert rows(job) == [(0, 2, "ä", "2"), (0, 3, "b", "3")]


def test_a_key_that_moved_to_another_partition_has_one_row(world, jobs):
    world.commit("users", {0: [[record(b"a", b"old", NOW_MS - 10)]]})
    job = jobs()
    export(job)
    world.commit("users", {1: [[record(b"a", b"new", NOW_MS)]]})
    export(jobs())
    assert rows(job) == [(1, 0, b"a", b"new")]


def test_a_crash_between_any_two_steps_leaves_a_table_that_the_next_run_completes(world, jobs):
    class CrashError(Exception):
        pass

    world.commit("users", {0: [some(range(9)), [record(None, b"lost")]]})
    export(jobs())
    for count, step in enumerate((Step.TASKS_DONE, Step.COMMIT_WRITTEN, Step.COMMIT_ANSWERED)):
        world.commit("users", {0: [some([count, 100 + count], b"%d" % count)]})

        def crash(at, step=step):
            if at is step:
                raise CrashError

        with pytest.raises(CrashError):
            export(jobs(hook=crash))
        export(jobs())
        assert rows(jobs()) == wanted(world)


def test_a_delete_by_others_under_the_merge_stays_deleted(world, jobs):
    world.commit("users", {0: [some(range(40))]})
    job = jobs()
    export(job)
    world.commit("users", {0: [some(range(100, 140))]})
    gone = []

    def delete(at):
        if at is Step.COMMIT_WRITTEN and not gone:
            table = find_table(job.catalog, ("frazil", "users"))
            file = next(iter(table.scan().plan_files())).file
            path = file.file_path.removeprefix("file://")
            gone.extend(pq.read_table(path).column("kafka_offset").to_pylist())
            change = commit.FileChange((), [file], table.current_snapshot().snapshot_id)
            commit.replace_files(
                job.catalog, ("frazil", "users"), change, rewrite_id="theirs", pause=NO_PAUSE
            )

    export(jobs(hook=delete))
    assert gone
    assert rows(job) == [row for row in wanted(world) if row[1] not in gone]


def test_two_exporters_at_once_leave_one_rows_and_fence_the_other(world, jobs):
    world.commit("users", {0: [some(range(9))]})
    job = jobs()
    export(job)
    world.commit("users", {0: [some([3, 100], b"x")]})
    other = jobs()

    def race(at):
        if at is Step.CHECKED:
            export(other)

    with pytest.raises(FencedError):
        export(jobs(hook=race))
    assert rows(job) == wanted(world)


def test_a_table_that_was_made_for_appends_is_not_upserted(world, jobs):
    world.configs["users"] = {}
    world.commit("users", {0: [some(range(9))]})
    export(jobs())
    world.configs["users"] = {"mode": "upsert"}
    world.commit("users", {0: [some([3])]})
    with pytest.raises(StateError, match="partitioned by bucket"):
        export(jobs())


def test_a_new_table_has_sixteen_buckets_unless_the_topic_says_otherwise(world, jobs):
    world.configs["users"] = {"mode": "upsert"}
    job = jobs()
    export(job)
    (field,) = find_table(job.catalog, ("frazil", "users")).spec().fields
    assert str(field.transform) == "bucket[16]"


def test_records_that_do_not_fit_into_memory_at_once_are_reduced_on_the_way(
    world, jobs, monkeypatch
):
    monkeypatch.setattr(buckets, "GATHERED_BYTES_MAX", 1)
    for step in range(3):
        world.commit("users", {0: [some(range(9), b"%d" % step)]})
    job = jobs()
    export(job)
    assert rows(job) == wanted(world)


def test_what_tasks_left_for_each_other_is_deleted_after_the_commit(world, jobs, tmp_path):
    world.commit("users", {0: [some(range(9))]})
    export(jobs())
    assert not list((tmp_path / "data").rglob("shuffle/*.parquet"))


def verify(job):
    (topic,) = job.client.topics().topics
    return verify_upsert(job, topic)


def test_verify_finds_every_row_to_be_the_newest_of_its_key(world, jobs, tmp_path):
    world.commit("users", {0: [some(range(20)), some(range(5), b"w"), some([7], None)]})
    job = jobs()
    export(job)
    verdict = verify(job)
    assert (verdict.records, verdict.problems, verdict.older) == (19, (), 0)
    assert not list((tmp_path / "data").rglob("shuffle/*.parquet"))


def test_verify_finds_rows_that_are_gone(world, jobs):
    world.commit("users", {0: [some(range(20))]})
    job = jobs()
    export(job)
    table = find_table(job.catalog, ("frazil", "users"))
    file = next(iter(table.scan().plan_files())).file
    change = commit.FileChange((), [file], table.current_snapshot().snapshot_id)
    commit.replace_files(
        job.catalog, ("frazil", "users"), change, rewrite_id="theirs", pause=NO_PAUSE
    )
    (problem,) = verify(job).problems
    assert problem.startswith(f"{file.record_count} keys have no row")


def test_verify_finds_rows_that_are_not_the_newest_any_more(world, jobs, monkeypatch):
    world.commit("users", {0: [some(range(20))]})
    job = jobs()
    export(job)
    world.commit("users", {0: [some([3], b"new"), some([4], None)]})
    # A merge that believes the older record.
    monkeypatch.setattr(buckets, "newest_rows", lambda rows: np.arange(rows.num_rows - 2))
    export(jobs())
    assert set(verify(job).problems) == {
        "1 keys have no row, or not that of their newest record",
        "2 rows are not the newest records of their keys",
    }


def test_verify_finds_rows_that_are_there_twice_and_rows_that_were_changed(
    world, jobs, monkeypatch
):
    world.commit("users", {0: [some(range(20))]})
    job = jobs()
    export(job)
    world.commit("users", {0: [some([3])]})
    monkeypatch.setattr(
        buckets, "newest_rows", lambda rows: np.array([0, *newest_rows(rows)], dtype=np.int64)
    )
    export(jobs())
    assert any("have another row" in problem for problem in verify(job).problems)


def test_verify_counts_what_only_the_table_still_has(world, jobs):
    world.commit("users", {0: [some(range(5))]})
    world.commit("users", {0: [some(range(3, 9), b"w")]})
    job = jobs()
    export(job)
    log = world.topics["users"][1][0]
    log.log_start = log.spans[0][4]
    del log.spans[0]
    verdict = verify(job)
    assert (verdict.records, verdict.older, verdict.problems) == (6, 3, ())


def test_verify_leaves_keys_of_several_partitions_out(world, jobs):
    world.commit("users", {0: [some(range(5))], 1: [some([3], b"w")]})
    job = jobs()
    export(job)
    verdict = verify(job)
    assert (verdict.records, verdict.skipped, verdict.problems) == (4, 1, ())


def test_verify_compares_what_rows_hold(world, jobs, monkeypatch):
    world.commit("users", {0: [some(range(9))]})
    job = jobs()
    export(job)
    real = upsert.rows_before

    def changed(*parts):
        rows = real(*parts)
        values = pa.array([b"other"] * rows.num_rows, rows.schema.field("value").type)
        return rows.set_column(rows.schema.get_field_index("value"), "value", values)

    monkeypatch.setattr(upsert, "rows_before", changed)
    (problem,) = verify(job).problems
    assert problem.startswith("9 rows lie among blocks of offsets whose contents differ")


def test_tables_of_text_are_verified_too(world, jobs):
    world.configs["users"] |= {"key.mode": "string", "value.mode": "string"}
    world.commit("users", {0: [[record(b"a", b"1"), record(b"b", b"\xff"), record(b"a", b"2")]]})
    job = jobs()
    export(job)
    assert (verify(job).records, verify(job).problems) == (1, ())
