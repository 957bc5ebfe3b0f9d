"""Faults by name: leaving some out changes nothing else that is drawn."""

from tests.kit.chances import Chances

CALLS = [f"agent0.log.append.{number}.lost" for number in range(200)]


def met(seed: int = 7, only: list[str] | None = None) -> list[str]:
    chances = Chances(seed, lambda: 0.0, only)
    return [name for name in CALLS if chances.happens(name, 0.25)]


def test_a_fault_happens_as_often_as_it_should_and_for_the_same_seed_again() -> None:
    assert 30 < len(met()) < 70
    assert met() == met() != met(8)


def test_without_one_fault_all_others_happen_as_they_did() -> None:
    first, *others = met()
    assert met(only=others) == others
    assert first not in others


def test_no_fault_comes_in_the_place_of_those_that_are_left_out() -> None:
    assert met(only=[]) == []


def test_what_a_fault_is_like_does_not_depend_on_what_else_is_drawn() -> None:
    chances, others = Chances(7, lambda: 0.0), Chances(7, lambda: 0.0)
    others.stream("pause1").random()
    others.numbered("agent0.log.append")
    assert chances.stream("kill2").random() == others.stream("kill2").random()


def test_what_happened_is_kept_with_its_time() -> None:
    chances = Chances(7, lambda: 2.5, ["kill1"])
    assert chances.allows("kill1")
    assert not chances.allows("kill2")
    assert not chances.happens("kill1", 0.0)
    assert chances.happened == {"kill1": 2.5}
