"""From chunks to a table and back, tasks in this process; DuckDB reads as an independent witness."""

import re

import pytest

from iceberg_export.errors import (
    CorruptSpanError,
    FencedError,
    PlanError,
    StateError,
    StoreReadError,
)
from iceberg_export.plan.agent_client import Pinned
from iceberg_export.plan.splits import CommitRange
from iceberg_export.records.decode import Tally
from iceberg_export.runs.job import export_topic
from iceberg_export.runs.status import render, topic_status
from iceberg_export.table import commit
from iceberg_export.tasks import export_split
from iceberg_export.tasks.export_split import check_complete
from iceberg_export.verify.proof import verify_topic
from protocol.records import Record
from tests.iceberg_export.world import (
    HereRunner,
    InTransaction,
    World,
    make_job,
    served,
    some_records,
)


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("orders", 3)
    return found


@pytest.fixture
def address(world):
    with served(world) as found:
        yield found


@pytest.fixture
def jobs(world, address, tmp_path):
    """Makes jobs over the world; each its own run, all on one warehouse."""
    made = []

    def make(*sets, **options):
        found = make_job(
            world, address, tmp_path / "data", run_id=f"r{len(made)}", sets=sets, **options
        )
        made.append(found)
        return found

    yield make
    for job in made:
        job.catalog.engine.dispose()


def topic_of(job, name="orders"):
    (found,) = [topic for topic in job.client.topics().topics if topic.name == name]
    return found


def export(job, name="orders"):
    return export_topic(job, topic_of(job, name))


def duck_rows(duck, job, table=("frazil", "orders")):
    """All rows, as DuckDB reads them from the newest metadata file."""
    location = job.catalog.load_table(table).metadata_location.removeprefix("file://")
    return duck.execute(
        "SELECT kafka_partition, kafka_offset, epoch_ms(kafka_timestamp), kafka_timestamp_type, "
        f"kafka_key, kafka_headers, value FROM iceberg_scan('{location}') ORDER BY 1, 2"
    ).fetchall()


def wanted_rows(world, topic="orders"):
    rows = []
    for partition, log in enumerate(world.topics[topic][1]):
        for one in log.wanted:
            headers = [{"key": key, "value": value} for key, value in one.headers]
            rows.append((partition, one.offset, one.timestamp, 0, one.key, headers, one.value))
    return rows


def fill(world, topic="orders"):
    world.commit(topic, {0: [some_records(30)], 2: [some_records(3), some_records(4, 3)]})
    world.commit(topic, {0: [some_records(20, 30)], 1: [some_records(9)]}, codec=4)


def test_every_record_arrives_once_and_equal(world, jobs, duck):
    fill(world)
    job = jobs()
    report = export(job)
    assert report.rows == 66
    assert duck_rows(duck, job) == wanted_rows(world)


def test_a_second_run_exports_only_what_is_new(world, jobs, duck):
    fill(world)
    export(jobs())
    assert export(jobs()).commits == 0
    world.commit("orders", {1: [some_records(5, 9)]})
    job = jobs()
    assert export(job).rows == 5
    assert duck_rows(duck, job) == wanted_rows(world)


def test_limits_make_many_commits_and_the_same_table(world, jobs, duck):
    for _ in range(4):
        fill(world)
    job = jobs("commit.bytes.max=1", "split.bytes.max=1", "file.bytes.max=1048576")
    report = export(job)
    assert report.commits > 2
    assert duck_rows(duck, job) == wanted_rows(world)


def test_a_topic_without_records_gets_an_empty_table(world, jobs, duck):
    job = jobs()
    assert export(job).rows == 0
    assert duck_rows(duck, job) == []


@pytest.mark.parametrize("by", ["day", "hour", "none"])
def test_timestamps_far_apart_lie_in_partitions_of_their_own(world, jobs, duck, by):
    days = [Record(timestamp=day * 86_400_000 + 5, value=b"x") for day in (3, 1, 3, 40_000)]
    world.commit("orders", {0: [days]})
    job = jobs(f"table.partition.by={by}", "timestamp.sanity=false")
    assert export(job).files == (1 if by == "none" else 3)
    assert duck_rows(duck, job) == wanted_rows(world)


def test_more_days_than_files_may_be_open_are_all_written(world, jobs, duck):
    days = [Record(timestamp=day * 86_400_000, value=b"x") for day in range(150)]
    world.commit("orders", {0: [days]})
    job = jobs("timestamp.sanity=false")
    export(job)
    assert duck_rows(duck, job) == wanted_rows(world)


