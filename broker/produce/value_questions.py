"""The keys and values of a batch as questions about schemas, and the answers as a verdict. Pure.

A question has only so many values, and bytes of them, so that none takes long, and others have their turn in
between. Loaded by `broker.produce.value_checking` when there is one.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker.produce.validation import RECORD_ERRORS_MAX, InvalidBatch, NamedField
from broker.registry.checks import Answer, CheckValues
from broker.registry.errors import SCHEMA_NOT_FOUND, RegistryError
from broker.registry.subjects import stored_schema
from coordinator.tables.schemas import Schemas
from protocol.errors import ErrorCode

VALUES_MAX: Final = 4_096
BYTES_MAX: Final = 256 << 10
"""Of one question; a single value may be larger."""


class ValueQuestion(NamedTuple):
    fields: Sequence[NamedField]
    question: CheckValues
    """About each of these, in order."""


def questions(fields: Sequence[NamedField], schemas: Schemas) -> Iterator[ValueQuestion]:
    """Raises RegistryError for a schema that is gone, or whose references are."""
    begin = size = 0
    for number, one in enumerate(fields):
        size += len(one.data)
        if number > begin and (size > BYTES_MAX or number - begin >= VALUES_MAX):
            yield _question(fields[begin:number], schemas)
            begin, size = number, len(one.data)
    yield _question(fields[begin:], schemas)


def _question(fields: Sequence[NamedField], schemas: Schemas) -> ValueQuestion:
    places: dict[int, int] = {}
    values = [(places.setdefault(one.schema_id, len(places)), one.data) for one in fields]
    stored = []
    for schema_id in places:
        row = schemas.by_id(schema_id)
        if row is None:
            raise RegistryError(SCHEMA_NOT_FOUND, f"schema {schema_id} was deleted just now")
        stored.append(stored_schema(schemas, row))
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
            said = f"The {field} is not as its schema {schema_id} says: {reason}."
            self._named.append((record, said))

    def verdict(self) -> InvalidBatch | None:
        """None: there is nothing."""
        if not self._count:
            return None
        message = (
            f"One or more records have been rejected due to {self._count} record errors in total"
        )
        named = (*sorted(self._named)[:RECORD_ERRORS_MAX],)
        return InvalidBatch(ErrorCode.INVALID_RECORD, message, named)
