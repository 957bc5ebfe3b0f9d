"""What `frazil export reset-offsets` would do, without doing it.

The offsets are checked as by the reset itself. Reads no rows, starts no Spark (to find a time does).
"""

from collections.abc import Mapping

from iceberg_export.plan.agent_client import Topic
from iceberg_export.runs.job import Job
from iceberg_export.upkeep.reset import check_reset


def preview_reset(job: Job, topic: Topic, to: Mapping[int, int] | None) -> str:
    """Returns one sentence. Raises ExportError where the reset would."""
    wanted = check_reset(job, topic, to)
    name, offsets, state = wanted.name, wanted.offsets, wanted.read_state()
    if state is None:
        return f"this would take all rows from {_pairs(offsets)} on out of table {name}"
    ahead = {p: at - state.offsets[p] for p, at in offsets.items() if at > state.offsets.get(p, at)}
    back = {p: state.offsets[p] - at for p, at in offsets.items() if at < state.offsets.get(p, 0)}
    effects = []
    if back:
        effects.append(
            f"take the rows from {_pairs({p: offsets[p] for p in back})} on out of table {name}, "
            f"{sum(back.values())} offsets, for the next run to bring them again"
        )
    if ahead:
        effects.append(
            f"skip {sum(ahead.values())} offsets, until a backfill, before {_pairs({p: offsets[p] for p in ahead})}"
        )
    return f"this would {' and '.join(effects)}" if effects else f"table {name} is there already"


def _pairs(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))
