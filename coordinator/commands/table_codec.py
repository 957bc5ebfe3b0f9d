"""Commands about tables as bytes in an entry.

ReportExport      topic id, how many; partition, offset
RegisterSchema    subject, kind, body, fingerprint, seen, id, version, how many references; name,
                  subject, version
DeleteSubject     subject, version, 1: for good
SetSubjectRules   subject; compatibility and mode, each 0: as it was, or 1 and the word
GrowTopic         topic id, partitions
ExpireHeld...     seen, how many; topic id, partition, offset, limits in ms, bytes and ms
"""

from collections.abc import Callable
from typing import Any, Final

from coordinator.commands.encoding import (
    U31,
    U63,
    CodecError,
    bounded,
    put_bytes,
    put_number,
    put_signed,
    put_string,
    put_topic_id,
    put_varint,
    read_bytes,
    read_number,
    read_signed,
    read_string,
    read_topic_id,
    take_bytes,
)
from coordinator.commands.entries import Command
from coordinator.commands.job_commands import JOB_ROWS_MAX
from coordinator.commands.table_commands import (
    EXPORT_ENDS_MAX,
    REFERENCES_MAX,
    DeleteSubject,
    ExpireHeldRecords,
    ExportEnd,
    GrowTopic,
    HeldExpiry,
    Reference,
    RegisterSchema,
    ReportExport,
    SchemaKind,
    SetSubjectRules,
)
from protocol.types import Position

FINGERPRINT_BYTES: Final = 32


def _put_report(out: bytearray, command: ReportExport) -> None:
    put_topic_id(out, command.topic_id)
    put_varint(out, bounded(len(command.ends), EXPORT_ENDS_MAX, "partitions"))
    for partition, offset in command.ends:
        put_number(out, partition, U31)
        put_number(out, offset, U63)


def _read_report(data: bytes, at: int) -> tuple[ReportExport, int]:
    topic_id, at = read_topic_id(data, at)
    count, at = read_number(data, at, EXPORT_ENDS_MAX)
    ends = []
    for _ in range(count):
        partition, at = read_number(data, at, U31)
        offset, at = read_number(data, at, U63)
        ends.append(ExportEnd(partition, offset))
    return ReportExport(topic_id, tuple(ends)), at


def _put_register(out: bytearray, command: RegisterSchema) -> None:
    put_string(out, command.subject)
    put_varint(out, SchemaKind(command.kind))
    put_bytes(out, command.body)
    if len(command.fingerprint) != FINGERPRINT_BYTES:
        raise CodecError(f"a fingerprint of {len(command.fingerprint)} bytes")
    out += command.fingerprint
    put_number(out, command.seen, U63)
    put_number(out, command.schema_id, U31)
    put_number(out, command.version, U31)
    put_references(out, command.references)


def _read_register(data: bytes, at: int) -> tuple[RegisterSchema, int]:
    subject, at = read_string(data, at)
    kind, at = read_number(data, at, max(SchemaKind))
    body, at = read_bytes(data, at)
    fingerprint = take_bytes(data, at, FINGERPRINT_BYTES)
    seen, at = read_number(data, at + FINGERPRINT_BYTES, U63)
    schema_id, at = read_number(data, at, U31)
    version, at = read_number(data, at, U31)
    references, at = read_references(data, at)
    command = RegisterSchema(
        subject=subject,
        kind=SchemaKind(kind),
        body=body,
        fingerprint=fingerprint,
        references=references,
        seen=Position(seen),
        schema_id=schema_id,
        version=version,
    )
    return command, at


def put_references(out: bytearray, references: tuple[Reference, ...]) -> None:
    put_varint(out, bounded(len(references), REFERENCES_MAX, "references"))
    for name, subject, version in references:
        put_string(out, name)
        put_string(out, subject)
        put_signed(out, version)


def read_references(data: bytes, at: int) -> tuple[tuple[Reference, ...], int]:
    count, at = read_number(data, at, REFERENCES_MAX)
    references = []
    for _ in range(count):
        name, at = read_string(data, at)
        subject, at = read_string(data, at)
        version, at = read_signed(data, at)
        references.append(Reference(name, subject, version))
    return tuple(references), at


def _put_delete(out: bytearray, command: DeleteSubject) -> None:
    put_string(out, command.subject)
    put_signed(out, command.version)
    out.append(command.permanent)


def _read_delete(data: bytes, at: int) -> tuple[DeleteSubject, int]:
    subject, at = read_string(data, at)
    version, at = read_signed(data, at)
    permanent, at = _read_flag(data, at)
    return DeleteSubject(subject, version, permanent), at


def _put_rules(out: bytearray, command: SetSubjectRules) -> None:
    put_string(out, command.subject)
    for word in (command.compatibility, command.mode):
        out.append(word is not None)
        if word is not None:
            put_string(out, word)


def _read_rules(data: bytes, at: int) -> tuple[SetSubjectRules, int]:
    subject, at = read_string(data, at)
    compatibility, at = _read_word(data, at)
    mode, at = _read_word(data, at)
    return SetSubjectRules(subject, compatibility, mode), at


def _read_word(data: bytes, at: int) -> tuple[str | None, int]:
    there, at = _read_flag(data, at)
    return read_string(data, at) if there else (None, at)


def _read_flag(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise CodecError(f"{data[at]} is neither yes nor no")
    return bool(data[at]), at + 1


def _put_grow(out: bytearray, command: GrowTopic) -> None:
    put_topic_id(out, command.topic_id)
    put_signed(out, command.partition_count)


def _read_grow(data: bytes, at: int) -> tuple[GrowTopic, int]:
    topic_id, at = read_topic_id(data, at)
    partition_count, at = read_signed(data, at)
    return GrowTopic(topic_id, partition_count), at


def _put_held(out: bytearray, command: ExpireHeldRecords) -> None:
    put_number(out, command.seen, U63)
    put_varint(out, bounded(len(command.expiries), JOB_ROWS_MAX, "expiries"))
    for each in command.expiries:
        put_topic_id(out, each.topic_id)
        put_number(out, each.partition, U31)
        put_number(out, each.offset, U63)
        put_signed(out, each.retention_ms)
        put_signed(out, each.retention_bytes)
        put_signed(out, each.held_ms)


def _read_held(data: bytes, at: int) -> tuple[ExpireHeldRecords, int]:
    seen, at = read_number(data, at, U63)
    count, at = read_number(data, at, JOB_ROWS_MAX)
    expiries = []
    for _ in range(count):
        topic_id, at = read_topic_id(data, at)
        partition, at = read_number(data, at, U31)
        offset, at = read_number(data, at, U63)
        retention_ms, at = read_signed(data, at)
        retention_bytes, at = read_signed(data, at)
        held_ms, at = read_signed(data, at)
        expiries.append(
            HeldExpiry(topic_id, partition, offset, retention_ms, retention_bytes, held_ms)
        )
    return ExpireHeldRecords(Position(seen), tuple(expiries)), at


TABLE_ENCODERS: Final[dict[type[Command], tuple[int, Callable[[bytearray, Any], None]]]] = {
    ReportExport: (60, _put_report),
    RegisterSchema: (61, _put_register),
    DeleteSubject: (62, _put_delete),
    SetSubjectRules: (63, _put_rules),
    GrowTopic: (64, _put_grow),
    ExpireHeldRecords: (65, _put_held),
}

TABLE_DECODERS: Final[dict[int, Callable[[bytes, int], tuple[Command, int]]]] = {
    60: _read_report,
    61: _read_register,
    62: _read_delete,
    63: _read_rules,
    64: _read_grow,
    65: _read_held,
}
