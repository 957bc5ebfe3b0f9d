"""Frames and headers: from a stream of bytes to requests, without I/O.

A frame is a length (int32) and that many bytes. `FrameSplitter` cuts the stream; whatever way the
bytes arrive in, the same frames come out. The bytes handed to `receive` are only borrowed: what
outlives the call is copied. A big frame of which 48 KiB have arrived is received straight into
its own buffer (`wanted`, `received`). Buffers grow with arrival: a peer that announces 100 MB and
sends nothing costs nothing, and memory stays within 1 KiB and four times what has arrived; from
48 KiB on within 1152 KiB or four times, or within twice where much is held (`BufferGrowth`).

Leaves out: sockets, answers in order, what a request means.
"""

import math
import struct
from typing import Final, NamedTuple

from protocol import apis
from protocol.errors import ProtocolError
from protocol.primitives import MALFORMED, malformed, skip_tagged_fields
from protocol.types import Buffer

FRAME_BYTES_MIN: Final = 8
"""API key, version, correlation id: no request is shorter."""
FRAME_BYTES_MAX_DEFAULT: Final = 104_857_600
"""Kafka's socket.request.max.bytes."""
BARE: Final = -1
"""Stands for the version of a message of SASL that comes without a header, and of its answer, which
has none either (SaslHandshake v0)."""
IN_PLACE_BYTES_MIN: Final = 48 * 1024
"""Of a frame so much has arrived before the rest is received into its own buffer. Less than the
64 KiB that come at once where no network cuts them smaller."""

_COPIED_BYTES: Final = 64 * 1024
"""No more of a longer frame is received elsewhere, since it has to be copied."""
_FIRST_BYTES: Final = 1024
_SECOND_BYTES: Final = 1_152 * 1024
"""Room for a request with one full batch of the default max.message.bytes (1048588)."""
_GROWTH: Final = 4
_LENGTH_BYTES: Final = 4

assert _FIRST_BYTES < IN_PLACE_BYTES_MIN < _COPIED_BYTES < _SECOND_BYTES

_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hhi")
_SHORT: Final = struct.Struct(">h")


class BufferGrowth:
    """How buffers of big frames grow, shared by many splitters."""

    __slots__ = ("in_one_step", "left")

    def __init__(self) -> None:
        self.in_one_step = True
        """When 48 KiB are there, make room for a frame of the usual greatest size."""
        self.left = math.inf
        """Bytes that may still be made room for so; whoever shares it gives more, turn by turn."""


