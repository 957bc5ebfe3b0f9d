"""What `frazil export reset-offsets` would do: looked at and told, and not done.

The offsets are checked as by the reset itself. Reads no rows, starts no Spark.
"""

from collections.abc import Mapping

from iceberg_export.errors import StateError
from iceberg_export.plan.agent_client import Topic
from iceberg_export.plan.splits import check_not_ahead
from iceberg_export.runs.job import Job, table_identifier
from iceberg_export.table.catalog import find_table, view_of
from iceberg_export.table.state import read_state
from iceberg_export.upkeep.reset import check_offsets


def preview_reset(job: Job, topic: Topic, to: Mapping[int, int] | None) -> str:
    """One sentence. Raises ExportError where the reset would."""
    identifier = table_identifier(job, topic)
    name = ".".join(identifier)
    table = find_table(job.catalog, identifier)
    if table is None:
        raise StateError(f"topic {topic.name} has no table {name} yet: there is nothing to reset")
    plan = job.client.plan(topic, {}, bytes_enough=0)
    offsets = check_offsets(
        to, {p: (part.log_start, part.stable) for p, part in plan.partitions.items()}
    )
    try:
        state = read_state(view_of(table))
    except StateError:
        state = None
    check_not_ahead(plan, {**(state.offsets if state else {}), **offsets})
    if state is None:
        return f"this would take all rows from {_pairs(offsets)} on out of table {name}"
    ahead = {p: at - state.offsets[p] for p, at in offsets.items() if at > state.offsets.get(p, at)}
    back = {p: state.offsets[p] - at for p, at in offsets.items() if at < state.offsets.get(p, 0)}
    said = []
    if back:
        said.append(
            f"take the rows from {_pairs({p: offsets[p] for p in back})} on out of table {name}, "
            f"{sum(back.values())} offsets, for the next run to bring them again"
        )
    if ahead:
        said.append(
            f"skip {sum(ahead.values())} offsets for good before {_pairs({p: offsets[p] for p in ahead})}"
        )
    return f"this would {' and '.join(said)}" if said else f"table {name} is there already"


def _pairs(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))
