"""Topics of JSON that bring their schema in their own settings: no registry, no frame, typed columns."""

import json

import pytest

from iceberg_export.errors import SettingsError, StateError
from iceberg_export.typed.inline import PROPERTY
from iceberg_export.upkeep.reset import reset_offsets
from tests.iceberg_export.runs.test_change_events import CHANGES, HISTORY, JSON_ENVELOPE


def schema(**properties):
    return json.dumps({"type": "object", "properties": properties})


INTEGER, STRING, NUMBER = {"type": "integer"}, {"type": "string"}, {"type": "number"}
ORDER = schema(id=INTEGER, city=STRING)
WITH_PRICE = schema(id=INTEGER, city=STRING, price=NUMBER)


def configure(here, text=ORDER, **more):
    here.configure(value_mode="json", value_schema="inline", value_schema_json=text, **more)


def send(here, *values, **more):
    here.send(*(one if one is None else json.dumps(one).encode() for one in values), **more)


def notes(here):
    """What the table says of the schemas that decoded its rows."""
    return {one for one in here.table().metadata.properties if one.startswith(PROPERTY)}


def test_values_are_columns_by_the_topics_own_schema_and_no_registry_is_asked(here):
    configure(here)
    send(here, {"id": 1, "city": "Ulm"}, {"id": 1 << 40}, None)
    report = here.export()
    assert (report.rows, report.dead) == (3, 0)
    wanted = [(1, "Ulm", None), (1 << 40, None, None), (None, None, None)]
    assert here.columns("id", "city", "kafka_value_schema_id") == wanted
    verdict = here.verify()
    assert (verdict.records, verdict.problems) == (3, ())
    assert here.verify("verify.decoder=reference").problems == ()


def test_keys_are_a_struct_by_a_schema_of_their_own_and_the_identity_of_rows(here):
    here.configure(
        key_mode="json", key_schema="inline", key_schema_json=schema(id=INTEGER),
        value_mode="json", value_schema="inline", value_schema_json=ORDER, mode="upsert",
    )  # fmt: skip
    keys = [b'{"id": 1}', b'{"id":1}', b'{"id": 2}']
    send(
        here, *({"id": n, "city": c} for n, c in ((1, "Ulm"), (1, "Kiel"), (2, "Bonn"))), keys=keys
    )
    here.export()
    assert here.columns("id", "city") == [(1, "Kiel"), (2, "Bonn")]
    assert here.verify().problems == ()


def test_what_does_not_fit_the_schema_is_a_dead_letter_that_says_why(here):
    configure(here)
    here.send(b'{"id": "one"}', b"\x00\x00\x00\x00\x07{}", b'{"id": 1}')
    assert here.export().dead == 2
    assert here.columns("id") == [(1,)]
    first, second = here.dead("error_code", "error_message", "schema_id")
    assert (first[0], first[2], second[0], second[2]) == ("UNDECODABLE", None) * 2
    assert first[1]


def test_without_any_schema_the_dead_letter_names_both_ways_to_one(here, registry):
    here.configure(value_mode="json")
    here.send(b'{"id": 1}')
    assert here.export().dead == 1
    ((message,),) = here.dead("error_message")
    assert "register a JSON Schema under its subject, or set frazil.iceberg.value.schema" in message


def test_a_schema_with_a_new_field_makes_a_new_column_and_proofs_say_what_they_leave_out(here):
    configure(here)
    send(here, {"id": 1, "city": "Ulm", "price": 2.5})
    here.export()
    assert here.verify().not_compared == ()
    configure(here, WITH_PRICE)
    send(here, {"id": 2, "city": "Bonn", "price": 3.5})
    here.export()
    assert here.columns("id", "price") == [(1, None), (2, 3.5)]
    assert here.verify().problems == ()


def test_the_same_types_in_other_words_are_the_same_schema(here):
    configure(here)
    send(here, {"id": 1, "city": "Ulm"})
    here.export()
    before = notes(here)
    configure(here, json.dumps({"title": "Order", **json.loads(ORDER)}, indent=1))
    send(here, {"id": 2})
    here.export()
    assert notes(here) == before
    assert len(before) == 1


def test_a_schema_that_does_not_fit_the_table_stops_the_export_before_anything_is_written(here):
    configure(here)
    send(here, {"id": 1, "city": "Ulm"})
    here.export()
    configure(here, schema(id=STRING))
    send(here, {"id": "one"})
    with pytest.raises(
        StateError, match=r"own schema of value does not fit .*column id of the table is long"
    ):
        here.export()
    assert here.columns("id") == [(1,)]
    configure(here)
    assert here.export().dead == 1


def test_rows_that_were_decoded_by_the_registrys_schemas_are_not_taken_for_rows_of_the_own(
    here, registry
):
    registry.register("orders-value", json.loads(WITH_PRICE), "JSON")
    here.configure(value_mode="json")
    send(here, {"id": 1, "city": "Ulm", "price": 1.5})
    here.export()
    configure(here)
    send(here, {"id": 2, "city": "Bonn", "price": 2.5})
    here.export()
    assert here.columns("id", "price") == [(1, 1.5), (2, None)]
    assert any(name.endswith(".others") for name in notes(here))
    assert here.verify().problems == ()


def test_a_table_that_was_reset_to_the_start_knows_no_schema_but_todays(here):
    configure(here)
    send(here, {"id": 1, "price": 1.5})
    here.export()
    configure(here, WITH_PRICE)
    here.export()
    assert len(notes(here)) == 2
    job = here.job()
    reset_offsets(job, here.topic(job), None)
    here.export()
    assert here.columns("id", "price") == [(1, 1.5)]
    assert len(notes(here)) == 1
    assert here.verify().problems == ()


def test_change_events_have_the_schema_of_their_envelope_in_the_topic(here):
    configure(here, json.dumps(JSON_ENVELOPE), envelope="debezium")
    send(here, *CHANGES)
    assert here.export().dead == 0
    assert here.columns("id", "city", "kafka_cdc_op", "kafka_cdc_ts") == HISTORY
    assert here.verify().problems == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", r"value.schema.json is no JSON Schema: not JSON"),
        ("true", r"value.schema.json is no JSON Schema: it is no object"),
        ('{"$ref": "#/nowhere"}', r"value.schema.json is no JSON Schema: "),
        ("", r"value.schema is inline, and frazil.iceberg.value.schema.json has no JSON Schema"),
    ],
)
def test_a_text_that_is_no_schema_is_told_before_a_table_is_made(here, text, said):
    configure(here, text)
    send(here, {"id": 1})
    with pytest.raises(SettingsError, match=said):
        here.export()
    assert not here.catalog.table_exists(here.name)


@pytest.mark.parametrize("mode", ["avro", "protobuf", "raw", "string"])
def test_only_json_has_schemas_in_the_topic(here, mode):
    here.configure(value_mode=mode, value_schema="inline", value_schema_json=ORDER)
    with pytest.raises(
        SettingsError, match=rf"value.schema=inline is for value.mode=json, not {mode}"
    ):
        here.export()
