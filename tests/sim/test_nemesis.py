"""What befalls agents is drawn beforehand."""

import itertools

from tests.kit.chances import Chances
from tests.sim.nemesis import AWAY_S_MAX, Harm, plan

KINDS = ("away", "break", "expire", "kill", "pause", "skew")
AWAY = ("log-away", "store-away")


def planned(seed: int, kinds: tuple[str, ...] = KINDS, until_s: float = 60.0) -> list[Harm]:
    chances = Chances(seed, lambda: 0.0)
    return list(plan(chances, kinds, agents=3, until_s=until_s, leaves=True, jobs=True))


def test_a_seed_has_one_plan() -> None:
    assert planned(3) == planned(3) != planned(4)


def test_every_kind_of_harm_and_every_agent_is_in_the_plans_of_some_seeds() -> None:
    harms = [harm for seed in range(20) for harm in planned(seed)]
    assert {harm.kind for harm in harms} == {
        *("kill", "outage", "leave", "pause", "halt"),
        *("expire", "store-away", "log-away", "break", "skew"),
    }
    assert {harm.target for harm in harms} == {0, 1, 2}


def test_one_harm_is_over_before_the_next_begins_and_all_begin_in_time() -> None:
    for seed in range(20):
        harms = planned(seed)
        for harm, following in itertools.pairwise(harms):
            assert harm.at_s + harm.seconds < following.at_s
        assert harms[-1].at_s < 60.0


def test_less_time_leaves_out_what_would_come_later_and_nothing_else() -> None:
    assert planned(3, until_s=20.0) == [harm for harm in planned(3) if harm.at_s < 20.0]


def test_no_kinds_are_no_harm() -> None:
    assert planned(3, kinds=()) == []


def test_a_log_is_away_for_so_long_at_times_that_it_may_be_cut_meanwhile_and_no_store_is() -> None:
    harms = [harm for seed in range(100) for harm in planned(seed)]
    away = {kind: {each.seconds for each in harms if each.kind == kind} for kind in AWAY}
    assert away == {"log-away": {1.0, 5.0, 15.0, AWAY_S_MAX}, "store-away": {1.0, 5.0, 15.0}}
