"""What clients send, understood or refused: never anything else, whatever it is."""

import json
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.registry.checks import (
    Answer,
    CompareSchemas,
    ReadSchema,
    SchemaChecks,
    StoredSchema,
    text_of,
)
from broker.registry.errors import RegistryError
from broker.registry.parsed_schema import PreviousVersion, incompatibilities, parse
from broker.registry.subjects import SchemaLibrary, guid_of
from coordinator.commands.table_commands import Reference, SchemaKind
from coordinator.tables.schemas import Schemas
from protocol.types import POSITION_ZERO, Position
from tests.broker.registry.client import BROKEN, RECORD, WIDER, offered_to

_KEYS = st.sampled_from(
    [
        "type",
        "name",
        "namespace",
        "fields",
        "items",
        "values",
        "symbols",
        "size",
        "default",
        "aliases",
        "doc",
        "order",
        "logicalType",
        "properties",
        "required",
        "enum",
        "const",
        "not",
        "if",
        "then",
        "else",
        "oneOf",
        "anyOf",
        "allOf",
        "$ref",
        "$id",
        "$defs",
        "definitions",
        "additionalProperties",
        "patternProperties",
        "dependencies",
        "dependentSchemas",
        "prefixItems",
        "additionalItems",
        "minLength",
        "maximum",
        "multipleOf",
        "pattern",
        "unevaluatedItems",
        "$anchor",
    ]
)
_WORDS = st.sampled_from(
    [
        "record",
        "enum",
        "fixed",
        "array",
        "map",
        "int",
        "string",
        "null",
        "object",
        "number",
        "integer",
        "boolean",
        "#",
        "#/",
        "#/$defs/a",
        "R",
        "n.R",
        "a",
        "(",
        ".*",
        "http://x/y",
    ]
)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.floats(), _WORDS, st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=4)),
    max_leaves=12,
)
_PROTO = st.lists(
    st.sampled_from(
        [
            "message",
            "enum",
            "oneof",
            "map",
            "reserved",
            "option",
            "import",
            "extend",
            "service",
            "rpc",
            "group",
            "M",
            "N",
            "a",
            "b",
            "int32",
            "string",
            "optional",
            "repeated",
            "required",
            "=",
            ";",
            "{",
            "}",
            "<",
            ">",
            "[",
            "]",
            "(",
            ")",
            ",",
            "1",
            "2",
            "-1",
            "0x10",
            "1e5",
            '"x"',
            "'y'",
            '"\\xff"',
            "syntax",
            '"proto3"',
            '"proto2"',
            "package",
            "to",
            "max",
            "default",
            "packed",
            "true",
            ".",
            ".a.b",
            "//",
            "/*",
            "*/",
            "\\",
        ]
    ),
    max_size=25,
).map(" ".join)


@settings(deadline=None, max_examples=300)
@given(
    text=st.one_of(st.text(), _JSON.map(json.dumps), _PROTO),
    kind=st.sampled_from(["AVRO", "JSON", "PROTOBUF"]),
)
@example(text='"\ud800"', kind="AVRO")
@example(text='{"title": "\\ud800"}', kind="JSON")
@example(text='{"type":"record","name":"R","fields":[],"doc":"\\ud800"}', kind="AVRO")
@example(text='{"type":"enum","name":"E","symbols":["A"],"default":["A"]}', kind="AVRO")
@example(text='{"maximum":1e400}', kind="JSON")
@example(text='{"multipleOf":1e400}', kind="JSON")
@example(text='{"enum":[{"a":[]}],"type":["object",{}]}', kind="JSON")
@example(text='syntax = "proto3"; message M { int32 a = 99999999999999999999; }', kind="PROTOBUF")
@example(
    text="message M { optional int32 a = 1 [default = 99999999999999999999]; }", kind="PROTOBUF"
)
@example(text="message M { " * 500, kind="PROTOBUF")
def test_any_text_is_a_schema_that_follows_itself_or_is_refused(text: str, kind: str) -> None:
    library = SchemaLibrary(Schemas)
    try:
        offered = offered_to(library, {"schema": text, "schemaType": kind})
        assert library.known("s", offered) is None
        command = library.registration("s", offered, seen=POSITION_ZERO)
    except RegistryError as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert refused.status == 422
        return
    canonical = text_of(command.body)
    again = parse(command.kind, canonical, {}, is_new=True)
    assert again.canonical == canonical
    assert incompatibilities("FULL", again, [PreviousVersion(1, again)]) == []
    # Read from its own text and from the one that is kept, it is the same.
    compared = CompareSchemas("FULL", offered.stored, ((1, offered.stored),))
    assert SchemaChecks().answer(compared) == Answer()


def test_what_is_nested_beyond_reason_is_refused_not_a_failure() -> None:
    library = SchemaLibrary(Schemas)
    deep: object = 1
    for _ in range(400):
        deep = {"n": deep}
    inner = '{"type":"record","name":"A","fields":[{"name":"n","type":["null","A"]}]}'
    field = f'{{"name":"x","type":{inner},"default":{json.dumps(deep)}}}'
    body = {"schema": f'{{"type":"record","name":"R","fields":[{field}]}}'}
    with pytest.raises(RegistryError, match=r"default|nested"):
        offered_to(library, body)


