"""Codec of the bodies in a classic group's rows, of the group and its members; only the coordinator reads them.

    body: version: 1 byte · packing: 1 byte (0: as it is, 1: zlib) · fields

    group    protocol type · protocol name · leader (each may be missing)
    member   instance id (may be missing) · client id and host · rebalance and session timeout ·
             protocols: name and metadata · assignment

Generation and member ids are in the rows. An empty body is that of a group which has committed
offsets and never had members.

Invariants: decoding gives back what was encoded; anything else raises ValueError. A body is
refused when it is written, not when it is read: MEMBER_BYTES_MAX as it is stored, so that it fits
into an entry, UNPACKED_BYTES_MAX before that, so that a small entry takes no large memory.
"""

import zlib
from typing import Final, NamedTuple

from coordinator.commands.encoding import (
    CodecError,
    put_bytes,
    put_string,
    put_varint,
    put_zigzag,
    read_bytes,
    read_string,
    read_varint,
    read_zigzag,
)

FORMAT_VERSION: Final = 1
MEMBER_BYTES_MAX: Final = 60_000
UNPACKED_BYTES_MAX: Final = 1024 * 1024

_PLAIN: Final = 0
_ZLIB: Final = 1
_PACK_FROM_BYTES: Final = 256
_PACK_LEVEL: Final = 1
"""Names of topics and ids of members shrink well at any level, and a loop waits for it."""


class GroupBody(NamedTuple):
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None


class MemberBody(NamedTuple):
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names and metadata, in the member's order of preference."""
    assignment: bytes


def encode_group(body: GroupBody) -> bytes:
    """Raises CodecError."""
    out = bytearray()
    for value in body:
        _put_optional(out, value)
    return _packed(out)


def decode_group(data: bytes) -> GroupBody:
    """Raises ValueError."""
    if not data:
        return GroupBody()
    try:
        fields = _unpacked(data)
        protocol_type, at = _read_optional(fields, 0)
        protocol_name, at = _read_optional(fields, at)
        leader_id, at = _read_optional(fields, at)
    except (CodecError, IndexError, zlib.error) as error:
        raise ValueError(f"the body of a classic group: {error}") from error
    _check_end(fields, at)
    return GroupBody(protocol_type, protocol_name, leader_id)


def encode_member(body: MemberBody) -> bytes:
    """Raises CodecError when there is no room for it."""
    out = bytearray()
    _put_optional(out, body.instance_id)
    put_string(out, body.client_id)
    put_string(out, body.client_host)
    put_zigzag(out, body.rebalance_timeout_ms)
    put_zigzag(out, body.session_timeout_ms)
    put_varint(out, len(body.protocols))
    for name, metadata in body.protocols:
        put_string(out, name)
        put_bytes(out, metadata)
    put_bytes(out, body.assignment)
    data = _packed(out)
    if len(data) > MEMBER_BYTES_MAX:
        raise CodecError(f"a member of {len(data)} bytes, at most {MEMBER_BYTES_MAX}")
    return data


def decode_member(data: bytes) -> MemberBody:
    """Raises ValueError."""
    try:
        fields = _unpacked(data)
        instance_id, at = _read_optional(fields, 0)
        client_id, at = read_string(fields, at)
        client_host, at = read_string(fields, at)
        rebalance_timeout_ms, at = read_zigzag(fields, at)
        session_timeout_ms, at = read_zigzag(fields, at)
        count, at = read_varint(fields, at)
        protocols = []
        for _ in range(count):
            name, at = read_string(fields, at)
            metadata, at = read_bytes(fields, at)
            protocols.append((name, metadata))
        assignment, at = read_bytes(fields, at)
    except (CodecError, IndexError, zlib.error) as error:
        raise ValueError(f"the body of a member of a classic group: {error}") from error
    _check_end(fields, at)
    return MemberBody(
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        protocols=tuple(protocols),
        assignment=assignment,
    )


def _packed(fields: bytearray) -> bytes:
    if len(fields) > UNPACKED_BYTES_MAX:
        raise CodecError(f"a body of {len(fields)} bytes, at most {UNPACKED_BYTES_MAX}")
    if len(fields) >= _PACK_FROM_BYTES:
        packed = zlib.compress(fields, _PACK_LEVEL)
        if len(packed) < len(fields):
            return bytes((FORMAT_VERSION, _ZLIB)) + packed
    return bytes((FORMAT_VERSION, _PLAIN)) + fields


def _unpacked(data: bytes) -> bytes:
    if data[0] != FORMAT_VERSION:
        raise CodecError(f"format version {data[0]}; known is {FORMAT_VERSION}")
    if data[1] == _PLAIN:
        return data[2:]
    if data[1] != _ZLIB:
        raise CodecError(f"packing {data[1]}")
    stream = zlib.decompressobj()
    fields = stream.decompress(data[2:], UNPACKED_BYTES_MAX + 1)
    if not stream.eof or stream.unused_data or len(fields) > UNPACKED_BYTES_MAX:
        raise CodecError("packed bytes that do not end where they should")
    return fields


def _check_end(fields: bytes, at: int) -> None:
    if at != len(fields):
        raise ValueError(f"{len(fields) - at} bytes after the end of a classic group's body")


def _put_optional(out: bytearray, value: str | None) -> None:
    out.append(value is not None)
    if value is not None:
        put_string(out, value)


def _read_optional(data: bytes, at: int) -> tuple[str | None, int]:
    if data[at] > 1:
        raise CodecError(f"{data[at]} is neither yes nor no")
    return read_string(data, at + 1) if data[at] else (None, at + 1)
