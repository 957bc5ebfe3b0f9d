"""Detects a truncated metadata log: the object store knows of positions that the log does not have.

A log that was put back from a copy or a backup has lost its newest entries, and nothing in it says
so. Served from, it would give offsets again that consumers have read beyond, and the chunks of what
was acknowledged since would lie in the store without a name, like orphans. The store tells:

* chunks, segments, index objects and checkpoints lie under the incarnation that wrote them, and
  snapshots, checkpoints and archives under a position. The log had reached each of those;
* a chunk that no entry names says in its header how far the log was when it was closed. (Of an
  incarnation that the log believes to be live: one that wrote after a copy was made is.)

An agent looks before it joins the cluster, after it has read the log to its end, and refuses to
start. What one agent finds may have been written by another one just now: so the log's head is
read after it was found.

What nothing tells of: a log that lacks only what was appended within moments before the last agent
was killed, since no chunk was closed, and no checkpoint and no archive put, after it.
"""

import asyncio
from contextlib import suppress
from string import hexdigits
from typing import Final, NamedTuple

from broker.jobs.kinds import unnamed_objects
from coordinator.log.metadata_log import LogReplacedError, MetadataLog
from coordinator.machine.machine import Machine
from protocol.fault_codes import FaultCode, FaultError
from protocol.types import ERA, Position, era_of, revision_of
from storage.formats import chunk, log_archive
from storage.formats.chunk import ChunkFormatError
from storage.formats.spans import ObjectId
from storage.stores.object_store import ObjectNotFoundError, ObjectStore

OBJECTS: Final = ("chunks", "segments", "indexes")
SNAPSHOTS: Final = "snapshots"
REPLACED_ADVICE: Final[dict[FaultCode | None, str]] = {
    FaultCode.OLDER_LOG: (
        ". This agent acknowledges nothing any more and deletes nothing. Put the newest log back and start"
        " the agents again: they compare it with the object store (frazil doctor does, too)"
    ),
    FaultCode.DATA_FOLDER_IN_USE: (
        ". This agent acknowledges nothing any more and deletes nothing. All that it acknowledged is in the log, and"
        " nothing has to be put back: see who else has the file (fuser names them), end all but one, and start that one again"
    ),
}
"""For an agent that finds while it runs that its log is another one, or not its own alone. Of other faults the sentence
says itself what to do."""


class TruncatedLogError(FaultError):
    """The log is older than the store; the sentence says how that is known and what to do."""

    fault = FaultCode.OLDER_LOG


class Trace(NamedTuple):
    """An object from which follows that the log had reached a position."""

    position: Position
    key: str


def with_advice(error: LogReplacedError) -> str:
    """What was noticed, and what to do."""
    return f"{error}{REPLACED_ADVICE.get(error.fault, '')}"


async def check(store: ObjectStore, log: MetadataLog, machine: Machine) -> None:
    """Find nothing in the store that the log does not reach.

    `machine` is the log's up to some recent head. Raises TruncatedLogError, StoreError, LogError.
    """
    trace = max(await traces(store, machine), default=None)
    if trace is None:
        return
    head = await log.head()
    if trace.position > head:
        raise TruncatedLogError(
            f"the metadata log is older than the object store: it ends at revision"
            f" {revision_of(head)}, but {trace.key} was written when it had reached"
            f" {revision_of(trace.position)}. An older log was put back (a backup, a copy of the"
            " file), and what was acknowledged since is not in it. Nothing was changed: put the"
            " newest log back and start again, or, if it is lost, begin it anew from the store (frazil recover);"
            " until then delete nothing from the store"
        )


async def traces(store: ObjectStore, machine: Machine) -> list[Trace]:
    """Traces of positions beyond the machine's: one of each kind, as far as there are any.

    Raises StoreError.
    """
    found = await asyncio.gather(
        *[_first_after(store, folder, machine.position) for folder in (*OBJECTS, SNAPSHOTS)],
        _newest_checkpoint(store),
        _newest_archive(store),
        *[
            _newest_unnamed(store, ObjectId(row.incarnation, row.chunk_last))
            for row in machine.incarnations
        ],
    )
    return [each for each in found if each is not None and each.position > machine.position]


async def _first_after(store: ObjectStore, folder: str, position: Position) -> Trace | None:
    """The first object whose incarnation, or position, lies after the position."""
    for info in await store.list_after(f"{folder}/", f"{folder}/{position + 1:016x}"):
        number = info.key.split("/")[1]
        # What has another form is somebody else's.
        if len(number) == 16 and all(digit in hexdigits for digit in number):
            found = Trace(Position(int(number, 16)), info.key)
            return None if folder == SNAPSHOTS and _is_given_up(found, position) else found
    return None


def _is_given_up(snapshot: Trace, position: Position) -> bool:
    """It is of a later era, which a recovery did not come to begin (`broker.recovery`). Of one that was begun an
    agent hears by its marker (`identity`), before it looks here."""
    return era_of(snapshot.position) > max(ERA, era_of(position))


async def _newest_checkpoint(store: ObjectStore) -> Trace | None:
    found = await unnamed_objects.checkpoints(store)
    return max((Trace(each.position, each.key) for each in found), default=None)


async def _newest_archive(store: ObjectStore) -> Trace | None:
    found: list[Trace] = []
    async for page in unnamed_objects.pages(store, f"{log_archive.FOLDER}/"):
        for info in page:
            with suppress(ValueError):  # Somebody else's.
                found.append(Trace(log_archive.range_of(info.key)[1], info.key))
    return max(found, default=None)


async def _newest_unnamed(store: ObjectStore, named: ObjectId) -> Trace | None:
    """What the newest chunk of an incarnation says, if it comes after the newest named one."""
    folder = named.key.rpartition("/")[0] + "/"
    after, newest = named.key if named.number >= 0 else "", None
    while page := await store.list_after(folder, after):
        newest = page[-1]
        after = newest.key
    if newest is None or newest.length < chunk.HEADER_BYTES:
        return None
    try:
        header = await store.get_range(newest.key, 0, chunk.HEADER_BYTES)
        return Trace(chunk.position_in(header, named.incarnation), newest.key)
    except (ObjectNotFoundError, ChunkFormatError):
        return None  # Deleted meanwhile, so the log knows of it; or nothing of ours.
