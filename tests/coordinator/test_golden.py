"""What is in logs and snapshots already is written and read as ever (tests/coordinator/golden)."""

from collections import defaultdict
from typing import get_args

import pytest

from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.digest import DIGEST_ZERO
from coordinator.commands.entries import Command, Entry, Outcome, Rejected
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, restore
from tests.coordinator.golden import (
    COMMANDS,
    FAMILIES,
    OUTCOME_DIGESTS,
    SNAPSHOT,
    Step,
    digest_of,
    entries,
    kept_history,
    kept_lines,
    outcomes,
)
from tests.coordinator.snapshot.compare import differences
from tests.coordinator.snapshot.test_fields import ORDERED_SETS, is_empty, places

ADDS = "`python -m tests.coordinator.golden` adds what is new"
KEPT_ENTRIES = kept_lines(COMMANDS)
KINDS_IN_THE_LOG = 47
"""All that there were when it was kept. A newer command has its line in `commands.txt`."""
NEWER_TABLES = {
    "Acls._rows",
    "ClientQuotas._rows",
    "Credentials._rows",
    "Credentials.first",
    "DelegationTokens._rows",
    "DynamicConfigs._rows",
    "Eras.rows",
    "Losses.rows",
    "QuotaUsage._rows",
}
"""That did not exist when the snapshot was kept."""


@pytest.fixture(scope="module")
def history() -> list[Step]:
    return kept_history()


@pytest.fixture(scope="module")
def replayed(history: list[Step]) -> Machine:
    machine = Machine()
    for step in history:
        machine.apply(step.position, decode_entry(step.entry))
    return machine


def names(entry: Entry) -> list[str]:
    return [type(command).__name__ for command in entry.commands]


def test_bytes_of_every_kind_of_command_are_kept():
    kept = {
        type(command)
        for name in KEPT_ENTRIES
        for command in decode_entry(KEPT_ENTRIES[name]).commands
    }
    assert kept == {*get_args(Command)}, ADDS
    assert KEPT_ENTRIES.keys() == entries().keys(), ADDS
    assert {f"all-{family}" for family in FAMILIES} <= KEPT_ENTRIES.keys()


@pytest.mark.parametrize("name", KEPT_ENTRIES)
def test_a_command_is_encoded_and_decoded_as_ever(name: str):
    entry, kept = entries()[name], KEPT_ENTRIES[name]
    assert decode_entry(kept) == entry
    assert encode_entry(entry).hex() == kept.hex()


def test_outcomes_of_every_kind_make_the_digests_that_they_ever_made():
    kept = kept_lines(OUTCOME_DIGESTS)
    samples = outcomes()
    assert {type(outcome) for sample in samples.values() for outcome in sample} == {
        *get_args(Outcome)
    }
    assert kept.keys() == samples.keys(), ADDS
    changed = [name for name, sample in samples.items() if digest_of(sample) != kept[name]]
    assert changed == []


def test_the_entries_of_a_kept_log_are_encoded_as_ever(history: list[Step]):
    for step in history:
        entry = decode_entry(step.entry)
        assert encode_entry(entry) == step.entry, f"{names(entry)} at {step.position}"


@pytest.mark.promise("P13")
def test_a_kept_log_has_the_outcomes_that_it_ever_had(history: list[Step]):
    machine = Machine()
    assert machine.digest() == DIGEST_ZERO
    for step in history:
        entry = decode_entry(step.entry)
        outcome = machine.apply(step.position, entry)
        assert machine.digest() == step.digest, f"{names(entry)} at {step.position}: {outcome}"


@pytest.mark.promise("P13")
def test_a_kept_log_makes_the_snapshot_that_it_ever_made(replayed: Machine):
    assert b"".join(dump(replayed)) == SNAPSHOT.read_bytes()


def test_a_kept_snapshot_is_restored_to_the_machine_that_it_was_made_of(replayed: Machine):
    machine = Machine()
    restore(machine, [SNAPSHOT.read_bytes()])
    assert differences(machine, replayed) == []


def test_in_the_kept_log_every_command_is_carried_out_once_at_least(history: list[Step]):
    machine = Machine()
    carried_out: set[str] = set()
    refused: set[str] = set()
    for step in history:
        entry = decode_entry(step.entry)
        for name, outcome in zip(names(entry), machine.apply(step.position, entry), strict=True):
            (refused if isinstance(outcome, Rejected) else carried_out).add(name)
    assert carried_out == {name for step in history for name in names(decode_entry(step.entry))}
    assert len(carried_out) == KINDS_IN_THE_LOG
    assert len(refused) > len(carried_out) // 2


def test_the_kept_snapshot_fills_every_table(replayed: Machine):
    filled = defaultdict(bool)
    for name, value, _ in places("machine", replayed, lambda new: None):
        filled[name] |= not is_empty(value)
    empty = {name for name, is_filled in filled.items() if not is_filled}
    assert empty - NEWER_TABLES == {*ORDERED_SETS} & filled.keys()
