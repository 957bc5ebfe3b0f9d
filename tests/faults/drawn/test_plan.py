"""What befalls real processes is a function of the seed, and leaves somebody who can make progress."""

import itertools
from dataclasses import replace

import pytest

from tests.faults.drawn.plan import (
    BLOCKED_S_MAX,
    CLOCK_KINDS,
    DISK_KINDS,
    ETCD,
    KINDS,
    LOSS_KINDS,
    RELEASE_KINDS,
    SPACE_KINDS,
    Fault,
    Stage,
    draw,
    longest_block_s,
)

THREE = Stage(agents=3, members=3)
ONE = Stage(agents=3, members=1)
SEEDS = range(1, 21)


def test_a_seed_has_one_plan() -> None:
    assert draw(17, 180, ONE) == draw(17, 180, ONE) != draw(18, 180, ONE)


def test_every_kind_and_every_target_is_in_the_plans_of_the_first_seeds() -> None:
    faults = [fault for seed in SEEDS for fault in draw(seed, 180, THREE)]
    assert {fault.kind for fault in faults} == set(KINDS)
    assert {fault.target for fault in faults} == {*THREE.processes, ETCD, *THREE.links}


def test_what_cannot_be_done_here_is_left_out_and_all_else_is_the_same() -> None:
    for seed in SEEDS:
        everything = draw(seed, 60, THREE)
        there = draw(seed, 60, replace(THREE, sets_clocks=False, fills_disks=False))
        cannot = {*CLOCK_KINDS, *DISK_KINDS}
        assert there == [fault for fault in everything if fault.kind not in cannot]


@pytest.mark.parametrize("stage", [ONE, THREE], ids=["one-member", "three-members"])
@pytest.mark.parametrize("seconds", [8, 60, 180])
def test_no_plan_makes_progress_impossible_for_long_and_all_faults_end_in_time(
    seconds: float, stage: Stage
) -> None:
    for seed in SEEDS:
        faults = draw(seed, seconds, stage)
        assert faults
        assert longest_block_s(faults, stage) <= BLOCKED_S_MAX
        assert max(fault.end_s for fault in faults) <= seconds + 1e-6


def test_no_target_is_hit_again_before_it_is_well() -> None:
    for seed in SEEDS:
        faults = draw(seed, 180, THREE)
        for first, second in itertools.combinations(faults, 2):
            if first.target == second.target:
                assert first.end_s <= second.at_s


def test_a_run_has_one_upheaval_or_none() -> None:
    found = set()
    for seed in SEEDS:
        kinds = {fault.kind for fault in draw(seed, 180, THREE)}
        assert not (kinds & {*RELEASE_KINDS} and kinds & {*LOSS_KINDS})
        assert not (kinds & {*RELEASE_KINDS} and kinds & {*CLOCK_KINDS})
        found |= {frozenset(kinds & {*RELEASE_KINDS, *LOSS_KINDS})}
    assert found == {frozenset(), frozenset(RELEASE_KINDS), frozenset(LOSS_KINDS)}


def test_nothing_else_befalls_when_the_log_is_lost() -> None:
    for seed in SEEDS:
        faults = draw(seed, 180, THREE)
        for lost in [fault for fault in faults if fault.kind in LOSS_KINDS]:
            others = [fault for fault in faults if fault is not lost]
            assert all(fault.end_s < lost.at_s or lost.at_s < fault.at_s for fault in others)


def test_all_members_of_etcd_run_while_it_has_no_space() -> None:
    for seed in SEEDS:
        faults = draw(seed, 180, THREE)
        for full in [fault for fault in faults if fault.kind in SPACE_KINDS]:
            hit = [fault for fault in faults if fault.target in THREE.etcd]
            assert all(fault.end_s < full.at_s or full.end_s < fault.at_s for fault in hit)


def test_one_member_of_etcd_has_no_quota_that_it_could_reach() -> None:
    kinds = {fault.kind for seed in SEEDS for fault in draw(seed, 180, ONE)}
    assert kinds == {*KINDS} - {*SPACE_KINDS}


def test_faults_hold_at_the_same_time_too() -> None:
    plans = [draw(seed, 60, THREE) for seed in SEEDS]
    pairs = (pair for faults in plans for pair in itertools.combinations(faults, 2))
    assert any(first.at_s < second.at_s < first.end_s for first, second in pairs)


def blocked_s(*told: tuple[str, str], stage: Stage = ONE, lasts_s: float = 5.0) -> float:
    faults = [Fault("f", kind, target, 1.0, lasts_s) for kind, target in told]
    return longest_block_s(faults, stage)


def test_without_the_store_or_a_majority_of_etcd_nobody_makes_progress() -> None:
    assert blocked_s(("pause", "s3")) == 5.0
    assert blocked_s(("kill", "etcd0")) == 5.0
    assert blocked_s(("kill", "etcd0"), stage=THREE) == 0.0
    assert blocked_s(("kill", "etcd0"), ("pause", "etcd2"), stage=THREE) == 5.0


def test_one_agent_that_reaches_all_is_enough() -> None:
    assert blocked_s(("kill", "agent0"), ("cut", "agent1→s3")) == 0.0
    assert blocked_s(("kill", "agent0"), ("cut", "agent1→s3"), ("cut", "clients→agent2")) == 5.0
    assert blocked_s(("kill", "agent0"), ("cut", "agent1→s3"), ("slow", "clients→agent2")) == 0.0


def test_a_clock_that_is_wrong_takes_its_agent_away_and_one_that_drifts_does_not() -> None:
    others = [("kill", "agent0"), ("cut", "agent1→s3")]
    assert blocked_s(*others, ("behind", "agent2")) == 5.0
    assert blocked_s(*others, ("wrong-start", "agent2")) == 5.0
    assert blocked_s(*others, ("drift", "agent2")) == 0.0
    assert blocked_s(("full", "s3")) == 5.0


def test_without_space_in_etcd_nobody_makes_progress() -> None:
    assert blocked_s(("no-space", "etcd"), stage=THREE) == 5.0


def test_an_agent_needs_one_member_of_several() -> None:
    links = [("cut", f"agent0→etcd{index}") for index in range(3)]
    alone = Stage(agents=1, members=3)
    assert blocked_s(*links[:2], stage=alone) == 0.0
    assert blocked_s(*links, stage=alone) == 5.0


def test_one_block_after_the_other_is_one_block() -> None:
    faults = [Fault("a", "pause", "s3", 1.0, 5.0), Fault("b", "kill", "etcd0", 6.0, 5.0)]
    assert longest_block_s(faults, ONE) == 10.0


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_says_what_it_is(kind: str) -> None:
    told = Fault("f", kind, "agent1", 1.0, 2.5, 0.5).told()
    assert "agent1" in told
    # It takes what it takes.
    assert ("2.5 s" in told) == (kind not in LOSS_KINDS)
