"""A snapshot's parts, manifest and list: read as they are, refused with one error, or nothing.

The first byte of an input says which of the three the rest is.
"""

import random
import struct
from collections.abc import Hashable
from functools import cache

from crc32c import crc32c
from typing_extensions import override

from coordinator.machine.machine import Machine
from coordinator.snapshot.keeping import SnapshotPin
from coordinator.snapshot.manifest import (
    Manifest,
    PartInfo,
    decode_manifest,
    decode_published,
    encode_manifest,
    encode_published,
    manifest_key,
)
from coordinator.snapshot.snapshot import SnapshotError, dump, restore
from coordinator.snapshot.stream import HEAD_BYTES
from coordinator.tables.snapshots import Published
from protocol.types import Position
from tests.coordinator.histories import history
from tests.fuzz import mutation
from tests.fuzz.target import Target, words

PART, MANIFEST, LIST = 0, 1, 2
STEPS = (0, 5, 20, 60, 60, 120)


@cache
def _part(seed: int) -> bytes:
    (part,) = dump(history(seed, steps=STEPS[seed % len(STEPS)]).machine)
    return part


@cache
def _manifest() -> bytes:
    return encode_manifest(
        Manifest(
            cluster_id="c",
            era=1,
            position=Position(9),
            digest=bytes(16),
            time_ms=1000,
            parts=(PartInfo(100, bytes(16)),),
            pins=(SnapshotPin(Position(7), 900, 2000, 2000),),
        )
    )


@cache
def _published() -> bytes:
    rows = [
        Published(Position(n), bytes(16), manifest_key(Position(n)), Position(n)) for n in (5, 9)
    ]
    return encode_published(rows)


class Snapshots(Target):
    name = "snapshots"
    fixed = 600

    @override
    def generate(self, rng: random.Random) -> bytes:
        kind = rng.choice((PART, PART, PART, PART, MANIFEST, LIST))
        body = {PART: lambda: _part(rng.randrange(60)), MANIFEST: _manifest, LIST: _published}[
            kind
        ]()
        if rng.random() < 0.95:
            body = mutation.mutated(rng, body, _part(rng.randrange(60)))
        return self.sealed(bytes((kind,)) + body)

    @override
    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        return self.sealed(data[:1] + mutation.mutated(rng, data[1:], other[1:]))

    @override
    def sealed(self, data: bytes) -> bytes:
        if len(data) <= HEAD_BYTES or data[0] != PART:
            return data
        part = bytearray(data[1:])
        # One part, the first, under its checksum.
        struct.pack_into("<II", part, 6, 1, 0)
        struct.pack_into(
            "<I", part, HEAD_BYTES - 4, crc32c(part[HEAD_BYTES:], crc32c(part[: HEAD_BYTES - 4]))
        )
        return data[:1] + bytes(part)

    @override
    def run(self, data: bytes) -> Hashable:
        body = data[1:]
        try:
            match data[0] if data else PART:
                case 1:
                    decode_manifest(body)
                case 2:
                    decode_published(body)
                case _:
                    machine = Machine()
                    restore(machine, [body])
                    dump(machine)
        except SnapshotError as error:
            return words(str(error.__cause__ or error))
        return len(data).bit_length()
