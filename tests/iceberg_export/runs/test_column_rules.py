"""Columns that a topic's rules drop, rename or mask: before anything is written, and in tables that are there."""

import hashlib
import json
from pathlib import Path

import pytest
from pyiceberg.types import StringType

from iceberg_export.dead_letters.counts import LetterCounts
from iceberg_export.errors import SettingsError, StateError
from iceberg_export.runs.loop import sentence
from iceberg_export.runs.status import render, topic_status
from iceberg_export.steps import Step
from iceberg_export.table.column_rules import COLUMN_RULES
from iceberg_export.tasks.export_split import BadRecordError
from iceberg_export.typed.typed_rows import WITHHELD
from iceberg_export.upkeep.replay import replay
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import DEAD_TABLE
from tests.iceberg_export.kit.registry import ORDER_1, ORDER_2, ORDER_3, avro, framed

PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "mail", "type": ["null", "string"], "default": None},
        {"name": "photo", "type": "bytes"},
        {"name": "home", "type": {"type": "record", "name": "Home", "fields": [
            {"name": "street", "type": "string"}, {"name": "town", "type": "string"}]}},
        {"name": "friends", "type": {"type": "array", "items": {
            "type": "record", "name": "Friend", "fields": [
                {"name": "mail", "type": "string"}, {"name": "since", "type": "int"}]}}},
        {"name": "pets", "type": {"type": "map", "values": {
            "type": "record", "name": "Pet", "fields": [{"name": "name", "type": "string"}]}}},
    ],
}  # fmt: skip
ADA = {
    "id": 1,
    "mail": "ada@ulm.de",
    "photo": b"\1\2\3",
    "home": {"street": "Hafengasse", "town": "Ulm"},
    "friends": [{"mail": "bo@ulm.de", "since": 3}],
    "pets": {"cat": {"name": "Minka"}},
}
NOBODY = ADA | {"id": 2, "mail": None, "friends": [], "pets": {}}


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def rules(here, **more):
    here.configure(value_mode="avro", **more)


def send_orders(here, registry, schema=ORDER_2, count=1):
    schema_id = registry.register("orders-value", schema)
    first = here.log().end
    values = [
        {"id": first + n, "city": "Ulm", "price": 2.5, "who": {"name": "Ada"}} for n in range(count)
    ]
    here.send(*(avro(schema_id, schema, value) for value in values))


def send_people(here, registry, *people):
    schema_id = registry.register("orders-value", PERSON)
    here.send(*(avro(schema_id, PERSON, one) for one in people or (ADA, NOBODY)))


def exact(here, *not_compared):
    verdict = here.verify()
    assert (verdict.problems, verdict.not_compared) == ((), not_compared)
    return verdict.records


def column_names(here):
    return here.table().schema().column_names


@pytest.mark.parametrize("exists", [False, True])
def test_a_dropped_column_is_in_no_table_whether_it_was_there_or_not(here, registry, exists):
    rules(here)
    if exists:
        send_orders(here, registry)
        here.export()
    rules(here, columns_drop="city")
    send_orders(here, registry)
    assert here.export().dead == 0
    assert "city" not in column_names(here)
    assert here.columns("price") == [(2.5,)] * (1 + exists)
    assert exact(here) == 1 + exists


def test_no_file_has_a_dropped_column(here, registry):
    rules(here, columns_drop="mail,home.street,friends.mail")
    send_people(here, registry)
    here.export()
    assert all(
        b"ada@" not in path.read_bytes() and b"Hafengasse" not in path.read_bytes()
        for path in here.data_files()
    )
    assert here.columns("home", "friends") == [
        ({"town": "Ulm"}, [{"since": 3}]),
        ({"town": "Ulm"}, []),
    ]
    assert exact(here) == 2


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_a_renamed_column_has_its_new_name_from_the_first_row_on(here, registry, exists, layout):
    rules(here, layout=layout)
    above = "value." if layout == "nested" else ""
    if exists:
        send_orders(here, registry, ORDER_1)
        here.export()
    rules(here, layout=layout, columns_rename=f"{above}city:town,{above}price:cost")
    send_orders(here, registry, ORDER_1)
    here.export()
    send_orders(here, registry, ORDER_2)
    here.export()
    found = column_names(here)
    assert f"{above}town" in found
    assert f"{above}cost" in found
    assert f"{above}city" not in found
    rows = [
        row[0] if above else row
        for row in here.columns(*(("value",) if above else ("town", "cost")))
    ]
    last = {"id": 1 + exists, "town": "Ulm", "cost": 2.5} if above else ("Ulm", 2.5)
    assert rows[-1] == last
    assert exact(here) == 2 + exists


