"""Bytes of the metadata log that were written once and are read for ever.

    commands.txt         an entry with each sample of a command; entries with many commands
    outcomes.txt         the digest that rolls from zero over each sample of outcomes
    everything.log.xz    a long history: position, entry and the digest after it
    everything.snapshot  the machine after that history

Each line of the text files is a name and hexadecimal digits, in any order of names; numbers count
the samples of a kind. Lines and files are never changed: bytes that differ are another format, which
gets samples, lines and files of its own beside these. `python -m tests.coordinator.golden` adds what
is missing and touches nothing that is there.
"""

import lzma
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from coordinator.commands.codec import encode_entry
from coordinator.commands.digest import DIGEST_ZERO, roll
from coordinator.commands.entries import Command, Entry, Outcome
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump
from protocol.types import Position
from tests.coordinator.golden.histories import everything
from tests.coordinator.golden.samples import COMMANDS as COMMAND_SAMPLES
from tests.coordinator.golden.samples import FAMILIES, OUTCOMES
from tests.coordinator.values import INCARNATION

FOLDER = Path(__file__).parent
COMMANDS = FOLDER / "commands.txt"
OUTCOME_DIGESTS = FOLDER / "outcomes.txt"
LOG = FOLDER / "everything.log.xz"
SNAPSHOT = FOLDER / "everything.snapshot"

KEPT_TOGETHER = {
    "plain": 10,
    "groups": 13,
    "transactions": 14,
    "jobs": 17,
    "tables": 9,
    "credentials": 3,
    "rights": 3,
    "tokens": 4,
    "configs": 3,
}
"""How many samples of a family its entry has; later ones have only entries of their own."""


class Step(NamedTuple):
    position: Position
    entry: bytes
    digest: bytes


def entries() -> dict[str, Entry]:
    """The samples of entries by name: one with each command alone, one with each family."""
    found: dict[str, Entry] = {}
    counts: Counter[str] = Counter()
    for command in COMMAND_SAMPLES:
        kind = type(command).__name__
        counts[kind] += 1
        found[f"{kind}.{counts[kind]}"] = entry_of(command)
    together = {name: FAMILIES[name][:count] for name, count in KEPT_TOGETHER.items()}
    return found | {f"all-{name}": entry_of(*family) for name, family in together.items()}


def entry_of(*commands: Command) -> Entry:
    return Entry(INCARNATION, 5, 1_700_000_000_123, commands)


def outcomes() -> dict[str, tuple[Outcome, ...]]:
    """The samples of outcomes of one entry, by name."""
    found: dict[str, tuple[Outcome, ...]] = {}
    counts: Counter[str] = Counter()
    for sample in OUTCOMES:
        kind = "+".join(type(outcome).__name__ for outcome in sample) or "none"
        counts[kind] += 1
        found[f"{kind}.{counts[kind]}"] = sample
    return found


def digest_of(sample: tuple[Outcome, ...]) -> bytes:
    return roll(DIGEST_ZERO, Position(1), sample)


def kept_lines(path: Path) -> dict[str, bytes]:
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = [line.split(" ") for line in lines]
    found = {name: bytes.fromhex(value) for name, value in pairs}
    assert len(found) == len(pairs), f"{path.name} has a name twice"
    return found


def kept_history() -> list[Step]:
    lines = lzma.decompress(LOG.read_bytes()).decode().splitlines()
    words = [line.split(" ") for line in lines]
    return [Step(Position(int(p)), bytes.fromhex(e), bytes.fromhex(d)) for p, e, d in words]


def add_missing() -> None:
    _add_lines(COMMANDS, ((name, encode_entry(entry)) for name, entry in entries().items()))
    _add_lines(OUTCOME_DIGESTS, ((name, digest_of(it)) for name, it in outcomes().items()))
    if not LOG.exists() and not SNAPSHOT.exists():
        _write_history()


def _add_lines(path: Path, samples: Iterable[tuple[str, bytes]]) -> None:
    kept = kept_lines(path)
    with path.open("a") as file:
        for name, value in samples:
            if name not in kept:
                file.write(f"{name} {value.hex()}\n")


def _write_history() -> None:
    machine = Machine()
    lines = []
    for place, entry in everything().log:
        machine.apply(place, entry)
        lines.append(f"{place} {encode_entry(entry).hex()} {machine.digest().hex()}\n")
    (part,) = dump(machine)
    LOG.write_bytes(lzma.compress("".join(lines).encode(), preset=9))
    SNAPSHOT.write_bytes(part)