def test_timestamps_that_no_calendar_has_are_kept_beside(world, jobs):
    odd = [Record(timestamp=t, value=b"x") for t in (-1, -5, 1 << 60, 253_402_300_799_999)]
    world.commit("orders", {0: [odd]})
    job = jobs("timestamp.sanity=false")
    export(job)
    rows = job.catalog.load_table(("frazil", "orders")).scan().to_arrow().sort_by("kafka_offset")
    assert rows["kafka_timestamp_raw"].to_pylist() == [None, -5, 1 << 60, None]
    assert rows["kafka_timestamp"].is_null().to_pylist() == [True, True, True, False]


def test_a_wild_clock_makes_no_partitions_and_loses_no_timestamp(world, jobs):
    now, day, early = 1_763_000_000_000, 86_400_000, 946_684_800_000
    times = [early - 1, early, now + day, now + day + 1, now]
    world.commit("orders", {0: [[Record(timestamp=t, value=b"x") for t in times]]})
    job = jobs()._replace(clock_ms=lambda: now)
    assert export(job).files == 4
    rows = job.catalog.load_table(("frazil", "orders")).scan().to_arrow().sort_by("kafka_offset")
    assert rows["kafka_timestamp_raw"].to_pylist() == [early - 1, None, None, now + day + 1, None]
    assert rows["kafka_timestamp"].is_null().to_pylist() == [True, False, False, True, False]
    assert verify_topic(job, topic_of(job)).problems == ()


def in_transactions(world, topic="orders"):
    """Committed, aborted and open transactions, over chunks and interleaved with plain batches."""

    def write(partition, *parts):
        world.commit(topic, {partition: parts}, codec=world.chunk_number % 5)

    write(
        0,
        InTransaction(7, some_records(3)),
        some_records(2, 3),
        InTransaction(8, some_records(2, 5)),
    )
    write(1, InTransaction(7, some_records(4)))
    write(0, InTransaction(7, some_records(1, 7)))
    world.end(topic, 0, 7, commit=False)
    write(0, InTransaction(7, some_records(5, 9)), some_records(1, 14))
    world.end(topic, 0, 8, commit=True)
    world.end(topic, 0, 7, commit=True)
    world.end(topic, 1, 7, commit=False)
    write(0, some_records(2, 17), InTransaction(9, some_records(2, 19)), some_records(3, 21))


@pytest.mark.parametrize("bytes_max", [1, 1 << 30])
def test_a_table_has_committed_records_only_and_stops_before_open_transactions(
    world, jobs, duck, bytes_max
):
    in_transactions(world)
    job = jobs(f"commit.bytes.max={bytes_max}", f"split.bytes.max={bytes_max}")
    assert world.topics["orders"][1][0].stable == 19
    assert export(job).rows == 12
    assert duck_rows(duck, job) == wanted_rows(world)
    verdict = verify_topic(job, topic_of(job))
    assert (verdict.records, verdict.problems) == (12, ())


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_open_comes_with_its_end(world, jobs, duck, commit):
    in_transactions(world)
    export(jobs())
    world.end("orders", 0, 9, commit=commit)
    job = jobs("verify.decoder=reference")
    assert export(job).rows == (5 if commit else 3)
    assert duck_rows(duck, job) == wanted_rows(world)
    assert verify_topic(job, topic_of(job)).problems == ()
    assert export(job).commits == 0


def test_offsets_without_any_committed_record_are_exported_too(world, jobs, duck):
    world.commit("orders", {0: [InTransaction(7, some_records(4))]})
    world.end("orders", 0, 7, commit=False)
    job = jobs()
    report = export(job)
    assert (report.rows, report.files, report.commits) == (0, 0, 1)
    # Now a range of nothing but a marker.
    world.commit("orders", {0: [InTransaction(7, some_records(1))]})
    world.end("orders", 0, 7, commit=True)
    log = world.topics["orders"][1][0]
    log.end -= 1
    log.markers.pop()
    assert export(job).rows == 1
    log.markers.append(log.end)
    log.end += 1
    assert (export(job).commits, export(job).commits) == (1, 0)
    assert duck_rows(duck, job) == wanted_rows(world)
    (row,) = [r for r in topic_status(job, topic_of(job)).partitions if r.partition == 0]
    assert (row.exported, row.lag) == (7, 0)


def test_verify_finds_an_aborted_record_in_a_table(world, jobs):
    world.commit("orders", {0: [InTransaction(7, some_records(4))]})
    world.end("orders", 0, 7, commit=True)
    job = jobs("table.partition.by=none")
    export(job)
    log = world.topics["orders"][1][0]
    log.aborted.append([7, 0, 4])
    for decoder in ("compiled", "reference"):
        told = jobs("table.partition.by=none", f"verify.decoder={decoder}")
        (problem,) = verify_topic(told, topic_of(told)).problems
        assert problem == "partition 0, offsets 0 to 65535: 0 records in the log, 4 in the table"


