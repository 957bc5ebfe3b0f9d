"""Types drawn from JSON: each value has one place, says it again exactly, and keeps it as types grow."""

import json
import random

import pyarrow as pa
import pytest

from iceberg_export.records.cells import CELLS_MAX, Cells, TooManyCellsError
from iceberg_export.typed import types
from iceberg_export.typed.columns import Payloads, by_reference, decode_payloads
from iceberg_export.typed.fields import fields_of, shape_of
from iceberg_export.typed.framing import column_bytes
from iceberg_export.typed.inferred import (
    FIELDS_MAX,
    NOTHING,
    TYPES_MAX,
    Fraction,
    Seen,
    count_types,
    draw,
    join,
    read_seen,
    unseen_in,
    write_seen,
    write_types,
)
from iceberg_export.typed.inferred_rows import UnseenError, place, read_types
from iceberg_export.typed.inline import INLINE
from iceberg_export.typed.types import INFERRED, Schema


def load(text):
    return json.loads(text, parse_float=Fraction)


def drawn(*texts, known=NOTHING):
    """Types after these values came together, as many rounds as it takes."""
    values = [load(text) for text in texts]
    while unseen := [seen for one in values if (seen := unseen_in(known, one)) is not None]:
        after = draw(known, join(unseen))
        assert after != known, "each round draws something"
        assert draw(after, join(unseen)) == after, "drawing again changes nothing"
        known = after
    return known


def columns(known):
    return {field.name: field.type for field in read_types(write_types(known)).arrow}


def said(known, row):
    """The value that the columns say: the inverse of `place`."""
    return _said_level(known, row)


def _said_level(level, row):
    if row is None:
        return {}
    rest = load(row["__json"]) if row.get("__json") is not None else {}
    if not isinstance(rest, dict):
        return rest
    found = dict(rest)
    for name, field in level.fields.items():
        column = f"{name}_" if name.rstrip("_").endswith("__json") else name
        if (text := row.get(f"{column}__json")) is not None:
            found[name] = load(text)
        elif (value := row.get(column)) is not None:
            found[name] = _said_value(field.type, value)
    return found


def _said_value(kind, value):
    if kind.kind == "object":
        return _said_level(kind, value)
    if kind.kind == "array":
        return [None if one is None else _said_value(kind.item, one) for one in value]
    return load(value) if kind.kind == "json" else value


