"""The loop that copies JSON objects to lines: it takes what Python's parser takes, and leaves nothing wanted out."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iceberg_export.records.json_line import DEPTH_MAX, DIGITS_MAX, copy_object, names_of

WANTED = ("after", "op", "é")


def copied(text: bytes, *wanted: str):
    """(the line, None when the text is refused; how many objects and nulls lists have; the names that were met)."""
    lines = np.zeros(len(text) + 3, np.uint8)
    above = np.zeros(DEPTH_MAX + 2, np.uint8)
    met = np.zeros(len(wanted), np.bool_)
    data = np.frombuffer(text, np.uint8)
    end, listed, is_ascii = copy_object(
        data, (0, len(text)), (lines, 1), above, (names_of(wanted), met)
    )
    if end < 0:
        return None, 0, set()
    assert end <= len(text) + 2, "a line is longer than its object"
    assert is_ascii == text.isascii()
    return (
        lines[1:end].tobytes(),
        listed,
        {one for one, is_met in zip(wanted, met, strict=True) if is_met},
    )


def parsed(text: bytes) -> dict | None:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        value = json.loads(text.decode(), parse_constant=refuse)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
)  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
names = st.sampled_from(["before", "after", "op", "é", "", "af", "afterwards", "source"])
objects = st.dictionaries(names, anything, max_size=6)
TOKENS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b"0",
    b"-",
    b".",
    b"e",
    b"n",
    b"\n",
    b" ",
    b"NaN",
    b"\\u00",
)


@st.composite
def texts(draw):
    text = json.dumps(
        draw(objects), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 0, 1]))
    ).encode(errors="surrogatepass")
    match draw(st.sampled_from(["whole", "cut", "changed", "put in", "taken out"])):
        case "cut":
            return text[: draw(st.integers(0, len(text)))]
        case "changed":
            at = draw(st.integers(0, len(text) - 1))
            return text[:at] + draw(st.sampled_from(TOKENS)) + text[at + 1 :]
        case "put in":
            at = draw(st.integers(0, len(text)))
            return text[:at] + draw(st.sampled_from(TOKENS)) + text[at:]
        case "taken out":
            at = draw(st.integers(0, len(text) - 1))
            return text[:at] + text[at + 1 :]
    return text


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts())
def test_what_a_parser_takes_is_copied_and_nothing_else(text):
    try:
        text.decode()
    except UnicodeDecodeError:
        return  # Whoever calls judges that.
    whole = parsed(text)
    line, _, _ = copied(text)
    some, _, met = copied(text, *WANTED)
    assert (line is None, some is None) == (whole is None, whole is None)
    if whole is not None:
        assert b"\n" not in line + some
        assert parsed(line) == whole
        assert {name: one for name, one in parsed(some).items() if name in WANTED} == {
            name: one for name, one in whole.items() if name in WANTED
        }
        assert met >= whole.keys() & set(WANTED)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" ", b"[]", b"1", b'"a"', b"null", b"{", b"}", b"{}{}", b"{}]", b"{},", b'{"a"}', b'{"a":}', b'{"a" 1}'),
        *(b'{"a":1,}', b"{,}", b'{,"a":1}', b'{"a":1 "b":2}', b'{"a":1,,"b":2}', b'{a:1}', b"{'a':1}", b'{"a":[1,]}'),
        *(b'{"a":[,1]}', b'{"a":[1}}', b'{"a":{"b":1]}', b'{"a":[1 2]}', b'{"a":[1}', b'{"a":{]}', b'{"a":[}]', b'{"a":01}', b'{"a":-}', b'{"a":+1}'),
        *(b'{"a":1.}', b'{"a":.5}', b'{"a":1e}', b'{"a":1e+}', b'{"a":1.e5}', b'{"a":0x1}', b'{"a":--1}', b'{"a":1a}'),
        *(b'{"a":tru}', b'{"a":truee}', b'{"a":True}', b'{"a":nul}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}'),
        *(b'{"a":"\\x"}', b'{"a":"\\u12"}', b'{"a":"\\u12g4"}', b'{"a":"\t"}', b'{"a":"\n"}', b'{"a":"\\\n"}', b'{"a":"}'),
        *(b'{"a\n":1}', b'{"a\\q":1}', b'{"a":1}\x00', b'\xef\xbb\xbf{"a":1}', b'{"a":/**/1}', b'{"a":1}//', b'{"a":\x0b1}'),
    ],
)  # fmt: skip
def test_what_is_no_object_of_json_is_refused_also_in_fields_that_are_left_out(text):
    assert parsed(text) is None
    assert copied(text)[0] is None
    assert copied(text, "b")[0] is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b'{"a":1,"b":2,"c":3}', b'{"b":2}'),
        (b'{"b":2,"a":1}', b'{"b":2}'),
        (b'{"a":1}  ', b"{}  "),
        (b'{"a":{"b":1},"b":{"a":[1]}}', b'{"b":{"a":[1]}}'),
        (b'{"b":2,"a":[{"b":1},"}",{}] }', b'{"b":2}'),
        (b'{"\\u0062":2,"c":3}', b'{"\\u0062":2}'),
        (b'{"b":1,"b":2}', b'{"b":1,"b":2}'),
        (b"{ }", b"{ }"),
        (b'{"b":\r\n2}', b'{"b":  2}'),
    ],
)
def test_a_line_has_the_fields_that_are_wanted(text, line):
    assert copied(text, "b")[0] == line


def test_objects_and_nulls_in_lists_are_counted_of_what_is_copied():
    text = b'{"a":[{},null,[null,{}],{"c":null}],"b":[null,1,{}]}'
    assert copied(text)[1] == 7
    assert copied(text, "b")[1] == 2
    assert copied(text, "c")[1] == 0


def test_a_name_with_an_escape_may_be_any_name():
    assert copied(b'{"\\u0061":1}', "a", "b")[2] == {"a", "b"}
    assert copied(b'{"a":1,"c":2}', "a", "b")[2] == {"a"}


@pytest.mark.parametrize(
    ("least", "most"),
    [
        (b'{"a":' * DEPTH_MAX + b"1" + b"}" * DEPTH_MAX, b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1)),
        (b'{"a":%s}' % (b"1" * DIGITS_MAX), b'{"a":%s}' % (b"1" * (DIGITS_MAX + 1))),
    ],
    ids=["depth", "digits"],
)  # fmt: skip
def test_what_python_may_not_read_is_left_to_it(least, most):
    assert copied(least)[0] == least
    assert copied(most)[0] is None
    assert copied(most, "b")[0] is None
