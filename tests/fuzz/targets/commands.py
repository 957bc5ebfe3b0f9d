"""Entries of the log as bytes, and machines that apply whatever can be read of them.

`commands` is the codec alone; `machine` a history of entries, some of them changed, applied one
behind the other: apply is total, and what comes of it is in its snapshot.
"""

import random
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cache
from struct import pack

from crc32c import crc32c
from typing_extensions import override

from coordinator.commands.codec import FORMAT_VERSION, CodecError, decode_entry, encode_entry
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, is_dump_of, restore
from protocol.types import Position
from tests.coordinator.golden import entry_of
from tests.coordinator.golden.samples import COMMANDS
from tests.coordinator.histories import history
from tests.fuzz import mutation
from tests.fuzz.target import Target, WrongError, words

HISTORIES = 40
STEPS = 120
_HEAD_BYTES = 5
_PLACE_BYTES = 8


@cache
def _entries(seed: int) -> list[bytes]:
    """Each behind its place in the log."""
    log = history(seed, steps=STEPS).log
    return [place.to_bytes(_PLACE_BYTES, "big") + encode_entry(entry) for place, entry in log]


@cache
def _samples() -> list[bytes]:
    return [encode_entry(entry_of(command)) for command in COMMANDS]


def _sealed(entry: bytes) -> bytes:
    """The entry with a right checksum, and of the version that is known."""
    if len(entry) <= _HEAD_BYTES:
        return entry
    body = entry[_HEAD_BYTES:]
    head = bytes([FORMAT_VERSION])
    return head + pack("<I", crc32c(head + body)) + body


class Commands(Target):
    name = "commands"
    fixed = 3000

    @override
    def generate(self, rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            return self.mutate(rng, rng.choice(_samples()), rng.choice(_samples()))
        return rng.choice(_entries(rng.randrange(HISTORIES)))[_PLACE_BYTES:]

    @override
    def sealed(self, data: bytes) -> bytes:
        return _sealed(data)

    @override
    def run(self, data: bytes) -> Hashable:
        try:
            entry = decode_entry(data)
        except CodecError as error:
            return words(error)
        if decode_entry(encode_entry(entry)) != entry:
            raise WrongError(f"another entry when it is written again: {entry}")
        return tuple(type(command).__name__ for command in entry.commands[:3])


class Machines(Target):
    """Entries, each behind its length (4 bytes) and its place in the log.

    What the log itself sees to is so: places ascend, and a writer's entries have numbers without a hole.
    """

    name = "machine"
    fixed = 60

    @override
    def generate(self, rng: random.Random) -> bytes:
        entries = [*_entries(rng.randrange(HISTORIES))][: rng.choice((20, 60, STEPS))]
        for _ in range(rng.randrange(1, 12)):
            at = rng.randrange(len(entries))
            other = rng.choice(_entries(rng.randrange(HISTORIES)))
            match rng.randrange(4):
                case 0:
                    entries.insert(at, entries[rng.randrange(len(entries))])
                case 1:
                    entries.insert(at, other)
                case _:
                    entries[at] = _changed(rng, entries[at], other)
        return b"".join(map(_framed, entries))

    @override
    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        mine, theirs = [*self.pieces(data)], self.pieces(other)
        if not mine or not theirs:
            return self.generate(rng)
        at = rng.randrange(len(mine))
        mine[at] = _framed(_changed(rng, mine[at][4:], rng.choice(theirs)[4:]))
        if rng.random() < 0.3:
            mine.insert(at, rng.choice(theirs))
        return b"".join(mine)

    @override
    def pieces(self, data: bytes) -> Sequence[bytes]:
        pieces, at = [], 0
        while at + 4 <= len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            pieces.append(data[at:end])
            at = end
        return pieces

    @override
    def inputs_in(self, data: bytes) -> int:
        return len(self.pieces(data))

    @override
    def run(self, data: bytes) -> Hashable:
        machine, outcomes = Machine(), set()
        for piece in self.pieces(data):
            try:
                entry = decode_entry(piece[4 + _PLACE_BYTES :])
            except CodecError:
                continue
            said = int.from_bytes(piece[4 : 4 + _PLACE_BYTES], "big") % (1 << 62)
            place = Position(max(machine.position + 1, said))
            if (writer := machine.incarnations.get(entry.incarnation)) is not None:
                entry = replace(entry, n=writer.last_n + 1)
            for outcome in machine.apply(place, entry):
                outcomes.add((type(outcome).__name__, str(getattr(outcome, "error", ""))))
        parts = dump(machine)
        again = Machine()
        restore(again, parts)
        if again.digest() != machine.digest() or not is_dump_of(again, parts):
            raise WrongError("another machine out of its snapshot")
        return frozenset(outcomes)


def _changed(rng: random.Random, entry: bytes, other: bytes) -> bytes:
    changed = mutation.mutated(rng, entry[_PLACE_BYTES:], other[_PLACE_BYTES:])
    return entry[:_PLACE_BYTES] + _sealed(changed)


def _framed(entry: bytes) -> bytes:
    return len(entry).to_bytes(4, "big") + entry