class FrameSplitter:
    """Cuts one connection's stream into frame bodies.

    A bad length spoils the rest of the stream. Frames before it are still handed out: the error
    is raised by the call that has none to return, else by the next one (see `error`).
    """

    __slots__ = (
        "_buffer",
        "_filled",
        "_growth",
        "_head",
        "_length",
        "_was_big",
        "error",
        "frame_bytes_max",
        "frame_bytes_min",
        "in_place",
    )

    def __init__(
        self,
        frame_bytes_max: int = FRAME_BYTES_MAX_DEFAULT,
        growth: BufferGrowth | None = None,
        *,
        frame_bytes_min: int = FRAME_BYTES_MIN,
    ) -> None:
        self._growth = growth or BufferGrowth()
        assert frame_bytes_max >= FRAME_BYTES_MIN
        self.error: ProtocolError | None = None
        """Set once the stream is spoilt; whoever handled the frames returned looks here."""
        self.frame_bytes_max = frame_bytes_max
        """Of the frames to come; may be changed between calls."""
        self.frame_bytes_min = frame_bytes_min
        self.in_place = False
        """The next bytes go into the frame's own buffer: `received` is to be told of them."""
        self._head = b""
        """The first 0 to 3 bytes of a length."""
        self._length = -1
        """Of the frame under way; -1 between frames."""
        self._buffer = bytearray()
        self._filled = 0
        self._was_big = False
        """The frame before was copied in part only."""

    @property
    def buffered_bytes(self) -> int:
        """Memory held for the frame under way."""
        return len(self._buffer)

    @property
    def missing_bytes(self) -> int:
        """What the frame under way lacks; 0 between frames."""
        return self._length - self._filled if self._length >= 0 else 0

    def receive(self, data: Buffer) -> list[memoryview | bytes]:
        """Take the next bytes of the stream; returns the bodies of the frames they complete.

        Bodies are read-only and own their memory. Raises ProtocolError for a length that is
        negative, less than a header, or more than the limit, before anything is allocated.
        """
        if self.error is not None:
            raise self.error
        frames: list[memoryview | bytes] = []
        view = memoryview(data)
        at = 0
        if self._length >= 0:
            at = self._continue_frame(view, frames)
        elif self._head:
            at = _LENGTH_BYTES - len(self._head)
            self._head += bytes(view[:at])
            if len(self._head) < _LENGTH_BYTES:
                return frames
            length = self._checked(_LENGTH.unpack(self._head)[0], frames)
            self._head = b""
            if length < 0:
                return frames
            self._begin_frame(length)
            at += self._continue_frame(view[at:], frames)
        end = len(view)
        while end - at >= _LENGTH_BYTES:
            length = self._checked(_LENGTH.unpack_from(view, at)[0], frames)
            if length < 0:
                return frames
            at += _LENGTH_BYTES
            if end - at < length:
                self._begin_frame(length)
                self._continue_frame(view[at:], frames)
                return frames
            frames.append(bytes(view[at : at + length]))
            at += length
        if at < end:
            self._head = bytes(view[at:])
        return frames

    def wanted(self, scratch: memoryview) -> memoryview:
        """Where to receive the next bytes to.

        `in_place`: the room left for the big frame under way; `received` must be told how much of
        it was filled, and the view dropped before this is called again. Else a part of `scratch`,
        or all of it, whose bytes go to `receive`: no more than what is copied anyway of a big frame,
        under way or to be expected, since the one before was big.
        """
        if self.in_place:
            if self._filled == len(self._buffer):
                self._grow(self._filled + 1)
            return memoryview(self._buffer)[self._filled :]
        if self._length > _COPIED_BYTES:
            return scratch[: _COPIED_BYTES - self._filled]
        if self._length < 0 and self._was_big:
            return scratch[:_COPIED_BYTES]
        return scratch

    def received(self, count: int) -> list[memoryview | bytes]:
        """`count` bytes were put at the start of the view that `wanted` gave; as `receive`."""
        assert self.in_place
        assert 0 <= count <= len(self._buffer) - self._filled
        self._filled += count
        if self._filled < self._length:
            return []
        return [self._finish_frame()]

    def _checked(self, length: int, frames: list[memoryview | bytes]) -> int:
        """The length when it is sound, else -1 with `error` set, or raised if nothing is lost."""
        least, most = self.frame_bytes_min, self.frame_bytes_max
        if least <= length <= most:
            return length
        self.error = ProtocolError(f"a frame of {length} bytes; at least {least}, at most {most}")
        if not frames:
            raise self.error
        return -1

    def _begin_frame(self, length: int) -> None:
        self._length = length
        self._filled = 0

    def _continue_frame(self, view: memoryview, frames: list[memoryview | bytes]) -> int:
        """Move bytes into the frame under way; returns how many it took."""
        count = min(len(view), self._length - self._filled)
        filled = self._filled + count
        if filled > len(self._buffer):
            self._grow(filled)
        self._buffer[self._filled : filled] = view[:count]
        self._filled = filled
        if filled == self._length:
            frames.append(self._finish_frame())
        elif filled >= IN_PLACE_BYTES_MIN:
            self.in_place = True
        return count

    def _finish_frame(self) -> memoryview | bytes:
        buffer = self._buffer
        assert len(buffer) == self._length
        self._was_big = self.in_place
        self._buffer = bytearray()
        self._length = -1
        self._filled = 0
        self.in_place = False
        return memoryview(buffer).toreadonly()

    def _grow(self, needed: int) -> None:
        """A larger buffer; never resized in place, since views of it may be about.

        Below 48 KiB four times what has arrived; then a step made so that frames of the usual
        greatest size move no more than 64 KiB; then four times again. Where much is held by all, or many
        grow in one turn, twice.
        """
        assert len(self._buffer) < needed <= self._length
        if needed < IN_PLACE_BYTES_MIN:
            size = min(max(_FIRST_BYTES, needed * _GROWTH), _COPIED_BYTES)
        elif self._growth.in_one_step and self._growth.left > 0:
            size = max(_SECOND_BYTES, len(self._buffer) * _GROWTH, needed)
            self._growth.left -= size
        else:
            size = needed * 2
        buffer = bytearray(min(self._length, size))
        buffer[: self._filled] = memoryview(self._buffer)[: self._filled]
        self._buffer = buffer


