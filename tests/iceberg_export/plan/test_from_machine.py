"""From a machine's plan to rows: what an agent says and what the exporter does with it fit together.

The JSON of `coordinator.machine.plan_view` over a log with transactions of every kind, through planning,
reading, decoding and the proof: each committed record once, and nothing at or beyond the last
stable offset.
"""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.machine.plan_view import topic_plan
from iceberg_export.plan.splits import TopicPlan, next_commit_range, parse_plan
from tests.broker.fetch.transaction_log import Log, do, steps
from tests.iceberg_export.plan.test_transactions import rows_of


def plan_of(log: Log, store: Path, offsets: dict[int, int]) -> TopicPlan:
    """What an agent tells of the topic, from where the table stands."""
    for chunk, data in log.objects.items():
        path = store / chunk.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    view = topic_plan(log.story.machine, log.topic_id, partitions=offsets or None).view
    address = {"url": f"file://{store}", "endpoint": None, "region": None, "path_style": False}
    return parse_plan(json.loads(json.dumps({**view, "store": address})))


@pytest.mark.promise("P7")
@settings(max_examples=150, deadline=None)
@given(played=steps, data=st.data())
def test_an_agents_plan_becomes_the_committed_records_below_the_last_stable_offset(played, data):
    bytes_max = data.draw(st.integers(1, 2_000))
    split_bytes = data.draw(st.integers(1, 2_000))
    cut = data.draw(st.integers(0, len(played)))
    log = Log()
    offsets: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        for part in (played[:cut], played[cut:]):
            for step in part:
                do(log, step)
            while True:
                plan = plan_of(log, Path(folder), offsets)
                commit_range = next_commit_range(
                    plan, offsets, bytes_max=bytes_max, skip_gaps=False
                )
                if commit_range.ends == offsets:
                    break
                offsets = commit_range.ends
                found += rows_of(plan, commit_range, split_bytes)
            assert offsets == {0: log.row.last_stable}
            assert [offset for _, offset in sorted(found)] == [
                offset for offset, _ in log.seen(committed=True)
            ]
