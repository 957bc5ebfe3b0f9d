"""The table of jobs by kind, as a worker runs them."""

from collections.abc import Mapping
from typing import Final

from broker.jobs.kinds import collecting, compacting, merging, retention, snapshotting, spilling
from broker.jobs.worker.worker import Job
from coordinator.commands.job_commands import JobKind

JOBS: Final[Mapping[JobKind, Job]] = {
    JobKind.SNAPSHOT: snapshotting.run,
    JobKind.RETENTION: retention.run,
    JobKind.MERGE: merging.run,
    JobKind.SPILL: spilling.run,
    JobKind.COMPACT: compacting.run,
    JobKind.COLLECT: collecting.run,
}
