"""From chunks to a table and back, tasks in this process; DuckDB reads as an independent witness."""

import re

import pytest

from iceberg_export.dead_letters.counts import LetterCounts
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
from iceberg_export.runs.status import render, topic_status
from iceberg_export.steps import Step
from iceberg_export.tasks import export_split
from iceberg_export.tasks.export_split import check_complete
from protocol.records import Record
from tests.iceberg_export.kit.hooks import Once
from tests.iceberg_export.kit.place import DAY_MS, DEAD_TABLE, NOW_MS, TABLE, place
from tests.iceberg_export.kit.world import InTransaction, some_records


@pytest.fixture
def here():
    with place(3) as found:
        found.sets = ("table.partition.by=day",)
        yield found


def duck_rows(duck, here, table=TABLE):
    """All rows, as DuckDB reads them from the newest metadata file."""
    location = here.table(table).metadata_location.removeprefix("file://")
    return duck.execute(
        "SELECT kafka_partition, kafka_offset, epoch_ms(kafka_timestamp), kafka_timestamp_type, "
        f"kafka_key, kafka_headers, value FROM iceberg_scan('{location}') ORDER BY 1, 2"
    ).fetchall()


def wanted_rows(here, topic="orders"):
    rows = []
    for partition, log in enumerate(here.world.topics[topic][1]):
        for one in log.wanted:
            headers = [{"key": key, "value": value} for key, value in one.headers]
            rows.append((partition, one.offset, one.timestamp, 0, one.key, headers, one.value))
    return rows


def fill(here, topic="orders"):
    here.world.commit(topic, {0: [some_records(30)], 2: [some_records(3), some_records(4, 3)]})
    here.world.commit(topic, {0: [some_records(20, 30)], 1: [some_records(9)]}, codec=4)


def test_every_record_arrives_once_and_equal(here, duck):
    fill(here)
    report = here.export()
    assert report.rows == 66
    assert duck_rows(duck, here) == wanted_rows(here)


def test_a_second_run_exports_only_what_is_new(here, duck):
    fill(here)
    here.export()
    assert here.export().commits == 0
    here.world.commit("orders", {1: [some_records(5, 9)]})
    assert here.export().rows == 5
    assert duck_rows(duck, here) == wanted_rows(here)


def test_limits_make_many_commits_and_the_same_table(here, duck):
    for _ in range(4):
        fill(here)
    report = here.export("commit.bytes.max=1", "split.bytes.max=1", "file.bytes.max=1048576")
    assert report.commits > 2
    assert duck_rows(duck, here) == wanted_rows(here)


def test_a_topic_without_records_gets_an_empty_table(here, duck):
    assert here.export().rows == 0
    assert duck_rows(duck, here) == []


@pytest.mark.parametrize("by", ["day", "hour", "none"])
def test_timestamps_far_apart_lie_in_partitions_of_their_own(here, duck, by):
    days = [Record(timestamp=day * 86_400_000 + 5, value=b"x") for day in (3, 1, 3, 40_000)]
    here.world.commit("orders", {0: [days]})
    assert here.export(f"table.partition.by={by}", "timestamp.sanity=false").files == (
        1 if by == "none" else 3
    )
    assert duck_rows(duck, here) == wanted_rows(here)


def test_more_days_than_files_may_be_open_are_all_written(here, duck):
    days = [Record(timestamp=day * 86_400_000, value=b"x") for day in range(150)]
    here.world.commit("orders", {0: [days]})
    here.export("timestamp.sanity=false")
    assert duck_rows(duck, here) == wanted_rows(here)


def test_timestamps_that_no_calendar_has_are_kept_beside(here):
    odd = [Record(timestamp=t, value=b"x") for t in (-1, -5, 1 << 60, 253_402_300_799_999)]
    here.world.commit("orders", {0: [odd]})
    here.export("timestamp.sanity=false")
    assert here.columns("kafka_timestamp_raw") == [(None,), (-5,), (1 << 60,), (None,)]
    found = here.columns("kafka_timestamp")
    assert [at is None for (at,) in found] == [True, True, True, False]