def test_fields_in_structs_lists_and_maps_are_renamed_and_masked(here, registry):
    rules(
        here,
        columns_rename="home.town:city,friends.since:years",
        columns_mask="hash(friends.mail),null(home.street),truncate(1,pets.name)",
    )
    send_people(here, registry)
    here.export()
    assert here.columns("home", "friends", "pets") == [
        (
            {"street": None, "city": "Ulm"},
            [{"mail": sha("bo@ulm.de"), "years": 3}],
            [("cat", {"name": "M"})],
        ),
        ({"street": None, "city": "Ulm"}, [], []),
    ]
    assert exact(here) == 2


def test_a_mask_hashes_cuts_or_hides_and_leaves_nulls(here, registry):
    rules(here, columns_mask="hash(mail), truncate(2,photo), null(home)")
    send_people(here, registry)
    here.export()
    assert here.columns("id", "mail", "photo", "home") == [
        (1, sha("ada@ulm.de"), b"\1\2", None),
        (2, None, b"\1\2", None),
    ]
    assert exact(here) == 2
    assert all(b"ada@" not in path.read_bytes() for path in here.data_files())


def test_a_hash_of_bytes_is_bytes(here, registry):
    rules(here, columns_mask="hash(photo)")
    send_people(here, registry, ADA)
    here.export()
    assert here.columns("photo") == [(hashlib.sha256(b"\1\2\3").digest(),)]


@pytest.mark.parametrize("decoder", ["compiled", "reference"])
def test_a_mask_that_comes_later_is_not_compared_where_rows_of_both_kinds_are(
    here, registry, decoder
):
    rules(here)
    send_people(here, registry, ADA)
    here.export()
    rules(here, columns_mask="hash(mail)")
    send_people(here, registry, ADA)
    here.export()
    assert here.columns("mail") == [("ada@ulm.de",), (sha("ada@ulm.de"),)]
    verdict = here.verify(f"verify.decoder={decoder}")
    assert (verdict.problems, verdict.not_compared) == ((), ("mail",))


def test_what_rules_dropped_comes_back_without_them_and_older_rows_have_nothing_there(
    here, registry
):
    rules(here, columns_drop="city")
    send_orders(here, registry)
    here.export()
    rules(here)
    send_orders(here, registry)
    here.export()
    assert here.columns("city") == [(None,), ("Ulm",)]
    assert exact(here, "city") == 2
    assert COLUMN_RULES not in here.table().properties


def test_rules_are_kept_by_an_export_that_has_nothing_else_to_do(here, registry):
    rules(here)
    send_orders(here, registry)
    here.export()
    rules(here, columns_drop="city", columns_rename="price:cost")
    here.export()
    assert here.columns("id", "cost") == [(0, 2.5)]
    assert "city" not in column_names(here)
    assert exact(here) == 1


def test_a_column_that_people_add_against_a_rule_goes_again(here, registry):
    rules(here, columns_drop="city")
    send_orders(here, registry)
    here.export()
    with here.table().update_schema() as update:
        update.add_column("city", StringType())
    send_orders(here, registry)
    here.export()
    assert "city" not in column_names(here)
    assert exact(here) == 2


def test_what_people_dropped_stays_dropped_when_a_rule_for_it_goes(here, registry):
    rules(here)
    send_orders(here, registry)
    here.export()
    with here.table().update_schema() as update:
        update.delete_column("city")
    rules(here, columns_rename="city:town")
    send_orders(here, registry)
    here.export()
    assert {"city", "town"}.isdisjoint(column_names(here))
    assert exact(here) == 2


def test_a_renamed_column_keeps_its_name_when_the_rule_goes_and_another_rule_gives_another(
    here, registry
):
    rules(here, columns_rename="city:town")
    send_orders(here, registry)
    here.export()
    for setting, name in (({}, "town"), ({"columns_rename": "city:place"}, "place")):
        rules(here, **setting)
        send_orders(here, registry)
        here.export()
        assert name in column_names(here)
    assert here.columns("place") == [("Ulm",)] * 3
    assert exact(here) == 3


def test_a_new_field_with_the_name_that_a_rule_gave_away_is_not_taken_for_it(here, registry):
    rules(here, columns_rename="city:price")
    send_orders(here, registry, ORDER_1)
    here.export()
    send_orders(here, registry, ORDER_2)
    report = here.export()
    assert report.dead == 1
    assert "was renamed; give one of the two another name" in report.first_reason


def test_a_name_that_another_column_has_is_refused(here, registry):
    rules(here)
    send_orders(here, registry)
    here.export()
    rules(here, columns_rename="city:price")
    with pytest.raises(SettingsError, match="columns"):
        here.export()


def test_a_new_table_may_be_partitioned_by_a_column_under_its_new_name(here, registry):
    rules(here, columns_rename="city:town", partition_by="town")
    send_orders(here, registry)
    here.export()
    assert [field.name for field in here.table().spec().fields] == ["town"]
    assert exact(here) == 1


