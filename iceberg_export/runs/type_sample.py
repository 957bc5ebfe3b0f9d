"""Columns that a topic's values would get with `value.schema=infer`, drawn from a sample of what is next.

Reads the first records of each partition that the next run would read, in this process, and writes nothing. A
run draws from what has no place in each unit of records, so it may draw more; what a sample draws it draws,
too, unless later values of the same unit say otherwise.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from iceberg_export import names
from iceberg_export.errors import StateError
from iceberg_export.plan.agent_client import Topic
from iceberg_export.plan.splits import PlannedSpan, next_commit_range
from iceberg_export.records.cells import Cells, TooManyCellsError
from iceberg_export.records.read_chunks import ChunkReader, open_reader, span_bytes
from iceberg_export.records.routed_rows import piece_of_route
from iceberg_export.records.rows import span_rows
from iceberg_export.routes import Route
from iceberg_export.runs.job import Job, table_identifier
from iceberg_export.table import topic_settings
from iceberg_export.table.catalog import find_table, state_of
from iceberg_export.typed.inferred import NOTHING, Fraction, Type, draw, join, unseen_in
from iceberg_export.typed.inferred_rows import fields_of_type, read_types
from iceberg_export.typed.inline import types_property
from iceberg_export.typed.reference import UndecodableError, read_json_value
from protocol.schemas import SchemaError

RECORDS_MAX = 10_000


class TypeSample(NamedTuple):
    records: int
    """That were looked at."""
    undecodable: int
    """Those that are no JSON."""
    columns: list[pa.Field]
    there: frozenset[str]
    """Names of columns that the table has drawn already."""


def sample_types(job: Job, topic: Topic) -> TypeSample:
    """Returns the columns after the next records. Raises ExportError."""
    table = find_table(job.catalog, table_identifier(job, topic))
    state = state_of(table)
    offsets = dict(state.offsets) if state else {}
    known = NOTHING
    property_name = types_property(names.VALUE)
    if table is not None and property_name in table.metadata.properties:
        try:
            known = read_types(table.metadata.properties[property_name]).type
        except SchemaError as error:
            raise StateError(f"the property {property_name} of the table: {error}") from error
    plan = job.client.plan(topic, offsets, bytes_enough=job.settings.number("commit.bytes.max"))
    commit_range = next_commit_range(
        plan, offsets, bytes_max=job.settings.number("commit.bytes.max"), skip_gaps=True
    )
    reader = open_reader(plan.store, job.settings.store_options)
    enough = max(1, RECORDS_MAX // max(1, topic.partition_count))
    route = topic_settings.parse(topic.configs, topic.name).route(topic.route)
    texts = list(_first_values(reader, commit_range.spans, enough, route))
    values, undecodable = _read(texts)
    after = _drawn(known, values)
    there = frozenset(field.name for field in fields_of_type(known))
    return TypeSample(len(texts), undecodable, fields_of_type(after), there)


def _first_values(
    reader: ChunkReader, spans: Iterable[PlannedSpan], enough: int, route: Route | None
) -> Iterator[bytes]:
    """Yields values that are no nulls: so many of each partition, span after span."""
    left: dict[int, int] = {}
    for span in spans:
        if left.setdefault(span.partition, enough) <= 0:
            continue
        for _, data in span_bytes(reader, [span]):
            for piece in span_rows(span, data):
                some = (
                    piece_of_route(route, piece)
                    .column(names.VALUE)
                    .drop_null()[: left[span.partition]]
                )
                left[span.partition] -= len(some)
                yield from some.to_pylist()


def _read(texts: Iterable[bytes]) -> tuple[list[Any], int]:
    values = []
    undecodable = 0
    for text in texts:
        try:
            values.append(read_json_value(text, Cells(), parse_float=Fraction))
        except (UndecodableError, TooManyCellsError):
            undecodable += 1
    return values, undecodable


def _drawn(known: Type, values: list[Any]) -> Type:
    while unseen := [seen for one in values if (seen := unseen_in(known, one)) is not None]:
        known = draw(known, join(unseen))
    return known
