"""The fate of a proposal (P4): done, refused, not done, or not known yet.

A shell: it waits for the metadata log.
"""

import asyncio
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from coordinator.commands.entries import Outcome, Rejected
from coordinator.log.metadata_log import LogError
from coordinator.proposer import InvalidCommandError, NotDoneError
from protocol.errors import ErrorCode, KafkaError

WAIT_MS_MAX: Final = 60_000
"""No request waits longer for the log, whatever timeout it carries."""
WAIT_MS_MIN: Final = 100
"""A timeout of 0 still leaves the log this much; else nothing could ever be created with it."""


async def wait_for(futures: list[asyncio.Future[Outcome]], timeout_ms: int) -> None:
    """Until all are settled, at most `timeout_ms`; nothing is cancelled."""
    if futures:
        seconds = min(max(timeout_ms, WAIT_MS_MIN), WAIT_MS_MAX) / 1000
        await asyncio.wait(futures, timeout=seconds)


def outcome_of(
    future: asyncio.Future[Outcome],
    code: ErrorCode,
    *,
    lost: Container[ErrorCode] = (ErrorCode.STALE_BROKER_EPOCH,),
    misfit: ErrorCode | None = None,
) -> Outcome:
    """What became of a proposal; a `Rejected` among others.

    Raises KafkaError: `code` when it did not happen and will not, since this agent could not write
    it or may no longer do so (`lost`: the refusals that say this); `misfit` when no agent could;
    REQUEST_TIMED_OUT when it may still happen.
    """
    if not future.done():
        future.add_done_callback(_consume)
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, "not yet in the metadata log; it may still be"
        )
    try:
        outcome = future.result()
    except NotDoneError as error:
        if misfit is not None and isinstance(error, InvalidCommandError):
            raise KafkaError(misfit, error.reason) from error
        raise KafkaError(code, f"not done: {error.reason}") from error
    except LogError as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"it may still happen: {error}") from error
    if isinstance(outcome, Rejected) and outcome.error in lost:
        raise KafkaError(code, outcome.message)
    return outcome


def accepted(outcome: Outcome, answers: Mapping[ErrorCode, KafkaError] | None = None) -> Outcome:
    """The outcome, which is no refusal. Raises KafkaError: of `answers`, or as the log says it."""
    if not isinstance(outcome, Rejected):
        return outcome
    raise (answers or {}).get(outcome.error) or KafkaError(outcome.error, outcome.message)


def _consume(future: asyncio.Future[Outcome]) -> None:
    """Nobody waits for it any more; its error is no news."""
    if not future.cancelled():
        future.exception()


def forget(future: asyncio.Future[Outcome]) -> None:
    """Nobody will ask what became of this proposal."""
    future.add_done_callback(_consume)


@dataclass(slots=True, kw_only=True)
class RequestedChange:
    """One of the things that a request asks for, and how far it has come."""

    refused: KafkaError | None = None
    future: asyncio.Future[Outcome] | None = None
    """None: refused, only validated, or nothing changes."""

    def outcome(
        self, code: ErrorCode, answers: Mapping[ErrorCode, KafkaError] | None = None
    ) -> Outcome | None:
        """What became of it, None when nothing was proposed. Raises KafkaError (`accepted`)."""
        if self.refused is not None:
            raise self.refused
        return None if self.future is None else accepted(outcome_of(self.future, code), answers)


async def wait_for_changes(changes: Iterable[RequestedChange], timeout_ms: int) -> None:
    """As `wait_for`."""
    await wait_for([each.future for each in changes if each.future is not None], timeout_ms)
