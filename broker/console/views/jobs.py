"""The jobs of the cluster: who holds them, what they say, and what is behind. Pure.

Who holds a job and what it said last is in the machine, so every agent says the same. The worker that runs jobs is a
process of the agent that holds them, and only that agent knows how it is.
"""

from typing import Final, NamedTuple

from broker.console.views.cluster import JobView, job_view
from broker.reports.cost_report import Metrics
from broker.reports.log_lines import place
from coordinator.commands.job_commands import JobKind
from coordinator.machine.machine import Machine

NUMBERS: Final = frozenset(
    {
        "frazil_job_worker_running",
        "frazil_job_worker_memory_bytes",
        "frazil_job_worker_memory_max_bytes",
        "frazil_job_workers_started",
        "frazil_job_workers_failed",
        "frazil_archive_position",
        "frazil_archive_behind_ms",
        "frazil_snapshot_age_ms",
        "frazil_log_bytes",
        "frazil_log_bytes_max",
        "frazil_job_runs",
        "frazil_job_failures",
        "frazil_objects_unreferenced",
        "frazil_objects_doomed",
        "frazil_objects_refused",
    }
)
"""That the page is made of."""
MEANINGS: Final = {
    JobKind.SNAPSHOT: "writes the machine to the store, so that agents start from there and the log is cut",
    JobKind.RETENTION: "lets go of records that are too old or too many",
    JobKind.MERGE: "puts small objects together into large ones",
    JobKind.SPILL: "moves rows out of memory into objects",
    JobKind.COMPACT: "keeps the newest record of each key, where a topic wants that",
    JobKind.COLLECT: "deletes objects that nothing points at",
}


class JobRowView(NamedTuple):
    """A job of the cluster."""

    view: JobView
    meaning: str
    is_asked_for: bool
    """Somebody asked for a run that has not begun."""
    runs: int
    """Rounds that this agent's workers began."""
    failures: int
    """Of them, those that are tried again."""


class WorkerView(NamedTuple):
    """Of the agent that draws the page."""

    is_running: bool
    memory: int
    memory_max: int
    """0: no bound is known."""
    started: int
    failed: int
    """That ended though they should not."""
    archived: str
    """The log is in the store to here; "": this agent archives nothing now."""
    archive_behind_ms: int


class JobsView(NamedTuple):
    """What the page shows."""

    jobs: tuple[JobRowView, ...]
    worker: WorkerView
    snapshots: tuple[str, ...]
    """That are published, newest first."""
    snapshot_age_ms: int
    """Since this agent saw one published, or since its start."""
    log_bytes: int
    """Since the older snapshot."""
    log_bytes_max: int
    unreferenced: int
    """Objects at which nothing points any more."""
    doomed: int
    """That are being deleted."""
    refused: int
    """That the store refused to delete, as far as this agent knows."""


def jobs_view(machine: Machine, numbers: Metrics) -> JobsView:
    """`numbers`: of this agent, those of NUMBERS."""

    def of(name: str, **labels: str) -> int:
        return int(numbers.get((f"frazil_{name}", frozenset(labels.items())), 0))

    archived = of("archive_position")
    return JobsView(
        jobs=tuple(
            JobRowView(
                view=job_view(machine, kind),
                meaning=MEANINGS[kind],
                is_asked_for=_is_asked_for(machine, kind),
                runs=of("job_runs", kind=kind.name.lower()),
                failures=of("job_failures", kind=kind.name.lower()),
            )
            for kind in JobKind
        ),
        worker=WorkerView(
            is_running=bool(of("job_worker_running")),
            memory=of("job_worker_memory_bytes"),
            memory_max=of("job_worker_memory_max_bytes"),
            started=of("job_workers_started"),
            failed=of("job_workers_failed"),
            archived=place(archived) if archived else "",
            archive_behind_ms=of("archive_behind_ms"),
        ),
        snapshots=tuple(place(each.position) for each in machine.snapshots.published),
        snapshot_age_ms=of("snapshot_age_ms"),
        log_bytes=of("log_bytes"),
        log_bytes_max=of("log_bytes_max"),
        unreferenced=of("objects_unreferenced"),
        doomed=of("objects_doomed"),
        refused=of("objects_refused"),
    )


def _is_asked_for(machine: Machine, kind: JobKind) -> bool:
    row = machine.jobs.get(kind)
    return bool(row.requested) and row.requested >= row.claimed and not row.reported_ms