def test_a_column_that_the_table_was_ever_partitioned_by_is_not_dropped(here, registry):
    rules(here, partition_by="city")
    send_orders(here, registry)
    here.export()
    rules(here, partition_by="none", columns_drop="city")
    with pytest.raises(
        SettingsError, match="was, partitioned or sorted by city, and no engine could read it"
    ):
        here.export()
    assert "city" in column_names(here)


def test_a_mask_for_a_number_is_refused_with_the_words_that_help(here, registry):
    rules(here, columns_mask="hash(id)")
    send_orders(here, registry)
    with pytest.raises(SettingsError, match=r"column id is long; null\(id\) hides it"):
        here.export()


def test_columns_of_keys_have_rules_of_their_own(here, registry):
    rules(
        here, key_mode="avro", columns_drop="kafka_key.city", columns_rename="kafka_key.id:number"
    )
    key_id = registry.register("orders-key", ORDER_1)
    value_id = registry.register("orders-value", ORDER_2)
    key = avro(key_id, ORDER_1, {"id": 7, "city": "Ulm"})
    here.send(avro(value_id, ORDER_2, {"id": 1, "city": "Ulm", "price": 1.0}), keys=[key])
    here.export()
    assert here.columns("kafka_key", "city") == [({"number": 7}, "Ulm")]
    assert exact(here) == 1


def test_rows_of_change_events_and_upserts_are_masked_and_renamed(here, registry):
    rules(
        here, key_mode="string", mode="upsert", columns_mask="hash(mail)", columns_rename="mail:sha"
    )
    send_id = registry.register("orders-value", PERSON)
    here.send(avro(send_id, PERSON, ADA), keys=[b"ada"])
    here.send(avro(send_id, PERSON, ADA | {"mail": "new@ulm.de"}), keys=[b"ada"])
    with pytest.raises(SettingsError, match="names mail twice"):
        here.export()
    rules(
        here, key_mode="string", mode="upsert", columns_mask="hash(mail)", columns_rename="home:at"
    )
    here.export()
    assert here.columns("mail", "at") == [(sha("new@ulm.de"), ADA["home"])]
    assert here.verify().problems == ()


@pytest.mark.parametrize("decoder", ["compiled", "reference"])
def test_a_dead_letter_of_a_masked_topic_says_where_it_is_and_nothing_of_what_it_holds(
    here, registry, decoder
):
    rules(here, columns_mask="hash(mail)")
    send_people(here, registry)
    here.send(framed(1, b"secret!"), keys=[b"secret"], headers=[("secret", b"1")])
    report = here.export()
    assert (report.rows, report.dead, report.first_reason) == (
        2,
        1,
        f"partition 0, offset 2: {WITHHELD} (UNDECODABLE)",
    )
    assert here.dead("kafka_offset", "kafka_key", "value", "kafka_headers", "error_message") == [
        (2, None, None, [], WITHHELD)
    ]
    table = here.table(DEAD_TABLE)
    files = [one.file.file_path.removeprefix("file://") for one in table.scan().plan_files()]
    assert all(b"secret" not in Path(path).read_bytes() for path in files)
    verdict = here.verify(f"verify.decoder={decoder}")
    assert (verdict.problems, verdict.records, verdict.dead) == ((), 2, 1)
    job = here.job()
    done = replay(job, here.topic(job))
    assert (done.rows, done.left) == (0, {"withheld": 1})


def test_a_letter_from_before_the_mask_stays_whole_and_the_proof_takes_both(here, registry):
    rules(here)
    send_people(here, registry, ADA)
    here.send(framed(1, b"!"))
    here.export()
    rules(here, columns_mask="hash(mail)")
    here.send(framed(1, b"?"))
    here.export()
    assert here.dead("value") == [(framed(1, b"!"),), (None,)]
    assert here.verify().problems == ()


def test_an_export_that_ends_at_a_bad_record_of_a_masked_topic_does_not_tell_what_it_holds(
    here, registry
):
    rules(here, columns_mask="hash(mail)", bad_records="fail")
    send_people(here, registry, ADA)
    here.send(framed(1, b"!"))
    with pytest.raises(BadRecordError, match="withheld"):
        here.export()


@pytest.mark.parametrize("step", [Step.INITIALISED, Step.TASKS_DONE, Step.COMMIT_WRITTEN], ids=str)
def test_rules_that_change_while_an_export_dies_are_kept_by_the_next(here, registry, step):
    rules(here)
    send_orders(here, registry)
    here.export()
    rules(here, columns_drop="city", columns_rename="price:cost")
    send_orders(here, registry)
    with pytest.raises(Killed):
        here.export(hook=Once(step, Killed()))
    here.export()
    assert "city" not in column_names(here)
    assert here.columns("cost") == [(2.5,), (2.5,)]
    assert exact(here) == 2


