"""From an agent's plan and a table's state to splits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.errors import PlanError
from iceberg_export.plan.splits import (
    PlannedSpan,
    join_parts,
    make_splits,
    merge_plans,
    next_commit_range,
    parse_plan,
)
from iceberg_export.table.state import Gap


def answer(partitions, topic_id="t1"):
    """Partitions: log start, end, spans, and where there were transactions markers, aborted."""
    store = {"url": "file:///x", "endpoint": None, "region": None, "path_style": False}
    parts = [
        {
            "partition": number,
            "log_start": log_start,
            "end": end,
            "stable": end,
            "compacted": False,
            "spans": spans,
            "markers": rest[0] if rest else [],
            "aborted": rest[1] if rest else [],
        }
        for number, (log_start, end, spans, *rest) in partitions.items()
    ]
    return {
        "topic": "orders",
        "topic_id": topic_id,
        "position": 7,
        "store": store,
        "partitions": parts,
    }


def rows(*lengths, base=0, size=1000):
    spans = []
    for number, length in enumerate(lengths):
        spans.append([f"chunks/a/{number:08x}", 0, size, base, length, -1])
        base += length
    return spans


def work_of(partitions, offsets, bytes_max=1 << 40, skip_gaps=False):
    plan = parse_plan(answer(partitions))
    return next_commit_range(plan, offsets, bytes_max=bytes_max, skip_gaps=skip_gaps)


def test_a_new_table_begins_at_the_logs_start():
    commit_range = work_of({0: (5, 15, rows(10, 5)), 1: (0, 0, [])}, {})
    assert commit_range.starts == {0: 5, 1: 0}
    assert commit_range.ends == {0: 15, 1: 0}
    assert [(span.offset_from, span.offset_to) for span in commit_range.spans] == [
        (5, 10),
        (10, 15),
    ]


def test_a_table_that_is_up_to_date_has_no_work():
    commit_range = work_of({0: (0, 15, rows(10, 5))}, {0: 15})
    assert commit_range.spans == ()
    assert commit_range.ends == {0: 15}


def test_nothing_beyond_the_last_stable_offset_is_planned():
    commit_range = work_of({0: (0, 12, rows(10, 5))}, {0: 0})
    assert commit_range.ends == {0: 12}
    assert commit_range.spans[-1].offset_to == 12


def test_markers_fill_the_offsets_between_spans():
    spans = rows(3) + rows(4, base=5) + rows(1, base=10)
    commit_range = work_of({0: (0, 12, spans, [3, 4, 9, 11], [])}, {0: 0})
    assert commit_range.ends == {0: 12}
    assert commit_range.markers == {0: 4}
    assert [(span.offset_from, span.offset_to) for span in commit_range.spans] == [
        (0, 3),
        (5, 9),
        (10, 11),
    ]


def test_offsets_that_are_markers_alone_are_work_without_spans():
    commit_range = work_of({0: (0, 6, rows(4), [4, 5], [])}, {0: 4})
    assert (commit_range.spans, commit_range.ends, commit_range.markers) == ((), {0: 6}, {0: 2})


def test_a_limit_of_bytes_takes_the_markers_behind_a_span_along():
    spans = rows(3) + rows(4, base=5)
    parts = {0: (0, 10, spans, [3, 4, 9], [])}
    first = work_of(parts, {0: 0}, bytes_max=1)
    assert (first.ends, first.markers) == ({0: 5}, {0: 2})
    second = work_of(parts, first.ends, bytes_max=1)
    assert (second.starts, second.ends, second.markers) == ({0: 5}, {0: 10}, {0: 1})


def test_a_marker_beyond_the_end_or_before_the_start_counts_for_nothing():
    commit_range = work_of({0: (0, 4, rows(2) + rows(1, base=3), [2, 9], [])}, {0: 3})
    assert (commit_range.ends, commit_range.markers) == ({0: 4}, {})


@pytest.mark.parametrize(
    ("spans", "markers"),
    [
        (rows(3) + rows(4, base=5), [3]),
        (rows(3), [4]),
        (rows(5), [3]),
        ([], [1, 2]),
    ],
)
def test_markers_that_leave_a_hole_or_lie_in_a_span_are_refused(spans, markers):
    with pytest.raises(PlanError, match="hole"):
        work_of({0: (0, 5, spans, markers, [])}, {0: 0})


def work_of_pieces(*pieces):
    """Each as in `answer`; planned one after the other."""
    first, *rest = [parse_plan(answer({0: one})) for one in pieces]
    part = first.partitions[0]
    for one in rest:
        part = join_parts(part, one.partitions[0])
    plan = first._replace(partitions={0: part})
    return next_commit_range(plan, {}, bytes_max=1 << 40, skip_gaps=False)


def merged(base, end, size=1000):
    return [["segments/a/00000000", 0, size, base, end - base, -1]]


@pytest.mark.parametrize("base", [0, 5, 10, 20, 21])
@pytest.mark.parametrize("marker_again", [True, False])
def test_each_piece_of_a_plan_holds_for_its_own_offsets(base, marker_again):
    """Rows of the first were merged with those behind them, and the end of a transaction with
    them; or it is told twice, in both."""
    pieces = [
        (0, 21, rows(10, 10), [20], []),
        (0, 41, merged(base, 41), [20] if marker_again else [], []),
    ]
    commit_range = work_of_pieces(*pieces)
    assert (commit_range.ends, commit_range.markers) == ({0: 41}, {0: 1})
    assert [(one.key[:3], one.offset_from, one.offset_to) for one in commit_range.spans] == [
        ("chu", 0, 10),
        ("chu", 10, 20),
        ("seg", 21, 41),
    ]
    # In order of the offsets wanted, whichever begins first.
    (split,) = make_splits([*reversed(commit_range.spans)], bytes_max=1 << 40, parallelism=1)
    assert split.spans == commit_range.spans


def test_what_a_piece_says_of_offsets_before_its_own_fills_no_hole():
    with pytest.raises(PlanError, match="hole at offset 10"):
        work_of_pieces((0, 21, rows(10), [20], []), (0, 41, merged(0, 41), [], []))


@pytest.mark.promise("P7")
def test_a_plan_ends_where_records_went_before_its_next_piece_was_asked_for():
    """What is left of the first piece is exported; the next plan begins with the gap, and says so."""
    work = work_of_pieces((0, 10, rows(10)), (15, 25, rows(10, base=15)))
    assert work.ends == {0: 10}
    assert [(one.offset_from, one.offset_to) for one in work.spans] == [(0, 10)]


def test_a_span_that_ends_before_the_piece_it_is_told_in_is_left_aside():
    commit_range = work_of_pieces((0, 10, rows(10)), (0, 15, rows(4, 6, 5)))
    assert [(one.offset_from, one.offset_to) for one in commit_range.spans] == [(0, 10), (10, 15)]


def test_ranges_that_reach_into_the_offsets_wanted_are_told_and_no_others():
    """Of a span that begins before the piece it is told in."""
    pieces = [
        (0, 21, rows(20), [20], [[1, 4, 20], [2, 8, 30]]),
        (0, 41, merged(0, 41), [], [[2, 8, 30], [3, 25, 40]]),
    ]
    assert [
        [one.producer_id for one in span.aborted] for span in work_of_pieces(*pieces).spans
    ] == [
        [1, 2],
        [2, 3],
    ]


def test_spans_are_told_what_was_aborted_among_the_offsets_wanted():
    # A long one over all, two short ones, and one that is told of but long over.
    aborted = [[1, 0, 40], [2, 3, 8], [3, 12, 19], [4, 0, 2]]
    spans = rows(8) + rows(10, base=9) + rows(20, base=20)
    parts = {0: (0, 41, spans, [8, 19, 40], sorted(aborted, key=lambda one: one[1]))}
    assert [[one.producer_id for one in span.aborted] for span in work_of(parts, {0: 0}).spans] == [
        [1, 4, 2],
        [1, 3],
        [1],
    ]
    (first, *_) = work_of(parts, {0: 5}).spans
    assert [one.producer_id for one in first.aborted] == [1, 2]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=30),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(1, 30)), max_size=10),
    st.data(),
)
def test_a_span_is_told_of_exactly_the_ranges_that_reach_into_it(shape, drawn, data):
    """`shape`: a marker or a span of so many offsets, one after the other."""
    spans, markers, end = [], [], 0
    for kind, length in shape:
        if kind == 0:
            markers.append(end)
            end += 1
        else:
            spans += rows(length, base=end)
            end += length
    aborted = sorted([pid, first, first + length] for pid, first, length in drawn)
    aborted.sort(key=lambda one: one[1])
    start = data.draw(st.integers(0, end))
    bytes_max = data.draw(st.integers(1, 5000))
    commit_range = work_of({0: (0, end, spans, markers, aborted)}, {0: start}, bytes_max=bytes_max)
    for span in commit_range.spans:
        assert [list(one) for one in span.aborted] == [
            one for one in aborted if one[1] < span.offset_to and one[2] > span.offset_from
        ]
    covered = sum(span.offset_to - span.offset_from for span in commit_range.spans)
    assert covered + commit_range.markers.get(0, 0) == commit_range.ends[0] - start
    assert commit_range.ends[0] > start or start == end


def test_a_hole_between_spans_is_refused():
    spans = rows(10) + rows(5, base=11)
    with pytest.raises(PlanError, match="hole at offset 10"):
        work_of({0: (0, 16, spans)}, {})


def test_spans_that_end_before_the_logs_end_are_refused():
    with pytest.raises(PlanError, match="hole at offset 10"):
        work_of({0: (0, 11, rows(10))}, {})


def test_records_deleted_before_export_are_refused():
    with pytest.raises(PlanError, match="offsets 3 to 4 were deleted before they were exported"):
        work_of({0: (5, 15, rows(10, 5))}, {0: 3})


def test_records_deleted_before_export_are_stepped_over_when_allowed():
    commit_range = work_of({0: (5, 15, rows(10, 5))}, {0: 3}, skip_gaps=True)
    assert commit_range.gaps == (Gap(partition=0, start=3, end=5),)
    assert commit_range.starts == {0: 5}


def test_a_table_ahead_of_the_log_is_refused():
    with pytest.raises(PlanError, match="this is not the cluster"):
        work_of({0: (0, 10, rows(10))}, {0: 11})


def test_a_partition_missing_from_the_plan_is_refused():
    with pytest.raises(PlanError, match="leaves out partition 1"):
        work_of({0: (0, 10, rows(10))}, {0: 0, 1: 0})


def test_a_limit_of_bytes_cuts_between_spans_and_never_starves_a_partition():
    parts = {0: (0, 30, rows(10, 10, 10)), 1: (0, 10, rows(10))}
    commit_range = work_of(parts, {}, bytes_max=100)
    assert commit_range.ends == {0: 10, 1: 10}
    again = work_of(parts, commit_range.ends, bytes_max=2000)
    assert again.ends == {0: 30, 1: 10}


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {**answer({}), "store": None},
        {**answer({}), "partitions": [{"partition": 0}]},
        answer({0: (0, 1, [["k", 0, 1]])}),
        answer({0: (0, 1, [["k", -1, 1, 0, 1, -1]])}),
        answer({0: (0, 1, [["k", 0, 1, 0, 0, -1]])}),
        answer({0: (0, 1, [["/etc/passwd", 0, 1, 0, 1, -1]])}),
        answer({0: (0, 1, [["chunks/../../etc/passwd", 0, 1, 0, 1, -1]])}),
        answer({0: (0, 1, rows(1), None, [])}),
        answer({0: (0, 1, rows(1), [], [[1, 2]])}),
    ],
)
def test_an_answer_that_is_no_plan_is_refused(broken):
    with pytest.raises(PlanError):
        parse_plan(broken)


def test_plans_of_a_topic_that_was_re_created_meanwhile_are_refused():
    plans = [parse_plan(answer({0: (0, 0, [])})), parse_plan(answer({1: (0, 0, [])}, "t2"))]
    with pytest.raises(PlanError, match="re-created"):
        merge_plans(plans)


spans_drawn = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 1 << 20)), max_size=60
)


@given(spans_drawn, st.integers(1, 1 << 22), st.integers(1, 8))
def test_splits_hold_every_span_once_in_order(drawn, bytes_max, parallelism):
    bases: dict[int, int] = {}
    spans = []
    for place, (partition, chunk, length) in enumerate(drawn):
        base = bases.get(partition, 0)
        bases[partition] = base + 1
        key = f"chunks/a/{chunk:08x}"
        spans.append(
            PlannedSpan(partition, key, place * (1 << 20), length, base, 1, base, base + 1)
        )
    splits = make_splits(spans, bytes_max=bytes_max, parallelism=parallelism)
    assert [split.number for split in splits] == list(range(len(splits)))
    assert sorted(span for split in splits for span in split.spans) == sorted(spans)
    for split in splits:
        order = [(span.partition, span.base_offset) for span in split.spans]
        assert order == sorted(order)


def test_short_spans_are_split_by_chunk_so_that_each_object_is_read_once():
    spans = [
        PlannedSpan(
            partition, f"chunks/a/{chunk:08x}", partition * 10, 10, chunk, 1, chunk, chunk + 1
        )
        for chunk in range(4)
        for partition in range(5)
    ]
    splits = make_splits(spans, bytes_max=60, parallelism=1)
    chunks = [{span.key for span in split.spans} for split in splits]
    assert sum(len(keys) for keys in chunks) == 4


def test_long_spans_are_split_by_partition():
    spans = [
        PlannedSpan(
            partition, f"chunks/a/{chunk:08x}", partition << 23, 1 << 23, chunk, 1, chunk, chunk + 1
        )
        for chunk in range(4)
        for partition in range(2)
    ]
    splits = make_splits(spans, bytes_max=4 << 23, parallelism=1)
    assert [{span.partition for span in split.spans} for split in splits] == [{0}, {1}]
