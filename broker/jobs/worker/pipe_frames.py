"""The frames between an agent and its worker process, as bytes on a pair of pipes. Pure.

A frame is a length, a type, and a body. The agent begins with HELLO; the worker asks for the
log's snapshots, what is voided and its head, then for its tail (several at a time), and is sent entries as they lie in the log. What
it asks and what it proposes has a ticket, under which it is answered. Both ends are the same
program (HELLO says its version), so nothing here needs to be understood by another one.

Bounds: a frame that is longer than FRAME_BYTES_MAX is a FrameError, and so is one that cannot be
read: then the other end is not what it should be, and the pipes are of no more use.
"""

import dataclasses
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple

from broker.config.kafka_settings import KafkaSettings
from broker.config.settings import Settings
from coordinator.commands.codec import CodecError, decode_entry, encode_entry
from coordinator.commands.entries import (
    Command,
    Done,
    Entry,
    Outcome,
    Pin,
    Pinned,
    PurgePartitions,
    Rejected,
)
from coordinator.commands.job_commands import (
    BeginSnapshot,
    DoomObjects,
    DropRows,
    ExpireRecords,
    ForgetObjects,
    LogsTrimmed,
    ObjectsDoomed,
    PublishSnapshot,
    RecallPage,
    ReplaceRows,
    ReportJob,
    RowsMoved,
    SpillRows,
)
from coordinator.commands.layout import layout_of
from coordinator.commands.table_commands import ExpireHeldRecords
from coordinator.log.metadata_log import (
    LogCutError,
    LogEntry,
    LogError,
    LogHoleError,
    LogRefusedError,
    LogUnavailableError,
)
from protocol.fault_codes import FaultCode, coded
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Buffer, Position

FRAME_BYTES_MAX: Final = 4 << 20
ENTRIES_BYTES: Final = 256 << 10
"""A frame of entries is closed when it has this size."""

WORKER_COMMANDS: Final = (
    ReportJob,
    BeginSnapshot,
    PublishSnapshot,
    ExpireRecords,
    ExpireHeldRecords,
    DropRows,
    ReplaceRows,
    SpillRows,
    RecallPage,
    DoomObjects,
    ForgetObjects,
    PurgePartitions,
    Pin,
)
"""What jobs may propose; claims are the agent's."""

_HEAD: Final = Struct("<IB")
_NUMBER: Final = Struct("<Q")
_ENTRY: Final = Struct("<QQQI")
_OUTCOME: Final = Struct("<QQB")


class FrameError(Exception):
    """What came through the pipe is not what the other end should send."""


class FrameType(IntEnum):
    # From the agent.
    HELLO = 1
    ANSWER = 2
    ENTRIES = 3
    TAIL_BROKEN = 4
    OUTCOME = 5
    NOT_DONE = 6
    PING = 7
    LAST_ARCHIVE = 8
    # From the worker.
    ASK = 16
    TAIL = 17
    PROPOSE = 18
    PONG = 19
    STATUS = 20
    TAIL_END = 21
    GAVE_UP = 22
    LAST_ARCHIVE_MADE = 23


class Frame(NamedTuple):
    type: FrameType
    body: bytes


class FrameReader:
    """Whole frames out of bytes as they come."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with `data`. Raises FrameError."""
        held = self._held
        held += data
        at = 0
        while len(held) - at >= _HEAD.size:
            length, number = _HEAD.unpack_from(held, at)
            if length > FRAME_BYTES_MAX:
                raise FrameError(f"a frame of {length} bytes")
            begin = at + _HEAD.size
            if begin + length > len(held):
                break
            try:
                kind = FrameType(number)
            except ValueError as unknown:
                raise FrameError(f"a frame of type {number}") from unknown
            at = begin + length
            yield Frame(kind, bytes(memoryview(held)[begin:at]))
        del held[:at]


def frame(kind: FrameType, *parts: Buffer) -> bytes:
    length = sum([len(part) for part in parts])
    assert length <= FRAME_BYTES_MAX
    return b"".join([_HEAD.pack(length, kind), *parts])


