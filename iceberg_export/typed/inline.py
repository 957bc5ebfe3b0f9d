"""A topic's own JSON Schema: `frazil.iceberg.value.schema=inline` with its text in `value.schema.json`.

No registry is asked: the text decodes all keys, or all values, of a run. It has the reserved id
`INLINE`, which no registry gives and no table keeps. A table notes, before any row by it, each schema
that decoded its rows, by a digest of the types that decoding goes by: words that change no type are
no other schema. So whoever decodes the log again knows whether today's text is the one of all rows.
Pure.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from iceberg_export.errors import SettingsError
from iceberg_export.typed.json_schema import JsonType, read_json
from iceberg_export.typed.types import JSON, Schema
from protocol.schemas import SchemaError
from protocol.schemas.json_schema import load

INLINE: Final = -4
"""The id of the schema; -1 to -3 say why a row has none (`framing`, `schema_headers`)."""
PROPERTY: Final = "frazil.inline."
"""Begins properties of a table: `frazil.inline.value.<digest>`."""
OTHERS: Final = "others"
"""In the place of a digest: rows are older than the first note."""
_SIDES: Final = {"value": "value", "kafka_key": "key"}
"""How settings and notes call a `Side.source`."""


def inline_schema(source: str, text: str) -> Schema:
    """Returns the schema of a topic's keys or values. Raises SettingsError for a text that is none."""
    try:
        if not isinstance(load(text), dict):
            raise SchemaError("it is no object")
        read_json(text, {})
    except SchemaError as error:
        raise SettingsError(
            f"frazil.iceberg.{_SIDES[source]}.schema.json is no JSON Schema: {error}"
        ) from error
    return Schema(INLINE, JSON, text)


def say_schema(schema_id: int) -> str:
    """A schema in a sentence."""
    return "the topic's own schema" if schema_id == INLINE else f"schema {schema_id}"


def inferred_note(source: str) -> str:
    """Returns the property that says that rows were decoded by types that were inferred."""
    return f"{PROPERTY}{_SIDES[source]}.inferred"


def types_property(source: str) -> str:
    """Returns the property of a table that has the inferred types of its keys or values."""
    return f"frazil.inferred.{_SIDES[source]}"


def note_of(source: str, text: str) -> str:
    """Returns the property that says that rows were decoded by this text, or one of the same types."""
    told = json.dumps(_shape(read_json(text, {})), separators=(",", ":")).encode()
    return f"{PROPERTY}{_SIDES[source]}.{hashlib.sha256(told).hexdigest()[:16]}"


def missing_notes(
    notes: Mapping[str, str], properties: Mapping[str, str], *, has_rows: bool
) -> dict[str, str]:
    """Returns properties that a table needs before rows are decoded by these schemas (`note_of`, by
    source)."""
    wanted = {}
    for source, note in notes.items():
        if note in properties:
            continue
        wanted[note] = "true"
        if has_rows and not _noted(source, properties):
            wanted[f"{PROPERTY}{_SIDES[source]}.{OTHERS}"] = "true"
    return wanted


def stale_notes(notes: Mapping[str, str], properties: Mapping[str, str]) -> set[str]:
    """Returns properties about rows that a table without rows does not have."""
    every = {name for source in _SIDES for name in _noted(source, properties)}
    return every - {*notes.values()}


def has_other_rows(source: str, note: str, properties: Mapping[str, str]) -> bool:
    """Tells whether rows may have been decoded by other schemas than the one of this note; "": none."""
    return bool(_noted(source, properties) - {note})


def _noted(source: str, properties: Mapping[str, str]) -> set[str]:
    prefix = f"{PROPERTY}{_SIDES[source]}."
    return {name for name in properties if name.startswith(prefix)}


def _shape(node: JsonType) -> list[Any]:
    return [node.kind, [[name, _shape(inner)] for name, inner in node.fields]]
