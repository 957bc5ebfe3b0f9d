"""Bytes changed as parsers dislike it: bounds in the place of numbers, lengths that lie, pieces doubled."""

import random
import struct

EDGES = [
    *(0, 1, -1, 2, 7, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, -0x8000, 0xFFFF, 1 << 16, 1 << 20),
    *((1 << 31) - 1, -(1 << 31), 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, -(1 << 63)),
]
"""Numbers that are the last of their kind, or the first of the next."""
BYTES = [0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]
BYTES_MAX = 1 << 16


def mutated(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Mostly one change, seldom many. `other`: where pieces come from."""
    out = bytearray(data)
    times = 1
    while rng.random() < 0.4 and times < 16:
        times += 1
    for _ in range(times):
        rng.choice(_CHANGES)(rng, out, other)
    return bytes(out[:BYTES_MAX])


def edge(rng: random.Random, bits: int) -> int:
    """One of EDGES, or near it, that has so many bits."""
    value = rng.choice(EDGES) + rng.choice((0, 0, 0, 1, -1))
    half = 1 << bits - 1
    return (value + half) % (2 * half) - half


def _place(rng: random.Random, out: bytearray) -> int:
    return rng.randrange(len(out) + 1)


def _stretch(rng: random.Random, data: bytes | bytearray) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    length = min(int(rng.paretovariate(0.7)), 1 << 12)
    return start, min(len(data), start + length)


def _flip(rng: random.Random, out: bytearray, _: bytes) -> None:
    if out:
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, out: bytearray, _: bytes) -> None:
    if out:
        out[rng.randrange(len(out))] = (
            rng.choice(BYTES) if rng.random() < 0.7 else rng.randrange(256)
        )


def _insert(rng: random.Random, out: bytearray, _: bytes) -> None:
    at = _place(rng, out)
    out[at:at] = rng.randbytes(min(8, int(rng.paretovariate(1))))


def _remove(rng: random.Random, out: bytearray, _: bytes) -> None:
    start, end = _stretch(rng, out)
    del out[start:end]


def _double(rng: random.Random, out: bytearray, _: bytes) -> None:
    start, end = _stretch(rng, out)
    times = 1 if rng.random() < 0.8 else rng.choice((3, 17, 255))
    out[end:end] = out[start:end] * min(times, BYTES_MAX // (end - start + 1))


def _cut(rng: random.Random, out: bytearray, _: bytes) -> None:
    del out[_place(rng, out) :]


def _number(rng: random.Random, out: bytearray, _: bytes) -> None:
    code = rng.choice(("b", "h", "i", "q"))
    raw = struct.pack(rng.choice("<>") + code, edge(rng, 8 * struct.calcsize(code)))
    if len(out) >= len(raw):
        at = rng.randrange(len(out) - len(raw) + 1)
        out[at : at + len(raw)] = raw


def _varint(rng: random.Random, out: bytearray, _: bytes) -> None:
    value = edge(rng, 64) % (1 << rng.choice((7, 14, 31, 32, 35, 64)))
    raw = bytearray()
    while value >= 0x80:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)
    at = _place(rng, out)
    out[at : at + rng.choice((0, 1, len(raw)))] = raw


def _splice(rng: random.Random, out: bytearray, other: bytes) -> None:
    start, end = _stretch(rng, other)
    at, until = _stretch(rng, out)
    out[at : rng.choice((at, until))] = other[start:end]


_CHANGES = (_flip, _set, _insert, _remove, _double, _cut, _number, _number, _varint, _splice)