AGAIN = RECORD.replace('"int"', '"string"')


@pytest.mark.parametrize(
    ("level", "new", "earlier", "blamed"),
    [
        ("BACKWARD", WIDER, [RECORD], None),
        ("BACKWARD", BROKEN, [RECORD], 1),
        ("BACKWARD", RECORD, [BROKEN], None),
        ("FORWARD", RECORD, [BROKEN], 1),
        ("FORWARD", BROKEN, [RECORD], None),
        ("FULL", WIDER, [RECORD], None),
        ("FULL", BROKEN, [RECORD], 1),
        ("FULL", RECORD, [BROKEN], 1),
        ("NONE", AGAIN, [RECORD], None),
        ("BACKWARD", RECORD, [AGAIN, RECORD], None),
        ("BACKWARD_TRANSITIVE", RECORD, [AGAIN, RECORD], 1),
        ("FORWARD_TRANSITIVE", RECORD, [AGAIN, RECORD], 1),
        ("FULL_TRANSITIVE", RECORD, [AGAIN, RECORD], 1),
        ("FULL_TRANSITIVE", WIDER, [RECORD, WIDER], None),
        ("BACKWARD", BROKEN, [], None),
    ],
)
def test_levels_say_who_must_read_whom(
    level: str, new: str, earlier: list[str], blamed: int | None
) -> None:
    versions = [
        PreviousVersion(number, parse(SchemaKind.AVRO, text, {}))
        for number, text in enumerate(earlier, 1)
    ]
    messages = incompatibilities(level, parse(SchemaKind.AVRO, new, {}), versions)
    assert bool(messages) == (blamed is not None)
    if blamed is not None:
        assert messages[-2:] == [
            f"{{oldSchemaVersion: {blamed}}}",
            f"{{compatibility: '{level}'}}",
        ]


def registered(schemas: Schemas, subject: str, text: str, *references: Reference) -> None:
    library = SchemaLibrary(lambda: schemas)
    body = {"schema": text, "references": [each._asdict() for each in references]}
    offered = offered_to(library, body)
    assert library.known(subject, offered) is None
    schemas.apply(library.registration(subject, offered, seen=Position(5)), Position(6))


def test_references_of_references_are_found_and_a_name_means_the_first_that_says_it() -> None:
    schemas = Schemas()
    registered(schemas, "a", '{"type":"fixed","name":"A","size":1}')
    registered(
        schemas,
        "b",
        '{"type":"record","name":"B","fields":[{"name":"a","type":"A"}]}',
        Reference("A", "a", 1),
    )
    using = (
        '{"type":"record","name":"C","fields":[{"name":"a","type":"A"},{"name":"b","type":"B"}]}'
    )
    registered(schemas, "c", using, Reference("B", "b", -1))
    found = schemas.version("c", 1)
    assert found is not None
    assert found.references == (Reference("B", "b", 1),)


def test_schemas_are_read_once_and_forgotten_when_there_are_many() -> None:
    checks = SchemaChecks()

    def kept(number: int) -> StoredSchema:
        text = f'{{"type":"record","name":"R{number}","doc":"{"x" * 100_000}","fields":[]}}'
        answer = checks.answer(ReadSchema(SchemaKind.AVRO, text, (), (), True, False))
        return StoredSchema(SchemaKind.AVRO, answer.fingerprint, answer.body, ())

    first = kept(0)
    unreadable = first._replace(body=b"")
    assert checks.answer(CompareSchemas("FULL", unreadable, ((1, first),))) == Answer()
    for number in range(1, 20):
        kept(number)
    with pytest.raises(zlib.error):
        checks.answer(CompareSchemas("FULL", unreadable, ((1, first),)))


def test_reasons_are_as_many_and_as_long_as_somebody_reads() -> None:
    library = SchemaLibrary(Schemas)
    long = "a" * 60_000
    fields = [f'{{"name":"{long}{number}","type":"int"}}' for number in range(3)]
    fields += [f'{{"name":"b{number}","type":"int"}}' for number in range(200)]
    wanting = f'{{"type":"record","name":"R","fields":[{",".join(fields)}]}}'
    new, old = (
        offered_to(library, {"schema": text}).stored
        for text in (wanting, '{"type":"record","name":"R","fields":[]}')
    )
    lines = SchemaChecks().answer(CompareSchemas("BACKWARD", new, ((1, old),))).lines
    assert len(lines) == 102
    assert max(map(len, lines)) < 5_000
    assert lines[-2:] == ("{oldSchemaVersion: 1}", "{compatibility: 'BACKWARD'}")


def test_normalized_schemas_that_differ_in_the_order_of_attributes_are_one() -> None:
    library = SchemaLibrary(Schemas)
    bodies = [{"schema": '{"type":"int","a":1,"b":2}'}, {"schema": '{"b":2,"type":"int","a":1}'}]
    prints = [offered_to(library, body).fingerprint for body in bodies]
    assert prints[0] != prints[1]
    prints = [offered_to(library, body, normalize=True).fingerprint for body in bodies]
    assert prints[0] == prints[1]
    assert guid_of(bytes(range(32))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
