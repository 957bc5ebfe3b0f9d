"""Values as JSON by their schemas, as pages of records ask for them."""

import zlib

from broker.registry.checks import ReadValues, SchemaChecks, StoredSchema
from coordinator.commands.table_commands import SchemaKind
from protocol.schemas.frames import FIRST_MESSAGE
from tests.broker.registry.client import RECORD

PROTO = 'syntax = "proto3"; message A { int32 a = 1; message B { string b = 1; } }'


def stored(kind: SchemaKind, text: str) -> StoredSchema:
    return StoredSchema(kind, text.encode()[-32:].ljust(32), zlib.compress(text.encode()), ())


AVRO = stored(SchemaKind.AVRO, RECORD)


def test_values_are_read_by_the_schemas_that_they_name_and_others_are_told_why_not() -> None:
    schemas = (AVRO, stored(SchemaKind.PROTOBUF, PROTO), stored(SchemaKind.JSON, "{}"))
    values = (
        (0, FIRST_MESSAGE, b"\x54"),
        (1, FIRST_MESSAGE, b"\x08\x07"),
        (1, (0, 0), b"\x0a\x02hi"),
        (2, FIRST_MESSAGE, b'{"x":\n1}'),
        (0, FIRST_MESSAGE, b"\xff"),
        (1, (3,), b""),
        (2, FIRST_MESSAGE, b"[" * 100_000),
    )
    answer = SchemaChecks().answer(ReadValues(schemas, values, 100))
    assert answer.lines == ('{"a":42}', '{"a":7}', '{"b":"hi"}', '{"x": 1}', "", "", "")
    assert [index for index, _ in answer.refused] == [4, 5, 6]
    assert answer.refused_count == 3
    assert "no message at [3]" in answer.refused[1][1]


def test_a_line_is_cut_and_a_schema_that_is_none_refuses_its_values_alone() -> None:
    schemas = (AVRO, stored(SchemaKind.AVRO, "{"))
    values = ((0, FIRST_MESSAGE, b"\x54"), (1, FIRST_MESSAGE, b"\x54"))
    answer = SchemaChecks().answer(ReadValues(schemas, values, 4))
    assert answer.lines == ('{"a"', "")
    assert [index for index, _ in answer.refused] == [1]
    assert answer.error == ""
