"""Tables about tables in a snapshot: exports and schemas.

A friend of both modules. They come last, and only when there is something in them, so that the
snapshot of a cluster that has not used them is one that the release before reads, too. What follows
from rows (who refers to what, sums) is made again.
"""

from typing import Final

from coordinator.commands.encoding import (
    put_bytes,
    put_signed,
    put_string,
    put_topic_id,
    put_varint,
    read_bytes,
    read_signed,
    read_string,
    read_topic_id,
    read_varint,
)
from coordinator.commands.layout import layout_of
from coordinator.commands.table_commands import References, SchemaKind
from coordinator.snapshot.rows import read, write
from coordinator.snapshot.stream import In, Out
from coordinator.tables.exports import ExportRow, Exports
from coordinator.tables.schemas import SchemaRow, Schemas, SubjectRow, VersionRow
from protocol.types import Position, TopicId

_REFERENCES: Final = layout_of(References)


def dump_tables(out: Out, exports: Exports, schemas: Schemas) -> None:
    if schemas.is_untouched and not len(exports):
        return
    write(out, exports.items(), len(exports), _put_export)
    data = bytearray()
    put_varint(data, schemas._next_id)
    put_varint(data, schemas._forgotten)
    out.block(data)
    write(out, schemas._rows.values(), len(schemas._rows), _put_schema)
    write(out, schemas._subjects.items(), len(schemas._subjects), _put_subject)


def restore_tables(parts: In, exports: Exports, schemas: Schemas) -> None:
    exports._rows = {}
    empty = Schemas()
    for name in vars(empty):
        setattr(schemas, name, getattr(empty, name))
    if parts.is_at_end:
        return
    exports._rows = dict(read(parts, _read_export))
    data = parts.bytes()
    schemas._next_id, at = read_varint(data, 0)
    forgotten, _ = read_varint(data, at)
    schemas._forgotten = Position(forgotten)
    for schema in read(parts, _read_schema):
        schemas._add(schema)
    for name, row in read(parts, _read_subject):
        schemas._subjects[name] = row
        schemas._version_count += len(row.versions)
        for number, version in row.versions.items():
            schemas._uses[version.schema_id][name, number] = None


def _put_export(data: bytearray, item: tuple[TopicId, ExportRow]) -> None:
    topic_id, row = item
    put_topic_id(data, topic_id)
    put_signed(data, row.reported_ms)
    put_varint(data, len(row.offsets))
    for partition, offset in row.offsets.items():
        put_varint(data, partition)
        put_varint(data, offset)


def _read_export(data: bytes, at: int) -> tuple[tuple[TopicId, ExportRow], int]:
    topic_id, at = read_topic_id(data, at)
    reported_ms, at = read_signed(data, at)
    count, at = read_varint(data, at)
    offsets = {}
    for _ in range(count):
        partition, at = read_varint(data, at)
        offsets[partition], at = read_varint(data, at)
    return (topic_id, ExportRow(offsets, reported_ms)), at


def _put_schema(data: bytearray, row: SchemaRow) -> None:
    put_varint(data, row.schema_id)
    put_varint(data, row.kind)
    put_bytes(data, row.body)
    put_bytes(data, row.fingerprint)
    _REFERENCES.put(data, row.references)


def _read_schema(data: bytes, at: int) -> tuple[SchemaRow, int]:
    schema_id, at = read_varint(data, at)
    kind, at = read_varint(data, at)
    body, at = read_bytes(data, at)
    fingerprint, at = read_bytes(data, at)
    references, at = _REFERENCES.read(data, at)
    return SchemaRow(schema_id, SchemaKind(kind), body, fingerprint, references), at


def _put_subject(data: bytearray, item: tuple[str, SubjectRow]) -> None:
    name, row = item
    put_string(data, name)
    put_string(data, row.compatibility)
    put_string(data, row.mode)
    put_varint(data, row.changed)
    put_varint(data, len(row.versions))
    for number, version in row.versions.items():
        put_varint(data, number)
        put_varint(data, version.schema_id)
        put_varint(data, version.deleted)


def _read_subject(data: bytes, at: int) -> tuple[tuple[str, SubjectRow], int]:
    name, at = read_string(data, at)
    row = SubjectRow()
    row.compatibility, at = read_string(data, at)
    row.mode, at = read_string(data, at)
    changed, at = read_varint(data, at)
    row.changed = Position(changed)
    count, at = read_varint(data, at)
    for _ in range(count):
        number, at = read_varint(data, at)
        schema_id, at = read_varint(data, at)
        deleted, at = read_varint(data, at)
        row.versions[number] = VersionRow(schema_id, bool(deleted))
    return (name, row), at
