"""Which agent should hold the jobs."""

from broker.jobs.claims import FREE_MS_MAX, FREE_MS_MIN, GIVEN_UP_MS, JobClaims, LiveAgent
from coordinator.commands.job_commands import JobKind
from protocol.types import INCARNATION_NONE, Incarnation

ONE, TWO, THREE = (LiveAgent(Incarnation(100 + number), number) for number in (1, 2, 3))
ALL = tuple(JobKind)
FREE = dict.fromkeys(JobKind, INCARNATION_NONE)


def held_by(agent: LiveAgent) -> dict[JobKind, Incarnation]:
    return dict.fromkeys(JobKind, agent.incarnation)


class Seen:
    """What each agent makes of the same table, look by look."""

    def __init__(self, *agents: LiveAgent) -> None:
        self.agents = agents
        self.claims = {agent: JobClaims() for agent in agents}

    def observe(self, now_ms: int, holders: dict[JobKind, Incarnation]) -> None:
        for agent, claims in self.claims.items():
            claims.observe(me=agent.incarnation, agents=self.agents, holders=holders, now_ms=now_ms)

    def claiming(self, *, wanted_now: bool = False) -> list[LiveAgent]:
        return [
            agent for agent, claims in self.claims.items() if claims.to_claim(wanted_now=wanted_now)
        ]


def test_free_jobs_are_claimed_by_one_agent_after_a_while() -> None:
    seen = Seen(ONE, TWO, THREE)
    seen.observe(0, FREE)
    assert seen.claiming() == []
    seen.observe(FREE_MS_MIN, FREE)
    (winner,) = seen.claiming()
    assert seen.claims[winner].to_claim(wanted_now=False) == ALL


def test_jobs_that_somebody_asks_for_are_claimed_at_once() -> None:
    seen = Seen(ONE, TWO, THREE)
    seen.observe(0, FREE)
    assert len(seen.claiming(wanted_now=True)) == 1


def test_held_jobs_are_nobody_elses() -> None:
    seen = Seen(ONE, TWO)
    for now_ms in (0, FREE_MS_MIN, 10 * FREE_MS_MAX):
        seen.observe(now_ms, held_by(ONE))
        assert seen.claiming(wanted_now=True) == []
    assert seen.claims[ONE].held_jobs() == ALL
    assert seen.claims[TWO].held_jobs() == ()


def test_who_holds_one_job_is_meant_to_hold_the_others() -> None:
    for holder in (ONE, TWO, THREE):
        seen = Seen(ONE, TWO, THREE)
        holders = FREE | {JobKind.MERGE: holder.incarnation}
        seen.observe(0, holders)
        seen.observe(FREE_MS_MIN, holders)
        assert seen.claiming() == [holder]
        claimed = seen.claims[holder].to_claim(wanted_now=False)
        assert claimed == tuple(kind for kind in JobKind if kind is not JobKind.MERGE)


def test_when_the_preferred_agent_claims_nothing_the_next_one_does() -> None:
    seen = Seen(ONE, TWO, THREE)
    seen.observe(0, FREE)
    seen.observe(FREE_MS_MIN, FREE)
    (idle,) = seen.claiming()
    others = Seen(ONE, TWO, THREE)
    del others.claims[idle]
    others.observe(0, FREE)
    others.observe(FREE_MS_MAX, FREE)
    others.observe(FREE_MS_MAX + FREE_MS_MIN, FREE)
    assert len(others.claiming()) == 1


def test_an_agent_that_claims_counts_again() -> None:
    seen = Seen(ONE, TWO)
    seen.observe(0, FREE)
    seen.observe(FREE_MS_MIN, FREE)
    (idle,) = seen.claiming()
    (other,) = {ONE, TWO} - {idle}
    mine = seen.claims[other]
    seen.observe(FREE_MS_MAX, FREE)
    assert mine.preferred() == other.incarnation
    mine.claimed(idle.incarnation)
    assert mine.preferred() == idle.incarnation


def test_an_agent_without_a_proven_session_claims_nothing_and_forgets_what_it_waited_for() -> None:
    claims = JobClaims()
    claims.observe(me=ONE.incarnation, agents=[ONE], holders=FREE, now_ms=0)
    claims.observe(me=None, agents=[ONE], holders=FREE, now_ms=FREE_MS_MIN)
    assert claims.to_claim(wanted_now=True) == ()
    claims.observe(me=ONE.incarnation, agents=[ONE], holders=FREE, now_ms=FREE_MS_MIN + 1)
    assert claims.to_claim(wanted_now=False) == ()


def test_who_leaves_gives_everything_to_another_agent_or_to_nobody() -> None:
    claims = JobClaims()
    claims.observe(me=ONE.incarnation, agents=[ONE, TWO], holders=held_by(ONE), now_ms=0)
    assert claims.successor() == TWO.incarnation
    claims.observe(me=ONE.incarnation, agents=[ONE], holders=held_by(ONE), now_ms=1)
    assert claims.successor() == INCARNATION_NONE


def test_jobs_that_cannot_be_run_go_to_those_who_have_not_given_up_until_nobody_is_left() -> None:
    seen = Seen(ONE, TWO, THREE)
    holder, tried = ONE, []
    while True:
        tried.append(holder)
        seen.observe(0, held_by(holder))
        abler = seen.claims[holder].abler()
        if abler == INCARNATION_NONE:
            break
        for claims in seen.claims.values():
            claims.handed_over(holder.incarnation)
        (holder,) = [agent for agent in seen.agents if agent.incarnation == abler]
    assert len(tried) == 3
    assert {*tried} == {ONE, TWO, THREE}


def test_who_leaves_gives_its_jobs_to_one_that_has_given_up_rather_than_to_nobody() -> None:
    seen = Seen(ONE, TWO)
    seen.observe(0, held_by(ONE))
    seen.claims[ONE].handed_over(TWO.incarnation)
    assert seen.claims[ONE].abler() == INCARNATION_NONE
    assert seen.claims[ONE].successor() == TWO.incarnation


def test_who_has_given_up_counts_again_after_an_hour_and_in_its_next_life() -> None:
    seen = Seen(ONE, TWO)
    seen.observe(1000, held_by(ONE))
    seen.claims[ONE].handed_over(TWO.incarnation)
    seen.observe(1000 + GIVEN_UP_MS - 1, held_by(ONE))
    assert seen.claims[ONE].abler() == INCARNATION_NONE
    seen.observe(1000 + GIVEN_UP_MS, held_by(ONE))
    assert seen.claims[ONE].abler() == TWO.incarnation
    seen.claims[ONE].handed_over(TWO.incarnation)
    again = TWO._replace(incarnation=Incarnation(500))
    seen.claims[ONE].observe(
        me=ONE.incarnation, agents=(ONE, again), holders=held_by(ONE), now_ms=GIVEN_UP_MS + 2000
    )
    assert seen.claims[ONE].abler() == again.incarnation


def test_free_jobs_are_claimed_by_one_that_has_not_given_up_and_if_all_have_by_any() -> None:
    seen = Seen(ONE, TWO, THREE)
    seen.observe(0, FREE)
    claimed = []
    for _ in seen.agents:
        (winner,) = seen.claiming(wanted_now=True)
        claimed.append(winner)
        for claims in seen.claims.values():
            claims.handed_over(winner.incarnation)
    assert len(set(claimed)) == 3
    assert len(seen.claiming(wanted_now=True)) == 1
