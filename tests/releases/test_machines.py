"""Agents of two releases compute the same from one log, whatever its commands: else one of them stops (P13)."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.declaration import DECLARATIONS
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, restore
from tests.coordinator.histories import ALL, history
from tests.releases import KEPT, Release, agents, machine_of

STEPS = 400
SEEDS = range(6)


@pytest.fixture(scope="module", params=[pytest.param(each, id=each.version) for each in KEPT])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    release: Release = request.param
    return agents.unpacked(release.wheel, tmp_path_factory.mktemp("release"))


def ask(package: Path, entries: Sequence[tuple[int, bytes]] = ()) -> Any:
    """What that release's machine says."""
    sent = b"".join(machine_of.HEAD.pack(at, len(data)) + data for at, data in entries)
    program = [sys.executable, "-I", machine_of.__file__, str(package)]
    ran = subprocess.run(program, input=sent, capture_output=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr.decode()
    return json.loads(ran.stdout)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_release_before_computes_the_same_from_any_commands_that_it_knows(
    package: Path, seed: int
) -> None:
    known = {*ask(package)}
    kinds = tuple([kind for kind in ALL if DECLARATIONS[kind].number in known])
    log = history(seed, steps=STEPS, kinds=kinds).log
    entries = [(int(position), encode_entry(entry)) for position, entry in log]
    machine, seen = Machine(), []
    for (position, _), (_, data) in zip(log, entries, strict=True):
        machine.apply(position, decode_entry(data))
        seen.append([machine.digest().hex(), machine_of.digest_of(dump(machine))])
    said = ask(package, entries)
    differing = [at for at, each in enumerate(seen) if said["seen"][at] != each]
    assert not differing, f"from entry {differing[0]} on: {decode_entry(entries[differing[0]][1])}"
    restored = Machine()
    restore(restored, [bytes.fromhex(part) for part in said["snapshot"]])
    assert dump(restored) == dump(machine)
