"""What is said of snapshots in a store: why each is there, and until when."""

import pytest

from broker.reports import backup_report
from broker.reports.backup_report import Reason, Why, age, lines, size
from coordinator.snapshot.keeping import SnapshotPin
from coordinator.snapshot.manifest import Manifest, StoredSnapshot, manifest_key
from protocol.types import Position, era_of, first_position

NOW_MS = 1_000_000


def stored(position: int, *pins: SnapshotPin, readable: bool = True) -> StoredSnapshot:
    at = Position(position)
    manifest = Manifest("c", 1, at, bytes(16), NOW_MS - 1000 + position, (), pins)
    trouble = "" if readable else "it is not JSON"
    return StoredSnapshot(at, manifest_key(at), 10, NOW_MS, manifest if readable else None, trouble)


def reasons(found: list[StoredSnapshot], now_ms: int) -> list[Reason]:
    """Where all eras have begun."""
    eras = {era_of(each.position) for each in found}
    return backup_report.reasons(found, now_ms, eras=eras)


def pin(position: int, until_ms: int) -> SnapshotPin:
    return SnapshotPin(Position(position), 1, until_ms, until_ms)


def test_the_two_newest_are_what_agents_start_from_and_pins_keep_others() -> None:
    pins = [pin(1, NOW_MS + 5), pin(11, NOW_MS), pin(31, NOW_MS + 9)]
    found = [stored(40, *pins), stored(30), stored(20), stored(10), stored(2)]
    assert reasons(found, NOW_MS) == [
        Reason(Why.NEWEST, NOW_MS + 9),
        Reason(Why.OLDER, None),
        Reason(Why.LEFT, NOW_MS),
        Reason(Why.LEFT, None),
        Reason(Why.KEPT, NOW_MS + 5),
    ]
    assert [each.is_kept for each in reasons(found, NOW_MS)] == [True, True, False, False, True]


def test_where_an_era_has_one_snapshot_those_of_the_era_before_are_no_second_choice_of_agents() -> (
    None
):
    begun = first_position(2)
    before = [stored(20), stored(10)]
    whys = [each.why for each in reasons([stored(begun), *before], NOW_MS)]
    assert whys == [Why.NEWEST, Why.BEFORE, Why.BEFORE]
    whys = [each.why for each in reasons([stored(begun + 5), stored(begun), *before], NOW_MS)]
    assert whys == [Why.NEWEST, Why.OLDER, Why.LEFT, Why.LEFT]


def test_what_a_recovery_left_that_was_given_up_is_nobody_s_newest_and_its_pins_do_not_count() -> (
    None
):
    left = stored(first_position(2), pin(1, NOW_MS + 5))
    found = [left, stored(30), stored(20), stored(10)]
    told = backup_report.reasons(found, NOW_MS, eras={0, 1, 3})
    assert [each.why for each in told] == [Why.GIVEN_UP, Why.NEWEST, Why.OLDER, Why.LEFT]
    assert [each.is_kept for each in told] == [False, True, True, False]


def test_pins_that_an_older_manifest_names_do_not_count() -> None:
    found = [stored(40), stored(30), stored(20, pin(1, NOW_MS + 5))]
    assert reasons(found, NOW_MS)[-1] == Reason(Why.LEFT, None)


def test_one_that_cannot_be_read_is_passed_over_for_the_next() -> None:
    found = [stored(40, readable=False), stored(30), stored(20), stored(10)]
    whys = [each.why for each in reasons(found, NOW_MS)]
    assert whys == [Why.DAMAGED, Why.NEWEST, Why.OLDER, Why.LEFT]


def test_without_snapshots_there_is_nothing_to_tell() -> None:
    assert reasons([], NOW_MS) == []
    assert lines([], [], NOW_MS, str) == ["there are no snapshots"]


def test_a_line_says_until_when_and_why() -> None:
    found = [stored(40, pin(31, NOW_MS + 9)), stored(30), stored(20, readable=False)]
    _, *told = lines(found, reasons(found, NOW_MS), NOW_MS, lambda ms: f"@{ms}")
    assert told[0].split("  ")[-1] == f"agents start from it; until @{NOW_MS + 9}"
    assert told[1].startswith("0:30")
    assert f"@{NOW_MS - 970}" in told[1]
    assert told[2].split() == ["0:20", "-", "-", "10", "bytes", *Why.DAMAGED.value.split()]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0 s"),
        (119_999, "119 s"),
        (120_000, "2 min"),
        (7_199_999, "119 min"),
        (7_200_000, "2 h"),
        (172_800_000, "2 d"),
    ],
)
def test_an_age_is_said_in_the_largest_unit_of_which_there_are_two(ms: int, text: str) -> None:
    assert age(ms) == text


def test_a_size_has_three_digits() -> None:
    assert [size(each) for each in (0, 1023, 1024, 123_456_789)] == [
        "0 bytes",
        "1023 bytes",
        "1 KiB",
        "118 MiB",
    ]