def test_a_wild_clock_makes_no_partitions_and_loses_no_timestamp(here):
    now, early = NOW_MS, 946_684_800_000
    times = [early - 1, early, now + DAY_MS, now + DAY_MS + 1, now]
    here.world.commit("orders", {0: [[Record(timestamp=t, value=b"x") for t in times]]})
    assert here.export(now_ms=now).files == 4
    assert here.columns("kafka_timestamp_raw") == [
        *((early - 1,), (None,), (None,), (now + DAY_MS + 1,), (None,))
    ]
    assert [at is None for (at,) in here.columns("kafka_timestamp")] == [
        *(True, False, False, True, False)
    ]
    assert here.verify(now_ms=now).problems == ()


def in_transactions(here, topic="orders"):
    """Committed, aborted and open transactions, over chunks and interleaved with plain batches."""

    def write(partition, *parts):
        here.world.commit(topic, {partition: parts}, codec=here.world.chunk_number % 5)

    write(
        0,
        InTransaction(7, some_records(3)),
        some_records(2, 3),
        InTransaction(8, some_records(2, 5)),
    )
    write(1, InTransaction(7, some_records(4)))
    write(0, InTransaction(7, some_records(1, 7)))
    here.world.end(topic, 0, 7, commit=False)
    write(0, InTransaction(7, some_records(5, 9)), some_records(1, 14))
    here.world.end(topic, 0, 8, commit=True)
    here.world.end(topic, 0, 7, commit=True)
    here.world.end(topic, 1, 7, commit=False)
    write(0, some_records(2, 17), InTransaction(9, some_records(2, 19)), some_records(3, 21))


@pytest.mark.parametrize("bytes_max", [1, 1 << 30])
def test_a_table_has_committed_records_only_and_stops_before_open_transactions(
    here, duck, bytes_max
):
    in_transactions(here)
    assert here.log(0).stable == 19
    assert here.export(f"commit.bytes.max={bytes_max}", f"split.bytes.max={bytes_max}").rows == 12
    assert duck_rows(duck, here) == wanted_rows(here)
    verdict = here.verify(f"commit.bytes.max={bytes_max}", f"split.bytes.max={bytes_max}")
    assert (verdict.records, verdict.problems) == (12, ())


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_open_comes_with_its_end(here, duck, commit):
    in_transactions(here)
    here.export()
    here.world.end("orders", 0, 9, commit=commit)
    assert here.export("verify.decoder=reference").rows == (5 if commit else 3)
    assert duck_rows(duck, here) == wanted_rows(here)
    assert here.verify("verify.decoder=reference").problems == ()
    assert here.export("verify.decoder=reference").commits == 0


def test_offsets_without_any_committed_record_are_exported_too(here, duck):
    here.world.commit("orders", {0: [InTransaction(7, some_records(4))]})
    here.world.end("orders", 0, 7, commit=False)
    job = here.job()
    report = here.export()
    assert (report.rows, report.files, report.commits) == (0, 0, 1)
    # Now a range of nothing but a marker.
    here.world.commit("orders", {0: [InTransaction(7, some_records(1))]})
    here.world.end("orders", 0, 7, commit=True)
    log = here.log(0)
    log.end -= 1
    log.markers.pop()
    assert here.export().rows == 1
    log.markers.append(log.end)
    log.end += 1
    assert (here.export().commits, here.export().commits) == (1, 0)
    assert duck_rows(duck, here) == wanted_rows(here)
    (row,) = [
        r for r in topic_status(job, here.topic(job), LetterCounts()).partitions if r.partition == 0
    ]
    assert (row.exported, row.lag) == (7, 0)


def test_verify_finds_an_aborted_record_in_a_table(here):
    here.world.commit("orders", {0: [InTransaction(7, some_records(4))]})
    here.world.end("orders", 0, 7, commit=True)
    here.export("table.partition.by=none")
    log = here.log(0)
    log.aborted.append([7, 0, 4])
    for decoder in ("compiled", "reference"):
        (problem,) = here.verify(f"verify.decoder={decoder}").problems
        assert problem == "partition 0, offsets 0 to 65535: 0 records in the log, 4 in the table"


def test_a_fenced_run_deletes_its_own_files_alone(here, duck):
    """Another exporter does the same work between its tasks and its commit."""
    fill(here)
    with pytest.raises(FencedError):
        here.export(hook=Once(Step.TASKS_DONE, here.export))
    assert duck_rows(duck, here) == wanted_rows(here)
    names = [path.name for path in here.data_files()]
    assert names
    assert all(name.startswith("r2-") for name in names)