def test_schemas_grow_beside_rules(here, registry):
    rules(here, columns_drop="price", columns_rename="who:whom")
    for schema in (ORDER_1, ORDER_2, ORDER_3):
        send_orders(here, registry, schema)
        here.export()
    assert exact(here) == 3
    assert "whom" in column_names(here)
    assert {"price", "who"}.isdisjoint(column_names(here))


def test_a_property_of_rules_that_cannot_be_read_is_refused_in_a_sentence(here, registry):
    rules(here)
    send_orders(here, registry)
    here.export()
    with here.table().transaction() as change:
        change.set_properties({COLUMN_RULES: "{"})
    with pytest.raises(
        StateError, match=r"frazil.column-rules of table frazil.orders cannot be read"
    ):
        here.export()


def test_the_table_says_which_rules_it_follows(here, registry):
    rules(here, columns_drop="city", columns_mask="truncate(3,mail)")
    send_orders(here, registry)
    here.export()
    assert json.loads(here.table().properties[COLUMN_RULES]) == {
        "drop": ["city"],
        "rename": {},
        "mask": {"mail": "truncate 3"},
    }


@pytest.mark.parametrize(
    ("setting", "text", "said"),
    [
        ("drop", "kafka_offset", "every table has kafka_offset"),
        ("drop", "a,a", "names a twice"),
        ("drop", "a,a.b", "a.b is in a, which is dropped or masked"),
        ("drop", "a b", "cannot be read at 'a b'"),
        ("drop", "a,", "ends with a comma"),
        ("rename", "a:b,c:B", "gives the name b to two columns"),
        ("rename", "a:kafka_b", "a name of Kafka's columns"),
        ("rename", "a", "cannot be read at 'a'"),
        ("mask", "md5(a)", "cannot be read at 'md5(a)'"),
        ("mask", "truncate(a)", "cannot be read"),
        ("mask", "hash(3,a)", "cannot be read"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused(here, setting, text, said):
    rules(here, **{f"columns_{setting}": text})
    with pytest.raises(SettingsError, match="topic orders: ") as refused:
        here.export()
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"value_mode": "raw"}, "value.mode to json, avro or protobuf"),
        ({"value_mode": "json", "value_schema": "infer"}, "value.schema not to infer"),
    ],
)
def test_rules_need_columns_of_a_schema(here, more, said):
    here.configure(**more, columns_drop="mail")
    with pytest.raises(SettingsError, match="columns need a schema") as refused:
        here.export()
    assert said in str(refused.value)


def test_rows_of_an_upsert_are_found_by_columns_that_no_rule_touches(here):
    rules(here, key_mode="avro", mode="upsert", columns_drop="kafka_key.city")
    with pytest.raises(SettingsError, match="mode upsert finds rows by kafka_key"):
        here.export()


def told_by_status(here):
    job = here.job()
    status = topic_status(job, here.topic(job), LetterCounts())
    return status.rules_without_column, render([status], 0)


def test_rules_for_columns_that_nobody_has_are_told_by_the_run_and_by_status(here, registry):
    rules(
        here,
        columns_drop="home.Street,friends.since",
        columns_mask="hash(MAIL),null(pets.name)",
        columns_rename="photo:picture,age:years",
    )
    send_people(here, registry)
    report = here.export()
    lost = ("home.Street (there is home.street)", "age", "MAIL (there is mail)")
    assert report.rules_without_column == lost
    assert sentence(report, ended_early=False).endswith(
        "; frazil.iceberg.columns.* has rules for what no schema has: " + ", ".join(lost)
    )
    # What is dropped is in no table, however it is spelled.
    paths, text = told_by_status(here)
    assert paths == ("age", "MAIL (there is mail)")
    assert text.endswith(
        "frazil.iceberg.columns.* has rules for what frazil.orders has not: age, MAIL (there is mail)"
    )
    assert exact(here) == 2


def test_a_rule_for_a_column_to_come_is_told_until_a_schema_has_it(here, registry):
    rules(here, columns_mask="null(price)")
    send_orders(here, registry, ORDER_1)
    assert here.export().rules_without_column == ("price",)
    assert told_by_status(here)[0] == ("price",)
    send_orders(here, registry, ORDER_2)
    assert here.export().rules_without_column == ()
    assert told_by_status(here)[0] == ()
    assert here.columns("price") == [(None,)] * 2


def test_nothing_is_said_of_rules_before_there_is_a_schema(here, registry):
    rules(here, columns_mask="hash(mail)")
    here.send(b"\0\0\0\0\7no schema")
    assert here.export().rules_without_column == ()
    assert told_by_status(here)[0] == ()
