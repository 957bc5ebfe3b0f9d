"""Records that an operator takes out of a table stay out, and proofs say who did it and why."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_export.errors import OvertakenError, SettingsError, StateError
from iceberg_export.files.read import scan_files
from iceberg_export.files.rewrite import rows_among
from iceberg_export.steps import Step
from iceberg_export.table.redactions import redactions_identifier
from iceberg_export.upkeep.redact import plan_redaction, redact
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import NOW_MS, TABLE
from tests.iceberg_export.kit.registry import ORDER_1, avro

REDACTED = redactions_identifier(TABLE)
FOUR = "kafka_partition = 0 and kafka_offset < 4"


def redacted(here, where=FOUR, **how):
    job = here.job(now_ms=NOW_MS, **how)
    topic = here.topic(job)
    plan = plan_redaction(job, topic, where)
    return redact(job, topic, plan, by="ada", reason="ticket 7")


def left(here):
    return [row for row in here.wanted() if row[0] != 0 or row[1] >= 4]


def test_redacted_records_leave_the_table_and_are_noted(here):
    here.exported()
    assert redacted(here) == 4
    assert here.rows() == left(here)
    assert here.columns(
        "kafka_partition", "kafka_offset", "redacted_by", "reason", table=REDACTED
    ) == [(0, offset, "ada", "ticket 7") for offset in range(4)]
    notes = here.table().current_snapshot().summary.additional_properties
    assert notes["frazil.redacted-rows"] == "4"


@pytest.mark.parametrize("by", ["none", "day"])
def test_a_proof_says_exact_less_what_was_redacted_by_whom(here, by):
    here.exported(1, f"table.partition.by={by}")
    redacted(here)
    verdict = here.verify()
    assert (verdict.problems, verdict.records, verdict.redacted) == ((), 6, 4)
    (one,) = verdict.redactions
    assert (one.by, one.reason, one.records, one.at_ms) == ("ada", "ticket 7", 4, NOW_MS)


def test_exports_go_on_after_a_redaction(here):
    here.exported()
    redacted(here)
    here.exported()
    assert here.rows() == left(here)
    assert here.verify().problems == ()


@pytest.mark.parametrize("anew", ["reset", "dropped"])
def test_redacted_records_stay_away_when_the_table_is_made_anew(here, anew):
    here.exported()
    redacted(here)
    if anew == "reset":
        here.reset(None)
    else:
        here.catalog.drop_table(TABLE)
    report = here.export()
    assert (report.rows, report.left_out) == (6, 4)
    assert here.rows() == left(here)
    assert (here.verify().problems, here.verify().redacted) == ((), 4)


def test_rows_that_a_rollback_brings_back_are_told_and_go_again(here):
    here.exported()
    before = here.head()
    redacted(here)
    here.roll_back(before)
    (problem,) = here.verify().problems
    assert problem == (
        "4 rows of the table were redacted and are there; `frazil export redact --topic orders` takes "
        "them out"
    )
    assert redacted(here, None) == 4
    assert (here.rows(), here.verify().problems) == (left(here), ())
    assert len(here.verify().redactions) == 1


@pytest.mark.parametrize(
    "step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN, Step.COMMIT_ANSWERED], ids=str
)
def test_a_redaction_that_dies_is_made_whole_by_the_same_command(here, step):
    here.exported()
    with pytest.raises(Killed):
        redacted(here, hook=Once(step, Killed()))
    assert redacted(here) in (0, 4)
    assert here.rows() == left(here)
    verdict = here.verify()
    assert (verdict.problems, sum(one.records for one in verdict.redactions)) == ((), 4)


def test_an_export_that_commits_meanwhile_is_in_and_the_redaction_too(here):
    here.exported()
    here.fill()
    redacted(here, hook=Once(Step.COMMIT_LOADED, here.export))
    assert here.rows() == left(here)
    assert here.verify().problems == ()


def test_a_reset_meanwhile_refuses_the_redaction_and_the_records_stay_away(here):
    here.exported()
    with pytest.raises(OvertakenError):
        redacted(here, hook=Once(Step.COMMIT_LOADED, lambda: here.reset(None)))
    here.export()
    assert here.rows() == left(here)


def test_what_is_decoded_is_redacted_by_its_columns(here, registry):
    here.configure(value_mode="avro")
    one = registry.register("orders-value", ORDER_1)
    here.send(*(avro(one, ORDER_1, {"id": n, "city": c}) for n, c in enumerate(["Ulm", "Bonn"])))
    here.send(b"bad", partition=1)
    here.export()
    assert redacted(here, "city = 'Ulm' or id > 7") == 1
    assert here.columns("city") == [("Bonn",)]
    verdict = here.verify()
    assert (verdict.problems, verdict.records, verdict.dead, verdict.redacted) == ((), 1, 1, 1)


def test_where_nothing_is_found_nothing_is_changed(here):
    here.exported()
    before = here.head()
    assert redacted(here, "kafka_offset > 100") == 0
    assert here.head() == before
    assert not here.catalog.table_exists(REDACTED)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            "town = 'Ulm'",
            "Could not find field with name town.*say an Iceberg filter over kafka_part",
        ),
        ("kafka_offset = 'x'", "--where kafka_offset = 'x': "),
        ("kafka_offset <", "--where kafka_offset <: Expected"),
    ],
)
def test_a_filter_that_is_none_is_told(here, where, said):
    here.exported()
    with pytest.raises(SettingsError, match=said):
        redacted(here, where)


def test_upserts_are_told_what_to_do_instead(here):
    here.configure(mode="upsert")
    here.send(b"a", keys=[b"k"])
    here.export()
    with pytest.raises(SettingsError, match="write a tombstone for the key"):
        redacted(here)


def test_without_words_only_what_was_redacted_before_goes(here):
    here.exported()
    with pytest.raises(
        SettingsError, match="nothing of topic orders was redacted yet; say --where"
    ):
        redacted(here, None)


def test_a_table_of_others_under_the_name_of_redactions_is_told(here):
    here.exported()
    here.catalog.create_table(REDACTED, Schema(NestedField(1, "a", LongType(), required=False)))
    with pytest.raises(StateError, match="was not made by `frazil export redact`"):
        redacted(here)
    with pytest.raises(StateError, match="give one of the two another name"):
        here.export()


def test_no_topic_gets_a_table_of_that_name(here):
    here.world.create("x__redacted", 1, topic_id="03" * 16)
    with pytest.raises(SettingsError, match="so tables of redactions are called"):
        here.export(topic="x__redacted")


def test_a_topic_is_not_exported_into_its_own_redactions(here):
    here.exported()
    redacted(here)
    with pytest.raises(SettingsError, match="so tables of redactions are called"):
        here.export("table.name.orders=orders__redacted")


def test_only_files_that_may_hold_what_goes_are_written_anew(here):
    here.exported(3)
    job = here.job()
    plan = plan_redaction(job, here.topic(job), FOUR)
    assert len(scan_files(plan.table, rows_among(plan.rows))) == len(here.live_files()) // 3
