"""An older log is put back under a table that is ahead of it: no export goes on, and everyone is told."""

import io
from types import SimpleNamespace

import pyarrow as pa
import pytest

from iceberg_export.cli.preview import preview_topic
from iceberg_export.cli.reset_preview import preview_reset
from iceberg_export.dead_letters.counts import LetterCounts
from iceberg_export.errors import AheadError
from iceberg_export.progress import Progress
from iceberg_export.records.last_records import digest_of
from iceberg_export.records.rows import ROW_SCHEMA
from iceberg_export.runs.export import export_topic
from iceberg_export.runs.loop import Clock, Runner, StopRequest
from iceberg_export.runs.session import Session
from iceberg_export.runs.status import render, topic_status
from iceberg_export.settings import parse
from iceberg_export.source.filters import QueryRange
from iceberg_export.source.read_options import parse_options
from iceberg_export.source.tables import plan_table
from iceberg_export.table import state
from iceberg_export.tasks import spark
from iceberg_export.verify.proof import verify_topic
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.place import TABLE, place
from tests.iceberg_export.kit.tasks import HereRunner
from tests.iceberg_export.kit.world import InTransaction, Log, World, some_records


@pytest.fixture
def here():
    """Five records of each of two partitions are in the table, then five more of partition 0; the
    log is that of before those."""
    with place() as found:
        fill(found, 0, 1)
        found.export()
        older = found.world.backup()
        fill(found, 0)
        found.export()
        found.newer = found.world.backup()
        found.world.put_back(older)
        yield found


def fill(here, *partitions):
    some = {one: [some_records(5, here.log(one).end)] for one in partitions}
    here.world.commit("orders", some)


def grown_past(here):
    """The log has as many offsets as the table again, of other records, in one chunk."""
    here.world.commit("orders", {0: [some_records(8, 1000)]})


def refused(call, *given, **named):
    with pytest.raises(AheadError) as error:
        call(*given, **named)
    return str(error.value)


def test_an_export_is_refused_and_nothing_is_committed(here):
    before = here.table().metadata
    said = refused(here.export)
    assert here.table().metadata == before
    assert said == (
        "orders, partition 0: the table has what is before offset 10, the log ends at 5; "
        "the table was written when the log was at position 1:101, the log is at 1:100: the table is "
        "ahead of the log, so an older log was put back, or the log was recovered without its end, or this is "
        "not the cluster that the table "
        "was made from; put the newer log back, or, if its records are gone for good, make the table "
        "anew from what is left with `frazil export reset-offsets --topic orders --to earliest`, or "
        "set table.name.orders to a new table"
    )


def test_an_export_is_refused_when_the_log_has_as_many_offsets_again(here):
    here.world.position -= 1
    grown_past(here)
    assert "position 1:101, the log is at 1:100" in refused(here.export)


@pytest.mark.promise("P7")
def test_an_export_is_refused_when_the_log_has_grown_past_the_table_in_all_that_counts(here):
    before = here.table().metadata
    grown_past(here)
    said = refused(here.export)
    assert "partition 0: at offset 9 the log has another record than the table" in said
    assert "partition 1" not in said
    assert here.table().metadata == before


@pytest.mark.parametrize("compacted", [False, True])
def test_records_that_jobs_have_moved_are_known_again(here, compacted):
    here.world.put_back(here.newer)
    log = here.log()
    kept = {one.offset for one in log.records if not compacted or one.offset % 2}
    here.world.compact("orders", 0, kept - ({9} if compacted else set()))
    log.compacted = compacted
    fill(here, 0)
    assert here.export().rows == 5


def test_a_record_that_jobs_have_moved_and_changed_is_another(here):
    grown_past(here)
    here.world.compact("orders", 0, {one.offset for one in here.log().records})
    assert "at offset 9 the log has another record" in refused(here.export)


def test_records_that_are_where_they_were_are_not_read_again(here):
    here.world.put_back(here.newer)
    fill(here, 0)
    job = here.job()
    tasks = []
    runner = SimpleNamespace(parallelism=1, run=lambda task, *given, **named: (
        tasks.append(task.__name__), HereRunner().run(task, *given, **named))[1])  # fmt: skip
    export_topic(job._replace(runner=lambda: runner), here.topic(job))
    assert tasks == ["export_task"]


def test_the_last_record_is_told_by_the_same_digest_in_every_release():
    record = {"kafka_partition": 1, "kafka_offset": 7, "kafka_timestamp": 1_700_000_000_000_000,
              "kafka_timestamp_type": 0, "kafka_key": b"k", "kafka_timestamp_raw": None, "value": None,
              "kafka_headers": [{"key": "h", "value": b""}, {"key": "", "value": None}]}  # fmt: skip
    assert digest_of(pa.Table.from_pylist([record], ROW_SCHEMA)) == "525001565364d124"


def test_a_table_of_an_earlier_release_is_refused_by_its_offsets_alone(monkeypatch):
    encode = state.encode_keys

    def of_earlier_release(*given, **named):
        return tuple(
            {
                name: v
                for name, v in keys.items()
                if name not in {state.POSITION, state.LAST_RECORDS}
            }
            for keys in encode(*given, **named)
        )

    with place() as here:
        older = here.world.backup()
        fill(here, 0)
        with monkeypatch.context() as earlier:
            earlier.setattr(state, "encode_keys", of_earlier_release)
            here.export()
        assert here.state().position == 0
        here.world.put_back(older)
        assert "at position" not in refused(here.export)
        grown_past(here)
        assert here.export().rows == 3
        assert here.state().position == here.world.position


def test_the_export_goes_on_when_the_newer_log_is_back(here):
    refused(here.export)
    here.world.put_back(here.newer)
    fill(here, 0, 1)
    assert here.export().rows == 10
    assert here.rows() == here.wanted()
    assert here.verify().problems == ()


