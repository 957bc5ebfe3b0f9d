"""Entries of the metadata log as bytes, and back.

    version: 1 byte · crc32c of version and body: 4 · body
    body: incarnation, n, clock, number of commands (varints), commands
    command: its number: 1 byte · its fields

Numbers are varints (base 128, least significant group first), those that may be negative
zigzagged. The fields of a command are laid out as it is declared (`declaration`, `layout`).

Invariants: `decode_entry(encode_entry(e)) == e`, but for what `chunk_spans` leaves out; any other
bytes raise CodecError, nothing else; what was decoded lies within the bounds that the declarations
name, so the machine's columns can hold it. What a command means, and whether it makes sense, is not
looked at.
"""

from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

from coordinator.commands.declaration import DECLARATIONS, READERS
from coordinator.commands.encoding import (
    STRING_BYTES_MAX,
    U32,
    U63,
    CodecError,
    put_number,
    put_signed,
    read_number,
    read_signed,
)
from coordinator.commands.entries import Command, Entry
from protocol.fault_codes import FaultCode
from protocol.types import Incarnation

__all__ = [
    "ENTRY_BYTES_MAX",
    "ENTRY_OVERHEAD_BYTES_MAX",
    "FORMAT_VERSION",
    "STRING_BYTES_MAX",
    "CodecError",
    "decode_entry",
    "encode_command",
    "encode_entry",
    "encoded_size",
    "join_entry",
]

FORMAT_VERSION = 1
ENTRY_BYTES_MAX = 64 * 1024
ENTRY_OVERHEAD_BYTES_MAX = 5 + 4 * 10
"""What an entry takes besides its commands, at most."""

_HEAD = Struct("<BI")
_VERSION_CRC = crc32c(bytes([FORMAT_VERSION]))


def encode_entry(entry: Entry) -> bytes:
    """Raises CodecError when a value is out of bounds or the entry is over ENTRY_BYTES_MAX."""
    return join_entry(
        incarnation=entry.incarnation,
        n=entry.n,
        clock_ms=entry.clock_ms,
        commands=[encode_command(command) for command in entry.commands],
    )


def join_entry(
    *, incarnation: Incarnation, n: int, clock_ms: int, commands: Sequence[bytes]
) -> bytes:
    """An entry of commands that `encode_command` made, for writers that gather by size.

    Raises CodecError like `encode_entry`.
    """
    body = bytearray()
    put_number(body, incarnation, U63)
    put_number(body, n, U63)
    put_signed(body, clock_ms)
    put_number(body, len(commands), U32)
    for command in commands:
        body += command
    if _HEAD.size + len(body) > ENTRY_BYTES_MAX:
        raise CodecError(f"an entry of {_HEAD.size + len(body)} bytes, at most {ENTRY_BYTES_MAX}")
    return _HEAD.pack(FORMAT_VERSION, crc32c(body, _VERSION_CRC)) + body


def encode_command(command: Command) -> bytes:
    """One command as it stands in an entry. Raises CodecError when a value is out of bounds."""
    declared = DECLARATIONS[type(command)]
    out = bytearray((declared.number,))
    declared.layout.put(out, command)
    return bytes(out)


def encoded_size(command: Command) -> int:
    """Bytes that the command takes in an entry. Raises CodecError as `encode_command`."""
    return len(encode_command(command))


def decode_entry(data: bytes) -> Entry:
    """Raises CodecError for anything that is not a whole, unharmed entry of a known version."""
    if not _HEAD.size < len(data) <= ENTRY_BYTES_MAX:
        raise CodecError(f"an entry of {len(data)} bytes")
    version, checksum = _HEAD.unpack_from(data)
    if version != FORMAT_VERSION:
        raise CodecError(
            f"an entry of format version {version}; known is {FORMAT_VERSION}",
            fault=FaultCode.VERSION_MISMATCH,
        )
    if crc32c(memoryview(data)[_HEAD.size :], _VERSION_CRC) != checksum:
        raise CodecError("an entry whose checksum is wrong")
    try:
        incarnation, at = read_number(data, _HEAD.size, U63)
        n, at = read_number(data, at, U63)
        clock_ms, at = read_signed(data, at)
        count, at = read_number(data, at, U32)
        commands: list[Command] = []
        while count > 0:
            if (read := READERS.get(data[at])) is None:
                raise CodecError(f"a command of kind {data[at]}", fault=FaultCode.VERSION_MISMATCH)
            command, at = read(data, at + 1)
            commands.append(command)
            count -= 1
    except IndexError:
        raise CodecError("an entry that ends in the middle") from None
    except UnicodeDecodeError:
        raise CodecError("a string that is not UTF-8") from None
    if at != len(data):
        raise CodecError(f"{len(data) - at} bytes after an entry's end")
    return Entry(Incarnation(incarnation), n, clock_ms, tuple(commands))
