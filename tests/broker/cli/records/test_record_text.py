"""Records as JSON, as templates say, and as lines of input."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cli.records.record_text import (
    ENCODINGS,
    ConsumedRecord,
    LineFormat,
    NewRecord,
    RecordError,
    Taken,
    json_line,
    record_of_json,
    record_of_line,
    template_of,
    unescaped,
)

RECORD = ConsumedRecord(
    "orders", 3, 42, 1_700_000_000_123, b"k1", b"v1", [("h", b"x"), ("n", None)]
)

some_bytes = st.none() | st.binary(max_size=8) | st.text(max_size=5).map(str.encode)


@given(some_bytes, some_bytes, st.lists(st.tuples(st.text(max_size=4), some_bytes), max_size=3))
def test_json_keeps_every_byte_of_a_record(key, value, headers):
    line = json_line(RECORD._replace(key=key, value=value, headers=headers))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert record_of_json(line) == NewRecord(key, value, headers, -1, RECORD.timestamp_ms)
    assert record_of_json(line, keeps_place=True).partition == RECORD.partition


def test_a_record_as_json_has_the_documented_shape():
    assert json.loads(json_line(RECORD._replace(value=b"\xff"))) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_123,
        "key": "k1",
        "value": {"base64": "/w=="},
        "headers": [{"name": "h", "value": "x"}, {"name": "n", "value": None}],
    }


def test_json_of_a_value_alone_is_a_record():
    assert record_of_json(b'{"value": "v"}') == NewRecord(None, b"v", [])
    assert record_of_json(b"{}") == NewRecord(None, None, [])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[]", "it is no JSON object"),
        (b'{"value": "a"} {}', "it is more than one JSON object"),
        (b'{"valeu": "a"}', "a record has no field 'valeu' (topic, partition,"),
        (b'{"value": 1}', "value is neither a string nor null"),
        (b'{"value": {"base64": "?"}}', "'?' is not base64"),
        (b'{"value": {"base64": "", "x": 1}}', "value is neither"),
        (b'{"value": "\\ud800"}', "value has half of a surrogate pair"),
        (b'{"headers": {"a": "b"}}', "headers are a list"),
        (b'{"headers": [["a", "b"]]}', "headers are a list"),
        (b'{"headers": [{"key": "a"}]}', "headers are a list"),
        (b'{"timestamp": "now"}', 'timestamp is "now", no whole number'),
        (b'{"timestamp": 9223372036854775808}', "no whole number"),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(line, sentence):
    with pytest.raises(RecordError) as caught:
        record_of_json(line)
    assert sentence in str(caught.value)


def test_a_template_writes_what_its_letters_say():
    text = r"%t[%p] %o @%T %k(%K)=%s(%S) %h 100%%\n"
    assert template_of(text).text(RECORD) == (
        b"orders[3] 42 @1700000000123 k1(2)=v1(2) h=x,n= 100%\n"
    )


def test_a_template_writes_null_as_it_is_told():
    record = RECORD._replace(key=None, value=None)
    assert template_of("%k,%K,%s,%S,%h", null="NULL").text(record) == b"NULL,-1,NULL,-1,h=x,n=NULL"


def test_keys_and_values_are_written_in_other_letters():
    assert template_of("%k %s", key="hex", value="base64").text(RECORD) == b"6b31 djE="


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("%q", "a template has no %q (%s value"), ("100%", "a template has no % ("), ("\\q", r"there is no escape \q")],
)  # fmt: skip
def test_a_template_with_a_mistake_is_refused(text, sentence):
    with pytest.raises(RecordError) as caught:
        template_of(text)
    assert sentence in str(caught.value)


def test_escapes_are_bytes():
    assert unescaped(r"a\n\t\r\0\\\xfFé") == b"a\n\t\r\0\\\xff" + "é".encode()


@pytest.mark.parametrize(
    ("line", "how", "record"),
    [
        (b"a:b", LineFormat(), NewRecord(None, b"a:b")),
        (b"a:b:c", LineFormat(b":"), NewRecord(b"a", b"b:c")),
        (b":", LineFormat(b":"), NewRecord(b"", b"")),
        (b"k::NULL", LineFormat(b"::", null=b"NULL"), NewRecord(b"k", None)),
        (b"NULL:v", LineFormat(b":", null=b"NULL"), NewRecord(None, b"v")),
        (
            b"6b:dg==",
            LineFormat(b":", *(ENCODINGS[name][1] for name in ("hex", "base64"))),
            NewRecord(b"k", b"v"),
        ),
    ],
)
def test_a_line_is_a_record(line, how, record):
    assert record_of_line(line, how) == record


@pytest.mark.parametrize(
    ("line", "how", "sentence"),
    [
        (b"ab", LineFormat(b":"), "there is no ':' between key and value"),
        (b"xx", LineFormat(value=ENCODINGS["hex"][1]), "'xx' is not hexadecimal"),
        (b"\xff", LineFormat(value=ENCODINGS["hex"][1]), "is not hexadecimal"),
        (b"a", LineFormat(value=ENCODINGS["base64"][1]), "'a' is not base64"),
    ],
)
def test_a_line_that_is_no_record_is_refused(line, how, sentence):
    with pytest.raises(RecordError) as caught:
        record_of_line(line, how)
    assert sentence in str(caught.value)


def test_what_a_schema_reads_is_json_itself_in_a_record_of_json():
    texts = {"value": lambda record: record.value and b'{"n":1}'}
    assert b'"key":"k1","value":{"n":1},' in json_line(RECORD, texts)
    assert json.loads(json_line(RECORD._replace(value=None), texts))["value"] is None


def test_what_a_schema_writes_is_taken_from_json_and_null_needs_none():
    taken = Taken(of_text=bytes, of_json=lambda value: f"<{value}>".encode())
    line = b'{"key": "k", "value": {"n": 1}}'
    assert record_of_json(line, takes={"value": taken})[:2] == (b"k", b"<{'n': 1}>")
    assert record_of_json(b'{"value": null}', takes={"value": taken}).value is None
    assert record_of_json(b'{"value": 0}', takes={"value": taken}).value == b"<0>"


def test_a_template_has_what_a_schema_reads_and_the_bytes_that_there_are():
    texts = {"key": lambda record: record.key and b"7"}
    template = template_of("%k %K %s", key="avro", null="-", texts=texts)
    assert template.text(RECORD) == b"7 2 v1"
    assert template.text(RECORD._replace(key=None)) == b"- -1 v1"
