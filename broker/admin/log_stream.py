"""The metadata log as lines of JSON, for whoever reads it over HTTP and may leave meanwhile."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from broker.reports.log_lines import describe, describe_voided
from coordinator.commands.codec import CodecError, decode_entry
from coordinator.log.metadata_log import (
    LogCutError,
    LogEntry,
    LogError,
    MetadataLog,
    VoidedEntry,
)
from coordinator.voids import way_out
from protocol.types import POSITION_ZERO, Position

GONE_SECONDS = 1.0
"""How soon it is noticed that a reader of the log has gone."""

Write = Callable[[bytes], Awaitable[None]]


def within(write: Write, seconds: float) -> Write:
    """Raises TimeoutError when what is written is not taken in time."""

    async def bounded(data: bytes) -> None:
        async with asyncio.timeout(seconds):
            await write(data)

    return bounded


async def while_wanted(work: Coroutine[Any, Any, None], wanted: Callable[[], bool]) -> None:
    """Do the work as long as somebody wants it: who follows the log may leave while it is quiet."""
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(work)
            while not (await asyncio.wait([task], timeout=GONE_SECONDS))[0]:
                if not wanted():
                    task.cancel()
    except ExceptionGroup as group:
        raise group.exceptions[0] from group


async def entries(log: MetadataLog, write: Write, *, after: Position, end: Position | None) -> None:
    """Write entries until the one at `end`, or for ever; a broken tail ends the answer.

    The beginning is that of what was not cut.
    """
    place = after
    try:
        voids = {each.position: each for each in await log.voids()}
        async with aclosing(log.tail(after)) as batches:
            async for batch in batches:
                for logged in batch:
                    line = _line(logged, voids.get(logged.position))
                    await write(json.dumps(line).encode() + b"\n")
                    place = logged.position
                    await asyncio.sleep(0)  # A big batch of entries is not all there is to do.
                    if end is not None and place >= end:
                        return
    except LogCutError as error:
        if place != POSITION_ZERO:
            await write(json.dumps({"error": str(error)}).encode() + b"\n")
        elif end is None or error.cut < end:
            await entries(log, write, after=error.cut, end=end)
    except LogError as error:
        await write(json.dumps({"error": str(error)}).encode() + b"\n")


def _line(logged: LogEntry, voided: VoidedEntry | None) -> dict[str, Any]:
    try:
        entry = decode_entry(logged.payload)
    except CodecError as error:
        if voided is not None:
            return describe_voided(logged, None, voided)
        told = f"{error}; {way_out(logged.position)}"
        return {"position": logged.position, "error": told}
    if voided is not None:
        return describe_voided(logged, entry, voided)
    return describe(logged.position, logged.session, entry)
