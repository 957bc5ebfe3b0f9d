"""Project files: what they say, what is wrong with them, and what they would change."""

import pytest

from broker.reports.project_file import Change, changes, lines, parse

FILE = """
[defaults]
"max.lag.ms" = 60000

[topics.orders]
value.mode = "avro"
partition.by = ["day(kafka_timestamp)", "bucket(16,id)"]
retention.hold = true

[topics."a.b"]
"value.mode" = "json"
"value.schema" = "infer"
max.lag.ms = "1000"
"""


def test_settings_are_those_of_the_topic_and_the_defaults_however_names_are_written():
    assert parse(FILE) == {
        "orders": {
            "frazil.iceberg.max.lag.ms": "60000",
            "frazil.iceberg.value.mode": "avro",
            "frazil.iceberg.partition.by": "day(kafka_timestamp),bucket(16,id)",
            "frazil.iceberg.retention.hold": "true",
        },
        "a.b": {
            "frazil.iceberg.max.lag.ms": "1000",
            "frazil.iceberg.value.mode": "json",
            "frazil.iceberg.value.schema": "infer",
        },
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[topics.a", "it is no TOML: "),
        ("", "it names no topic"),
        ("[defaults]\n[catalog]", "[catalog] is neither [defaults] nor [topics.NAME]"),
        ("topics = 1", "topics are tables"),
        ("defaults = 1\n[topics.a]", "defaults is no table of settings"),
        (
            "[topics.a]\nvalue.modes = 'avro'",
            "[topics.a] value.modes is no setting; is it value.mode?",
        ),
        ("[topics.a]\nretention.ms = 1", "[topics.a] retention.ms is no setting"),
        ("[topics.a]\nmax.lag.ms = 1.5", "[topics.a] max.lag.ms must be a text, a whole number"),
        (
            "[topics.a]\nvalue.mode = ['avro']",
            "[topics.a] value.mode must be a text, a whole number",
        ),
        ("[topics.a]\nsort.order = [1]", "or a list of texts"),
    ],
)
def test_a_mistake_is_told_with_its_place(text, said):
    with pytest.raises(ValueError) as refused:
        parse(text)
    assert said in str(refused.value)


def test_what_the_file_does_not_say_is_reset_and_other_topics_and_settings_are_left_alone():
    there = {
        "orders": {"frazil.iceberg.value.mode": "json", "frazil.iceberg.layout": "nested"},
        "other": {"frazil.iceberg.value.mode": "json"},
    }
    wanted = {"orders": {"frazil.iceberg.value.mode": "avro", "frazil.iceberg.types": "iceberg"}}
    found = changes(wanted, there)
    assert found == [
        Change("orders", "frazil.iceberg.layout", "nested", None),
        Change("orders", "frazil.iceberg.types", None, "iceberg"),
        Change("orders", "frazil.iceberg.value.mode", "json", "avro"),
    ]
    assert lines(found) == [
        "orders: layout: nested -> (default)",
        "orders: types: (default) -> iceberg",
        "orders: value.mode: json -> avro",
        "3 settings of 1 topics",
    ]
    assert lines([]) == ["nothing to change: all topics are as the file says"]


def test_settings_of_a_newer_release_that_the_topic_has_are_left_alone():
    assert changes({"orders": {}}, {"orders": {"frazil.iceberg.of.next.year": "x"}}) == []
