"""Whether Avro schemas read each other: a table of changes, and fastavro as the judge."""

import io
import json
from collections.abc import Callable
from itertools import pairwise

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.registry.compatibility_avro import avro_differences
from protocol.schemas import SchemaError
from protocol.schemas.avro import Check, parse_avro


def record(*fields: str, name: str = "R") -> str:
    """Fields as "name type" or "name type = default"; types are JSON or bare names."""
    said = []
    for each in fields:
        left, equals, default = each.partition(" = ")
        field, _, avro = left.partition(" ")
        item = {"name": field, "type": json.loads(avro) if avro[0] in '[{"' else avro}
        said.append(item | ({"default": json.loads(default)} if equals else {}))
    return json.dumps({"type": "record", "name": name, "fields": said})


def enum(symbols: str, **more: str) -> str:
    return json.dumps({"type": "enum", "name": "E", "symbols": list(symbols)} | more)


def fixed(size: int, name: str = "F") -> str:
    return json.dumps({"type": "fixed", "name": name, "size": size})


A, AB = record("a int"), record("a int", "b int = 0")

# What | the reader's schema | the writer's | differences
TABLE = [
    ("the same", AB, AB, ""),
    ("a field with a default is new", AB, A, ""),
    ("a field is gone", A, AB, ""),
    (
        "a field without default is new",
        record("a int", "b int"),
        A,
        "READER_FIELD_MISSING_DEFAULT_VALUE /fields/1",
    ),
    (
        "a field has another name",
        record("b int"),
        A,
        "READER_FIELD_MISSING_DEFAULT_VALUE /fields/0",
    ),
    ("fields in another order", record("b int", "a int"), record("a int", "b int"), ""),
    ("int becomes long", record("a long"), A, ""),
    ("int becomes double", record("a double"), A, ""),
    ("long becomes float", '"float"', '"long"', ""),
    ("long becomes int", '"int"', '"long"', "TYPE_MISMATCH /"),
    ("double becomes float", '"float"', '"double"', "TYPE_MISMATCH /"),
    ("int becomes string", record("a string"), A, "TYPE_MISMATCH /fields/0/type"),
    ("string becomes bytes", '"bytes"', '"string"', ""),
    ("bytes become string", '"string"', '"bytes"', ""),
    ("boolean becomes int", '"int"', '"boolean"', "TYPE_MISMATCH /"),
    ("a field becomes optional", record('a ["null","int"]'), A, ""),
    ("a field becomes obligatory", A, record('a ["null","int"]'), "TYPE_MISMATCH /fields/0/type"),
    ("a union gets a branch", '["null","int","string"]', '["null","int"]', ""),
    ("a union loses a branch", '["null","int"]', '["null","string"]', "MISSING_UNION_BRANCH /1"),
    ("branches in another order", '["int","null"]', '["null","int"]', ""),
    ("a union of one", '"int"', '["int"]', ""),
    ("a union of promotions", '["null","double"]', '["int","long","null"]', ""),
    ("no branch fits", '["null","int"]', '"string"', "MISSING_UNION_BRANCH /"),
    ("an enum gets a symbol", enum("AB"), enum("A"), ""),
    ("an enum loses a symbol", enum("A"), enum("ABC"), "MISSING_ENUM_SYMBOLS /symbols"),
    ("it has a default for it", enum("A", default="A"), enum("AB"), ""),
    ("a fixed grows", fixed(8), fixed(4), "FIXED_SIZE_MISMATCH /size"),
    ("a fixed is called otherwise", fixed(4, "G"), fixed(4), "NAME_MISMATCH /name"),
    ("a record is called otherwise", record("a int", name="S"), A, "NAME_MISMATCH /name"),
    ("only its namespace is another", record("a int", name="x.R"), A, ""),
    ("an enum becomes a fixed", fixed(4, "E"), enum("A"), "TYPE_MISMATCH /"),
    ("items widen", '{"type":"array","items":"long"}', '{"type":"array","items":"int"}', ""),
    (
        "items narrow",
        '{"type":"array","items":"int"}',
        '{"type":"array","items":"long"}',
        "TYPE_MISMATCH /items",
    ),
    (
        "values narrow",
        '{"type":"map","values":"int"}',
        '{"type":"map","values":"long"}',
        "TYPE_MISMATCH /values",
    ),
    (
        "deep within",
        record(f"x {record('y ' + enum('A'), name='I')}"),
        record(f"x {record('y ' + enum('AB'), name='I')}"),
        "MISSING_ENUM_SYMBOLS /fields/0/type/fields/0/type/symbols",
    ),
    (
        "a list of records of its own kind",
        record('v int', 'next ["null","R"]'),
        record('v int', 'next ["null","R"]'),
        "",
    ),
    (
        "such a list with another value",
        record('v int', 'next ["null","R"]'),
        record('v string', 'next ["null","R"]'),
        "TYPE_MISMATCH /fields/0/type",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "wanted"), [row[1:] for row in TABLE],
                         ids=[row[0] for row in TABLE])  # fmt: skip
