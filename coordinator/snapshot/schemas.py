"""Tables about tables in a snapshot: exports and schemas.

A friend of both modules. They come last, and only when there is something in them, so that the
snapshot of a cluster that has not used them is one that the release before reads, too. What follows
from rows (who refers to what, sums) is made again.
"""

from typing import Final

from coordinator.commands.encoding import put_varint, read_varint
from coordinator.commands.layout import (
    attributes_of,
    fields_of,
    layout_of,
    mapping_of,
    member_of,
    tuple_of,
)
from coordinator.commands.table_commands import References, SchemaKind
from coordinator.snapshot.rows import (
    BYTES,
    FLAG,
    INT,
    POSITION,
    STRING,
    TOPIC_ID,
    UINT,
    read,
    write,
)
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.exports import ExportRow, Exports
from coordinator.tables.schemas import SchemaRow, Schemas, SubjectRow, VersionRow
from protocol.types import Position

_EXPORT: Final = fields_of(ExportRow, reported_ms=INT, offsets=mapping_of(UINT, UINT))
_TOPIC_EXPORT: Final = tuple_of({"[0]": TOPIC_ID, "[1]": _EXPORT})
_SCHEMA: Final = fields_of(
    SchemaRow,
    schema_id=UINT,
    kind=member_of(SchemaKind),
    body=BYTES,
    fingerprint=BYTES,
    references=layout_of(References),
)
_VERSION: Final = fields_of(VersionRow, schema_id=UINT, deleted=FLAG)
_SUBJECT: Final = attributes_of(
    SubjectRow,
    compatibility=STRING,
    mode=STRING,
    changed=POSITION,
    versions=mapping_of(UINT, _VERSION),
)
_NAMED_SUBJECT: Final = tuple_of({"[0]": STRING, "[1]": _SUBJECT})


def dump_tables(out: BlockWriter, exports: Exports, schemas: Schemas) -> None:
    if schemas.is_untouched and not len(exports):
        return
    write(out, exports.items(), len(exports), _TOPIC_EXPORT)
    data = bytearray()
    put_varint(data, schemas._next_id)
    put_varint(data, schemas._forgotten)
    out.block(data)
    write(out, schemas._rows.values(), len(schemas._rows), _SCHEMA)
    write(out, schemas._subjects.items(), len(schemas._subjects), _NAMED_SUBJECT)


def restore_tables(parts: BlockReader, exports: Exports, schemas: Schemas) -> None:
    exports._rows = {}
    empty = Schemas()
    for name in vars(empty):
        setattr(schemas, name, getattr(empty, name))
    if parts.is_at_end:
        return
    exports._rows = dict(read(parts, _TOPIC_EXPORT))
    data = parts.bytes()
    schemas._next_id, at = read_varint(data, 0)
    forgotten, _ = read_varint(data, at)
    schemas._forgotten = Position(forgotten)
    for schema in read(parts, _SCHEMA):
        schemas._add(schema)
    for name, row in read(parts, _NAMED_SUBJECT):
        schemas._subjects[name] = row
        schemas._version_count += len(row.versions)
        for number, version in row.versions.items():
            schemas._uses[version.schema_id][name, number] = None
