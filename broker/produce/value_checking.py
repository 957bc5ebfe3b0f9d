"""Finds out whether the keys and values of batches decode by their schemas (frazil.schema.validate=full).

What holds: nothing of a value or schema is read in the agent's loop, nor in its process: others are
asked (`broker.registry.checker`), which are bounded in memory and time, and which agents start when the first
batch of such a topic comes. What all batches take while they are asked about is bounded (`ROOM_BYTES`);
others wait as they were sent, in turn by their clients' addresses. A batch whose values cannot be read within
the bounds is refused; one that cannot be asked about now is not, its producer is to try again.

What it needs is loaded with the first batch: most agents have no such topic.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.calls.call import Call
from broker.calls.off_loop import OffLoop
from broker.calls.slices import AbandonedError, Slices
from broker.produce.validation import InvalidBatch, Undecoded, ValidBatch
from coordinator.tables.schemas import Schemas
from protocol import records
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.slices import Sliced

if TYPE_CHECKING:
    from broker.produce.value_questions import ValueQuestion
    from broker.registry.checker import SchemaChecker

ROOM_BYTES: Final = 48 << 20
QUESTION_BYTES: Final = 1 << 20
"""What a question takes whose values are small."""


class UndecidedError(Exception):
    """It cannot be found out now; the sentence says why."""


class ValueChecking:
    """Of one agent. `in_loop`: without a process, as in simulations."""

    def __init__(self, schemas: Schemas, off_loop: OffLoop, *, in_loop: bool) -> None:
        self._schemas = schemas
        self._off_loop = off_loop
        self._in_loop = in_loop
        self._room = Slices(held_max=ROOM_BYTES)
        """What it calls elements are bytes here."""
        self._checker: SchemaChecker | None = None

    async def validate(
        self, undecoded: Undecoded, call: Call, *, is_over: Callable[[], bool]
    ) -> ValidBatch | InvalidBatch:
        """`is_over`: whether nobody waits for the answer to `call` any more. Raises UndecidedError."""
        from broker.produce.value_questions import UndecodableError
        from broker.registry.checker import CheckerBusyError, CheckerUnavailableError

        try:
            async with self._room.enter(call, _bytes_held(undecoded)):
                return await self._validate(undecoded, call, is_over)
        except UndecodableError as error:
            return InvalidBatch(ErrorCode.INVALID_RECORD, str(error))
        except AbandonedError as error:
            raise UndecidedError("nobody waits for it any more") from error
        except (CheckerBusyError, CheckerUnavailableError) as error:
            raise UndecidedError(f"whether the values decode is not known: {error}") from error

    async def _validate(
        self, undecoded: Undecoded, call: Call, is_over: Callable[[], bool]
    ) -> ValidBatch | InvalidBatch:
        from broker.produce.value_questions import Refusals, questions

        batch, client = undecoded.batch, call.connection.requester.host
        content = await self._content(undecoded, call, is_over)
        count = batch.header.record_count
        refusals = Refusals()
        for asked in questions(content, count, self._schemas, with_keys=undecoded.with_keys):
            if is_over():
                raise AbandonedError
            answer = await self._asked().ask(asked.question, client=client, is_wanted=lambda: True)
            if answer.error:
                return InvalidBatch(ErrorCode.INVALID_RECORD, _where(asked, answer.error))
            refusals.add(asked, answer)
        return refusals.verdict() or batch

    async def _content(
        self, undecoded: Undecoded, call: Call, is_over: Callable[[], bool]
    ) -> memoryview:
        """The records, decompressed, once more: nothing was held before there was room."""
        header = undecoded.batch.header
        if header.codec == Codec.NONE:
            return records.payload(undecoded.batch.data)[1]
        opened = await self._off_loop.run(
            _opened(undecoded), records=header.record_count, call=call, gone=is_over
        )
        if opened is None:
            raise AbandonedError
        return opened

    async def aclose(self) -> None:
        """End the process."""
        if self._checker is not None:
            await self._checker.aclose()

    def _asked(self) -> "SchemaChecker":
        from broker.registry.checker import InLoopChecker, two_checkers

        if self._checker is None:
            self._checker = InLoopChecker() if self._in_loop else two_checkers()
        return self._checker


def _bytes_held(undecoded: Undecoded) -> int:
    """The records, if they are decompressed, and a question as values, as a frame, and on its way."""
    from broker.produce.value_questions import VALUE_BYTES_MAX

    content = undecoded.content_bytes
    inflated = 0 if undecoded.batch.header.codec == Codec.NONE else content
    return inflated + QUESTION_BYTES + 3 * min(content, VALUE_BYTES_MAX)


def _opened(undecoded: Undecoded) -> Sliced[memoryview]:
    yield
    return records.payload(undecoded.batch.data, bytes_max=undecoded.content_bytes)[1]


def _where(asked: "ValueQuestion", error: str) -> str:
    first, last = asked.fields[0].record, asked.fields[-1].record
    return f"what is to be decoded of the records {first} to {last}: {error}"
