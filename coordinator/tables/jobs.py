"""The table of jobs: which incarnation holds each, who asked for it, and what it says of itself.

Invariant: a holder is a live incarnation.
"""

from dataclasses import dataclass
from typing import Final

from coordinator.commands.entries import DONE, Done, Rejected
from coordinator.commands.job_commands import (
    JOB_NOTE_MAX,
    ClaimJobs,
    JobKind,
    JobsClaimed,
    ReleaseJobs,
    ReportJob,
    RequestJob,
)
from coordinator.commands.layout import Int64, UInt63
from coordinator.tables.incarnations import Incarnations
from coordinator.tables.objects import Moment
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Incarnation, Position


@dataclass(slots=True)
class JobRow:
    """A job. To be read only, but by `apply`."""

    kind: JobKind
    holder: Incarnation = INCARNATION_NONE
    """INCARNATION_NONE: it is free."""
    claimed: Position = POSITION_ZERO
    """When the holder got it."""
    requested: Position = POSITION_ZERO
    """Of the newest RequestJob."""
    done: UInt63 = 0
    total: UInt63 = 0
    running: bool = False
    note: str = ""
    reported_ms: Int64 = 0
    """Machine's time of the newest report; 0: there is none of this holder."""


class Jobs:
    """All kinds of jobs; every kind has a row."""

    def __init__(self) -> None:
        self._rows: Final = {kind: JobRow(kind) for kind in JobKind}

    def get(self, kind: JobKind) -> JobRow:
        return self._rows[kind]

    def held_by(self, incarnation: Incarnation) -> tuple[JobKind, ...]:
        return tuple([kind for kind, row in self._rows.items() if row.holder == incarnation])

    def validate_holder(self, kind: JobKind, writer: Incarnation) -> Rejected | None:
        """Why the writer may not do what is the job's."""
        if self._rows[kind].holder == writer:
            return None
        return Rejected(ErrorCode.NOT_COORDINATOR, f"the writer does not hold job {kind.name}")

    # For `apply`.

    def claim(self, command: ClaimJobs, writer: Incarnation, moment: Moment) -> JobsClaimed:
        for kind in command.jobs:
            if self._rows[kind].holder == INCARNATION_NONE:
                self._give(kind, writer, moment.position)
        held = [kind for kind in command.jobs if self._rows[kind].holder == writer]
        return JobsClaimed(tuple(held))

    def release(
        self,
        command: ReleaseJobs,
        writer: Incarnation,
        incarnations: Incarnations,
        moment: Moment,
    ) -> Done:
        is_live = incarnations.get(command.successor) is not None
        for kind in command.jobs:
            if self._rows[kind].holder == writer:
                successor = command.successor if is_live else INCARNATION_NONE
                self._give(kind, successor, moment.position)
        return DONE

    def report(self, command: ReportJob, writer: Incarnation, moment: Moment) -> Done | Rejected:
        if (rejected := self.validate_holder(command.job, writer)) is not None:
            return rejected
        if len(command.note) > JOB_NOTE_MAX:
            reason = f"the note of a job has at most {JOB_NOTE_MAX} characters"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        row = self._rows[command.job]
        row.done, row.total = command.done, command.total
        row.running, row.note = command.running, command.note
        row.reported_ms = moment.time_ms
        return DONE

    def request(self, command: RequestJob, moment: Moment) -> Done:
        self._rows[command.job].requested = moment.position
        return DONE

    def close(self, incarnation: Incarnation) -> None:
        """The incarnation has ended; its jobs are free."""
        for kind in self.held_by(incarnation):
            self._give(kind, INCARNATION_NONE, POSITION_ZERO)

    def _give(self, kind: JobKind, holder: Incarnation, position: Position) -> None:
        is_held = holder != INCARNATION_NONE
        self._rows[kind] = JobRow(
            kind,
            holder=holder,
            claimed=position if is_held else POSITION_ZERO,
            requested=self._rows[kind].requested,
        )
