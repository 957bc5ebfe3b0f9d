"""The text that stands for a schema and its fingerprint are in the log: they never change.

Another fingerprint for the same schema would give it another id.
"""

import pytest

from broker.registry.parsed_schema import fingerprint, parse
from coordinator.commands.table_commands import Reference, SchemaKind
from tests.broker.registry.test_compatibility_protobuf import RICH

AVRO = """
{ "type": "record", "name": "Order", "namespace": "shop", "doc": "An order \\u00df.",
  "aliases": ["Purchase"], "owner": {"b": 1, "a": [true, null]},
  "fields": [
    {"name": "id", "type": "long", "order": "descending"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "state", "default": "NEW",
     "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"], "default": "NEW"}},
    {"name": "key", "type": {"type": "fixed", "name": "other.Key", "size": 16}, "doc": "16 bytes"},
    {"name": "next", "type": ["null", "Order"], "default": null},
    {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
    {"name": "ratio", "type": "double", "default": 1.5e3, "aliases": ["share"]}
  ] }
"""
JSON = """
{ "$schema": "http://json-schema.org/draft-07/schema#", "title": "Order \\u00df", "type": "object",
  "required": ["id", "at"], "additionalProperties": false,
  "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 1e3},
                 "at": {"type": "string", "format": "date-time"},
                 "next": {"oneOf": [{"type": "null"}, {"$ref": "#"}]},
                 "sum": {"type": "number", "multipleOf": 0.01, "default": 1.50}},
  "definitions": {"b": {"enum": [1, "x", null, true]}, "a": {"const": {"y": 1, "x": [2]}}} }
"""
COMMON_AVRO = '{"type": "enum", "name": "shop.Colour", "symbols": ["RED"]}'
COMMON_PROTO = 'syntax = "proto3"; package common; message Colour { int32 hue = 1; }'
USES_AVRO = '{"type": "array", "items": "shop.Colour"}'
USES_PROTO = 'syntax = "proto3"; import "common.proto"; message M { common.Colour colour = 1; }'

FINGERPRINTS = [
    (
        SchemaKind.AVRO,
        AVRO,
        {},
        "dba7a4f8a8156e40f8dc28b7ed820f5a190c1249ecd7a9e7786ce1cd6fe5f7a8",
        "dba7a4f8a8156e40f8dc28b7ed820f5a190c1249ecd7a9e7786ce1cd6fe5f7a8",
    ),
    (
        SchemaKind.AVRO,
        USES_AVRO,
        {"common": COMMON_AVRO},
        "9231bde8e70f4b9b72b53a4c09f352864737f1ce95a8424bcd8da2fea8518cc3",
        "9231bde8e70f4b9b72b53a4c09f352864737f1ce95a8424bcd8da2fea8518cc3",
    ),
    (
        SchemaKind.JSON,
        JSON,
        {},
        "6e762faff6ce5e75856d9e45b91de96a9ff9eefafbe5c9548d6f507d73c76e21",
        "9d58044693878d943286c561755afdbc3b6f10a06d545f023d9d2b788dba0cdf",
    ),
    (
        SchemaKind.PROTOBUF,
        RICH,
        {},
        "ca3878d91f06ff2ac270df6f9ea486ca51eac5a3ecc1bd99618f65e541f055fd",
        "ca3878d91f06ff2ac270df6f9ea486ca51eac5a3ecc1bd99618f65e541f055fd",
    ),
    (
        SchemaKind.PROTOBUF,
        USES_PROTO,
        {"common.proto": COMMON_PROTO},
        "0b36907e9820b2330b8a2a4868cfbbc91d55df453b4215f921b7605bd1fa457e",
        "0b36907e9820b2330b8a2a4868cfbbc91d55df453b4215f921b7605bd1fa457e",
    ),
]


@pytest.mark.parametrize(("kind", "text", "references", "as_it_is", "normalized"), FINGERPRINTS)
def test_a_schema_has_the_fingerprint_that_it_ever_had(
    kind: SchemaKind, text: str, references: dict[str, str], as_it_is: str, normalized: str
) -> None:
    named = [Reference(name, "colours", 3) for name in references]
    for normalize, wanted in ((False, as_it_is), (True, normalized)):
        parsed = parse(kind, text, references, is_new=True, normalize=normalize)
        assert fingerprint(kind, parsed.canonical, named).hex() == wanted, parsed.canonical
