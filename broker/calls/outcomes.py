"""What became of a proposal, told truthfully (P4): done, refused, not done, or not known yet.

A shell: it waits for the metadata log.
"""

import asyncio
from typing import Final

from coordinator.commands.entries import Outcome
from coordinator.log.metadata_log import LogError
from coordinator.proposer import NotDoneError
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


def outcome_of(future: asyncio.Future[Outcome], code: ErrorCode) -> Outcome:
    """What became of a proposal, said truthfully (P4).

    Raises KafkaError: `code` when it did not happen and will not, REQUEST_TIMED_OUT when it still
    may.
    """
    if not future.done():
        future.add_done_callback(_consume)
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, "not yet in the metadata log; it may still be"
        )
    try:
        return future.result()
    except NotDoneError as error:
        raise KafkaError(code, f"not done: {error.reason}") from error
    except LogError as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"it may still happen: {error}") from error


def _consume(future: asyncio.Future[Outcome]) -> None:
    """Nobody waits for it any more; its error is no news."""
    if not future.cancelled():
        future.exception()


def forget(future: asyncio.Future[Outcome]) -> None:
    """Nobody will ask what became of this proposal."""
    future.add_done_callback(_consume)
