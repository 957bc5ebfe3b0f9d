"""Entries of the metadata log as plain values and as lines for people. Pure.

`describe` gives what JSON can carry (the admin endpoint `/log` sends it), `lines` what
`frazil log tail` prints: the fields of a command as it is declared. A chunk's items are summed up
per span: their number, bytes and records, and how many belong to transactions; of a field `body`
and of what a user proves a password with the length is told; objects are told by their keys, members of enums by their names.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any, Final

from coordinator.commands.entries import ChunkSpan, Command, Entry
from coordinator.log.metadata_log import LogEntry, VoidedEntry
from protocol.types import Position, era_of, revision_of
from storage.formats.spans import ObjectId
from txn.transactions import NO_TRANSACTION

_TOLD_BY_LENGTH: Final = {"body", "salt", "stored_key", "server_key"}


def describe(position: Position, session: int, entry: Entry) -> dict[str, Any]:
    """An entry and where it lies. Bytes are hex, times ms."""
    return {
        "position": position,
        "session": session,
        "incarnation": entry.incarnation,
        "n": entry.n,
        "clock_ms": entry.clock_ms,
        "commands": [_command(command) for command in entry.commands],
    }


def describe_voided(logged: LogEntry, entry: Entry | None, voided: VoidedEntry) -> dict[str, Any]:
    """The same of an entry that is voided; None: it cannot be decoded."""
    where = {"position": logged.position, "session": logged.session, "n": logged.n}
    said = where if entry is None else describe(logged.position, logged.session, entry)
    return {**said, "voided": {"voided_ms": voided.voided_ms, "reason": voided.reason}}


def lines(described: Mapping[str, Any]) -> list[str]:
    """What `describe` gave, one line for the entry and an indented one for each command."""
    told = []
    if "voided" in described:
        told.append(voided_line({**described, **described["voided"]}))
    if "commands" in described:
        commands = described["commands"]
        writer = int(described["incarnation"])
        opens = "voids" if [each["command"] for each in commands] == ["VoidEntry"] else "opens"
        by = opens if writer == 0 else f"by {place(writer)}"
        head = f"{place(described['position'])} {by} n={described['n']}"
        told.append(f"{head} clock_ms={described['clock_ms']}")
        told += [f"    {_line(command)}" for command in commands]
    return told


def voided_line(fields: Mapping[str, Any]) -> str:
    """One line about a voided entry, of the fields of `VoidedEntry`."""
    entry = f"n={fields['n']} session={fields['session']:x} voided_ms={fields['voided_ms']}"
    return f"{place(fields['position'])} VOID {entry}: {fields['reason']}"


def place(position: int) -> str:
    """`era:revision`."""
    return f"{era_of(Position(position))}:{revision_of(Position(position))}"


def _command(command: Command) -> dict[str, Any]:
    values = {item.name: getattr(command, item.name) for item in fields(command)}
    return {"command": type(command).__name__, **_plain_fields(values)}


def _plain_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for name, value in values.items():
        if name in _TOLD_BY_LENGTH:
            described[f"{name}_bytes"] = len(value)
        else:
            described[name] = _plain(value)
    return described


def _plain(value: Any) -> Any:
    """A field's value as JSON has it."""
    if isinstance(value, ChunkSpan):
        return {
            "topic_id": value.topic_id.hex(),
            "partition": value.partition,
            "start": value.start,
            "length": sum(item.skip + item.length for item in value.items),
            "items": len(value.items),
            "records": sum(item.records for item in value.items),
            "transactional": sum(item.instance != NO_TRANSACTION for item in value.items),
        }
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, ObjectId):
        return value.key
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        if hasattr(value, "_asdict"):
            return _plain_fields(value._asdict())
        return [_plain(part) for part in value]
    assert not is_dataclass(value)
    return value


def _line(command: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in command.items() if name != "command"}
    return " ".join([str(command["command"]), *(f"{name}={_word(rest[name])}" for name in rest)])


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + " ".join(f"{name}={_word(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_word(part) for part in value) + "]"
    if value is None:
        return "null"
    return str(value) if value != "" else '""'
