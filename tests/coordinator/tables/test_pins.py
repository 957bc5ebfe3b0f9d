"""Pins: their position, their renewal, and that only the machine's time ends them."""

import pytest

from coordinator.commands.entries import Done, Pin, Pinned, Rejected, Tick, Unpin
from coordinator.tables.pins import PIN_LIFETIME_MS_MAX, PINS_MAX
from tests.coordinator.machine.story import Story, with_agents


def test_a_pin_has_the_position_of_its_command():
    story = Story()
    agent = story.open(clock_ms=1_000)
    outcome = story.do(agent, Pin("export", 500), clock_ms=1_200)
    assert outcome == Pinned(story.machine.position, 1_700)
    assert story.machine.pins.oldest(story.machine.time_ms) == story.machine.position


def test_a_renewed_pin_keeps_its_position():
    story = Story()
    agent = story.open(clock_ms=1_000)
    first = story.do(agent, Pin("export", 500), clock_ms=1_000)
    again = story.do(agent, Pin("export", 500), clock_ms=1_400)
    assert isinstance(first, Pinned)
    assert again == Pinned(first.position, 1_900)


def test_a_renewal_never_takes_time_away():
    story = Story()
    agent = story.open(clock_ms=1_000)
    story.do(agent, Pin("export", 5_000), clock_ms=1_000)
    again = story.do(agent, Pin("export", 1), clock_ms=1_000)
    assert isinstance(again, Pinned)
    assert again.expires_ms == 6_000


def test_a_pin_that_expired_begins_anew():
    story = Story()
    agent = story.open(clock_ms=1_000)
    story.do(agent, Pin("export", 500), clock_ms=1_000)
    again = story.do(agent, Pin("export", 500), clock_ms=1_500)
    assert again == Pinned(story.machine.position, 2_000)


def test_a_pin_lives_as_long_as_the_slowest_clock_says():
    story = Story()
    slow, fast = story.open("a", clock_ms=1_000), story.open("b", clock_ms=1_000)
    story.do(slow, Pin("export", 500), clock_ms=1_000)
    story.do(fast, Tick(), clock_ms=10**12)
    assert story.machine.pins.oldest(story.machine.time_ms) is not None
    story.do(slow, Tick(), clock_ms=1_500)
    assert story.machine.pins.oldest(story.machine.time_ms) is None


@pytest.mark.promise("P6")
def test_a_wild_clock_that_sets_a_pin_ends_no_other():
    story = Story()
    steady, wild = story.open("a", clock_ms=1_000), story.open("b", clock_ms=1_000)
    first = story.do(steady, Pin("export", 500), clock_ms=1_000)
    story.do(wild, Pin("another", 500), clock_ms=10**12)
    assert isinstance(first, Pinned)
    assert story.machine.pins.oldest(story.machine.time_ms) == first.position


def test_the_oldest_pin_counts():
    story, agent = with_agents()
    first = story.do(agent, Pin("a", 10_000))
    story.do(agent, Pin("b", 10_000))
    assert isinstance(first, Pinned)
    assert story.machine.pins.oldest(story.machine.time_ms) == first.position
    story.do(agent, Unpin("a"))
    assert story.machine.pins.oldest(story.machine.time_ms) == first.position + 3


def test_taking_away_a_pin_that_is_not_there_is_done_already():
    story = Story()
    assert story.do(story.open(), Unpin("nobody")) == Done()


@pytest.mark.parametrize(
    "command", [Pin("", 1), Pin("x" * 256, 1), Pin("a", 0), Pin("a", PIN_LIFETIME_MS_MAX + 1)]
)
def test_a_pin_out_of_bounds_is_refused(command: Pin):
    story = Story()
    assert isinstance(story.do(story.open(), command), Rejected)


def test_the_number_of_pins_is_bounded_and_expired_ones_make_room():
    story = Story()
    agent = story.open(clock_ms=1_000)
    for index in range(PINS_MAX):
        story.do(agent, Pin(f"pin-{index}", 500), clock_ms=1_000)
    assert isinstance(story.do(agent, Pin("more", 500), clock_ms=1_000), Rejected)
    assert isinstance(story.do(agent, Pin("pin-0", 500), clock_ms=1_000), Pinned)
    assert isinstance(story.do(agent, Pin("more", 500), clock_ms=1_500), Pinned)
    assert len(story.machine.pins) == 1
