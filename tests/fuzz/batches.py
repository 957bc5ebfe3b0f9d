"""Record batches under right CRCs: of all codecs, of records that are in order or nearly so.

The header says what is so, unless it is meant to hurt; what is compressed is compressed, so that
readers get as far as the records.
"""

import random
import struct
from collections.abc import Sequence

from crc32c import crc32c

from protocol import compression, records
from protocol.compression import Codec
from tests.fuzz import mutation

NOW_MS = 1_700_000_000_000
KEYS = [None, b"", b"a", b"b", b"c", b"k" * 41, b"l" * 300]
PAYLOAD_BYTES_MAX = 1 << 17


def _varint(value: int) -> bytes:
    """Zigzag, of 64 bits."""
    value = (value << 1 ^ value >> 63) & (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Records:
    def __init__(self, rng: random.Random, hostility: float) -> None:
        self.rng = rng
        self.hostility = hostility

    def hostile(self, times: float = 1.0) -> bool:
        return self.rng.random() < self.hostility * times

    def _field(self, data: bytes | None) -> bytes:
        if data is None:
            return b"\x01" if not self.hostile(0.1) else _varint(-2)
        length = len(data) if not self.hostile(0.05) else mutation.edge(self.rng, 64)
        return _varint(length) + data

    def record(self, number: int) -> bytes:
        rng = self.rng
        body = bytearray((0 if not self.hostile(0.1) else rng.randrange(256),))
        body += _varint(
            rng.choice((0, 0, 1, 1000, -5)) if not self.hostile() else mutation.edge(rng, 64)
        )
        body += _varint(number if not self.hostile(0.2) else mutation.edge(rng, 32))
        body += self._field(rng.choice(KEYS))
        value = rng.choice((None, b"", b"v", b"v" * 100, rng.randbytes(12)))
        body += self._field(value * rng.choice((1, 300)) if value and self.hostile(0.1) else value)
        headers = [
            self._field(b"h") + self._field(rng.choice((None, b"x")))
            for _ in range(rng.choice((0, 0, 2)))
        ]
        body += _varint(len(headers) if not self.hostile(0.1) else mutation.edge(rng, 32))
        body += b"".join(headers)
        length = len(body) if not self.hostile(0.05) else mutation.edge(rng, 32)
        return _varint(length) + bytes(body)


def generate(
    rng: random.Random, *, hostility: float, producers: Sequence[int] = (0, 1, 2)
) -> bytes:
    """One batch; sometimes none, two, or a piece."""
    made = _Records(rng, hostility)
    count = rng.choice((1, 1, 2, 5, 20))
    payload = b"".join([made.record(number) for number in range(count)])
    if made.hostile(0.1):
        payload *= max(1, min(rng.choice((2, 100, 3000)), PAYLOAD_BYTES_MAX // len(payload)))
    if made.hostile(0.1):
        payload = rng.choice((bytes(PAYLOAD_BYTES_MAX), rng.randbytes(40), payload[:-1], b""))
    codec = rng.choice((0, 0, 1, 2, 3, 4))
    packed = bytes(compression.compress(Codec(codec), payload))
    if made.hostile(0.2):
        packed = mutation.mutated(rng, packed, payload)
    base, newest = rng.choice(((NOW_MS, NOW_MS + 1000), (0, 1000), (-1, -1)))
    attributes = codec | (records.TRANSACTIONAL if rng.random() < 0.2 else 0)
    producer = (-1, -1, -1)
    if attributes & records.TRANSACTIONAL or rng.random() < 0.3:
        producer = (rng.choice(producers), rng.choice((0, 0, 1)), rng.choice((0, 0, count)))
    values = [0, 0, -1, 2, 0, attributes, count - 1, base, newest, *producer, count]
    if made.hostile(0.5):
        at = rng.choice((0, 2, 5, 6, 6, 7, 8, 9, 10, 11, 12, 12))
        values[at] = mutation.edge(rng, _BITS[at])
    data = sealed(struct.pack(">qiiBIhiqqqhii", *values) + packed)
    if made.hostile(0.05):
        data = rng.choice((data + data, data[: rng.randrange(len(data))], b""))
    return data


def sealed(data: bytes) -> bytes:
    """The bytes with the length and the CRC that they need."""
    if len(data) < records.HEADER_BYTES:
        return data
    out = bytearray(data)
    struct.pack_into(">i", out, 8, len(out) - records.LENGTH_OVERHEAD)
    struct.pack_into(">I", out, 17, crc32c(out[21:]))
    return bytes(out)


_BITS = (64, 32, 32, 8, 32, 16, 32, 64, 64, 64, 16, 32, 32)
