"""From a machine whose rows jobs rearrange to rows of a table: planned in pieces, holes counted.

Jobs run between the pieces of a plan. A pin keeps objects that are in a plan, so here nothing is
deleted; a plan made before a job and read after it must be as good as a new one.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.machine.plan_view import topic_plan
from iceberg_export.dead_letters.counts import LetterCounts
from iceberg_export.errors import CorruptSpanError, PlanError
from iceberg_export.plan.splits import (
    PlannedSpan,
    Split,
    TopicPlan,
    join_parts,
    next_commit_range,
    parse_plan,
)
from iceberg_export.records.decode import Tally
from iceberg_export.records.rows import ROW_SCHEMA, span_rows
from iceberg_export.runs.status import topic_status
from iceberg_export.typed.typed_rows import RowTyping
from iceberg_export.verify.proof import (
    ChunkTask,
    _in_holes,
    sum_chunks,
)
from iceberg_export.verify.reference_rows import reference_rows
from protocol.records import Record, build_batch, empty_batch
from tests.broker.fetch.layers import LayeredLog, play, steps
from tests.iceberg_export.kit.place import place
from tests.iceberg_export.kit.world import some_records
from tests.iceberg_export.plan.test_transactions import rows_of


class PinnedLog(LayeredLog):
    """Objects stay, whatever nothing points at."""

    def collect(self) -> None:
        pass


def piece(log: PinnedLog, store: Path, start: int | None, rows_max: int) -> TopicPlan:
    """What an agent tells in one answer, pages read as the endpoint reads them."""
    for object_id, data in log.objects.items():
        path = store / object_id.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    read: dict = {}
    while True:
        plan = topic_plan(
            log.story.machine,
            log.topic_id,
            partitions=None if start is None else {0: start},
            pages=read.get,
            rows_max=rows_max,
        )
        if not plan.missing:
            break
        read |= {page: log.rows_of(page) for page in plan.missing}
    address = {"url": f"file://{store}", "endpoint": None, "region": None, "path_style": False}
    return parse_plan(json.loads(json.dumps({**plan.view, "store": address})))


def whole_plan(log: PinnedLog, store: Path, start: int | None, rows_max: int, between) -> TopicPlan:
    """As `AgentClient.plan`; `between` is called between two pieces."""
    plan = piece(log, store, start, rows_max)
    part = plan.partitions[0]
    while part.end < part.stable:
        between()
        more = piece(log, store, part.end, rows_max).partitions[0]
        assert more.end > part.end
        part = join_parts(part, more)
    return plan._replace(partitions={0: part})


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(played=steps, data=st.data())
def test_every_committed_record_that_is_left_is_exported_once_whatever_jobs_do(played, data):
    log = PinnedLog()
    ahead = [step for step in played if step != "fetch"]
    offsets: dict[int, int] = {}
    found: list[tuple[int, int]] = []

    def between() -> None:
        if ahead:
            play(log, ahead.pop(0))

    with tempfile.TemporaryDirectory() as folder:
        while True:
            for _ in range(data.draw(st.integers(1, 12))):
                between()
            rows_max = data.draw(st.integers(1, 6))
            plan = whole_plan(log, Path(folder), offsets.get(0), rows_max, between)
            commit_range = next_commit_range(
                plan, offsets, bytes_max=data.draw(st.integers(1, 2_000)), skip_gaps=True
            )
            if commit_range.ends == offsets and not ahead:
                break
            offsets = commit_range.ends
            # Tasks that have whole objects are not in the order of offsets.
            found += sorted(rows_of(plan, commit_range, data.draw(st.integers(1, 2_000))))
    assert offsets == {0: log.row.last_stable}
    exported = [offset for _, offset in found]
    assert exported == sorted(set(exported))
    left = {offset for offset, _ in log.seen(committed=True) if offset >= log.row.log_start}
    assert left <= set(exported)
    assert set(exported) <= {offset for offset, _ in [*log.committed, *log.removed]}


def test_a_plan_of_many_rows_is_told_in_pieces():
    log = PinnedLog()
    for _ in range(10):
        log.write([(None, 1)])
    log.spill(0, 6)
    view = topic_plan(log.story.machine, log.topic_id, rows_max=4)
    assert [page.rows for page in view.missing] == [6]
    with tempfile.TemporaryDirectory() as folder:
        first = piece(log, Path(folder), None, 4).partitions[0]
        assert (first.end, first.stable, len(first.spans)) == (4, 10, 4)
        calls = []
        plan = whole_plan(log, Path(folder), None, 4, lambda: calls.append(1))
    assert len(calls) == 2
    assert [span.base_offset for span in plan.partitions[0].spans] == list(range(10))


def test_a_log_that_begins_later_than_the_next_piece_ends_the_plan_there():
    log = PinnedLog()
    for _ in range(10):
        log.write([(None, 1)])
    with tempfile.TemporaryDirectory() as folder:
        plan = whole_plan(log, Path(folder), None, 4, lambda: log.trim(70))
        part = plan.partitions[0]
        assert (part.end, part.stable) == (4, 4)
        assert next_commit_range(plan, {}, bytes_max=1 << 30, skip_gaps=False).ends == {0: 4}
        later = piece(log, Path(folder), 4, 100)
        with pytest.raises(PlanError, match="deleted before they were exported"):
            next_commit_range(later, {0: 4}, bytes_max=1 << 30, skip_gaps=False)


def log_with_transactions() -> PinnedLog:
    """Seven rows: 0-1 plain, 2-3 committed, 4 its end, 5-6 aborted, 7 its end, 8-10 of both kinds
    (8 aborted), 11 its end."""
    log = PinnedLog()
    log.write([(None, 2)])
    log.write([(0, 2)])
    log.end(0, "commit")
    log.write([(1, 2)])
    log.end(1, "abort")
    log.write([(2, 1), (None, 2)])
    log.end(2, "abort")
    return log


@pytest.mark.parametrize("rows_max", range(1, 7))
def test_rows_merged_between_two_pieces_of_a_plan_are_exported_once(rows_max, tmp_path):
    """Whichever they are: a segment may begin before the piece it is told in, and take offsets of
    ends of transactions that the piece before has told as such."""
    for first in range(7):
        for rows in range(2, 8 - first):
            log = log_with_transactions()
            jobs = [lambda log=log, first=first, rows=rows: log.merge(first, rows)]
            folder = tmp_path / f"{first}-{rows}"
            plan = whole_plan(log, folder, None, rows_max, lambda jobs=jobs: jobs and jobs.pop()())
            assert jobs == []
            commit_range = next_commit_range(plan, {}, bytes_max=1 << 30, skip_gaps=False)
            assert (commit_range.ends, commit_range.offset_count) == ({0: 12}, 12)
            assert sorted(rows_of(plan, commit_range, 1)) == [
                (0, one) for one in (0, 1, 2, 3, 9, 10)
            ]


def test_a_plan_with_such_a_segment_is_done_in_commits_of_any_size(tmp_path):
    log = log_with_transactions()
    jobs = [lambda: log.merge(0, 6)]
    plan = whole_plan(log, tmp_path, None, 3, lambda: jobs and jobs.pop()())
    assert [span.offset_from for span in plan.partitions[0].spans] == [0, 2, 5]
    offsets: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    ends = []
    while offsets != {0: 12}:
        commit_range = next_commit_range(plan, offsets, bytes_max=1, skip_gaps=False)
        offsets = commit_range.ends
        ends.append(commit_range.ends[0])
        found += rows_of(plan, commit_range, 1)
    assert ends == [2, 5, 12]
    assert found == [(0, one) for one in (0, 1, 2, 3, 9, 10)]


def segment_span(data: bytes, base: int, end: int, offset_from: int = -1) -> PlannedSpan:
    return PlannedSpan(
        partition=0,
        key="segments/1/0",
        start=0,
        length=len(data),
        base_offset=base,
        records=end - base,
        offset_from=max(base, offset_from),
        offset_to=end,
    )


def at(offset: int, *deltas: int) -> bytes:
    records = [Record(offset + delta, 1, b"k", b"%d" % (offset + delta)) for delta in deltas]
    return build_batch(records, base_offset=offset)


def decoded(span: PlannedSpan, data: bytes) -> tuple[list[int], Tally]:
    offsets: list[int] = []
    total = Tally()
    for rows, tally, *_ in span_rows(span, memoryview(data)):
        offsets += rows.column("kafka_offset").to_pylist()
        total = total.plus(tally)
    assert total.offsets == span.records
    reference = reference_rows(span, memoryview(data))
    assert offsets == [one for piece in reference for one in piece.rows["kafka_offset"].to_pylist()]
    return offsets, total


def test_holes_before_between_and_within_batches_are_counted():
    data = at(105, 0, 3) + at(120, 0) + empty_batch(129)
    offsets, tally = decoded(segment_span(data, 100, 130), data)
    assert offsets == [105, 108, 120]
    assert (tally.rows, tally.holes) == (3, 27)


def test_a_span_that_is_wanted_from_within_a_hole_gives_what_follows():
    data = at(105, 0, 3) + at(120, 0) + empty_batch(129)
    offsets, tally = decoded(segment_span(data, 100, 130, offset_from=110), data)
    assert offsets == [120]
    assert tally.outside == 2


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (at(105, 0, 3) + at(108, 0), "comes after"),
        (at(99, 0) + empty_batch(129), "comes after"),
        (at(105, 0), "the log says"),
        (at(105, 0) + empty_batch(130), "the log says"),
    ],
)
def test_a_segment_whose_offsets_are_not_the_logs_is_refused(data, sentence):
    with pytest.raises(CorruptSpanError, match=sentence):
        decoded(segment_span(data, 100, 130), data)


def test_rows_that_compaction_removed_are_told_from_rows_that_should_not_be(tmp_path):
    data = at(105, 0, 3) + at(120, 0) + empty_batch(129)
    (tmp_path / "segments/1").mkdir(parents=True)
    (tmp_path / "segments/1/0").write_bytes(data)
    log = PinnedLog()
    log.write([(None, 1)])
    plan = piece(log, tmp_path, None, 10)
    split = Split(0, (segment_span(data, 100, 130, offset_from=102),))
    task = ChunkTask(plan.store, {}, split, False, frozenset([0]), RowTyping(), ROW_SCHEMA, {})
    holes = sum_chunks(task, 0).holes
    assert holes[0].tolist() == [[102, 106, 109, 121], [105, 108, 120, 130]]
    assert sum_chunks(task._replace(compacted=frozenset()), 0).holes == {}
    rows = pa.table({"kafka_offset": pa.array(range(100, 132), pa.int64())})
    gone = np.arange(100, 132)[_in_holes(rows, holes[0])].tolist()
    assert gone == [one for one in range(102, 130) if one not in {105, 108, 120}]


def test_what_agents_tell_in_pieces_is_exported_whole(here):
    world = here.world
    for number in range(7):
        world.commit("orders", {0: [some_records(2, number)], 1: [some_records(1, number)]})
    world.rows_max = 2
    assert here.export().rows == 21
    asked = [one for one in world.requests if one.startswith("GET /export/plan")]
    assert len(asked) == 1 + 3 + 3
    job = here.job()
    assert {row.lag for row in topic_status(job, here.topic(job), LetterCounts()).partitions} == {0}
    assert here.verify().records == 21


@pytest.fixture
def alone():
    with place(1) as found:
        yield found


def test_only_as_much_of_a_plan_is_asked_for_as_a_commit_takes(alone):
    for number in range(8):
        alone.world.commit("orders", {0: [some_records(2, number)]})
    alone.world.rows_max = 2
    job = alone.job()
    plan = job.client.plan(alone.topic(job), {}, bytes_enough=1)
    assert (plan.partitions[0].end, plan.partitions[0].stable) == (4, 16)
    report = alone.export("commit.bytes.max=1")
    assert (report.rows, report.commits) == (16, 8)


def test_a_compacted_log_is_verified_for_what_it_still_has(alone):
    alone.fill(20)
    alone.export()
    alone.world.compact("orders", 0, {3, 4, 11})
    verdict = alone.verify()
    assert (verdict.records, verdict.older, verdict.problems) == (3, 17, ())
    # A table that lacks what the log still has is found out.
    log = alone.log()
    log.records[1] = log.records[1]._replace(value=b"another")
    alone.world.compact("orders", 0, {3, 4, 11})
    assert len(alone.verify().problems) == 1
    # Without compaction nothing may be missing from the log.
    log.compacted = False
    assert len(alone.verify().problems) == 1