def test_a_corrupt_chunk_stops_the_export_and_leaves_no_file(here):
    fill(here)
    path = here.world.commit("orders", {0: [some_records(3, 50)]})
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptSpanError, match="CRC"):
        here.export()
    assert not here.data_files()


def test_a_missing_chunk_is_an_error_not_a_gap(here):
    fill(here)
    here.world.commit("orders", {0: [some_records(3, 50)]}).unlink()
    with pytest.raises(StoreReadError, match="No such file"):
        here.export()


def test_a_chunk_that_is_too_short_is_an_error(here):
    path = here.world.commit("orders", {0: [some_records(3)]})
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(StoreReadError, match="too short"):
        here.export()


def test_a_store_that_only_the_agent_can_read_is_refused(here):
    fill(here)
    here.world.store_url = "memory://"
    with pytest.raises(StoreReadError, match="cannot be read from outside"):
        here.export()


def test_a_re_created_topic_is_refused_or_gets_its_own_table(here, duck):
    fill(here)
    here.export()
    here.world.create("orders", 1, topic_id="ff" * 16)
    here.world.commit("orders", {0: [some_records(2)]})
    with pytest.raises(StateError, match="deleted and created again"):
        here.export()
    here.export("topic.recreated=new-table")
    assert duck_rows(duck, here, ("frazil", "orders_" + "ff" * 16)) == wanted_rows(here)


def test_a_re_created_topic_keeps_its_own_table_when_the_old_one_is_dropped(here):
    """Else it would begin another one in the middle, with what retention has left of its log."""
    here.exported()
    here.world.create("orders", 1, topic_id="ff" * 16)
    own = ("frazil", "orders_" + "ff" * 16)
    new_table = "topic.recreated=new-table"
    here.exported(1, new_table)
    here.log().log_start = here.log().stable
    here.catalog.drop_table(TABLE)
    here.exported(1, new_table)
    assert not here.catalog.table_exists(TABLE)
    found = here.columns("kafka_partition", "kafka_offset", "value", table=own)
    assert found == here.wanted()
    # Back to the default: nothing is told to be done that was done already.
    here.exported()
    assert not here.catalog.table_exists(TABLE)
    assert len(here.columns("kafka_offset", table=own)) == len(here.wanted())


def test_topics_whose_table_names_clash_are_refused_until_one_is_named(here, duck):
    here.world.create("a-b", 1, topic_id="01" * 16)
    here.world.create("a_b", 1, topic_id="02" * 16)
    here.world.commit("a_b", {0: [some_records(2)]})
    here.export(topic="a-b")
    with pytest.raises(StateError, match=r"table.name.a_b"):
        here.export(topic="a_b")
    here.export("table.name.a_b=other", topic="a_b")
    assert duck_rows(duck, here, ("frazil", "other")) == wanted_rows(here, "a_b")


def test_records_deleted_before_export_need_a_word(here, duck):
    fill(here)
    here.export()
    here.world.commit("orders", {0: [some_records(10, 50)]})
    here.world.commit("orders", {0: [some_records(10, 60)]})
    log = here.log(0)
    log.log_start = 60
    with pytest.raises(PlanError, match=re.escape("gap.policy=skip")):
        here.export()
    assert here.export("gap.policy=skip").rows == 10
    properties = here.table().properties
    assert properties["frazil.gaps"] == "[[0,50,60]]"


def test_a_table_made_anew_says_what_was_gone_from_the_log_by_then(here, duck):
    fill(here)
    here.export()
    assert here.verify().gone == 0
    here.log(0).log_start = 30
    here.export()
    assert here.verify().gone == 0, "the table has them all"
    here.catalog.drop_table(TABLE)
    here.export()
    verdict = here.verify()
    assert (verdict.gone, verdict.problems) == (30, ())
    here.reset(None)
    here.export()
    assert here.verify().gone == 30


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


def test_a_result_that_left_aside_what_was_wanted_is_never_committed():
    with pytest.raises(PlanError, match="5 offsets were left aside as not wanted, 0 are"):
        check_complete(
            CommitRange({0: 0}, {0: 5}, (), (), {}),
            {0: export_split.SplitResult(0, [], {0: Tally(outside=5)})},
            1,
        )


def test_a_missing_result_is_never_committed():
    with pytest.raises(PlanError, match="gave no result"):
        check_complete(CommitRange({0: 0}, {0: 0}, (), (), {}), {}, 1)


