"""The five codecs of record batches, with a bound on what comes out.

Snappy is read in both framings that clients write: Java's (xerial, blocks with their lengths) and
a bare block; written as Java's, which all clients read. LZ4 is the frame format, with independent
blocks, since Java's reader refuses linked ones (KIP-57).

Malformed input raises ProtocolError, and input that would inflate beyond the bound the kind of it
that says so. The bound costs nothing to honest input: the output buffer begins at a likely size and
grows to the bound, never further, whatever the input claims about itself; there the codec stops. It
runs without the interpreter's lock, and a large buffer is of pages that nobody has touched before
it does.
"""

import mmap
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, Final

import cramjam

from protocol.errors import ProtocolError
from protocol.slices import Sliced, finish
from protocol.types import Buffer


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class InflatesTooFarError(ProtocolError):
    """The data becomes more bytes than the bound; whether it is sound is not known."""


DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""The default bound, that of every reader: nothing that is opened when it is produced may become more
(`inflated_max`)."""
INFLATED_RATIO: Final = 64
"""What a topic's largest batch may become, in its own size as sent. JSON logs reach 50."""
INFLATED_BYTES_MIN: Final = 16 * 1024 * 1024
"""Any batch may become as much, however small a topic's batches are."""

RATIO_MAX: Final = (1, 1032, 22, 255, 32768)
"""By codec: no byte of compressed data can become more. 258 bytes in two bits (deflate), 64 in
three bytes (snappy), 255 in one (LZ4), 128 KiB in four (zstd)."""

_OUTPUT_BYTES_MIN: Final = 4 * 1024
_LIKELY_RATIO: Final = 4
_GROWTH: Final = 4
_BELIEVED_RATIO: Final = 64
"""What a zstd frame says of its size is believed up to this, since room is made for it."""
_ZSTD_HEADER_BYTES_MAX: Final = 18

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_XERIAL_BLOCKS_FREE: Final = 1024
_XERIAL_BLOCK_BYTES_MIN: Final = 1024
"""The smallest that Java's writer can be told; of more blocks than are free, on the average."""
_LENGTH: Final = struct.Struct(">i")
_LZ4_PIECE_BYTES: Final = 64 * 1024
_MAPPED_BYTES_MIN: Final = 1024 * 1024

NO_ROOM: Final = -1
_NO_ROOM: Final = "failed to write whole buffer"
"""How cramjam says that the output buffer is too small, and nothing else is wrong."""

_STREAMS: Final[dict[int, Callable[[Any, Any], int]]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
"""Those whose data need not say how much it becomes."""


def inflated_max(batch_bytes_max: int) -> int:
    """Bytes that a batch may become where batches have at most `batch_bytes_max` as sent."""
    allowed = max(INFLATED_BYTES_MIN, INFLATED_RATIO * batch_bytes_max)
    return min(allowed, DECOMPRESSED_BYTES_MAX)


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed as clients expect it. ValueError for a number that is no codec.

    `level` is one of gzip (0 to 9), lz4 (1 to 17) or zstd (-131072 to 22); None: the library's own.
    """
    return finish(compress_in_slices(codec, data, level))


def compress_in_slices(codec: int, data: Buffer, level: int | None = None) -> Sliced[bytes]:
    """As `compress`. LZ4 of independent blocks keeps the interpreter's lock: it has many slices."""
    match Codec(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            compressor = cramjam.lz4.Compressor(level, content_checksum=False, block_linked=False)
            view = memoryview(data)
            for start in range(0, len(view), _LZ4_PIECE_BYTES):
                compressor.compress(bytes(view[start : start + _LZ4_PIECE_BYTES]))
                yield
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level))