def test_readers_read_what_avros_resolution_lets_them(
    reader: str, writer: str, wanted: str
) -> None:
    found = avro_differences(
        reader=parse_avro(reader, check=Check.DEFAULTS),
        writer=parse_avro(writer, check=Check.DEFAULTS),
    )
    assert ", ".join(f"{each.kind} {each.path}" for each in found) == wanted


def test_aliases_of_the_reader_find_fields_and_names() -> None:
    reader = json.loads(record("b int", name="S"))
    reader["fields"][0]["aliases"] = ["a"]
    reader["aliases"] = ["R"]
    differences = avro_differences(
        reader=parse_avro(json.dumps(reader)), writer=parse_avro(record("a int"))
    )
    assert differences == []


def test_a_message_calls_the_schemas_as_the_caller_does() -> None:
    (found,) = avro_differences(
        reader=parse_avro(record("a int", "b int")), writer=parse_avro(record("a int"))
    )
    assert found.message(reader="new", writer="old") == (
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path"
        " '/fields/1' in the new schema has no default value and is missing in the old schema',"
        " additionalInfo:'/fields/1'}"
    )


def test_schemas_that_double_with_every_level_are_refused_not_pondered() -> None:
    def doubling(leaf: str) -> str:
        avro: object = leaf
        for level in range(24):
            again = f"L{level - 1}" if level else leaf
            fields = [{"name": "a", "type": avro}, {"name": "b", "type": again}]
            avro = {"type": "record", "name": f"L{level}", "fields": fields}
        return json.dumps(avro)

    with pytest.raises(SchemaError, match="involved"):
        avro_differences(reader=parse_avro(doubling("int")), writer=parse_avro(doubling("string")))


# Steps by which schemas change: each gives another schema of the same record.

FIELDS = ["int", "long", "float", "double", "string", "bytes"]


@st.composite
def histories(draw: st.DrawFn) -> list[dict]:
    """Versions of a record, each a step from the one before."""
    fields = {f"f{each}": {"type": draw(st.sampled_from(FIELDS))} for each in range(2)}
    versions = [_record_of(fields)]
    for step in range(draw(st.integers(1, 3))):
        fields = {name: dict(field) for name, field in fields.items()}
        kind = draw(st.sampled_from(["add", "add default", "remove", "type", "optional"]))
        if kind.startswith("add"):
            avro = draw(st.sampled_from(["int", "string"]))
            fields[f"g{step}"] = {"type": avro}
            if kind == "add default":
                fields[f"g{step}"]["default"] = 0 if avro == "int" else ""
        elif fields:
            name = draw(st.sampled_from(sorted(fields)))
            field = fields[name]
            if kind == "remove":
                del fields[name]
            elif kind == "type":
                fields[name] = {"type": draw(st.sampled_from(FIELDS))}
            elif not isinstance(field["type"], list):
                fields[name] = {"type": ["null", field["type"]], "default": None}
        versions.append(_record_of(fields))
    return versions


def _record_of(fields: dict[str, dict]) -> dict:
    said = [{"name": name} | field for name, field in fields.items()]
    return {"type": "record", "name": "R", "fields": said}


VALUES: dict[str, Callable[[], st.SearchStrategy]] = {
    "null": st.none,
    "int": lambda: st.integers(-(1 << 31), (1 << 31) - 1),
    "long": lambda: st.integers(-(1 << 63), (1 << 63) - 1),
    "float": lambda: st.just(0.5),
    "double": lambda: st.just(0.5),
    "string": lambda: st.sampled_from(["", "é"]),
    "bytes": lambda: st.sampled_from([b"", b"abc"]),
}


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_what_counts_as_compatible_is_read_by_fastavro_and_the_rest_is_not_always(
    data: st.DataObject,
) -> None:
    for writer, reader in pairwise(data.draw(histories())):
        compatible = not avro_differences(
            reader=parse_avro(json.dumps(reader)), writer=parse_avro(json.dumps(writer))
        )
        failed = False
        # Every branch of every union is written once: one that cannot be read shows.
        for branch in (0, 1):
            value = {}
            for field in writer["fields"]:
                branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
                value[field["name"]] = data.draw(VALUES[branches[min(branch, len(branches) - 1)]]())
            out = io.BytesIO()
            fastavro.schemaless_writer(out, writer, value)
            out.seek(0)
            try:
                fastavro.schemaless_reader(out, writer, reader)
            except (fastavro.read.SchemaResolutionError, ValueError, EOFError, UnicodeDecodeError):
                failed = True
        assert failed is not compatible, (writer, reader)