class RequestHeader(NamedTuple):
    """Request header v1 or v2; `body` is what follows it."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


def parse_header(frame: Buffer) -> RequestHeader:
    """Split a frame body into header and message.

    Raises ProtocolError for a malformed header and for keys and versions that are not served,
    but for ApiVersions: its unknown versions pass, with a body that must not be parsed (KIP-511).
    The client id is for people and prefixes only, so bytes that are not UTF-8 are replaced.
    """
    view = memoryview(frame).toreadonly()
    try:
        key, version, correlation_id = _HEAD.unpack_from(view)
        length = _SHORT.unpack_from(view, 8)[0]
    except struct.error as error:
        raise ProtocolError("a request header that ends early") from error
    if not apis.is_served(key, version) and (key != apis.API_VERSIONS or version < 0):
        raise ProtocolError(f"API key {key} in version {version} is not served")
    at = 10
    client_id: str | None = None
    if length >= 0:
        at += length
        if at > len(view):
            raise ProtocolError("a client id longer than its frame")
        client_id = str(view[10:at], "utf-8", "replace")
    elif length != -1:
        raise ProtocolError(f"a client id of {length} bytes")
    if apis.request_header_version(key, version) == 2:
        if at < len(view) and view[at] == 0:
            at += 1
        else:
            at = _after_tags(view, at)
    return RequestHeader(key, version, correlation_id, client_id, view[at:])


def response_head(key: int, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """What precedes the body of an answer on the wire: length and response header."""
    if version == BARE:
        return _LENGTH.pack(body_bytes)
    if apis.response_header_version(key, version) == 1:
        return struct.pack(">iix", body_bytes + 5, correlation_id)
    return struct.pack(">ii", body_bytes + 4, correlation_id)


def request_frame(
    key: int, version: int, correlation_id: int, client_id: str | None, body: Buffer
) -> bytes:
    """A whole request as a client sends it, length included (tests, tools, simulator)."""
    head = _HEAD.pack(key, version, correlation_id)
    if client_id is None:
        head += _SHORT.pack(-1)
    else:
        name = client_id.encode()
        head += _SHORT.pack(len(name)) + name
    if apis.request_header_version(key, version) == 2:
        head += b"\0"
    return _LENGTH.pack(len(head) + len(body)) + head + bytes(body)


def parse_response_header(key: int, version: int, frame: Buffer) -> tuple[int, memoryview]:
    """Correlation id and body of an answer's frame (tests, tools). Raises ProtocolError."""
    view = memoryview(frame).toreadonly()
    if len(view) < _LENGTH_BYTES:
        raise ProtocolError("a response header that ends early")
    correlation_id: int = _LENGTH.unpack_from(view)[0]
    at = _LENGTH_BYTES
    if apis.response_header_version(key, version) == 1:
        at = _after_tags(view, at)
    return correlation_id, view[at:]


def _after_tags(view: memoryview, at: int) -> int:
    try:
        return skip_tagged_fields(view, at)
    except MALFORMED as error:
        raise malformed("a header", error) from error
