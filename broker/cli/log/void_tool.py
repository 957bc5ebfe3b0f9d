"""`frazil log void`: an entry that stops every agent of this release is passed over from now on.

What holds: only an entry at which a replica of this release stops is voided, so that nobody loses another
one by a slip; only while no agent has a session; and not once a snapshot lies behind it. The first is
found out here, by being such a replica up to the entry, the others by the log itself, in the step that voids.

Left out: what that means for agents (`coordinator.voids`).
"""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from broker.cli import doctor
from broker.cli.command_result import ToolError
from broker.cli.log_machine import UNREADABLE, Tell, check_is_ours, machine_of
from broker.config.settings import Settings
from broker.environment import now_ms, open_adapters
from broker.reports.log_lines import describe, lines, place, voided_line
from coordinator.commands.codec import CodecError, decode_entry, encode_entry
from coordinator.commands.entries import Entry, Open, VoidEntry
from coordinator.log.metadata_log import (
    LiveSessionsError,
    LogCutError,
    LogEntry,
    LogError,
    MetadataLog,
    Session,
    VoidedEntry,
)
from coordinator.log.voided import payload_digest
from coordinator.machine.machine import Machine
from coordinator.replica import BadEntryError
from coordinator.snapshot.manifest import decode_published
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Position, era_of, revision_of

BEHIND_MAX: Final = 10_000
"""Entries behind it that are looked at."""
TOLD_MAX: Final = 10
"""Of positions and sessions that a sentence names."""


class Behind(NamedTuple):
    """What lies behind an entry."""

    entries: int
    opened: int
    """Sessions that agents have opened there."""
    undecodable: list[Position]


async def void(
    settings: Settings,
    position: int,
    reason: str,
    *,
    ask: Callable[[list[str]], None],
    tell: Tell,
) -> list[str]:
    """Void the entry, once `ask` has been shown what it is and has returned; the lines to print.

    `tell` hears what is waited for. Raises ToolError, and what `ask` raises.
    """
    if settings.log_url.startswith("sqlite://") and not doctor.exists(settings.log_url):
        raise ToolError(
            f"the log {settings.log_url} is not there: --config or --data names another"
        )
    store, log = open_adapters(settings)
    async with aclosing(store), aclosing(log):
        try:
            await check_is_ours(store, log, settings)
            looking = partial(machine_of, store, log, settings, tell=tell)
            return await _void(log, Position(position), reason, looking=looking, ask=ask)
        except LiveSessionsError as error:
            raise ToolError(await _told_of_live(log, error.sessions)) from error
        except UNREADABLE as error:
            raise ToolError.of(error) from error


async def _void(
    log: MetadataLog,
    position: Position,
    reason: str,
    *,
    looking: Callable[[], Awaitable[Machine]],
    ask: Callable[[list[str]], None],
) -> list[str]:
    logged = await _entry_at(log, position)
    for before in await log.voids():
        if before.position == position:
            return [voided_line(before._asdict())]
    snapshots = await log.snapshots()
    for named in decode_published(snapshots):
        if named.position >= position:
            raise ToolError(
                f"the snapshot at {place(named.position)} holds what {place(position)} did: no agent reads"
                " that entry when it starts"
            )
    stopped = await _stop_of(looking)
    if stopped is None or stopped.position != position:
        where = "nowhere" if stopped is None else f"at {place(stopped.position)}"
        raise ToolError(f"agents of this release do not stop at {place(position)}, but {where}")
    behind = await _behind(log, position)
    ask([*_told(logged, stopped), *_consequences(behind)])
    entry = VoidedEntry(
        position=position,
        session=logged.session,
        n=logged.n,
        digest=payload_digest(logged.payload),
        voided_ms=now_ms(),
        reason=reason,
    )
    command = VoidEntry(position, entry.digest)
    notice = encode_entry(Entry(INCARNATION_NONE, 0, entry.voided_ms, (command,)))
    at = await log.void(entry, notice, snapshots=snapshots)
    return [
        voided_line(entry._asdict()),
        f"{place(at)} tells of it: start the agents, all of this release",
    ]


