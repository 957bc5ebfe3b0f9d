"""Which snapshots are kept: by pins alone, the more sparsely the older they are, and never too many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.commands.entries import Pin, Tick
from coordinator.snapshot.keeping import (
    DAY_MS,
    HOUR_MS,
    KEPT_MAX,
    MINUTE_MS,
    PREFIX,
    RETENTION_MS_MAX,
    SnapshotPin,
    is_snapshot_pin,
    kept,
    next_pin,
    renewals,
    snapshot_pins,
)
from coordinator.tables.pins import PIN_LIFETIME_MS_MAX, Pins
from protocol.types import Position

START_MS = 1_700_000_000_000


class Days:
    """Snapshots that are made one after the other, and what becomes of them; an entry has a position."""

    def __init__(self, retention_ms: int) -> None:
        self.retention_ms = retention_ms
        self.pins = Pins()
        self.time_ms = START_MS
        self.position = 0
        self.made: dict[Position, int] = {}

    def pin(self, command: Pin) -> None:
        self.position += 1
        assert self.pins.validate(command, time_ms=self.time_ms) is None
        self.pins.set(command, position=Position(self.position), time_ms=self.time_ms)

    def collect(self) -> None:
        for command in [*renewals(self.pins, self.time_ms)]:
            self.pin(command)

    def snapshot(self) -> None:
        command = next_pin(self.pins, self.time_ms, retention_ms=self.retention_ms)
        if command is not None:
            self.pin(command)
        self.position += 1
        self.made[Position(self.position)] = self.time_ms

    def pass_time(self, ms: int) -> None:
        self.time_ms += ms
        self.collect()

    @property
    def living(self) -> list[SnapshotPin]:
        return snapshot_pins(self.pins, self.time_ms)

    def kept_ages(self) -> list[int]:
        """In ms, the youngest first."""
        return sorted(self.time_ms - self.made[each] for each in kept(self.made, self.living))


def days(retention_ms: int, *, lasting_ms: int, every_ms: int = 10 * MINUTE_MS) -> Days:
    story = Days(retention_ms)
    for _ in range(lasting_ms // every_ms):
        story.pass_time(every_ms)
        story.snapshot()
    return story


def test_without_a_retention_nothing_is_kept_for_longer() -> None:
    assert days(0, lasting_ms=DAY_MS).kept_ages() == []


def test_all_are_kept_for_an_hour_one_an_hour_for_a_day_and_four_a_day_for_a_month() -> None:
    ages = days(RETENTION_MS_MAX, lasting_ms=40 * DAY_MS).kept_ages()
    assert [age // MINUTE_MS for age in ages if age < HOUR_MS] == [0, 10, 20, 30, 40, 50]
    assert len([age for age in ages if HOUR_MS <= age < DAY_MS]) == 23
    assert len([age for age in ages if age >= DAY_MS]) == 29 * 4
    assert max(ages) < RETENTION_MS_MAX
    assert len(ages) <= KEPT_MAX < 200


def test_however_often_there_are_snapshots_they_are_not_more() -> None:
    story = days(DAY_MS, lasting_ms=26 * HOUR_MS, every_ms=MINUTE_MS)
    assert 25 <= len(story.kept_ages()) <= 1 + 6 + 1 + 24


def test_what_is_kept_goes_when_its_time_is_over_and_not_before() -> None:
    story = Days(20 * DAY_MS)
    story.snapshot()
    for _ in range(20 * 24 - 1):
        story.pass_time(HOUR_MS)
        assert len(story.kept_ages()) == 1
    story.pass_time(HOUR_MS)
    assert story.kept_ages() == []


def test_a_pin_that_nobody_renews_lives_for_a_week() -> None:
    story = Days(20 * DAY_MS)
    story.snapshot()
    story.time_ms += PIN_LIFETIME_MS_MAX - 1
    assert len(story.living) == 1
    story.time_ms += 1
    assert story.living == []


def test_a_longer_retention_holds_for_the_next_snapshot_and_a_shorter_one_takes_nothing_back() -> (
    None
):
    story = Days(HOUR_MS)
    story.snapshot()
    story.retention_ms = 3 * DAY_MS
    story.pass_time(MINUTE_MS)
    story.snapshot()
    story.retention_ms = HOUR_MS
    story.pass_time(2 * DAY_MS)
    assert story.kept_ages() == [2 * DAY_MS]


def test_a_pin_whose_snapshot_was_not_finished_keeps_the_next_one() -> None:
    pins = [SnapshotPin(Position(10), 0, 5, 5), SnapshotPin(Position(20), 0, 9, 9)]
    first, second = Position(25), Position(30)
    assert kept([second, first, Position(10)], pins) == {first: pins[1]}


def test_pins_of_others_keep_no_snapshot() -> None:
    story = Days(DAY_MS)
    for name in ("export", PREFIX, f"{PREFIX}1", f"{PREFIX}1.x", f"{PREFIX}.5", f"x{PREFIX}1.2"):
        story.pin(Pin(name, 1000))
    assert story.living == []


def test_only_pins_that_keep_snapshots_are_called_so() -> None:
    command = next_pin(Pins(), START_MS, retention_ms=DAY_MS)
    assert command is not None
    assert is_snapshot_pin(command)
    assert not is_snapshot_pin(Pin("export", 1))
    assert not is_snapshot_pin(Tick())


@given(
    retention_ms=st.integers(1, RETENTION_MS_MAX),
    steps=st.lists(st.integers(1, DAY_MS), min_size=1, max_size=60),
)
def test_whatever_the_pace_a_pin_lives_as_long_as_it_is_wanted_and_lies_before_its_snapshot(
    retention_ms: int, steps: list[int]
) -> None:
    story = Days(retention_ms)
    wanted: dict[str, int] = {}
    for ms in steps:
        story.pass_time(ms)
        story.snapshot()
        wanted |= {each.name: each.until_ms for each in story.living}
        assert {each.name for each in story.living} == {
            name for name, until_ms in wanted.items() if until_ms > story.time_ms
        }
        found = kept(story.made, story.living)
        assert len(found) == len(story.living) <= KEPT_MAX
        for position, pin in found.items():
            assert pin.position < position
            assert pin.set_ms == story.made[position]
            assert story.time_ms - story.made[position] < retention_ms
        if retention_ms >= 10 * MINUTE_MS:
            assert min(story.kept_ages()) < 10 * MINUTE_MS


@pytest.mark.parametrize("every_ms", [MINUTE_MS, 7 * MINUTE_MS, 25 * MINUTE_MS])
def test_there_is_one_of_each_hour_of_a_day(every_ms: int) -> None:
    ages = days(DAY_MS, lasting_ms=2 * DAY_MS, every_ms=every_ms).kept_ages()
    gaps = [after - before for before, after in zip([0, *ages], ages, strict=False)]
    assert max(gaps) <= HOUR_MS + every_ms
    assert ages[-1] >= DAY_MS - HOUR_MS - every_ms
