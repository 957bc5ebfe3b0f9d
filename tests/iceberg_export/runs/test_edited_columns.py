"""Columns that people dropped or renamed by hand: they stay away, and are followed, whatever comes."""

import pyarrow as pa
import pytest

from iceberg_export.errors import StateError
from iceberg_export.table.column_note import COLUMNS
from tests.iceberg_export.kit.place import TABLE
from tests.iceberg_export.kit.registry import ORDER_1, ORDER_2, ORDER_3, avro, framed

PEOPLE = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": {"type": "array", "items": {
            "type": "record", "name": "Who", "fields": [
                {"name": "name", "type": "string"}, {"name": "town", "type": "string"}]}}},
    ],
}  # fmt: skip


@pytest.fixture
def here(here):
    here.configure(value_mode="avro")
    return here


def change(here, act):
    """What a person does with ALTER TABLE."""
    with here.table().update_schema() as update:
        act(update)


def send_orders(here, registry, schema=ORDER_2, count=1):
    """Records of that schema, with the next ids."""
    schema_id = registry.register("orders-value", schema)
    first = here.log().end
    values = [{"id": first + n, "city": "Ulm", "price": 2.5} for n in range(count)]
    here.send(*(avro(schema_id, schema, value) for value in values))


def exact(here):
    verdict = here.verify()
    assert (verdict.problems, verdict.not_compared) == ((), ())
    return verdict.records


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_a_dropped_column_stays_dropped_and_the_rest_of_its_records_comes(here, registry, layout):
    here.configure(value_mode="avro", layout=layout)
    inside = "value." if layout == "nested" else ""
    send_orders(here, registry)
    here.export()
    change(here, lambda update: update.delete_column(f"{inside}city"))
    send_orders(here, registry)
    assert (here.export().dead, exact(here)) == (0, 2)
    assert f"{inside}city" not in here.table().schema().column_names
    ids = {f.name: f.field_id for f in here.table().schema().fields}
    here.export()
    assert {f.name: f.field_id for f in here.table().schema().fields} == ids
    found = here.columns("value" if layout == "nested" else "price")
    assert found == [({"id": 0, "price": 2.5},), ({"id": 1, "price": 2.5},)] or found == [
        (2.5,),
        (2.5,),
    ]


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_a_renamed_column_is_filled_under_its_new_name(here, registry, layout):
    here.configure(value_mode="avro", layout=layout)
    inside = "value." if layout == "nested" else ""
    send_orders(here, registry, ORDER_1)
    here.export()
    change(here, lambda update: update.rename_column(f"{inside}city", "town"))
    send_orders(here, registry, ORDER_2)
    assert (here.export().dead, exact(here)) == (0, 2)
    if layout == "flat":
        assert here.columns("id", "town", "price") == [(0, "Ulm", None), (1, "Ulm", 2.5)]
    else:
        assert here.columns("value") == [
            ({"id": 0, "town": "Ulm", "price": None},),
            ({"id": 1, "town": "Ulm", "price": 2.5},),
        ]
    assert "city" not in here.table().schema().column_names


def test_fields_of_structs_in_lists_are_dropped_and_renamed_alike(here, registry):
    one = registry.register("orders-value", PEOPLE)
    value = avro(one, PEOPLE, {"id": 1, "who": [{"name": "Ada", "town": "Ulm"}]})
    here.send(value)
    here.export()

    def edit(update):
        update.delete_column("who.element.name")
        update.rename_column("who.element.town", "city")

    change(here, edit)
    here.send(value, framed(one, b"\2"))
    assert (here.export().dead, exact(here)) == (1, 2)
    assert here.columns("who") == [([{"city": "Ulm"}],), ([{"city": "Ulm"}],)]


def test_a_column_that_is_added_again_is_filled_from_then_on_and_not_compared(here, registry):
    send_orders(here, registry)
    here.export()
    change(here, lambda update: update.delete_column("city"))
    send_orders(here, registry)
    here.export()
    change(here, lambda update: update.add_column("city", here_type("string")))
    send_orders(here, registry)
    here.export()
    assert here.columns("city") == [(None,), (None,), ("Ulm",)]
    verdict = here.verify()
    assert (verdict.records, verdict.problems, verdict.not_compared) == (3, (), ("city",))


def here_type(name):
    from pyiceberg.types import LongType, StringType

    return {"string": StringType(), "long": LongType()}[name]


def test_a_table_that_may_not_grow_takes_records_of_columns_that_were_dropped(here, registry):
    here.configure(value_mode="avro", schema_evolution="strict")
    send_orders(here, registry)
    here.export()
    change(here, lambda update: update.delete_column("city"))
    send_orders(here, registry)
    assert (here.export().dead, exact(here)) == (0, 2)


def test_a_renamed_column_and_a_new_one_of_that_name_are_not_taken_for_each_other(here, registry):
    send_orders(here, registry, ORDER_1)
    here.export()
    change(here, lambda update: update.rename_column("city", "price"))
    send_orders(here, registry, ORDER_2)
    report = here.export()
    assert (report.rows, report.dead) == (0, 1)
    assert "which was renamed; give one of the two another name" in report.first_reason


