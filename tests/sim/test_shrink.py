"""Runs that fail are made short, and what is left out of a run changes nothing of the rest."""

import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from coordinator import log_client, proposer
from tests.mutants.catalogue import MUTANTS
from tests.sim import records_world, simulation
from tests.sim.cut import Cut
from tests.sim.records_world import RecordsWorld
from tests.sim.seeds import observe, shrunk
from tests.sim.shrink import Observed, Shrinking, by_halves

PLANTED = "append-without-answer-is-given-up"
SEED = 4
FAULTS = [f"fault{number}" for number in range(40)]
CLIENTS = ["reader", "writer"]


class BriefWorld(RecordsWorld):
    faults_s = 10.0


def seen(cut: Cut, *, fails: bool) -> Observed:
    """A run of which every fault happens that may."""
    return Observed(
        violations=["record 17 is missing"] if fails else [],
        happened={name: 1.0 for name in FAULTS if cut.only is None or name in cut.only},
        told={"fault3": "agent1 is killed"},
        clients=CLIENTS,
        agents=cut.agents_of(3),
        until_s=40.0 if cut.faults_s is None else cut.faults_s,
        counts={},
    )


def shortened(fails: Callable[[Observed, Cut], bool], runs_max: int = 200) -> Shrinking:
    def run(cut: Cut) -> Observed:
        return seen(cut, fails=fails(seen(cut, fails=False), cut))

    shrinking = Shrinking(run, run(Cut()), runs_max=runs_max)
    shrinking.shrink()
    return shrinking


def test_only_the_two_faults_are_left_that_it_takes() -> None:
    shrinking = shortened(lambda run, _cut: {"fault3", "fault31"} <= run.happened.keys())
    assert shrinking.faults == ["fault3", "fault31"]
    assert (shrinking.seen.agents, shrinking.seen.until_s) == (1, 0.625)
    assert shrinking.clients == []
    assert not shrinking.is_spent


def test_time_and_agents_that_it_takes_are_left() -> None:
    shrinking = shortened(
        lambda run, _cut: "fault3" in run.happened and run.agents >= 2 and run.until_s >= 20
    )
    assert (shrinking.faults, shrinking.seen.agents, shrinking.seen.until_s) == (["fault3"], 2, 20)


def test_what_fails_in_fine_weather_needs_no_fault() -> None:
    assert shortened(lambda _run, _cut: True).faults == []


def test_a_client_without_which_a_run_fails_in_fine_weather_stays() -> None:
    def fails(run: Observed, cut: Cut) -> bool:
        return "writer" in cut.without or "fault3" in run.happened

    assert shortened(fails).clients == ["writer"]


def test_so_little_time_that_a_run_fails_in_fine_weather_is_too_little() -> None:
    def fails(run: Observed, _cut: Cut) -> bool:
        return run.until_s < 10 or "fault3" in run.happened

    shrinking = shortened(fails)
    assert (shrinking.faults, shrinking.seen.until_s) == (["fault3"], 10)


def test_no_more_runs_than_allowed_are_made_and_the_script_says_so() -> None:
    shrinking = shortened(lambda run, _cut: "fault3" in run.happened, runs_max=8)
    assert shrinking.runs == 8
    assert shrinking.is_spent
    assert "more would shorten it" in next(shrinking.script(17))


def test_a_script_has_the_faults_and_the_command_that_replays_them() -> None:
    script = list(shortened(lambda run, _cut: "fault3" in run.happened).script(17))
    assert script[1] == "     1.000 s  fault3: agent1 is killed"
    assert script[2] == "  violates: record 17 is missing"
    assert script[3] == (
        "replay: python -m tests.sim --seed 17 --only 'fault3' --until 0.625 --agents 1 "
        "--without 'reader,writer'"
    )


@pytest.mark.parametrize("wanted", [[], ["a"], ["c", "h"], ["a", "b", "c"]])
def test_halves_leave_out_all_but_what_is_wanted(wanted: list[str]) -> None:
    def leave_out(left: Sequence[str]) -> list[str] | None:
        return list(left) if set(wanted) <= set(left) else None

    assert by_halves(list("abcdefgh"), leave_out) == wanted


def test_a_run_with_the_faults_that_it_met_and_no_others_is_the_same_run() -> None:
    whole = observe(SEED, BriefWorld)
    again = observe(SEED, BriefWorld, Cut(only=frozenset(whole.happened)))
    assert again == whole
    assert whole.happened


@pytest.fixture
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proposer of all agents has a bug of the catalogue, and liveness is given up soon."""
    mutant = next(each for each in MUTANTS if each.name == PLANTED)
    source = Path(proposer.__file__).read_text()
    assert source.count(mutant.before) == 1
    module = types.ModuleType("planted")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source.replace(mutant.before, mutant.after), vars(module))
    # Its errors are those that others catch.
    errors = {name: each for name, each in vars(proposer).items() if name.endswith("Error")}
    vars(module).update(errors)
    monkeypatch.setattr(log_client, "Proposer", module.Proposer)
    for each in (simulation, records_world):
        monkeypatch.setattr(each, "SETTLE_S", 15.0)


@pytest.mark.usefixtures("_planted")
def test_a_planted_bug_is_told_by_the_one_fault_that_it_takes() -> None:
    seed = next(each for each in range(1, 20) if observe(each, BriefWorld).violations)
    shrinking = shrunk(seed, BriefWorld, tell=lambda _told: None)
    (fault,) = shrinking.faults
    assert ".log.append." in fault
    assert "an append that would leave a hole" in "".join(shrinking.seen.violations)
    again = observe(seed, BriefWorld, shrinking.cut)
    assert again == shrinking.seen
