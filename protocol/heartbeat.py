"""Heartbeat, by hand: members of classic groups send thousands a second. Pure.

Same bytes as `protocol.messages` reads and writes. An answer depends on nothing but the version
and the error, so there are few, and they are kept.
"""

import struct
from functools import cache
from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.primitives import (
    INT32,
    MALFORMED,
    malformed,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
)

INSTANCE_SINCE: Final = 3
FLEXIBLE_SINCE: Final = 4
THROTTLE_SINCE: Final = 1


class Heartbeat(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


def parse_request(version: int, body: memoryview) -> Heartbeat:
    """A request's body. Raises ProtocolError."""
    flexible = version >= FLEXIBLE_SINCE
    instance_id = None
    try:
        group_id, at = read_string(body, 0, flexible=flexible)
        (generation_id,) = INT32.unpack_from(body, at)
        member_id, at = read_string(body, at + 4, flexible=flexible)
        if version >= INSTANCE_SINCE:
            instance_id, at = read_nullable_string(body, at, flexible=flexible)
        if flexible:
            skip_tagged_fields(body, at)
    except MALFORMED as error:
        raise malformed("a Heartbeat request", error) from error
    return Heartbeat(group_id, generation_id, member_id, instance_id)


def response(version: int, code: ErrorCode, throttle_time_ms: int = 0) -> tuple[bytes]:
    """The parts of an answer's body."""
    return _encode(version, code, throttle_time_ms) if throttle_time_ms else _kept(version, code)


@cache
def _kept(version: int, code: ErrorCode) -> tuple[bytes]:
    return _encode(version, code, 0)


def _encode(version: int, code: ErrorCode, throttle_time_ms: int) -> tuple[bytes]:
    throttle = INT32.pack(throttle_time_ms) if version >= THROTTLE_SINCE else b""
    tags = b"\0" if version >= FLEXIBLE_SINCE else b""
    return (throttle + struct.pack(">h", code) + tags,)