def test_all_columns_of_values_may_be_dropped(here, registry):
    here.configure(value_mode="avro", layout="nested")
    send_orders(here, registry)
    here.export()

    def edit(update):
        update.delete_column("value")
        update.delete_column("kafka_value_schema_id")

    change(here, edit)
    send_orders(here, registry)
    here.send(b"bad")
    assert (here.export().dead, exact(here)) == (1, 2)
    assert "value" not in here.table().schema().column_names


def test_text_that_was_dropped_and_renamed_is_as_any_column(here):
    here.configure(value_mode="string", key_mode="string")
    here.send(b"a", keys=[b"k"])
    here.export()

    def edit(update):
        update.delete_column("kafka_key")
        update.rename_column("value", "line")

    change(here, edit)
    here.send(b"b", keys=[b"k"])
    assert (here.export().dead, exact(here)) == (0, 2)
    assert here.columns("line") == [("a",), ("b",)]
    assert "kafka_key" not in here.table().schema().column_names


def test_a_struct_that_lost_all_its_fields_is_told(here, registry):
    one = registry.register("orders-value", ORDER_3)
    here.send(avro(one, ORDER_3, {"id": 3, "who": {"name": "Ada"}}))
    here.export()
    change(here, lambda update: update.delete_column("who.name"))
    here.send(avro(one, ORDER_3, {"id": 4, "who": {"name": "Ada"}}))
    with pytest.raises(StateError, match=r"column who .* lost all its fields.*; drop the struct"):
        here.export()


def test_partitions_follow_a_renamed_column_and_the_setting_may_say_either_name(here, registry):
    here.configure(value_mode="avro", partition_by="city")
    send_orders(here, registry)
    here.export()
    change(here, lambda update: update.rename_column("city", "town"))
    for terms in ("city, id", "town, bucket(4, id)"):
        here.world.configs["orders"]["partition.by"] = terms
        send_orders(here, registry)
        assert (here.export().dead, exact(here) > 0) == (0, True)
    (last,) = [f.partition for f in newest_files(here)]
    assert list(last) != []
    assert {field.source_id for field in here.table().spec().fields} == {
        here.table().schema().find_field(name).field_id for name in ("town", "id")
    }


def newest_files(here):
    files = [task.file for task in here.table().scan().plan_files()]
    spec = here.table().metadata.default_spec_id
    return [one for one in files if one.spec_id == spec]


def test_upserts_go_by_the_key_whatever_its_other_columns_are_called(here, registry):
    here.configure(value_mode="avro", mode="upsert")
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 1, "city": "Ulm"}), keys=[b"k"])
    here.export()

    def edit(update):
        update.delete_column("id")
        update.rename_column("city", "town")

    change(here, edit)
    here.send(avro(one, ORDER_1, {"id": 1, "city": "Bonn"}), keys=[b"k"])
    assert (here.export().dead, exact(here)) == (0, 1)
    assert here.columns("kafka_key", "town") == [(b"k", "Bonn")]


@pytest.mark.parametrize("act", ["drop", "rename", "add again"])
def test_a_key_that_lost_a_column_is_no_key_of_upserts(here, registry, act):
    here.configure(value_mode="avro", key_mode="avro", mode="upsert")
    values, keys = (registry.register(f"orders-{what}", ORDER_1) for what in ("value", "key"))
    here.world.configs["orders"]["partition.by"] = "none"
    value = {"id": 1, "city": "Ulm"}
    send = (avro(values, ORDER_1, value), avro(keys, ORDER_1, value))
    here.send(send[0], keys=[send[1]])
    here.export()
    if act == "rename":
        change(here, lambda update: update.rename_column("kafka_key", "who"))
    else:
        change(here, lambda update: update.delete_column("kafka_key.city"))
    if act == "add again":
        change(here, lambda update: update.add_column(("kafka_key", "city"), here_type("string")))
    here.send(send[0], keys=[send[1]])
    with pytest.raises(StateError, match="mode upsert finds the rows of a key"):
        here.export()


def test_a_table_of_before_there_were_notes_gets_one_with_its_next_export(here, registry):
    send_orders(here, registry)
    here.export()
    with here.table().transaction() as transaction:
        transaction.remove_properties(COLUMNS)
    send_orders(here, registry)
    here.export()
    change(here, lambda update: update.delete_column("city"))
    send_orders(here, registry)
    assert (here.export().dead, exact(here)) == (0, 3)
    assert "city" not in here.table().schema().column_names


def test_nothing_is_committed_to_a_table_whose_columns_and_note_are_what_they_should_be(
    here, registry
):
    send_orders(here, registry)
    here.export()
    before = here.table().metadata_location
    here.export()
    assert here.table().metadata_location == before


def test_a_table_that_was_made_anew_has_all_columns_again(here, registry):
    send_orders(here, registry)
    here.export()
    change(here, lambda update: update.delete_column("city"))
    here.catalog.drop_table(TABLE)
    here.export()
    assert here.columns("city") == [("Ulm",)]
    assert isinstance(here.table().scan().to_arrow(), pa.Table)