def decompress(codec: int, data: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The bytes that were compressed; of NONE `data` itself.

    Raises ProtocolError when they are not what `codec` (unknown ones too) says, the
    InflatesTooFarError of it when they are more than `bytes_max`.
    """
    if codec != Codec.NONE and not len(data):
        raise ProtocolError("compressed data of no bytes")
    match codec:
        case Codec.NONE:
            return data
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), bytes_max)
        case Codec.ZSTD:
            return _inflate(_STREAMS[codec], data, bytes_max, _zstd_size(data))
        case Codec.GZIP | Codec.LZ4:
            return _inflate(_STREAMS[codec], data, bytes_max)
        case _:
            raise ProtocolError(f"compression codec {codec} is not known")


def decompress_into(
    codec: int, data: Buffer, output: memoryview, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> int:
    """How many bytes came to the front of `output`, NO_ROOM when they do not fit.

    For many batches in one buffer: `decompress` makes, and zeroes, one for each, and twice where
    the data does not say its size. Raises ProtocolError as `decompress` does.
    """
    into = _STREAMS.get(codec)
    if into is None or not len(data):
        found = decompress(codec, data, bytes_max=bytes_max)
        if len(found) > len(output):
            return NO_ROOM
        output[: len(found)] = found
        return len(found)
    try:
        return into(data, output)
    except cramjam.DecompressionError as error:
        if str(error) != _NO_ROOM:
            raise ProtocolError(f"compressed data is broken: {error}") from error
        return NO_ROOM


def _zstd_size(data: Buffer) -> int:
    """What the first frame says that it holds; 0 when it does not (RFC 8878, 3.1.1.1).

    A hint only: librdkafka writes it, and so nothing has to be decompressed twice.
    """
    view = memoryview(data)
    if len(view) < _ZSTD_HEADER_BYTES_MAX:
        return 0
    descriptor = view[4]
    single = descriptor >> 5 & 1
    at = 6 - single + (0, 1, 2, 4)[descriptor & 3]
    match descriptor >> 6:
        case 0:
            return view[at] if single else 0
        case 1:
            return int.from_bytes(view[at : at + 2], "little") + 256
        case power:
            return int.from_bytes(view[at : at + (1 << power)], "little")


def _inflate(
    decompress_into: Callable[[Any, Any], int], data: Buffer, bytes_max: int, likely: int = 0
) -> Buffer:
    """Run a decompressor on ever larger outputs, since the formats need not name their size.

    `likely` is what they say of it, which may be a lie: it is believed up to a ratio.
    """
    if not 0 < likely <= _BELIEVED_RATIO * len(data):
        likely = _LIKELY_RATIO * len(data)
    size = min(bytes_max, max(_OUTPUT_BYTES_MIN, likely))
    while True:
        output = _room(size)
        try:
            length = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _NO_ROOM:
                raise ProtocolError(f"compressed data is broken: {error}") from error
            if size >= bytes_max:
                raise _too_far(bytes_max) from error
            size = min(bytes_max, size * _GROWTH)
        else:
            return output[:length]


def _room(size: int) -> memoryview:
    """Writable bytes, zero. Many are mapped: a bytearray would be zeroed under the interpreter's lock."""
    return memoryview(bytearray(size) if size < _MAPPED_BYTES_MIN else mmap.mmap(-1, size))


def _too_far(bytes_max: int) -> InflatesTooFarError:
    return InflatesTooFarError(f"data inflates to more than {bytes_max} bytes")


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _LENGTH.pack(len(block)) + block
    return bytes(out)


def _decompress_snappy(view: memoryview, bytes_max: int) -> Buffer:
    """Both framings; every block names its size, so the bound is checked before anything."""
    blocks: list[tuple[memoryview, int]] = []
    total = 0
    try:
        for block in _snappy_blocks(view):
            size = cramjam.snappy.decompress_raw_len(block)
            total += size
            if total > bytes_max:
                raise _too_far(bytes_max)
            blocks.append((block, size))
            paid = len(blocks) - _XERIAL_BLOCKS_FREE
            if total < paid * _XERIAL_BLOCK_BYTES_MIN:
                raise ProtocolError(f"{len(blocks)} snappy blocks of only {total} bytes")
        output = _room(total)
        at = 0
        for block, size in blocks:
            if size:
                cramjam.snappy.decompress_raw_into(block, output[at : at + size])
            at += size
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"compressed data is broken: {error}") from error
    return output


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield view
        return
    at = len(_XERIAL_HEADER)
    if len(view) < at:
        raise ProtocolError("a snappy header that ends early")
    while at < len(view):
        if len(view) - at < _LENGTH.size:
            raise ProtocolError("a snappy block's length that ends early")
        length = _LENGTH.unpack_from(view, at)[0]
        at += _LENGTH.size
        if not 0 < length <= len(view) - at:
            raise ProtocolError(f"a snappy block of {length} bytes, {len(view) - at} left")
        yield view[at : at + length]
        at += length
