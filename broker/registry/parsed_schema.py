"""A schema of any kind, parsed: its canonical text, and whether it may follow others.

Levels are Confluent's: BACKWARD (the new one reads what the latest wrote), FORWARD (the latest
reads what the new one writes), FULL (both), each also TRANSITIVE (all versions instead of the
latest), NONE.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from broker.registry.canonical import canonical_avro, canonical_json, canonical_protobuf
from broker.registry.compatibility_avro import avro_differences
from broker.registry.compatibility_json import json_differences
from broker.registry.compatibility_protobuf import ProtoSchema, proto_schema, protobuf_differences
from broker.registry.differences import Difference
from broker.registry.json_nodes import Node, read_json
from coordinator.commands.table_commands import Reference, SchemaKind
from protocol.schemas import SchemaError
from protocol.schemas.avro import AvroSchema, Check, parse_avro
from protocol.schemas.protobuf import parse_protobuf

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)


class ParsedSchema(NamedTuple):
    kind: SchemaKind
    canonical: str
    schema: AvroSchema | Node | ProtoSchema
    serialized: bytes = b""
    """Of Protobuf: its FileDescriptorProto, with all names resolved."""


class PreviousVersion(NamedTuple):
    """A version that a new one is compared with."""

    version: int
    parsed: ParsedSchema


def parse(
    kind: SchemaKind,
    text: str,
    references: Mapping[str, str],
    *,
    is_new: bool = False,
    normalize: bool = False,
) -> ParsedSchema:
    """What a text says. `references`: texts by name, each after those that it needs itself.

    A new one is held to more than one that was taken before. Raises SchemaError.
    """
    try:
        return _parse(kind, text, references, is_new=is_new, normalize=normalize)
    except RecursionError as error:
        raise SchemaError("nested too deeply") from error


def _parse(
    kind: SchemaKind, text: str, references: Mapping[str, str], *, is_new: bool, normalize: bool
) -> ParsedSchema:
    if kind == SchemaKind.AVRO:
        check = Check.DEFAULTS if is_new else Check.NAMES
        avro = parse_avro(text, tuple(references.values()), check=check)
        return ParsedSchema(kind, canonical_avro(avro, normalize=normalize), avro)
    if kind == SchemaKind.JSON:
        node = read_json(text, references)
        return ParsedSchema(kind, canonical_json(text, normalize=normalize), node)
    file = parse_protobuf(text, references)
    proto = proto_schema(file.descriptor)
    canonical = canonical_protobuf(file.text)
    return ParsedSchema(kind, canonical, proto, proto.file.SerializeToString())


def fingerprint(kind: SchemaKind, canonical: str, references: Sequence[Reference]) -> bytes:
    """Schemas with the same one are the same, and share an id."""
    said = json.dumps([kind.name, canonical, [list(each) for each in references]])
    return hashlib.sha256(said.encode()).digest()


def is_transitive(level: str) -> bool:
    return level.endswith("_TRANSITIVE")


def incompatibilities(
    level: str, new: ParsedSchema, earlier: Sequence[PreviousVersion]
) -> list[str]:
    """Why `new` may not follow, in sentences; none: it may. `earlier` is in order of versions.

    Raises SchemaError when a comparison is too involved.
    """
    assert level in LEVELS
    direction = level.removesuffix("_TRANSITIVE")
    for version, old in reversed(earlier if is_transitive(level) else earlier[-1:]):
        messages: list[str] = []
        if direction in ("BACKWARD", "FULL"):
            messages += [
                each.message(reader="new", writer="old")
                for each in _differences(reader=new, writer=old)
            ]
        if direction in ("FORWARD", "FULL"):
            messages += [
                each.message(reader="old", writer="new")
                for each in _differences(reader=old, writer=new)
            ]
        if messages:
            return [*messages, f"{{oldSchemaVersion: {version}}}", f"{{compatibility: '{level}'}}"]
    return []


def _differences(*, reader: ParsedSchema, writer: ParsedSchema) -> list[Difference]:
    try:
        return _compared(reader=reader, writer=writer)
    except RecursionError as error:
        raise SchemaError("too involved to be compared") from error


def _compared(*, reader: ParsedSchema, writer: ParsedSchema) -> list[Difference]:
    match reader.schema, writer.schema:
        case AvroSchema() as one, AvroSchema() as other:
            return avro_differences(reader=one, writer=other)
        case Node() as one, Node() as other:
            return json_differences(reader=one, writer=other)
        case ProtoSchema() as one, ProtoSchema() as other:
            return protobuf_differences(reader=one, writer=other)
        case _:
            said = f"the {{reader}} schema is {reader.kind.name}, the {{writer}} {writer.kind.name}"
            return [Difference("SCHEMA_TYPE_CHANGED", "/", said)]
