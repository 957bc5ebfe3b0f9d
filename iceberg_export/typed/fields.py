"""The columns that a schema gives: `fields_of`, for whoever makes or widens a table.

All columns are optional, at every depth. What is no record (a bare string, a list) is one column,
`value`. Parsed schemas are remembered, since every unit of records asks for its own again.
"""

from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa

from iceberg_export.typed import types
from iceberg_export.typed.avro_schema import AvroType, read_avro
from iceberg_export.typed.framing import FIRST_MESSAGE
from iceberg_export.typed.inferred_rows import Inferred, read_types
from iceberg_export.typed.json_schema import JsonType, read_json
from iceberg_export.typed.proto_schema import ProtoMessage, read_protobuf
from iceberg_export.typed.types import AVRO, INFERRED, JSON, PROTOBUF, Schema
from protocol.schemas import SchemaError

__all__ = ["AVRO", "JSON", "PROTOBUF", "Schema", "SchemaError", "fields_of", "shape_of"]

Shape = AvroType | JsonType | ProtoMessage | Inferred
STRING_FIELDS = pa.schema([(types.VALUE, types.TEXT)])
"""The columns of mode string."""


def fields_of(schema: Schema, indexes: tuple[int, ...] = FIRST_MESSAGE) -> pa.Schema:
    """Optional columns; `indexes` name the message in a Protobuf file. Raises SchemaError."""
    shape = shape_of(schema, indexes)
    arrow = shape.type.arrow if isinstance(shape, ProtoMessage) else shape.arrow
    if pa.types.is_struct(arrow):
        return pa.schema(list(arrow))
    if shape_is_record(shape):
        return pa.schema([])
    if arrow == pa.null():
        raise SchemaError("a schema of type null has no column")
    return pa.schema([pa.field(types.VALUE, arrow)])


def shape_is_record(shape: Shape) -> bool:
    """Its fields are the columns; an optional record's, too, and a union's branches."""
    if isinstance(shape, ProtoMessage):
        return shape.type.kind == "message"
    if isinstance(shape, AvroType) and shape.branch is not None:
        return shape_is_record(shape.branch)
    return shape.kind in {"record", "object"} or pa.types.is_struct(shape.arrow)


def shape_of(schema: Schema, indexes: tuple[int, ...] = FIRST_MESSAGE) -> Shape:
    """The schema's tree of types. Raises SchemaError."""
    references = tuple(schema.references.items())
    return _parsed(schema.kind, schema.text, references, indexes)


@lru_cache(maxsize=256)
def _parsed(
    kind: str, text: str, references: tuple[tuple[str, str], ...], indexes: tuple[int, ...]
) -> Shape:
    names: Mapping[str, str] = dict(references)
    if kind == AVRO:
        return read_avro(text, names)
    if kind == JSON:
        return read_json(text, names)
    if kind == PROTOBUF:
        return read_protobuf(Schema(0, kind, text, names), indexes)
    if kind == INFERRED:
        return read_types(text)
    raise SchemaError(f"schemas of type {kind} are not known")
