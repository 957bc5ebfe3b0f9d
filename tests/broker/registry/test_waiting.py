"""Clients that wait have their turns, whatever others ask for."""

import pytest

from broker.registry.waiting import FairQueue


def test_clients_are_served_in_turn_however_much_one_asks_for() -> None:
    queue: FairQueue[str] = FairQueue(10)
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        assert queue.put(item[0], item) is None
    assert len(queue) == 6
    assert [queue.take() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]
    with pytest.raises(LookupError):
        queue.take()


def test_who_has_most_places_gives_up_the_one_it_took_last() -> None:
    queue: FairQueue[str] = FairQueue(3)
    for item in ("a1", "a2", "a3"):
        assert queue.put("a", item) is None
    assert queue.put("b", "b1") == "a3"
    assert queue.put("a", "a4") == "a4"
    assert queue.put("b", "b2") == "b2"
    assert [queue.take() for _ in range(3)] == ["a1", "b1", "a2"]


def test_of_a_clients_what_is_cheapest_comes_first_and_the_dearest_goes_first() -> None:
    queue: FairQueue[str] = FairQueue(5)
    for item, cost in (("dear", 9), ("cheap", 1), ("dearer", 10), ("as cheap", 1)):
        assert queue.put("a", item, cost) is None
    assert queue.put("b", "b1", 99) is None
    assert queue.put("b", "b2", 1) == "dearer"
    assert [queue.take() for _ in range(5)] == ["cheap", "b2", "as cheap", "b1", "dear"]


def test_of_many_with_one_place_each_the_newcomer_goes_away() -> None:
    queue: FairQueue[str] = FairQueue(2)
    assert [queue.put(item, item) for item in ("a", "b", "c")] == [None, None, "c"]
    assert [queue.take(), queue.take()] == ["a", "b"]
    assert len(queue) == 0