def test_a_reset_takes_out_what_the_log_has_not_and_the_export_goes_on(here):
    job = here.job()
    assert "take the rows from 0:5 on out of" in preview_reset(job, here.topic(job), {0: 5})
    assert here.reset({0: 5}).rows_removed == 5
    grown_past(here)
    assert here.export().rows == 8
    assert here.rows() == here.wanted()


def test_a_reset_to_the_logs_start_mends_a_table_whose_offsets_were_given_anew(here):
    here.world.position -= 1
    grown_past(here)
    refused(here.export)
    here.reset(None)
    here.export()
    assert here.rows() == here.wanted()


def test_a_reset_of_one_partition_leaves_the_others_known(here):
    here.world.put_back(here.newer)
    here.reset({0: 5})
    assert here.state().last_records.keys() == {1}
    here.world.topics["orders"][1][1] = Log()
    here.world.commit("orders", {1: [some_records(8, 1000)]})
    assert "partition 1: at offset 4 the log has another record" in refused(here.export)


def test_a_reset_that_leaves_another_partition_ahead_is_refused(here):
    here.world.put_back(here.newer)
    fill(here, 1)
    here.export()
    here.newer["topics"]["orders"][1][0].end = 5
    here.newer["topics"]["orders"][1][0].spans.pop()
    here.world.put_back(here.newer)
    said = refused(here.reset, {0: 5})
    assert "partition 1: the table has what is before offset 10, the log ends at 5" in said
    job = here.job()
    assert refused(preview_reset, job, here.topic(job), {0: 5}) == said
    assert here.reset({0: 5, 1: 5}).rows_removed == 10


def test_status_plan_and_verify_tell_it(here):
    job = here.job()
    topic = here.topic(job)
    status = topic_status(job, topic, LetterCounts())
    assert "the table is ahead of the log" in status.problem
    assert f"orders: {status.problem}" in render([status], 0)
    assert refused(preview_topic, job, topic, parallelism=1) == status.problem
    assert refused(verify_topic, job, topic) == status.problem


def test_a_query_over_the_table_and_what_is_not_in_it_is_refused(here):
    options = parse_options(
        {"agent": "http://localhost", "table": ".".join(TABLE)}, streaming=False
    )
    said = refused(plan_table, options, here.job().client, here.table(), QueryRange())
    assert "the table is ahead of the log" in said


def test_other_topics_are_exported_and_the_exit_code_is_that_of_a_refusal(tmp_path, monkeypatch):
    monkeypatch.setattr(spark, "start", lambda _given, _progress: HereRunner())
    world = World(tmp_path / "store")
    world.create("orders", 1)
    world.create("others", 1, topic_id="2" * 32)
    older = world.backup()
    with served(world) as address:
        settings = parse(data=tmp_path / "data", config=None, assignments=[f"agent={address}"])
        said = io.StringIO()
        session = Session(settings, Progress(said, lambda: 0.0))
        clock = Clock(lambda: 1.0, lambda: 1, lambda _seconds: None)

        def run():
            runner = Runner(session, clock, StopRequest(), io.StringIO())
            return runner.once(), runner.output.getvalue()

        world.commit("orders", {0: [some_records(5)]})
        assert run()[0] == 0
        world.put_back(older)
        world.commit("others", {0: [some_records(3)]})
        code, told = run()
        session.close()
        session.catalog.engine.dispose()
    assert code == 1
    assert "orders, partition 0: the table has what is before offset 5, the log ends at 0" in (
        said.getvalue()
    )
    assert told == "others: 3 records in 1 files into table frazil.others\n"


def recovered_without_the_end_of_a_transaction(here):
    """The table has a transaction that the log has open where it is lost, and ends with another's record."""
    world = here.world
    records = some_records(3, here.log().end)
    world.commit("orders", {0: [InTransaction(7, records)], 1: [some_records(2, here.log(1).end)]})
    world.commit("orders", {0: [some_records(2, here.log().end)]})
    older = world.backup()
    world.end("orders", 0, 7, commit=True)
    here.export()
    world.put_back(older)
    world.recover()


@pytest.mark.promise("P7")
def test_a_transaction_whose_end_was_lost_is_in_no_table_that_goes_on(here):
    here.world.put_back(here.newer)
    recovered_without_the_end_of_a_transaction(here)
    assert here.log().end == here.state().offsets[0], "the log is as long as the table"
    said = refused(here.export)
    assert (
        "partition 0: the table has what is before offset 16, and of the log that it was made from only"
        " what is before 10 was recovered: the table is ahead of the log"
    ) in said
    assert "partition 1" not in said
    job = here.job()
    assert topic_status(job, here.topic(job), LetterCounts()).problem == said
    assert refused(verify_topic, job, here.topic(job)) == said


def test_a_table_with_what_was_recovered_alone_goes_on(here):
    here.world.put_back(here.newer)
    fill(here, 0, 1)
    before = here.world.backup()
    here.export()
    fill(here, 1)
    here.world.put_back(before)
    here.world.recover()
    fill(here, 0, 1)
    assert here.export().rows == 10
    here.world.recover()
    assert here.export().rows == 0
    assert here.verify().problems == ()
    assert here.rows() == here.wanted()


def test_a_reset_to_what_was_recovered_mends_a_table_and_one_behind_it_does_not(here):
    here.world.put_back(here.newer)
    recovered_without_the_end_of_a_transaction(here)
    fill(here, 0, 1)
    for to in ({0: 12}, {1: 5}):
        assert "only what is before 10 was recovered" in refused(here.reset, to)
    assert here.reset({0: 10}).rows_removed == 5
    here.export()
    assert here.rows() == here.wanted()
    assert here.verify().problems == ()
