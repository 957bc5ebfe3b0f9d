"""What a task of a query does: rows of a split of chunks, or of some files of a table.

Every batch has the columns that Spark was told, in their order and of Spark's own Arrow types. A
column that one side does not have is null there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export import names
from iceberg_export.errors import PlanError
from iceberg_export.records.read_chunks import open_reader, span_bytes
from iceberg_export.records.rows import (
    SpanRows,
    TimestampLimits,
    is_among,
    limit_timestamps,
    span_rows,
)
from iceberg_export.source.filters import QueryRange
from iceberg_export.source.tasks import CORRUPT, CORRUPT_TYPE, ChunkTask, Decoding, Task


def read_task(task: Task, schema: pa.Schema, query: QueryRange) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a task in the query's range, in columns of `schema`. Raises ExportError.

    Partitions and offsets are the plan's business; timestamps differ from record to record.
    """
    for rows in _rows(task, schema, query):
        found = _between(rows, query)
        if found.num_rows:
            yield from to_columns(found, schema).to_batches()


def _rows(task: Task, schema: pa.Schema, query: QueryRange) -> Iterator[pa.Table]:
    if isinstance(task, ChunkTask):
        return _chunk_rows(task)
    # PyIceberg takes longer to load than a small topic to be read.
    from iceberg_export.source.tables import table_rows

    return table_rows(task, schema, query)


def _between(rows: pa.Table, query: QueryRange) -> pa.Table:
    if query.micros_from is None and query.micros_to is None:
        return rows
    micros = rows.column(names.TIMESTAMP).cast(pa.int64())
    if query.micros_from is not None:
        # A null is neither before nor after: such rows go.
        here = pc.greater_equal(micros, query.micros_from)
        rows, micros = rows.filter(here), micros.filter(here)
    return rows if query.micros_to is None else rows.filter(pc.less(micros, query.micros_to))


def _chunk_rows(task: ChunkTask) -> Iterator[pa.Table]:
    decoding = task.decoding
    reader = open_reader(task.store, task.store_options)
    for span, data in span_bytes(reader, task.split.spans):
        for piece in span_rows(span, data):
            rows = _of_table(decoding, piece)
            # What cannot be read is the topic's own table's.
            is_ours = decoding.route is None or decoding.route.takes_others
            if piece.hidden and decoding.fails and is_ours:
                raise _undecodable(decoding.topic, f"partition {span.partition}: {piece.hidden}")
            if piece.reasons:
                if not decoding.keeps:
                    continue
                from iceberg_export.typed.typed_rows import unreadable_batches

                rows = unreadable_batches(rows, piece.reasons)
            if decoding.left_out:
                rows = rows.filter(pc.invert(is_among(rows, decoding.left_out)))
            if rows.num_rows == 0:
                continue
            if decoding.timestamps is not None:
                rows = limit_timestamps(rows, TimestampLimits(*decoding.timestamps))
            if piece.reasons:
                yield _corrupt(rows)
            elif decoding.typing is None:
                yield rows
            else:
                yield from _decoded(decoding, decoding.typing, rows)


def _of_table(decoding: Decoding, piece: SpanRows) -> pa.Table:
    if decoding.route is None:
        return piece.rows
    from iceberg_export.records.routed_rows import piece_of_route

    return piece_of_route(decoding.route, piece)


def _undecodable(topic: str, what: str) -> PlanError:
    if not topic:
        return PlanError(what)
    return PlanError(
        f"topic {topic} {what}; mode=PERMISSIVE shows such records as they are in {CORRUPT}, "
        "DROPMALFORMED leaves them out"
    )


def _decoded(decoding: Decoding, typing: Any, rows: pa.Table) -> Iterator[pa.Table]:
    """Decodes rows as the exporter would write them, by `typing` (`RowTyping`); bad ones are left out,
    as they will not be in the table, are kept as they are, or are an error."""
    from iceberg_export.typed.typed_rows import RowDecoder, first_reason, refuse_unknown

    for some, decoded in RowDecoder(typing).parts(rows):
        if decoded.unknown and decoding.topic and not decoding.fails:
            # Nobody can be asked here: what the driver does not know is no record of the topic's.
            yield from _decoded(decoding, refuse_unknown(typing, decoded.unknown), some)
            continue
        if decoded.unknown:
            raise _unknown(decoding, decoded.unknown)
        if decoded.bad.num_rows and decoding.fails:
            raise _undecodable(decoding.topic, first_reason(decoded.bad))
        if decoded.bad.num_rows and decoding.keeps:
            yield _with_corrupt(decoded.rows, decoded.bad)
        else:
            yield decoded.rows


def _unknown(decoding: Decoding, unknown: Mapping[str, set[Any]]) -> PlanError:
    from iceberg_export.typed.schema_headers import GUID, guid_text

    source, ids = next(iter(unknown.items()))
    number, indexes = min(ids)
    side = decoding.typing.value if source == names.VALUE else decoding.typing.key
    if number in side.schemas:
        return PlanError(
            f"message {list(indexes)} of schema {number} of {source} has fields that there are "
            "no columns for yet; export the topic first, and read its table"
        )
    named = number if number < GUID else guid_text(number)
    return PlanError(
        f"schema {named} of {source} is no version of the topic's subject; set "
        "frazil.iceberg.value.subject (or key.subject) of the topic"
    )


def _with_corrupt(rows: pa.Table, bad: pa.Table) -> pa.Table:
    """Returns good and bad rows of one partition, in their order."""
    both = [rows, _corrupt(bad)]
    return pa.concat_tables(both, promote_options="default").sort_by(names.OFFSET)


def _corrupt(bad: pa.Table) -> pa.Table:
    """Returns rows of dead letters as they are shown: all of them in one column."""
    parts = [
        bad.column(name).combine_chunks().cast(field.type)
        for name, field in zip(
            ("error_code", "error_message", "schema_id", names.KEY, names.VALUE),
            CORRUPT_TYPE,
            strict=True,
        )
    ]
    whole = pa.StructArray.from_arrays(parts, fields=list(CORRUPT_TYPE))
    of_record = [name for name in bad.column_names if name.startswith("kafka_")]
    kept = bad.select([name for name in of_record if name != names.KEY])
    return kept.append_column(CORRUPT, whole)


def to_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the columns of `schema`, by name. Raises PlanError where a value is beyond its column."""
    return pa.Table.from_arrays([_column(rows, field) for field in schema], schema=schema)


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    try:
        return rows.column(field.name).cast(field.type)
    except pa.ArrowInvalid as error:
        raise PlanError(
            f"column {field.name} has become wider since the columns were told; load again ({error})"
        ) from error
