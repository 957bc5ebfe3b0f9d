"""Turns of handshakes: bounds of all and of an address, and who gives way."""

from dataclasses import dataclass

from broker.edge.handshakes import PATIENCE_MS, Handshakes


@dataclass(eq=False)
class Asking:
    address: str


def asking(handshakes: Handshakes, *addresses: str) -> list[Asking]:
    guests = [Asking(address) for address in addresses]
    for guest in guests:
        handshakes.ask(guest)
    return guests


def test_all_begin_at_once_where_there_is_room():
    handshakes = Handshakes(2, 2)
    guests = asking(handshakes, "a", "b")
    assert handshakes.due(0).begin == guests
    assert not handshakes.waiting


def test_an_address_has_no_more_than_its_bound_and_others_go_before():
    handshakes = Handshakes(10, 2)
    a, b, c, d = asking(handshakes, "a", "a", "a", "b")
    assert handshakes.due(0).begin == [a, d, b]
    handshakes.end(b)
    assert handshakes.due(0).begin == [c]


def test_addresses_have_turns_when_all_places_are_taken():
    handshakes = Handshakes(1, 1)
    first, second, third, other = asking(handshakes, "a", "a", "a", "b")
    begun = handshakes.due(0).begin
    order = list(begun)
    while begun:
        handshakes.end(begun[0])
        begun = handshakes.due(0).begin
        order += begun
    assert order == [first, other, second, third]


def test_who_takes_long_gives_way_when_somebody_waits_and_not_before():
    handshakes = Handshakes(2, 2)
    slow, quick = asking(handshakes, "a", "b")
    handshakes.due(0)
    assert handshakes.due(10 * PATIENCE_MS).give_way == []
    (late,) = asking(handshakes, "c")
    turns = handshakes.due(10 * PATIENCE_MS)
    assert (turns.begin, turns.give_way) == ([late], [slow])
    (later,) = asking(handshakes, "d")
    turns = handshakes.due(10 * PATIENCE_MS)
    assert (turns.begin, turns.give_way) == ([later], [quick])


def test_nobody_gives_way_who_has_just_begun():
    handshakes = Handshakes(1, 1)
    asking(handshakes, "a", "b")
    assert len(handshakes.due(0).begin) == 1
    turns = handshakes.due(PATIENCE_MS - 1)
    assert (turns.begin, turns.give_way) == ([], [])
    assert handshakes.waiting


def test_who_goes_while_waiting_has_no_turn():
    handshakes = Handshakes(1, 1)
    one, gone, other = asking(handshakes, "a", "a", "b")
    handshakes.due(0)
    handshakes.end(gone)
    handshakes.end(one)
    assert handshakes.due(0).begin == [other]
    handshakes.end(other)
    handshakes.end(other)
    assert (handshakes.under_way, handshakes.waiting) == (0, False)
