"""Topics of JSON as it comes, and tables whose columns are drawn from it: every value is found again."""

import json

import pytest

from iceberg_export.errors import FencedError, SettingsError
from iceberg_export.table import schema


def configure(here, **more):
    here.configure(value_mode="json", value_schema="infer", **more)


def send(here, *values, **more):
    here.send(*(one if one is None else json.dumps(one).encode() for one in values), **more)


def names(here):
    fields = here.table().schema().fields
    return {field.name for field in fields if not field.name.startswith("kafka_")}


def exact(here):
    verdict = here.verify()
    assert verdict.problems == ()
    assert here.verify("verify.decoder=reference").problems == ()
    return verdict


def test_columns_are_drawn_from_the_records_and_hold_them(here):
    configure(here)
    send(here, {"id": 1, "who": {"name": "ada"}, "tags": ["x"]}, {"id": 2, "at": 2.5}, None)
    report = here.export()
    assert (report.rows, report.dead) == (3, 0)
    assert here.columns("id", "who", "tags", "at") == [
        (1, {"name": "ada"}, ["x"], None), (2, None, None, 2.5), (None, None, None, None),
    ]  # fmt: skip
    assert exact(here).records == 3


def test_later_records_add_columns_and_what_fits_none_lies_beside(here):
    configure(here)
    send(here, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    here.export()
    files = here.live_files()
    send(here, {"id": "three", "n": 3, "new": True}, {"id": 4, "n": 4.5}, {"id": 5, "n": None})
    assert here.export().dead == 0
    assert here.columns("id", "id__json", "n", "n__json", "new") == [
        (1, None, 1, None, None),
        (2, None, 2, None, None),
        (None, '"three"', 3, None, True),
        (4, None, None, "4.5", None),
        (5, None, None, None, None),
    ]
    assert files <= here.live_files(), "no old file is written again"
    exact(here)


def test_what_is_no_json_is_a_dead_letter_and_draws_nothing(here):
    configure(here)
    here.send(b"{", b'{"a": NaN}', b'{"a": 1}', b"\xff")
    assert here.export().dead == 3
    assert here.columns("a") == [(1,)]
    exact(here)


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_both_layouts_hold_values_that_drift(here, layout):
    configure(here, layout=layout)
    for number in range(4):
        send(here, {"id": number, "x": [number]}, {"id": str(number), f"f{number}": {"y": number}})
        assert here.export().dead == 0
    exact(here)
    drawn = {"id", "x", "f0", "f1", "f2", "f3"}
    assert names(here) == ({"value"} if layout == "nested" else drawn)


def test_keys_are_inferred_into_their_struct(here):
    here.configure(key_mode="json", key_schema="infer", value_mode="string")
    here.send(b"v", b"w", keys=[b'{"id": 1}', b'{"id": "x"}'])
    assert here.export().dead == 0
    exact(here)


def test_upserts_keep_the_newest_row_while_columns_are_drawn(here):
    configure(here, mode="upsert")
    send(here, {"a": 1}, {"a": 2}, keys=[b"k", b"l"])
    here.export()
    send(here, {"a": "three", "b": []}, keys=[b"k"])
    here.export()
    assert sorted(here.columns("a", "a__json", "b__json"), key=str) == [
        (2, None, None), (None, '"three"', "[]"),
    ]  # fmt: skip
    assert here.verify().problems == ()


def test_a_strict_table_takes_no_columns_more_and_says_which_it_misses(here):
    configure(here, schema_evolution="strict")
    send(here, {"a": 1})
    here.export()
    send(here, {"a": 2, "b": 3}, {"a": "x"}, {"a": 4})
    assert here.export().dead == 2
    assert here.columns("a") == [(1,), (4,)]
    reasons = [message for (message,) in here.dead("error_message")]
    assert "the table has no column for field b" in reasons[0]
    assert "field a is" in reasons[1]
    exact(here)


def test_partitions_may_be_by_a_column_that_is_still_to_come(here):
    configure(here, partition_by="city")
    send(here, {"city": "Ulm"}, {"city": "Bonn"})
    here.export()
    send(here, {"city": "Kiel"})
    here.export()
    assert sorted(here.columns("city")) == [("Bonn",), ("Kiel",), ("Ulm",)]
    assert [field.name for field in here.table().spec().fields] == ["city"]
    exact(here)


def test_columns_that_people_dropped_or_renamed_stay_so(here):
    configure(here)
    send(here, {"a": 1, "b": 2, "c": 3})
    here.export()
    with here.table().update_schema() as update:
        update.delete_column("b")
        update.rename_column("c", "sea")
    send(here, {"a": 4, "b": 5, "c": 6}, {"a": 7, "b": "x", "c": "y"})
    assert here.export().dead == 0
    assert here.columns("a", "sea", "c__json") == [(1, 3, None), (4, 6, None), (7, None, '"y"')]
    assert "b" not in names(here)
    exact(here)


def test_of_two_exporters_that_draw_at_once_one_draws_again_upon_the_others_types(
    here, monkeypatch
):
    configure(here)
    send(here, {"a": 1})
    here.export()
    send(here, {"a": "x", "b": 1})
    others: list[dict[str, object]] = [{"b": "y", "c": []}]

    def send_change(*arguments):
        """The other one plans one record more, and its columns come first."""
        if others:
            send(here, others.pop())
            here.export()
        return real(*arguments)

    real = schema.send_change
    monkeypatch.setattr(schema, "send_change", send_change)
    with pytest.raises(FencedError):
        here.export()
    send(here, {"a": 2, "b": "z", "c": [1]})
    here.export()
    assert here.columns("a", "a__json", "b", "c__json", "c") == [
        (1, None, None, None, None),
        (None, '"x"', "1", None, None),
        (None, None, '"y"', "[]", None),
        (2, None, '"z"', None, [1]),
    ]
    exact(here)


def test_a_table_made_anew_is_exact_and_a_reset_keeps_its_columns(here):
    configure(here)
    send(here, {"a": []}, {"a": [1]}, {"a": "x"})
    here.export()
    send(here, {"a": {"b": 1}})
    here.export()
    exact(here)
    here.reset(None)
    here.export()
    exact(here)
    here.catalog.drop_table(here.name)
    here.export()
    exact(here)


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"value_mode": "avro", "value_schema": "infer"}, "infer is for value.mode=json, not avro"),
        ({"value_mode": "json", "value_schema": "infer", "envelope": "debezium"}, "need a schema"),
        (
            {"key_mode": "json", "key_schema": "infer", "mode": "upsert"},
            "whose columns cannot grow",
        ),
    ],
)
def test_what_cannot_be_inferred_is_refused_in_a_sentence(here, configs, said):
    here.configure(**configs)
    with pytest.raises(SettingsError, match=said):
        here.export()
