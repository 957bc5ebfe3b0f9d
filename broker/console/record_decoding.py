"""Keys and values of records as they are shown: by their schemas where they name one, else as `record_text` says.

What holds: nothing of a schema, or of a value by one, is read in the agent's process (`broker.registry.checker`); a page
asks once, about at most ASKED_BYTES_MAX. What cannot be read by its schema is shown as it is, with the reason.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.console.record_access import RecordAccess
from broker.console.views.record_batches import FoundRecord
from broker.console.views.record_text import ShownBytes, shown_bytes, shown_json
from broker.registry.checker import CheckerBusyError, CheckerUnavailableError
from broker.registry.checks import Answer, ReadValues
from broker.registry.errors import RegistryError
from broker.registry.subjects import SchemaLibrary, stored_schema
from coordinator.commands.table_commands import SchemaKind
from coordinator.tables.schemas import SchemaRow, Schemas
from protocol.schemas.frames import (
    KEY_HEADER,
    VALUE_HEADER,
    MessagePath,
    last_header,
    unframed,
)

ASKED_BYTES_MAX: Final = 1 << 20
"""Of keys and values together; those behind it are shown as they are."""
FORMS: Final = {
    SchemaKind.AVRO: "Avro",
    SchemaKind.PROTOBUF: "Protobuf",
    SchemaKind.JSON: "JSON Schema",
}


class ShownRecord(NamedTuple):
    """What is read of a record."""

    key: ShownBytes
    value: ShownBytes


class _Named(NamedTuple):
    """A key or value that names a schema that the registry has."""

    place: int
    """In the list of all keys and values."""
    row: SchemaRow
    path: MessagePath
    data: bytes


async def shown_records(
    access: RecordAccess,
    schemas: Schemas,
    found: Sequence[FoundRecord],
    *,
    client: str,
    characters_max: int,
    is_whole: bool = False,
) -> list[ShownRecord]:
    """In their order. `client`: the address of whoever asks; `characters_max`: of one key or value."""
    fields = [data for each in found for data in (each.record.key, each.record.value)]
    shown = [shown_bytes(each, characters_max=characters_max, is_whole=is_whole) for each in fields]
    named = _named(schemas, found)
    if named:
        answer = await _asked(access, schemas, named, client=client, characters_max=characters_max)
        reasons = dict(answer.refused)
        for index, each in enumerate(named):
            row, size = each.row, shown[each.place].size
            reason = answer.error or reasons.get(index, "")
            if reason or index >= len(answer.lines):
                note = f"not read by schema {row.schema_id}: {reason}"
                shown[each.place] = shown[each.place]._replace(note=note, schema_id=row.schema_id)
            else:
                shown[each.place] = shown_json(
                    answer.lines[index],
                    FORMS[row.kind],
                    row.schema_id,
                    size,
                    characters_max=characters_max,
                    is_whole=is_whole,
                )
    return [ShownRecord(*shown[at : at + 2]) for at in range(0, len(shown), 2)]


async def _asked(
    access: RecordAccess,
    schemas: Schemas,
    named: Sequence[_Named],
    *,
    client: str,
    characters_max: int,
) -> Answer:
    rows = {each.row.schema_id: each.row for each in named}
    numbers = {schema_id: number for number, schema_id in enumerate(rows)}
    values = [(numbers[each.row.schema_id], each.path, each.data) for each in named]
    try:
        stored = tuple(stored_schema(schemas, row) for row in rows.values())
        # One character more tells that a line was cut.
        question = ReadValues(stored, tuple(values), characters_max + 1)
        return await access.checker.ask(question, client=client, is_wanted=lambda: True)
    except (CheckerBusyError, CheckerUnavailableError, RegistryError) as error:
        return Answer(error=str(error))


def _named(schemas: Schemas, found: Sequence[FoundRecord]) -> list[_Named]:
    """Keys and values whose schemas are known, as many as may be asked about."""
    library = SchemaLibrary(lambda: schemas)
    named: list[_Named] = []
    size = 0
    for index, each in enumerate(found):
        record = each.record
        parts = ((record.key, KEY_HEADER), (record.value, VALUE_HEADER))
        for part, (data, name) in enumerate(parts):
            one = None
            if data is not None and size + len(data) <= ASKED_BYTES_MAX:
                header = last_header(record.headers, name) if record.headers else None
                one = _named_by(library, 2 * index + part, data, header)
            if one is not None:
                size += len(one.data)
                named.append(one)
    return named


def _named_by(
    library: SchemaLibrary, place: int, data: bytes, header: bytes | None
) -> _Named | None:
    """None: it names none, or one that is unknown here; then it only looks like a frame."""
    try:
        schema = unframed(data, header, has_path=False).schema
        row = library.row(schema) if isinstance(schema, int) else library.row_by_guid(schema)
        framed = unframed(data, header, has_path=row.kind is SchemaKind.PROTOBUF)
    except (RegistryError, ValueError):
        return None
    return _Named(place, row, framed.path, framed.payload)
