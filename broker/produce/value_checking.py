"""Finds out whether the keys and values of batches decode by their schemas (frazil.schema.validate=full).

What holds: nothing of a value or schema is read in the agent's loop, nor in its process: one of its own is
asked (`broker.registry.checker`), which is bounded in memory and time, and which agents start when the first
batch of such a topic comes. Producers take turns, by their addresses. A batch whose values cannot be read
within the bounds is refused; one that cannot be asked about now is not, its producer is to try again.

What it needs is loaded with the first batch: most agents have no such topic.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.produce.validation import InvalidBatch, Undecoded, ValidBatch
from coordinator.tables.schemas import Schemas
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.produce.value_questions import ValueQuestion
    from broker.registry.checker import SchemaChecker


class UndecidedError(Exception):
    """It cannot be found out now; the sentence says why."""


class ValueChecking:
    """Of one agent. `in_loop`: without a process, as in simulations."""

    def __init__(self, schemas: Schemas, *, in_loop: bool) -> None:
        self._schemas = schemas
        self._in_loop = in_loop
        self._checker: SchemaChecker | None = None

    async def validate(
        self, undecoded: Undecoded, *, client: str, is_wanted: Callable[[], bool]
    ) -> ValidBatch | InvalidBatch:
        """`is_wanted`: whether `client` still waits. Raises UndecidedError."""
        from broker.produce.value_questions import Refusals, questions
        from broker.registry.checker import CheckerBusyError, CheckerUnavailableError
        from broker.registry.errors import RegistryError

        refusals = Refusals()
        try:
            for asked in questions(undecoded.fields, self._schemas):
                if not is_wanted():
                    raise UndecidedError("nobody waits for it any more")
                answer = await self._asked().ask(
                    asked.question, client=client, is_wanted=lambda: True
                )
                if answer.error:
                    return InvalidBatch(ErrorCode.INVALID_RECORD, _where(asked, answer.error))
                refusals.add(asked, answer)
        except RegistryError as error:
            return InvalidBatch(ErrorCode.INVALID_RECORD, str(error))
        except (CheckerBusyError, CheckerUnavailableError) as error:
            raise UndecidedError(f"whether the values decode is not known: {error}") from error
        return refusals.verdict() or undecoded.batch

    async def aclose(self) -> None:
        """End the process."""
        if self._checker is not None:
            await self._checker.aclose()

    def _asked(self) -> "SchemaChecker":
        from broker.registry.checker import CheckerProcess, InLoopChecker

        if self._checker is None:
            self._checker = InLoopChecker() if self._in_loop else CheckerProcess()
        return self._checker


def _where(asked: "ValueQuestion", error: str) -> str:
    first, last = asked.fields[0].record, asked.fields[-1].record
    return f"what is to be decoded of the records {first} to {last}: {error}"
