"""Tables about tables in a snapshot: exports and schemas.

A friend of both modules. They come behind all that the first release had, and only when there is
something in them or behind them, so that the snapshot of a cluster that has not used them is one that
the release before reads, too. What follows from rows (who refers to what, sums) is made again.
"""

from typing import Final

from coordinator.commands.layout import Layout, layout_of
from coordinator.snapshot.rows import (
    POSITION,
    UINT,
    Fields,
    read,
    read_fields,
    write,
    write_fields,
)
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.exports import ExportRow, Exports
from coordinator.tables.schemas import SchemaRow, Schemas, SubjectRow
from protocol.types import TopicId

_TOPIC_EXPORT: Final = layout_of(tuple[TopicId, ExportRow])
_SCHEMAS: Final[Fields] = {"_next_id": UINT, "_forgotten": POSITION}
_SCHEMA: Final[Layout[SchemaRow]] = layout_of(SchemaRow)
_NAMED_SUBJECT: Final = layout_of(tuple[str, SubjectRow])


def dump_tables(
    out: BlockWriter, exports: Exports, schemas: Schemas, *, more_follows: bool
) -> None:
    """`more_follows`: something comes behind them, so they cannot be left out."""
    if schemas.is_untouched and not len(exports) and not more_follows:
        return
    write(out, exports.items(), len(exports), _TOPIC_EXPORT)
    write_fields(out, (schemas, _SCHEMAS))
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
    read_fields(parts, (schemas, _SCHEMAS))
    for schema in read(parts, _SCHEMA):
        schemas._add(schema)
    for name, row in read(parts, _NAMED_SUBJECT):
        schemas._subjects[name] = row
        schemas._version_count += len(row.versions)
        for number, version in row.versions.items():
            schemas._uses[version.schema_id][name, number] = None
