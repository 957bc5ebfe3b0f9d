"""Whatever transactions did to a topic, the splits of an export hold its committed records, once."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_export.plan.splits import make_splits, next_commit_range, parse_plan
from iceberg_export.records.read_chunks import open_reader, span_bytes
from iceberg_export.records.rows import span_rows
from iceberg_export.tasks.export_split import SplitResult, check_complete
from iceberg_export.verify.reference_rows import reference_rows
from tests.iceberg_export.kit.world import InTransaction, World, some_records

PARTITIONS = 2
PRODUCERS = 3

batches = st.tuples(
    st.integers(0, PARTITIONS - 1),
    st.none() | st.integers(0, PRODUCERS - 1),
    st.integers(1, 3),
)
steps = st.one_of(
    st.lists(batches, min_size=1, max_size=6),
    st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, PRODUCERS - 1), st.booleans()),
)
"""A chunk of batches (partition, producer in a transaction or none, records), or an end."""


def play(world: World, played: list) -> None:
    logs = world.topics["orders"][1]
    for step in played:
        if isinstance(step, tuple):
            partition, producer_id, commit = step
            if producer_id in logs[partition].open:
                world.end("orders", partition, producer_id, commit=commit)
            continue
        parts: dict[int, list] = {}
        for partition, producer_id, count in step:
            records = some_records(count)
            part = records if producer_id is None else InTransaction(producer_id, records)
            parts.setdefault(partition, []).append(part)
        world.commit("orders", parts)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=25), st.data())
def test_exports_in_any_slices_hold_every_committed_record_once(played, data):
    bytes_max = data.draw(st.integers(1, 2_000))
    split_bytes = data.draw(st.integers(1, 2_000))
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.create("orders", PARTITIONS)
        cut = data.draw(st.integers(0, len(played)))
        offsets: dict[int, int] = {}
        found: list[tuple[int, int]] = []
        for part in (played[:cut], played[cut:]):
            play(world, part)
            plan = parse_plan(world.plan("orders"))
            while True:
                commit_range = next_commit_range(
                    plan, offsets, bytes_max=bytes_max, skip_gaps=False
                )
                if commit_range.ends == offsets:
                    break
                offsets = commit_range.ends
                found += rows_of(plan, commit_range, split_bytes)
            logs = world.topics["orders"][1]
            assert offsets == {number: log.stable for number, log in enumerate(logs)}
            wanted = [(p, one.offset) for p, log in enumerate(logs) for one in log.wanted]
            assert sorted(found) == wanted


def rows_of(plan, commit_range, split_bytes: int) -> list[tuple[int, int]]:
    """What the tasks of a commit would write, after the proof that all offsets are accounted for."""
    found, results = [], {}
    splits = make_splits(commit_range.spans, bytes_max=split_bytes, parallelism=2)
    for split in splits:
        tallies = {}
        for span, data in span_bytes(open_reader(plan.store, {}), split.spans):
            compiled = []
            for table, tally, *_ in span_rows(span, data):
                compiled += table["kafka_offset"].to_pylist()
                before = tallies.get(span.partition)
                tallies[span.partition] = tally if before is None else before.plus(tally)
            reference = reference_rows(span, data)
            assert compiled == [
                o for piece in reference for o in piece.rows["kafka_offset"].to_pylist()
            ]
            found += [(span.partition, offset) for offset in compiled]
        rows = sum(tally.rows for tally in tallies.values())
        results[split.number] = SplitResult(split.number, [_File(rows)], tallies)
    assert check_complete(commit_range, results, len(splits)) == len(found)
    return found


class _File:
    """A data file as the proof sees it."""

    def __init__(self, record_count: int) -> None:
        self.record_count = record_count
