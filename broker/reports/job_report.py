"""The report of the jobs: JSON by an agent, a table for people. Pure.

All of it is in the machine, so every agent says the same, whichever has the jobs. Left out: asking
for it (`broker.cli.job_tool`).
"""

from collections.abc import Mapping
from typing import Any, Final

from broker.reports.log_lines import place
from broker.reports.tables import Cell, table
from coordinator.commands.job_commands import JobKind
from coordinator.machine.machine import Machine

_COLUMNS: Final = ("JOB", "AGENT", "STATE", "DONE", "TOTAL", "REPORTED", "NOTE")


def job_kind(name: str) -> JobKind | None:
    """The kind of that name, as people write it."""
    return JobKind.__members__.get(name.upper())


def names() -> str:
    return ", ".join(kind.name.lower() for kind in JobKind)


def jobs_view(machine: Machine, *, log_bytes: int, log_bytes_max: int) -> dict[str, Any]:
    """The jobs, the snapshots, and how far the log has grown since the older one."""
    return {
        "time_ms": machine.time_ms,
        "position": machine.position,
        "jobs": [_job_view(machine, kind) for kind in JobKind],
        "snapshots": [
            {"position": each.position, "published_at": each.published_at, "key": each.key}
            for each in machine.snapshots.published
        ],
        "log_bytes": log_bytes,
        "log_bytes_max": log_bytes_max,
    }


def _job_view(machine: Machine, kind: JobKind) -> dict[str, Any]:
    row = machine.jobs.get(kind)
    holder = machine.incarnations.get(row.holder)
    return {
        "job": kind.name.lower(),
        "node_name": None if holder is None else holder.node_name,
        "node_id": None if holder is None else holder.node_id,
        "running": row.running,
        "done": row.done,
        "total": row.total,
        "note": row.note,
        "claimed": row.claimed,
        "requested": row.requested,
        "reported_ms": row.reported_ms,
    }


def lines(view: Mapping[str, Any], *, now_ms: int) -> list[str]:
    """The view, for people, by a clock that is not behind the cluster's."""
    # The machine's time stands still while nothing is written.
    now_ms = max(now_ms, view["time_ms"])
    snapshots = [place(each["position"]) for each in view["snapshots"]]
    where = f"at {' and '.join(snapshots)}" if snapshots else "none yet"
    size = f"{view['log_bytes']} bytes of {view['log_bytes_max']}"
    return [
        f"snapshots: {where}; log since the older: {size}",
        "",
        *table(_COLUMNS, [_row(job, now_ms) for job in view["jobs"]]),
    ]


def _state(job: Mapping[str, Any]) -> str:
    if job["running"]:
        return "running"
    if job["node_name"] is None:
        return "free"
    if job["requested"] >= job["claimed"] and not job["reported_ms"]:
        return "asked for"
    return "waiting"


def _row(job: Mapping[str, Any], now_ms: int) -> list[Cell]:
    reported_ms = job["reported_ms"]
    return [
        job["job"],
        job["node_name"] or "-",
        _state(job),
        job["done"],
        job["total"] or None,
        f"{(now_ms - reported_ms) // 1000} s ago" if reported_ms else "-",
        job["note"] or "-",
    ]
