"""Numbers of the bytes of a connection, in the order in which its socket delivers them. Pure.

Proofs compare these numbers: what is in reply to an answer has a higher one than all that had
arrived when the answer left (`broker.calls.challenges`, `broker.calls.stalls`). What lies in the
kernel can be counted, but on TLS it is ciphertext, and a record that began to arrive gives its
plaintext when it is whole. So on TLS the ciphertext is numbered, and a plaintext byte has the number
of the first byte of its record, or a smaller one: a record that began before, in the kernel, in the
library or in between, is never taken for a later one (docs/design/security.md §1.3).

Invariant: no byte has a higher number than that under which its record's first byte arrived.
"""

from typing import Final

from protocol.types import POSITION_ZERO, Position

RECORD_HEADER_BYTES: Final = 5
RECORD_BYTES_MAX: Final = (1 << 14) + 2048
"""Of a record's body (TLSCiphertext in RFC 5246; TLS 1.3 has less)."""
RECORD_TYPES: Final = frozenset({20, 21, 22, 23})
"""ChangeCipherSpec, alert, handshake, application data."""


class NotTlsError(Exception):
    """What arrived is no record of TLS."""


class Numbering:
    """What has arrived of one connection, and which numbers the newest delivery has."""

    __slots__ = ("begun", "clock", "dry", "exact", "read")

    def __init__(self, *, exact: bool = True) -> None:
        self.exact = exact
        """Each byte of a delivery has a number of its own, from `begun` on; else all have `begun`."""
        self.read = 0
        """Bytes taken from the socket so far."""
        self.begun = 0
        """The number of what was delivered last, or of its first byte."""
        self.clock = POSITION_ZERO
        """The position applied when that byte was taken from the socket."""
        self.dry = False
        """The socket had no more, and all that could be delivered has been."""

    def delivered(self, count: int, room: int, clock: Position) -> None:
        """A read of plaintext: what is taken is delivered at once."""
        self.begun = self.read
        self.read += count
        self.clock = clock
        self.dry = count < room


class FrameUnderWay:
    """The frame that is being received: the number of its first byte, and when that was taken."""

    __slots__ = ("_bytes", "_offset", "clock", "number")

    def __init__(self) -> None:
        self.number = 0
        self.clock = POSITION_ZERO
        """The position applied when its first byte was taken from the socket."""
        self._bytes = 0
        """Received of it, its length included."""
        self._offset = 0
        """Where it begins in the newest delivery."""

    def read(self, numbering: Numbering, count: int) -> bool:
        """A delivery of so many bytes; whether they go on with a frame that was begun before."""
        continued = self._bytes > 0
        self._offset = -self._bytes
        self._bytes += count
        if not continued:
            self._begin(numbering)
        return continued

    def ended(self, numbering: Numbering, size: int) -> None:
        """The delivery had the end of the frame, which has this size; the next one begins behind."""
        self._bytes -= size
        self._offset += size
        self._begin(numbering)

    def _begin(self, numbering: Numbering) -> None:
        self.number = numbering.begun + (max(0, self._offset) if numbering.exact else 0)
        self.clock = numbering.clock


class RecordNumbering:
    """Where records of TLS begin in what arrives; keeps a `Numbering`."""

    __slots__ = ("_header", "_open_at", "_open_clock", "_rest", "numbering")

    def __init__(self) -> None:
        self.numbering = Numbering(exact=False)
        self._header = bytearray()
        """Of the record under way, until it is whole."""
        self._rest = 0
        """Bytes that are missing of its body."""
        self._open_at = 0
        self._open_clock = POSITION_ZERO

    @property
    def is_open(self) -> bool:
        """A record has begun to arrive and is not whole."""
        return bool(self._header) or self._rest > 0

    def taken(self, data: memoryview, clock: Position, *, waiting: bool) -> None:
        """Ciphertext was taken from the socket. Raises NotTlsError.

        `waiting`: some of what was taken before has not been delivered; then what is delivered next
        counts as that old.
        """
        numbering = self.numbering
        if not waiting:
            was_open = self.is_open
            numbering.begun = self._open_at if was_open else numbering.read
            numbering.clock = self._open_clock if was_open else clock
        at, end = 0, len(data)
        while at < end:
            if self._rest:
                step = min(self._rest, end - at)
                self._rest -= step
                at += step
                continue
            if not self._header:
                self._open_at = numbering.read + at
                self._open_clock = clock
                if end - at >= RECORD_HEADER_BYTES:  # Most often.
                    self._rest = _body_bytes(data[at : at + RECORD_HEADER_BYTES])
                    at += RECORD_HEADER_BYTES
                    continue
            step = min(RECORD_HEADER_BYTES - len(self._header), end - at)
            self._header += data[at : at + step]
            at += step
            if len(self._header) == RECORD_HEADER_BYTES:
                self._rest = _body_bytes(self._header)
                self._header.clear()
        numbering.read += end


def _body_bytes(header: bytearray | memoryview) -> int:
    """Of the record with this header. Raises NotTlsError."""
    size = header[3] << 8 | header[4]
    if header[0] not in RECORD_TYPES or header[1] != 3 or size > RECORD_BYTES_MAX:
        raise NotTlsError("what was sent is not TLS")
    return size
