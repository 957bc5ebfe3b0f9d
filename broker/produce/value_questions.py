"""The keys and values of a batch as questions about schemas, and the answers as a verdict. Pure.

A question has only so many values, and bytes of them, so that none takes long, and others have their turn in
between. Loaded by `broker.produce.value_checking` when there is one.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker.produce.validation import RECORD_ERRORS_MAX, InvalidBatch
from broker.registry.checks import Answer, CheckValues
from broker.registry.errors import RegistryError
from broker.registry.subjects import stored_schema
from coordinator.tables.schemas import Schemas
from protocol import record_scan
from protocol.errors import ErrorCode
from protocol.record_scan import NO_FIELD

BYTES_MAX: Final = 256 << 10
"""Of one question; a single value may be larger. It has at most record_scan.HEADS_MAX records."""
VALUE_BYTES_MAX: Final = 8 << 20
"""A larger one is not decoded: it would be copied more often than there is room for."""


class UndecodableError(Exception):
    """A batch that cannot be asked about; the sentence says why."""


class NamedField(NamedTuple):
    """A key or value that names a schema that the registry has."""

    record: int
    """Which of the batch's it is in."""
    field: str
    """key or value."""
    schema_id: int
    data: bytes
    """Behind the frame that names it."""


class ValueQuestion(NamedTuple):
    fields: Sequence[NamedField]
    question: CheckValues
    """About each of these, in order."""


def questions(
    content: memoryview, count: int, schemas: Schemas, *, with_keys: bool
) -> Iterator[ValueQuestion]:
    """About the values of `count` records, and their keys if they are asked for.

    `content`: the records, decompressed; they are sound, and each names known schemas. Raises UndecodableError.
    """
    for some in _fields(content, count, with_keys=with_keys):
        yield _question(some, schemas)


def _fields(content: memoryview, count: int, *, with_keys: bool) -> Iterator[list[NamedField]]:
    for heads in record_scan.heads(content, count, places=True):
        some: list[NamedField] = []
        size = 0
        for field, places in [("key", heads.keys)] * with_keys + [("value", heads.values)]:
            for record, at in enumerate(places, heads.first):
                if (named := record_scan.schema_named(content, at)) == NO_FIELD:
                    continue
                data = record_scan.framed_value(content, at)
                if len(data) > VALUE_BYTES_MAX:
                    raise UndecodableError(
                        f"the {field} of record {record} has {len(data)} bytes, and at most"
                        f" {VALUE_BYTES_MAX} are decoded"
                    )
                size += len(data)
                if some and size > BYTES_MAX:
                    yield some
                    some, size = [], len(data)
                some.append(NamedField(record, field, named, bytes(data)))
        if some:
            yield some


def _question(fields: Sequence[NamedField], schemas: Schemas) -> ValueQuestion:
    places: dict[int, int] = {}
    values = [(places.setdefault(one.schema_id, len(places)), one.data) for one in fields]
    stored = []
    for schema_id in places:
        row = schemas.by_id(schema_id)
        if row is None:
            raise UndecodableError(f"schema {schema_id} was deleted just now")
        try:
            stored.append(stored_schema(schemas, row))
        except RegistryError as error:
            raise UndecodableError(f"schema {schema_id}: {error}") from error
    return ValueQuestion(fields, CheckValues((*stored,), (*values,)))


class Refusals:
    """What is wrong with the records of a batch, as answers say."""

    def __init__(self) -> None:
        self._count = 0
        self._named: list[tuple[int, str]] = []

    def add(self, asked: ValueQuestion, answer: Answer) -> None:
        self._count += answer.refused_count
        for place, reason in answer.refused:
            record, field, schema_id, _ = asked.fields[place]
            if len(self._named) < RECORD_ERRORS_MAX:
                said = f"The {field} is not as its schema {schema_id} says: {reason}."
                self._named.append((record, said))

    def verdict(self) -> InvalidBatch | None:
        """None: there is nothing."""
        if not self._count:
            return None
        message = (
            f"One or more records have been rejected due to {self._count} record errors in total"
        )
        return InvalidBatch(ErrorCode.INVALID_RECORD, message, (*sorted(self._named),))
