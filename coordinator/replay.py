"""A machine made anew, out of a published snapshot and the log behind it: what a dump is held to (P13).

Replicas are compared by the outcomes of their entries. A bit that flips in a row of one's memory shows in no
outcome until somebody asks for that row; a dump of it would be published with the right digest, and
the log that contradicts it cut. So whoever dumps a machine for a snapshot has the same position made anew first,
from bytes that were read again, and compares the two byte by byte. This also says who is right where two
replicas differ: neither, but what follows from the log.

The proof goes on from the snapshot before, which was proven likewise. Where none can be read any more and
the log before was cut, nothing can be proven: that is told, and is no reason to have no snapshot at all. But what the log names must be gone for that: where it
is listed and not found, or nothing is found at all, somebody between here and the store says so.

Left out: how a dump is written (`snapshot.store`), and when (the job).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing
from typing import Protocol

from coordinator.commands.codec import CodecError, decode_entry
from coordinator.log.metadata_log import (
    LogCutError,
    LogEntry,
    LogHoleError,
    LogRefusedError,
    LogReplacedError,
    LogUnavailableError,
    VoidedEntry,
)
from coordinator.machine.machine import Machine
from coordinator.replica import BUGS, RETRY_S, ReplicaStoppedError
from coordinator.snapshot.loading import Loader, SnapshotSource, until_answered
from coordinator.snapshot.snapshot import is_dump_of
from coordinator.snapshot.store import run_steps
from coordinator.snapshot.stream import SnapshotError, head_of_all
from coordinator.stats import LogClientStats
from coordinator.voids import Voids
from protocol.fault_codes import FaultCode, Sentence, coded
from protocol.types import Buffer, Position

logger = logging.getLogger(__name__)


class DivergedError(ReplicaStoppedError):
    """This replica is not what log and store say: it must neither go on nor be written down."""


class LogReader(Protocol):
    """What is read of a log."""

    async def snapshots(self) -> bytes:
        """As `MetadataLog.snapshots`."""
        ...

    async def voids(self) -> Sequence[VoidedEntry]:
        """As `MetadataLog.voids`."""
        ...

    def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        """As `MetadataLog.tail`."""
        ...


class ProvenSnapshots(SnapshotSource, Protocol):
    """Where snapshots are read from that were proven; `SnapshotStore` is one."""

    async def hidden(self, key: str) -> str | None:
        """Why an object that is not found need not be gone; None: it is. Raises StoreError."""
        ...


async def prove(
    parts: Sequence[Buffer], *, log: LogReader, source: ProvenSnapshots
) -> Sentence | None:
    """Compare the parts of a dump with the machine that log and store make at its position.

    Answers with why it is not proven, if nothing is left to prove it by. A log or a store that is away is
    waited for. Raises DivergedError, and SnapshotError: it was overtaken by another snapshot, or what would
    prove it is there and not found; dump again.
    """
    position = head_of_all(parts).position
    machine = Machine()
    voids = Voids(await until_answered(log.voids))
    loader = Loader(log, source, machine, LogClientStats())
    is_loaded = await loader.load()
    if machine.position > position:
        raise SnapshotError(f"a snapshot at {machine.position} was published before {position}")
    try:
        await _follow(log, machine, position, voids)
    except LogCutError as error:
        if is_loaded:
            raise SnapshotError(f"the log was cut while it was replayed: {error}") from error
        return await _unproven(position, loader, source)
    except (LogHoleError, LogReplacedError) as error:
        raise ReplicaStoppedError(str(error)) from error
    if not is_dump_of(machine, parts):
        raise DivergedError(
            f"at position {position} this replica is not what the log says (P13): its memory was damaged,"
            " or apply is not the same everywhere; nothing of it was published"
        )
    return None


async def _unproven(position: Position, loader: Loader, source: ProvenSnapshots) -> Sentence:
    """No snapshot that the log names can be read, and the log before was cut. Raises SnapshotError, StoreError."""
    for key in loader.missing:
        if (why := await source.hidden(key)) is not None:
            raise SnapshotError(f"{why}: what would prove the snapshot at {position} may be there")
    fault = FaultCode.OBJECT_LOST if loader.failures else None
    reasons = "; ".join(loader.failures) or "the log names none"
    sentence = Sentence(
        f"the snapshot at position {position} is published unproven, since no older one can be read and the"
        f" log before was cut: {reasons}",
        fault,
    )
    logger.error("%s", sentence, extra=coded(sentence))
    return sentence


async def _follow(log: LogReader, machine: Machine, position: Position, voids: Voids) -> None:
    """Apply the log up to and with `position`. Raises LogError, and DivergedError."""
    while machine.position < position:
        try:
            async with aclosing(log.tail(machine.position)) as batches:
                async for batch in batches:
                    await run_steps(_applying(machine, batch, position, voids))
                    if machine.position >= position:
                        return
        except (LogUnavailableError, LogRefusedError) as error:
            logger.info("waiting, to replay the log: %s", error)
            await asyncio.sleep(RETRY_S)


def _applying(
    machine: Machine, batch: Sequence[LogEntry], position: Position, voids: Voids
) -> Generator[None, None, None]:
    for logged in batch:
        if machine.position == position:
            return
        if logged.position > position:
            raise DivergedError(f"the log has no entry at position {position}, which was applied")
        try:
            if voids.covers(logged):
                machine.void(logged.position, session=logged.session, n=logged.n)
            else:
                machine.apply(logged.position, decode_entry(logged.payload))
        except (CodecError, *BUGS) as error:
            raise DivergedError(
                f"the entry at position {logged.position} can be applied no more: {error!r}"
            ) from error
        yield