# Texts.


def json_frame(kind: FrameType, value: Mapping[str, Any]) -> bytes:
    return frame(kind, json.dumps(value).encode())


def json_of(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError as broken:
        raise FrameError("a body that is not JSON") from broken
    if not isinstance(value, dict):
        raise FrameError("a body that is no JSON object")
    return value


def _unpacked(layout: Struct, body: bytes, at: int = 0) -> tuple[int, ...]:
    try:
        return layout.unpack_from(body, at)
    except struct.error as short:
        raise FrameError("a body that ends in the middle") from short


def ticket_of(fields: Mapping[str, Any]) -> int:
    """Returns the ticket of an answer. Raises FrameError."""
    ticket = fields.get("ticket")
    if not isinstance(ticket, int):
        raise FrameError("a body without a ticket")
    return ticket


# The log.


def error_fields(error: LogError) -> dict[str, Any]:
    """What went wrong on the way to the log, for `error_of`."""
    match error:
        case LogCutError(cut=cut):
            return {"error": "cut", "cut": cut}
        case LogHoleError():
            return {"error": "hole", "message": str(error)}
        case LogRefusedError():
            return {"error": "refused", "message": str(error)} | coded(error)
        case _:
            return {"error": "unavailable", "message": str(error)} | coded(error)


def error_of(fields: Mapping[str, Any], after: Position = POSITION_ZERO) -> LogError | None:
    """The inverse; None when nothing went wrong. `after`: what was asked for.

    Raises FrameError.
    """
    message = str(fields.get("message", ""))
    match fields:
        case {"error": "cut", "cut": int(cut)}:
            return LogCutError(after, Position(cut))
        case {"error": "hole"}:
            return LogHoleError(message)
        case {"error": "refused"}:
            return LogRefusedError(message, fault=_fault(fields))
        case {"error": "unavailable"}:
            return LogUnavailableError(message, fault=_fault(fields))
        case {"error": unknown}:
            raise FrameError(f"an error of kind {unknown}")
        case _:
            return None


def _fault(fields: Mapping[str, Any]) -> FaultCode | None:
    try:
        return FaultCode(fields["code"]) if "code" in fields else None
    except ValueError:
        raise FrameError("an error with a code that is none") from None


def entries_frames(tail: int, entries: Sequence[LogEntry]) -> Iterator[bytes]:
    """Entries of the tail that the worker asked for under that number, in frames of bounded size."""
    parts: list[bytes] = [_NUMBER.pack(tail)]
    size = 0
    for entry in entries:
        parts.append(_ENTRY.pack(entry.position, entry.session, entry.n, len(entry.payload)))
        parts.append(entry.payload)
        size += len(entry.payload)
        if size >= ENTRIES_BYTES:
            yield frame(FrameType.ENTRIES, *parts)
            parts, size = [_NUMBER.pack(tail)], 0
    if len(parts) > 1:
        yield frame(FrameType.ENTRIES, *parts)


def entries_of(body: bytes) -> tuple[int, list[LogEntry]]:
    """The number of the tail, and the entries. Raises FrameError."""
    (tail,) = _unpacked(_NUMBER, body)
    entries = []
    at = _NUMBER.size
    while at < len(body):
        position, session, n, length = _unpacked(_ENTRY, body, at)
        at += _ENTRY.size
        if at + length > len(body):
            raise FrameError("an entry that ends in the middle")
        payload = body[at : at + length]
        entries.append(LogEntry(Position(position), session, n, payload))
        at += length
    return tail, entries


# Proposals.


def propose_frame(ticket: int, command: Command) -> bytes:
    """Raises CodecError when the command does not fit into an entry."""
    entry = encode_entry(Entry(INCARNATION_NONE, 0, 0, (command,)))
    return frame(FrameType.PROPOSE, _NUMBER.pack(ticket), entry)


def proposal_of(body: bytes) -> tuple[int, Command]:
    """The ticket and the command. Raises FrameError, also for commands that jobs do not have."""
    (ticket,) = _unpacked(_NUMBER, body)
    try:
        entry = decode_entry(body[_NUMBER.size :])
    except CodecError as broken:
        raise FrameError(f"a command that cannot be read: {broken}") from broken
    if len(entry.commands) != 1 or not isinstance(entry.commands[0], WORKER_COMMANDS):
        raise FrameError("a command that is no job's")
    return ticket, entry.commands[0]


_OUTCOMES: Final = (Done, Rejected, LogsTrimmed, RowsMoved, ObjectsDoomed, Pinned)
"""Of the commands that jobs propose."""
_OUTCOME_LAYOUTS: Final = [layout_of(kind) for kind in _OUTCOMES]


def outcome_frame(ticket: int, position: Position, outcome: Outcome) -> bytes:
    """`position`: the agent's machine has applied the command there, or before."""
    assert isinstance(outcome, _OUTCOMES), f"{type(outcome).__name__} is no job's outcome"
    number = _OUTCOMES.index(type(outcome))
    body = bytearray(_OUTCOME.pack(ticket, position, number))
    _OUTCOME_LAYOUTS[number].put(body, outcome)
    return frame(FrameType.OUTCOME, body)


def outcome_of(body: bytes) -> tuple[int, Position, Outcome]:
    """Ticket, position and outcome. Raises FrameError."""
    ticket, position, number = _unpacked(_OUTCOME, body)
    try:
        outcome, at = _OUTCOME_LAYOUTS[number].read(body, _OUTCOME.size)
    except (CodecError, IndexError, UnicodeDecodeError) as broken:
        raise FrameError(f"an outcome that cannot be read: {broken}") from broken
    if at != len(body):
        raise FrameError("an outcome with something behind it")
    return ticket, Position(position), outcome


# Settings.

_NOT_TOLD: Final = frozenset(
    {"listen", "advertise", "http", "log_url", "log_user", "log_password", "log_ca", "log_cert"}
    | {"log_key", "log_password_file", "nodes_per_agent", "nodes_of_listeners"}
)
"""A worker listens nowhere, and has the log from its agent."""
_OF_LISTENERS: Final = ("http", "registry_", "first_users")
"""Beginnings of the names of what only those need whom clients reach: who they are, above all."""
_NOT_TOLD_OF_KAFKA: Final = ("listener", "advertised.listeners", "ssl.", "sasl.")
"""Beginnings of names, some of secrets."""


def settings_to_json(settings: Settings) -> dict[str, Any]:
    """All that a worker may need of them."""
    fields = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name not in _NOT_TOLD and field.name != "kafka"
        if not field.name.startswith(_OF_LISTENERS)
    }
    kafka = {field.name: getattr(settings.kafka, field.name) for field in _KAFKA_FIELDS}
    given = {
        name: text
        for name, text in settings.kafka.given.items()
        if not name.startswith(_NOT_TOLD_OF_KAFKA)
    }
    return fields | {"kafka": kafka | {"given": given}}


def settings_of_json(fields: Mapping[str, Any]) -> Settings:
    """The inverse, with nothing in place of what was not told. Raises FrameError."""
    try:
        kafka = {name: _tuples(value) for name, value in fields["kafka"].items()}
        rest = {name: _tuples(value) for name, value in fields.items() if name != "kafka"}
        return Settings(
            listen=(),
            advertise=(),
            http=None,
            log_url="",
            log_user=None,
            log_password=None,
            log_password_file=None,
            log_ca=None,
            log_cert=None,
            log_key=None,
            kafka=KafkaSettings(**kafka),
            **rest,
        )
    except (LookupError, TypeError, AttributeError) as broken:
        raise FrameError(f"settings that cannot be read: {broken}") from broken


_KAFKA_FIELDS: Final = tuple(
    field for field in dataclasses.fields(KafkaSettings) if field.name != "given"
)


def _tuples(value: Any) -> Any:
    """JSON knows only lists."""
    return tuple(value) if isinstance(value, list) else value