@pytest.mark.parametrize("step", ["check_complete", "commit"])
def test_a_crash_before_the_commit_loses_and_doubles_nothing(world, jobs, duck, monkeypatch, step):
    fill(world)
    owner = {
        "check_complete": "iceberg_export.runs.job",
        "commit": "iceberg_export.runs.job.commit",
    }[step]
    with monkeypatch.context() as patch:
        patch.setattr(f"{owner}.{step}", lambda *_a, **_k: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            export(jobs())
    job = jobs()
    export(job)
    assert duck_rows(duck, job) == wanted_rows(world)


def test_a_crash_after_the_commit_loses_and_doubles_nothing(world, jobs, duck, monkeypatch):
    fill(world)
    real = commit.commit

    def commit_and_die(*arguments, **options):
        real(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("iceberg_export.runs.job.commit.commit", commit_and_die)
        with pytest.raises(KeyboardInterrupt):
            export(jobs())
    job = jobs()
    assert export(job).commits == 0
    assert duck_rows(duck, job) == wanted_rows(world)


class RaceRunner(HereRunner):
    """Another exporter does the same work between our tasks and our commit."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def run(self, *arguments, **options):
        results = super().run(*arguments, **options)
        export(self.other)
        return results


def test_a_fenced_run_deletes_its_own_files_alone(world, jobs, duck, tmp_path):
    fill(world)
    other = jobs()
    loser = jobs(runner=RaceRunner(other))
    with pytest.raises(FencedError):
        export(loser)
    assert duck_rows(duck, other) == wanted_rows(world)
    files = [path.name for path in tmp_path.rglob("*.parquet")]
    assert files
    assert all(name.startswith("r0-") for name in files)


def test_a_corrupt_chunk_stops_the_export_and_leaves_no_file(world, jobs, tmp_path):
    fill(world)
    path = world.commit("orders", {0: [some_records(3, 50)]})
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptSpanError, match="CRC"):
        export(jobs())
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_missing_chunk_is_an_error_not_a_gap(world, jobs):
    fill(world)
    world.commit("orders", {0: [some_records(3, 50)]}).unlink()
    with pytest.raises(StoreReadError, match="No such file"):
        export(jobs())


def test_a_chunk_that_is_too_short_is_an_error(world, jobs):
    path = world.commit("orders", {0: [some_records(3)]})
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(StoreReadError, match="too short"):
        export(jobs())


def test_a_store_that_only_the_agent_can_read_is_refused(world, jobs):
    fill(world)
    world.store_url = "memory://"
    with pytest.raises(StoreReadError, match="cannot be read from outside"):
        export(jobs())


def test_a_re_created_topic_is_refused_or_gets_its_own_table(world, jobs, duck):
    fill(world)
    export(jobs())
    world.create("orders", 1, topic_id="ff" * 16)
    world.commit("orders", {0: [some_records(2)]})
    with pytest.raises(StateError, match="deleted and created again"):
        export(jobs())
    job = jobs("topic.recreated=new-table")
    export(job)
    assert duck_rows(duck, job, ("frazil", "orders_" + "ff" * 16)) == wanted_rows(world)


def test_topics_whose_table_names_clash_are_refused_until_one_is_named(world, jobs, duck):
    world.create("a-b", 1, topic_id="01" * 16)
    world.create("a_b", 1, topic_id="02" * 16)
    world.commit("a_b", {0: [some_records(2)]})
    export(jobs(), "a-b")
    with pytest.raises(StateError, match=r"table.name.a_b"):
        export(jobs(), "a_b")
    job = jobs("table.name.a_b=other")
    export(job, "a_b")
    assert duck_rows(duck, job, ("frazil", "other")) == wanted_rows(world, "a_b")


def test_records_deleted_before_export_need_a_word(world, jobs, duck):
    fill(world)
    export(jobs())
    world.commit("orders", {0: [some_records(10, 50)]})
    world.commit("orders", {0: [some_records(10, 60)]})
    log = world.topics["orders"][1][0]
    log.log_start = 60
    with pytest.raises(PlanError, match=re.escape("gap.policy=skip")):
        export(jobs())
    job = jobs("gap.policy=skip")
    assert export(job).rows == 10
    properties = job.catalog.load_table(("frazil", "orders")).properties
    assert properties["frazil.gaps"] == "[[0,50,60]]"


def test_a_result_that_leaves_out_offsets_is_never_committed():
    with pytest.raises(PlanError, match="0 offsets were read of 5"):
        check_complete(
            CommitRange({0: 0}, {0: 5}, (), (), {}), {0: export_split.SplitResult(0, [], {})}, 1
        )


def test_a_result_that_counts_a_marker_as_read_is_never_committed():
    with pytest.raises(PlanError, match="5 offsets were read of 4"):
        check_complete(
            CommitRange({0: 0}, {0: 5}, (), (), {0: 1}),
            {0: export_split.SplitResult(0, [], {0: Tally(aborted=5)})},
            1,
        )


def test_a_missing_result_is_never_committed():
    with pytest.raises(PlanError, match="gave no result"):
        check_complete(CommitRange({0: 0}, {0: 0}, (), (), {}), {}, 1)


def test_verify_proves_a_right_table(world, jobs):
    fill(world)
    export(jobs())
    fill(world)  # Not exported: outside the range that is compared.
    compiled = verify_topic(jobs(), topic_of(jobs()))
    assert compiled.problems == ()
    assert compiled.records == 66
    reference = verify_topic(jobs("verify.decoder=reference"), topic_of(jobs()))
    assert reference.checksum == compiled.checksum


def test_verify_finds_a_missing_and_a_doubled_record(world, jobs):
    fill(world)
    job = jobs("table.partition.by=none")
    export(job)
    table = job.catalog.load_table(("frazil", "orders"))
    doubled = table.scan(row_filter="kafka_offset == 3").to_arrow()
    table.append(doubled)
    verdict = verify_topic(job, topic_of(job))
    assert [text.split(":")[0] for text in verdict.problems] == [
        f"partition {p}, offsets 0 to 65535" for p in range(3)
    ]
    table.delete("kafka_offset == 3")
    table.append(doubled)
    assert verify_topic(job, topic_of(job)).problems == ()
    table.delete("kafka_partition == 1 and kafka_offset == 8")
    (problem,) = verify_topic(job, topic_of(job)).problems
    assert problem == "partition 1, offsets 0 to 65535: 9 records in the log, 8 in the table"


def test_verify_finds_a_changed_record(world, jobs):
    fill(world)
    job = jobs("table.partition.by=none")
    export(job)
    table = job.catalog.load_table(("frazil", "orders"))
    row = table.scan(row_filter="kafka_partition == 1 and kafka_offset == 0").to_arrow()
    table.delete("kafka_partition == 1 and kafka_offset == 0")
    at = row.column_names.index("value")
    table.append(row.set_column(at, row.schema.field(at), [[b"changed"]]))
    (problem,) = verify_topic(job, topic_of(job)).problems
    assert problem.endswith("9 records on both sides, but not the same ones")


def test_verify_finds_rows_that_no_export_has_committed(world, jobs):
    fill(world)
    job = jobs("table.partition.by=none")
    export(job)
    table = job.catalog.load_table(("frazil", "orders"))
    row = table.scan(row_filter="kafka_partition == 1 and kafka_offset == 0").to_arrow()
    at = row.column_names.index("kafka_offset")
    table.append(row.set_column(at, row.schema.field(at), [[9]]))
    (problem,) = verify_topic(job, topic_of(job)).problems
    assert problem == "1 rows of offsets that no export has committed"


def test_verify_tells_rows_that_the_log_no_longer_has(world, jobs):
    fill(world)
    job = jobs()
    export(job)
    world.topics["orders"][1][0].log_start = 30
    verdict = verify_topic(job, topic_of(job))
    assert (verdict.records, verdict.older, verdict.problems) == (36, 30, ())


def test_status_tells_the_lag_of_every_partition(world, jobs):
    fill(world)
    job = jobs()
    before = topic_status(job, topic_of(job))
    assert [row.lag for row in before.partitions] == [50, 9, 7]
    export(job)
    world.commit("orders", {1: [some_records(4, 9)]})
    after = topic_status(job, topic_of(job))
    assert [row.lag for row in after.partitions] == [0, 4, 0]
    assert "frazil.orders" in render([after], 0)


def test_chunks_are_pinned_while_a_run_lasts(world, jobs):
    job = jobs()
    with Pinned(job.client, "export-x", 60_000) as pin:
        assert world.pins == {"export-x": 60_000}
        assert pin.position == 98
    assert world.pins == {}


def test_a_pin_is_renewed_before_it_ends(world, jobs):
    job = jobs()
    with Pinned(job.client, "export-x", 30) as pin:
        while sum(request.startswith("POST") for request in world.requests) < 3:
            pass
        assert pin.lost is None