def test_verify_proves_a_right_table(here):
    fill(here)
    here.export()
    fill(here)  # Not exported: outside the range that is compared.
    compiled = here.verify()
    assert compiled.problems == ()
    assert compiled.records == 66
    reference = here.verify("verify.decoder=reference")
    assert reference.checksum == compiled.checksum


def test_verify_finds_a_missing_and_a_doubled_record(here):
    fill(here)
    here.export("table.partition.by=none")
    table = here.table()
    doubled = table.scan(row_filter="kafka_offset == 3").to_arrow()
    table.append(doubled)
    verdict = here.verify("table.partition.by=none")
    assert [text.split(":")[0] for text in verdict.problems] == [
        f"partition {p}, offsets 0 to 65535" for p in range(3)
    ]
    table.delete("kafka_offset == 3")
    table.append(doubled)
    assert here.verify("table.partition.by=none").problems == ()
    table.delete("kafka_partition == 1 and kafka_offset == 8")
    (problem,) = here.verify("table.partition.by=none").problems
    assert problem == "partition 1, offsets 0 to 65535: 9 records in the log, 8 in the table"


def test_verify_finds_a_changed_record(here):
    fill(here)
    here.export("table.partition.by=none")
    table = here.table()
    row = table.scan(row_filter="kafka_partition == 1 and kafka_offset == 0").to_arrow()
    table.delete("kafka_partition == 1 and kafka_offset == 0")
    at = row.column_names.index("value")
    table.append(row.set_column(at, row.schema.field(at), [[b"changed"]]))
    (problem,) = here.verify("table.partition.by=none").problems
    assert problem.endswith("9 records on both sides, but not the same ones")


def test_verify_finds_rows_that_no_export_has_committed(here):
    fill(here)
    here.export("table.partition.by=none")
    table = here.table()
    row = table.scan(row_filter="kafka_partition == 1 and kafka_offset == 0").to_arrow()
    at = row.column_names.index("kafka_offset")
    table.append(row.set_column(at, row.schema.field(at), [[9]]))
    (problem,) = here.verify("table.partition.by=none").problems
    assert problem == "1 rows of offsets that no export has committed"


def test_verify_tells_that_a_table_was_made_for_other_settings(here):
    here.configure(value_mode="json", value_schema="infer")
    here.send(b'{"a": 1}')
    here.export()
    here.configure()
    with pytest.raises(StateError, match="has no column value: it was made for other settings"):
        here.verify()


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("table", [TABLE, DEAD_TABLE])
def test_verify_tells_a_column_that_others_have_dropped(here, mode, table):
    here.configure(mode=mode, value_mode="string")
    here.send(b"a", b"\xff", keys=[b"k", b"l"])
    here.export()
    with here.table(table).update_schema() as update:
        update.delete_column("kafka_headers")
    if (mode, table) == ("upsert", DEAD_TABLE):
        assert here.verify().problems == ()  # Letters of such a table are not compared.
        return
    with pytest.raises(StateError, match="has no column kafka_headers"):
        here.verify()


def test_verify_tells_rows_that_the_log_no_longer_has(here):
    fill(here)
    here.export()
    here.log(0).log_start = 30
    verdict = here.verify()
    assert (verdict.records, verdict.older, verdict.problems) == (36, 30, ())


def test_status_tells_the_lag_of_every_partition(here):
    fill(here)
    job = here.job()
    before = topic_status(job, here.topic(job), LetterCounts())
    assert [row.lag for row in before.partitions] == [50, 9, 7]
    here.export()
    here.world.commit("orders", {1: [some_records(4, 9)]})
    after = topic_status(job, here.topic(job), LetterCounts())
    assert [row.lag for row in after.partitions] == [0, 4, 0]
    assert "frazil.orders" in render([after], 0)


def test_chunks_are_pinned_while_a_run_lasts(here):
    job = here.job()
    with Pinned(job.client, "export-x", 60_000) as pin:
        assert here.world.pins == {"export-x": 60_000}
        assert pin.position == 98
    assert here.world.pins == {}


def test_a_pin_is_renewed_before_it_ends(here):
    job = here.job()
    with Pinned(job.client, "export-x", 30) as pin:
        while sum(request.startswith("POST") for request in here.world.requests) < 3:
            pass
        assert pin.lost is None