def without_nulls(value):
    """A null field is none."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (['{"a": 1}', '{"a": -5}'], {"a": types.LONG}),
        (['{"a": 1}', '{"a": 2.5}'], {"a": types.DOUBLE}),
        (['{"a": "x", "b": true, "c": null}'], {"a": types.TEXT, "b": types.BOOL}),
        (['{"a": 1}', '{"a": "x"}'], {"a": types.TEXT}),
        (['{"a": []}', '{"b": {}}'], {"a__json": types.TEXT, "b__json": types.TEXT}),
        (['{"a": []}', '{"a": [1, null]}'], {"a": types.list_of(types.LONG)}),
        (['{"a": [1, 2.5]}'], {"a": types.list_of(types.DOUBLE)}),
        (['{"a": [1, "x"]}'], {"a": types.TEXT}),
        (['{"a": {"b": 1}}', '{"a": {"c": "x"}}'],
         {"a": pa.struct([("b", types.LONG), ("c", types.TEXT)])}),
        (['{"a": [{"b": 1}, {"c": true}]}'],
         {"a": types.list_of(pa.struct([("b", types.LONG), ("c", types.BOOL)]))}),
        (['{"a": 12345678901234567890}'], {"a__json": types.TEXT}),
        (['{"a": 1}', '{"a": 12345678901234567890}'], {"a": types.LONG, "a__json": types.TEXT}),
        (['{"a__json": 1}', '{"a": []}'], {"a__json": types.TEXT, "a__json_": types.LONG}),
        (['{"a": 1, "A": 2}'], {"A": types.LONG, "__json": types.TEXT}),
        (['{"a.b": 1}', '{"": 2}', '"text"'], {"__json": types.TEXT}),
        (["null", "{}"], {}),
    ],
)  # fmt: skip
def test_columns_are_what_the_first_values_are(texts, wanted):
    assert columns(drawn(*texts)) == wanted


@pytest.mark.parametrize(
    ("first", "later", "more"),
    [
        ('{"a": 1}', '{"a": 2.5}', {"a": types.LONG, "a__json": types.TEXT}),
        ('{"a": 1}', '{"a": "x"}', {"a": types.LONG, "a__json": types.TEXT}),
        ('{"a": 1.5}', '{"a": 2}', {"a": types.DOUBLE}),
        ('{"a": 1.5}', '{"a": 1e400}', {"a": types.DOUBLE, "a__json": types.TEXT}),
        ('{"a": "x"}', '{"b": 1}', {"a": types.TEXT, "b": types.LONG}),
        ('{"a": []}', '{"a": ["x"]}', {"a": types.list_of(types.TEXT), "a__json": types.TEXT}),
        ('{"a": ["x"]}', '{"a": [1]}', {"a": types.list_of(types.TEXT), "a__json": types.TEXT}),
        ('{"a": {"b": 1}}', '{"a": 5}',
         {"a": pa.struct([("b", types.LONG)]), "a__json": types.TEXT}),
        ('{"a": {"b": 1}}', '{"a": {"b": "x"}}',
         {"a": pa.struct([("b", types.LONG), ("b__json", types.TEXT)])}),
        ('{"a": 1}', '[1, 2]', {"a": types.LONG, "__json": types.TEXT}),
    ],
)  # fmt: skip
def test_a_later_value_that_fits_no_column_gets_one_beside_it(first, later, more):
    known = drawn(first)
    assert columns(drawn(later, known=known)) == more


DRIFT = [
    '{"id": 1, "who": {"name": "ada", "tags": []}, "at": "2026-11-27", "n": null}',
    '{"id": 2.5, "who": {"name": 7, "tags": ["x", null]}, "at": 5}',
    '{"id": "three", "who": null, "at": {"y": 2026, "m": [11, 27.5]}}',
    '{"id": 18446744073709551616, "who": "bob", "extra__json": {"deep": [[], [[1]], {"a": {}}]}}',
    '{"ID": 5, "who": [], "a.b": {"c": 1}, "kafka_x": 1, "KAFKA_x": 2}',
    '{"list": [{"a": 1}, {"b": [1]}, null], "f": 1.10, "g": -0.5e-3}',
    '{"list": [{"a": "x"}, {"b": []}], "f": 1e400, "g": "1"}',
    '{"list": [[1]], "f": true, "g": {}}',
    '{"list": {"a": 1}, "f": [], "who": {"tags": {"k": 1}}}',
    '{"rows": [[1, 2], [3]], "objects": [[{"a": 1}], []]}',
    '{"rows": [[1, "x"], []], "objects": [[{"a": 2, "b": {}}]]}',
    "[]", "5", '"text"', "true", "{}", "null",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_what_is_placed_says_the_value_again_and_never_moves_however_types_grow(seed):
    texts = DRIFT * 2
    random.Random(seed).shuffle(texts)
    known, placed = NOTHING, []
    while texts:
        some, texts = texts[: 1 + seed % 4], texts[1 + seed % 4 :]
        known = drawn(*some, known=known)
        placed += [(text, place(known, load(text))) for text in some]
    for text, row in placed:
        assert place(known, load(text)) == row
        value = load(text)
        wanted = {} if value is None else without_nulls(value)
        assert without_nulls(said(known, row)) == wanted
    assert read_types(write_types(known)).type == known


def test_numbers_beside_a_field_are_written_as_they_were():
    known = drawn('{"a": "x"}', '{"b": {}}')
    known = drawn('{"a": [1.10, 1E400, 123456789012345678901234567890]}', known=known)
    row = place(known, load('{"a": [1.10, 1E400, 123456789012345678901234567890]}'))
    assert row == {"a__json": "[1.10,1E400,123456789012345678901234567890]"}


def test_what_has_no_place_is_told_by_name_or_left_out_on_demand():
    known = drawn('{"a": 1, "b": []}')
    for text, name in (('{"c": 1}', "c"), ('{"a": "x"}', "a"), ('{"b": [1]}', "b")):
        with pytest.raises(UnseenError, match=rf"field {name}\b"):
            place(known, load(text))
    with pytest.raises(UnseenError, match="no object"):
        place(known, 5)
    assert place(known, load('{"a": "x", "c": 1}'), lenient=True) == {}
    assert place(known, 5, lenient=True) == {}


def test_a_level_that_is_full_keeps_other_fields_in_its_own_column():
    wide = {f"f{number:04}": number for number in range(FIELDS_MAX + 10)}
    known = drawn(json.dumps(wide))
    assert len(known.fields) == FIELDS_MAX
    row = place(known, wide)
    assert json.loads(row["__json"]) == {f"f{n:04}": n for n in range(FIELDS_MAX, FIELDS_MAX + 10)}
    assert unseen_in(known, {"another": 1}) is None


def test_types_are_bounded_whatever_comes():
    known = NOTHING
    for number in range(30):
        known = drawn(
            json.dumps({f"a{number}": {f"b{n}": {f"c{number}": n} for n in range(100)}}),
            known=known,
        )
    assert count_types(known) < 2 * TYPES_MAX
    assert unseen_in(known, {"new": {"x": 1}}) is None
    deep = '{"a":' * 40 + "1" + "}" * 40
    assert said(drawn(deep), place(drawn(deep), load(deep))) == json.loads(deep)


def test_what_was_seen_is_told_as_text():
    seen = join(unseen_in(NOTHING, load(text)) or Seen() for text in DRIFT)
    assert read_seen(write_seen(seen)) == seen


def payloads(texts):
    return Payloads(*column_bytes(pa.array([text.encode() for text in texts], pa.large_binary())))


def test_the_fast_way_gives_what_the_reference_gives():
    known = drawn(*DRIFT)
    schema = Schema(INLINE, INFERRED, write_types(known))
    shape, fields = shape_of(schema), fields_of(schema)
    plain = [
        '{"id": 7, "f": 2, "g": -0.0}',
        '{"rows": [[1], null]}',
        '{"who": {"name": "x"}}',
        "{}",
    ]
    texts = [*plain * 20, *DRIFT, "{", '{"id": NaN}', '{"id": 1, "id": 2}', *plain * 20]
    fast = decode_payloads(shape, fields, payloads(texts), Cells())
    slow = by_reference(shape, fields, payloads(texts), Cells())
    assert fast.bad == slow.bad
    assert len(fast.bad) == 2
    good = pa.array([row not in fast.bad for row in range(len(texts))])
    for one, other in zip(fast.columns, slow.columns, strict=True):
        assert one.type == other.type
        assert one.filter(good).to_pylist() == other.filter(good).to_pylist()


def drifting(chance, depth=0):
    """A value of any kind, written in many ways."""
    kind = chance.randrange(12 if depth < 3 else 9)
    scalars = ["1", "-7", "0", "-0", "2.50", "1e3", "-1E400", "123456789012345678", "9223372036854775807",
               "9223372036854775808", "99999999999999999999", "true", "false", "null", '"x"', '""', '"\\n"',
               '"\\u00e9"', '"é"', '"a\\"b"', "1.0"]  # fmt: skip
    if kind < 9:
        return chance.choice(scalars)
    blank = chance.choice(["", " ", "\n"])
    inner = [drifting(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 9:
        return "[" + f",{blank}".join(inner) + blank + "]"
    names = chance.sample(["a", "b", "B", "c__json", "d", "x.y"], len(inner))
    pairs = [f'{blank}"{name}"{blank}:{one}' for name, one in zip(names, inner, strict=True)]
    return "{" + ",".join(pairs) + "}"


def record(chance, names="abcdefgh"):
    some = chance.sample(names, chance.randrange(len(names)))
    blank = chance.choice(["", "", " ", "\t"])
    text = ",".join(f'{blank}"{name}"{blank}:{blank}{drifting(chance)}' for name in some)
    return chance.choice(["{%s}"] * 20 + [" {%s}\n", "{%s,}", "[%s]", "{%s"]) % text


@pytest.mark.parametrize("seed", range(25))
def test_the_fast_way_gives_what_the_reference_gives_of_values_that_drift(seed):
    chance = random.Random(seed)
    texts = [record(chance, "abc" if seed % 2 else "abcdefgh") for _ in range(300)]
    known = NOTHING
    for text in texts[: 20 + 10 * seed]:
        try:
            known = drawn(text, known=known)
        except json.JSONDecodeError:
            continue
    schema = Schema(INLINE, INFERRED, write_types(known))
    shape, fields = shape_of(schema), fields_of(schema)
    fast = decode_payloads(shape, fields, payloads(texts), Cells())
    slow = by_reference(shape, fields, payloads(texts), Cells())
    assert fast.bad == slow.bad
    assert set(fast.unseen) == set(slow.unseen)
    good = pa.array([row not in fast.bad for row in range(len(texts))])
    for one, other in zip(fast.columns, slow.columns, strict=True):
        assert one.filter(good).to_pylist() == other.filter(good).to_pylist()


@pytest.mark.parametrize(
    "text",
    ['{"i": 1, "i": 2}', '{"i": "x", "i": 1}', '{"i__json": "x"}', '{"j": 01}', '{"j": 1.}', '{"j": tru}',
     '{"j": "x}', '{"j" 1}', '{"j": 1 "i": 2}', '{"j": 1,}', '{,"j": 1}', '{"j": 1}}', '{"j": 1} 2', "{", "",
     '{"j": -}', '{"j": 1e}', '{"j": nul}', '{"j": [1, 2}', '{"\\u0069": 3}', '{"j":\x01 1}'],
)  # fmt: skip
def test_the_fast_way_takes_nothing_that_is_no_json(text):
    known = drawn('{"i": 1, "j": "x"}', '{"j": 2}')
    known = drawn('{"i": "x"}', known=known)
    schema = Schema(INLINE, INFERRED, write_types(known))
    texts = ['{"i": 5, "j": true}'] * 20 + [text]
    fast = decode_payloads(shape_of(schema), fields_of(schema), payloads(texts), Cells())
    slow = by_reference(shape_of(schema), fields_of(schema), payloads(texts), Cells())
    assert fast.bad == slow.bad
    if not fast.bad:
        assert [one.to_pylist() for one in fast.columns] == [
            one.to_pylist() for one in slow.columns
        ]


def test_rows_for_which_types_have_no_place_are_named():
    known = drawn('{"a": 1}')
    schema = Schema(INLINE, INFERRED, write_types(known))
    texts = ['{"a": 1}'] * 40 + ['{"a": "x"}', "{", '{"b": 1}']
    found = decode_payloads(shape_of(schema), fields_of(schema), payloads(texts), Cells())
    assert sorted(found.unseen) == [40, 42]
    assert sorted(found.bad) == [40, 41, 42]


def test_elements_of_arrays_take_cells():
    known = drawn(json.dumps({"a": [{f"f{n}": n for n in range(100)}]}))
    schema = Schema(INLINE, INFERRED, write_types(known))
    many = [json.dumps({"a": [{}] * (CELLS_MAX // 50)})]
    for read in (decode_payloads, by_reference):
        with pytest.raises(TooManyCellsError):
            read(shape_of(schema), fields_of(schema), payloads(many), Cells())