async def _entry_at(log: MetadataLog, position: Position) -> LogEntry:
    """Raises ToolError when there is none."""
    missing = f"there is no entry at {place(position)}"
    head = await log.head()
    if era_of(position) != era_of(head):
        raise ToolError(f"{missing}: positions are like {place(head)}")
    if revision_of(position) == 0:
        raise ToolError(f"{missing}: the log begins behind it")
    if position > head:
        raise ToolError(f"{missing}: the log ends at {place(head)}")
    try:
        async with aclosing(log.tail(Position(position - 1))) as batches:
            first = (await anext(batches))[0]
    except LogCutError as error:
        raise ToolError(f"{missing} any more: {error}") from error
    if first.position != position:
        raise ToolError(f"{missing}: the next one is at {place(first.position)}")
    return first


async def _stop_of(looking: Callable[[], Awaitable[Machine]]) -> BadEntryError | None:
    """Where an agent that starts now would stop; None: it would not. Raises ReplicaStoppedError when it
    stops for another reason."""
    try:
        await looking()
    except BadEntryError as error:
        return error
    return None


async def _behind(log: MetadataLog, position: Position) -> Behind:
    count, opened, undecodable = 0, 0, []
    head = await log.head()
    if head <= position:
        return Behind(0, 0, [])
    async with aclosing(log.tail(position)) as batches:
        async for batch in batches:
            for logged in batch:
                count += 1
                try:
                    entry = decode_entry(logged.payload)
                except CodecError:
                    undecodable.append(logged.position)
                else:
                    opened += isinstance(entry.commands[0], Open)
            if batch[-1].position >= head or count >= BEHIND_MAX:
                break
    return Behind(count, opened, undecodable)


def _told(logged: LogEntry, stopped: BadEntryError) -> list[str]:
    """What the entry is, and why it stops agents."""
    head = f"{place(logged.position)} is entry {logged.n} of session {logged.session:x}"
    told = [
        f"{head}, {len(logged.payload)} bytes",
        f"    agents stop there, since it {stopped.reason}",
    ]
    with contextlib.suppress(CodecError):
        entry = decode_entry(logged.payload)
        told += lines(describe(logged.position, logged.session, entry))
    return told


def _consequences(behind: Behind) -> list[str]:
    many = " or more" if behind.entries >= BEHIND_MAX else ""
    told = [
        f"{behind.entries}{many} entries lie behind it, {behind.opened} of them sessions that agents began"
    ]
    if behind.undecodable:
        listed = ", ".join([place(each) for each in behind.undecodable[:TOLD_MAX]])
        more = ", …" if len(behind.undecodable) > TOLD_MAX else ""
        told.append(f"{len(behind.undecodable)} of them cannot be decoded, either: {listed}{more}")
    if behind.opened:
        told.append(
            "So agents of another release went past it. What they told their clients by it is lost, and may"
            " be contradicted: records that were acknowledged, offsets, ends of transactions"
        )
    else:
        told.append(
            "Nothing that was acknowledged is lost where no agent went past it: what its commands would"
            " have done did not happen, and those who asked for it were not told that it did"
        )
    return told


async def _told_of_live(log: MetadataLog, sessions: Sequence[Session]) -> str:
    named = [await _named(log, session) for session in sessions[:TOLD_MAX]]
    more = ", …" if len(sessions) > TOLD_MAX else ""
    return (
        f"agents have sessions: {', '.join(named)}{more}. End them all first; the session of one that"
        " was killed ends by itself, in some seconds"
    )


async def _named(log: MetadataLog, session: Session) -> str:
    """The agent's name and its session; the name may be cut."""
    text = f"{session.id:x}"
    with contextlib.suppress(LogError, CodecError):
        after = Position(max(session.incarnation - 1, POSITION_ZERO))
        async with aclosing(log.tail(after)) as batches:
            opening = decode_entry((await anext(batches))[0].payload)
        if isinstance(command := opening.commands[0], Open) and command.session == session.id:
            return f"{text} of {command.node_name}"
    return text
