"""Which of the copies of the export state counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.errors import StateError
from iceberg_export.table.state import (
    LOST_MAX,
    PARTITIONS_PLAIN_MAX,
    Gap,
    LostOffsets,
    SnapshotView,
    State,
    TableView,
    decode_offsets,
    encode_keys,
    encode_offsets,
    has_run,
    joined_lost,
    lost_before,
    read_state,
    told_lost,
)


def state(seq, offset):
    return State("t1", {0: offset}, seq, f"run-{seq}", (Gap(0, 1, 2),))


def keys(seq, offset):
    return encode_keys(state(seq, offset), sequence_number=seq + 1, previous={})


def snapshot(number, parent, summary=None):
    return SnapshotView(number, parent, number, summary or {})


def exported(number, parent, seq, offset):
    return snapshot(number, parent, keys(seq, offset)[1])


def table(head, *snapshots, properties=None):
    return TableView("frazil.orders", head, snapshots, properties or {})


def test_the_nearest_ancestor_with_a_state_wins():
    one = exported(1, None, 0, 0)
    two = exported(2, 1, 1, 10)
    compacted = snapshot(3, 2)
    assert read_state(table(3, one, two, compacted)) == state(1, 10)


def test_a_rollback_rewinds_the_state_though_the_property_does_not():
    one, two = exported(1, None, 0, 0), exported(2, 1, 1, 10)
    found = read_state(table(1, one, two, properties=keys(1, 10)[0]))
    assert found == state(0, 0)._replace(line="run-1>run-0")
    assert found.mark != state(0, 0).mark


def test_the_property_counts_when_history_has_expired():
    survivor = snapshot(9, None)
    assert read_state(table(9, survivor, properties=keys(1, 10)[0])) == state(1, 10)


def test_a_rollback_behind_the_first_known_export_is_refused():
    old = snapshot(1, None)
    with pytest.raises(StateError, match="rolled back behind"):
        read_state(table(1, old, properties=keys(5, 10)[0]))


def test_a_table_without_snapshot_has_no_state_yet():
    assert read_state(table(None)) is None


def test_a_table_that_others_filled_is_refused():
    with pytest.raises(StateError, match="did not make it"):
        read_state(table(1, snapshot(1, None)))


@pytest.mark.parametrize("broken", ["", "[]", "{", '{"0": -1}', '{"0": "x"}', "z:!", "z:AAAA"])
def test_a_state_that_cannot_be_read_is_refused(broken):
    summary = {**keys(1, 1)[1], "frazil.offsets": broken}
    with pytest.raises(StateError, match="cannot be read"):
        read_state(table(1, snapshot(1, None, summary)))


@given(st.dictionaries(st.integers(0, 100_000), st.integers(0, 1 << 62), max_size=500))
def test_offsets_come_back_equal(offsets):
    assert decode_offsets(encode_offsets(offsets)) == offsets


def test_offsets_of_many_partitions_stay_small():
    count = 10_000
    assert count > PARTITIONS_PLAIN_MAX
    assert len(encode_offsets({p: 1_000_000 + p * 7 for p in range(count)})) < 10 * count


def test_a_run_is_found_in_any_snapshot():
    one, two = exported(1, None, 3, 0), exported(2, 1, 4, 10)
    assert has_run(table(2, one, two), "run-3")
    assert not has_run(table(2, one, two), "run-5")


@pytest.mark.parametrize("count", [0, 1, PARTITIONS_PLAIN_MAX, PARTITIONS_PLAIN_MAX + 1])
def test_gaps_are_read_as_they_were_written_also_when_every_partition_has_one(count):
    gaps = tuple(Gap(number, 0, 1 << 40) for number in range(count))
    given = State("ab" * 16, {0: 1}, 1, "r1", gaps=gaps)
    properties, summary = encode_keys(given, sequence_number=1, previous={})
    assert len(summary["frazil.gaps"]) < 25 * (PARTITIONS_PLAIN_MAX + 1)
    found = read_state(TableView("t", 1, [SnapshotView(1, None, 1, summary)], properties))
    assert found.gaps == gaps


@pytest.mark.parametrize("count", [0, 1, PARTITIONS_PLAIN_MAX + 1])
def test_lost_offsets_are_read_as_they_were_written(count):
    lost = tuple(LostOffsets(number, 0, 1 << 40, 1_700_000_000_000) for number in range(count))
    given = State("ab" * 16, {0: 1}, 1, "r1", lost=lost)
    properties, summary = encode_keys(given, sequence_number=1, previous={})
    found = read_state(TableView("t", 1, [SnapshotView(1, None, 1, summary)], properties))
    assert found.lost == lost


def test_a_table_of_a_release_that_knew_of_no_losses_has_none():
    properties, summary = keys(1, 10)
    del summary["frazil.lost"]
    found = read_state(TableView("t", 1, [SnapshotView(1, None, 1, summary)], properties))
    assert found.lost == ()


def test_lost_offsets_that_touch_become_one_and_others_stay_apart():
    lost = joined_lost([LostOffsets(0, 10, 20, 5)], [LostOffsets(0, 20, 30, 7)])
    assert lost == (LostOffsets(0, 10, 30, 7),)
    apart = (LostOffsets(0, 10, 20, 5), LostOffsets(0, 21, 30, 7), LostOffsets(1, 20, 30, 7))
    assert joined_lost(apart[1:], apart[:1]) == apart


def test_of_very_many_lost_offsets_the_newest_are_kept():
    many = [LostOffsets(0, 2 * n, 2 * n + 1, 9_000 - n) for n in range(LOST_MAX + 3)]
    kept = joined_lost((), many)
    assert len(kept) == LOST_MAX
    assert kept[-1].start == 2 * (LOST_MAX - 1)


def test_what_was_lost_behind_the_offsets_that_an_export_goes_back_to_is_forgotten():
    lost = (LostOffsets(0, 10, 20, 5), LostOffsets(0, 30, 40, 5), LostOffsets(1, 30, 40, 5))
    assert lost_before(lost, {0: 15}) == (LostOffsets(0, 10, 15, 5), LostOffsets(1, 30, 40, 5))


def test_lost_offsets_are_told_in_sentences_the_first_ten_of_them():
    lost = [LostOffsets(3, 100 * n, 100 * n + 1 + 99 * (n > 0), 0) for n in range(12)]
    told = told_lost(lost)
    assert told[0] == "partition 3: offset 0 was declared lost on 1970-01-01 00:00:00 UTC"
    assert (
        told[1] == "partition 3: offsets 100 to 199 were declared lost on 1970-01-01 00:00:00 UTC"
    )
    assert told[10:] == ["200 more offsets in 2 places were declared lost"]
