"""Bodies in the rows of groups and members: fields by a layout, and how they are packed. Pure.

    body: version: 1 byte · packing: 1 byte (0: as it is, 1: zlib) · fields

Only the coordinator of a group reads them; to `apply` they are bytes.

Invariants: decoding gives back what was encoded; bytes that are no body of the version raise
ValueError and nothing else. What unpacks to more than the format allows is neither written nor
read, so that a small entry takes no large memory.
"""

import zlib
from typing import Final, NamedTuple, TypeVar

from coordinator.commands.encoding import CodecError
from coordinator.commands.layout import Layout

T = TypeVar("T")

_PLAIN: Final = 0
_ZLIB: Final = 1
_PACK_FROM_BYTES: Final = 256


class BodyFormat(NamedTuple):
    """The bodies of one protocol's groups."""

    version: int
    unpacked_bytes_max: int
    pack_level: int
    """Of zlib."""

    def encode(self, layout: Layout[T], value: T) -> bytes:
        """Raises CodecError for a value out of bounds."""
        fields = bytearray()
        layout.put(fields, value)
        if len(fields) > self.unpacked_bytes_max:
            raise CodecError(f"a body of {len(fields)} bytes, at most {self.unpacked_bytes_max}")
        if len(fields) >= _PACK_FROM_BYTES:
            packed = zlib.compress(fields, self.pack_level)
            if len(packed) < len(fields):
                return bytes((self.version, _ZLIB)) + packed
        return bytes((self.version, _PLAIN)) + fields

    def decode(self, layout: Layout[T], data: bytes, *, of: str) -> T:
        """The value. Raises ValueError, which says `of` what this is no body."""
        try:
            fields = self._unpacked(data)
            value, at = layout.read(fields, 0)
            if at != len(fields):
                raise CodecError(f"{len(fields) - at} bytes behind the end")
        except (CodecError, IndexError, UnicodeDecodeError, zlib.error) as error:
            raise ValueError(f"this is no body of {of}: {error}") from error
        return value

    def _unpacked(self, data: bytes) -> bytes:
        version, packing = data[0], data[1]
        if version != self.version:
            raise CodecError(f"format version {version}; known is {self.version}")
        if packing == _PLAIN:
            return data[2:]
        if packing != _ZLIB:
            raise CodecError(f"packing {packing}")
        stream = zlib.decompressobj()
        fields = stream.decompress(data[2:], self.unpacked_bytes_max + 1)
        if not stream.eof or stream.unused_data or len(fields) > self.unpacked_bytes_max:
            raise CodecError("a packed body that does not end where it should")
        return fields
