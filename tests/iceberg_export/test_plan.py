"""From an agent's plan and a table's state to splits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.errors import PlanError
from iceberg_export.plan import PlannedSpan, make_splits, merge_plans, next_work, parse_plan
from iceberg_export.state import Gap


def answer(partitions, topic_id="t1"):
    store = {"url": "file:///x", "endpoint": None, "region": None, "path_style": False}
    parts = [
        {"partition": number, "log_start": log_start, "end": end, "spans": spans}
        for number, (log_start, end, spans) in partitions.items()
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
    return next_work(plan, offsets, bytes_max=bytes_max, skip_gaps=skip_gaps)


def test_a_new_table_begins_at_the_logs_start():
    work = work_of({0: (5, 15, rows(10, 5)), 1: (0, 0, [])}, {})
    assert work.starts == {0: 5, 1: 0}
    assert work.ends == {0: 15, 1: 0}
    assert [(span.offset_from, span.offset_to) for span in work.spans] == [(5, 10), (10, 15)]


def test_a_table_that_is_up_to_date_has_no_work():
    work = work_of({0: (0, 15, rows(10, 5))}, {0: 15})
    assert work.spans == ()
    assert work.ends == {0: 15}


def test_nothing_beyond_the_last_stable_offset_is_planned():
    work = work_of({0: (0, 12, rows(10, 5))}, {0: 0})
    assert work.ends == {0: 12}
    assert work.spans[-1].offset_to == 12


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
    work = work_of({0: (5, 15, rows(10, 5))}, {0: 3}, skip_gaps=True)
    assert work.gaps == (Gap(partition=0, start=3, end=5),)
    assert work.starts == {0: 5}


def test_a_table_ahead_of_the_log_is_refused():
    with pytest.raises(PlanError, match="is this the cluster"):
        work_of({0: (0, 10, rows(10))}, {0: 11})


def test_a_partition_missing_from_the_plan_is_refused():
    with pytest.raises(PlanError, match="leaves out partition 1"):
        work_of({0: (0, 10, rows(10))}, {0: 0, 1: 0})


def test_a_limit_of_bytes_cuts_between_spans_and_never_starves_a_partition():
    parts = {0: (0, 30, rows(10, 10, 10)), 1: (0, 10, rows(10))}
    work = work_of(parts, {}, bytes_max=100)
    assert work.ends == {0: 10, 1: 10}
    again = work_of(parts, work.ends, bytes_max=2000)
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
