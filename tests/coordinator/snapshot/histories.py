"""Random histories with jobs in them: rows are trimmed, expire, move into segments and pages and
back, objects are doomed and forgotten, snapshots begun and published.

`python -m tests.coordinator.snapshot.histories SEED` prints the digest of a snapshot after one.
"""

import random
import sys
from hashlib import blake2b

from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    DoomObjects,
    DropRows,
    ExpireRecords,
    Expiry,
    ForgetObjects,
    JobCommand,
    JobKind,
    NewPage,
    NewSpan,
    PublishSnapshot,
    RecallPage,
    ReleaseJobs,
    Replacement,
    ReplaceRows,
    ReportJob,
    RequestJob,
    SpillRows,
    Trim,
    TrimLogs,
)
from coordinator.snapshot.snapshot import dump
from coordinator.tables.partition import Partition
from protocol.types import INCARNATION_NONE, Incarnation, Position
from storage.formats.page import digest, encode_rows
from storage.formats.spans import Page
from tests.coordinator.machine.histories import History
from tests.coordinator.machine.story import Story


class JobHistory(History):
    """A history one step in three of which is a job's."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.bodies: dict[bytes, bytes] = {}

    def step(self) -> None:
        machine = self.story.machine
        holder = machine.jobs.get(JobKind.SNAPSHOT).holder
        if self.rng.random() > 0.35:
            super().step()
        elif machine.incarnations.get(holder) is None:
            live = list(machine.incarnations)
            if live:
                writer = self.rng.choice(live).incarnation
                self.story.do(writer, ClaimJobs(tuple(JobKind)), clock_ms=self._clock())
        else:
            self.story.do(holder, self._job_command(holder), clock_ms=self._clock())

    def _job_command(self, holder: Incarnation) -> JobCommand:
        rng, machine = self.rng, self.story.machine
        written = [row for row in machine.partitions.written() if row.row_count]
        place = self._place()
        draw = rng.randrange(20)
        if written and draw < 11:
            return self._about_rows(rng.choice(written), holder)
        match draw:
            case 11:
                kinds = tuple(sorted(rng.sample(list(JobKind), 2)))
                return ReleaseJobs(kinds, rng.choice([INCARNATION_NONE, *self.opened]))
            case 12:
                note = rng.choice(["", "rows"])
                return ReportJob(
                    rng.choice(list(JobKind)), rng.randrange(9), 9, rng.random() < 0.5, note
                )
            case 13:
                return RequestJob(rng.choice(list(JobKind)))
            case 14:
                return BeginSnapshot()
            case 15 | 16 if (begun := machine.snapshots.begun) is not None:
                return PublishSnapshot(begun.position, begun.digest, f"snapshots/{begun.position}")
            case 17 | 18:
                free = [each.object_id for each in machine.objects.unreferenced()]
                return DoomObjects(rng.choice([0, 0, 100]), tuple(free[:3]))
            case 19:
                return ForgetObjects(tuple(machine.objects.doomed())[: rng.randrange(3)])
        return DropRows((place,))

    def _about_rows(self, row: Partition, holder: Incarnation) -> JobCommand:
        rng = self.rng
        place = (row.topic_id, row.partition)
        draw = rng.randrange(10)
        if draw == 0:
            return TrimLogs((Trim(*place, rng.randrange(row.end_offset + 2)),))
        if draw == 1:
            first = row.row(rng.randrange(row.row_count))
            expiry = Expiry(*place, first.base_offset, rng.choice([-1, 10]), rng.choice([-1, 10]))
            return ExpireRecords(Position(self.story.machine.position), (expiry,))
        first = rng.randrange(row.row_count)
        found = [row.row(index) for index in range(first, min(first + 4, row.row_count))]
        if isinstance(found[0], Page):
            body = self.bodies[found[0].digest]
            return RecallPage(*place, found[0].base_offset, body)
        end = next((at for at, each in enumerate(found) if isinstance(each, Page)), len(found))
        rows = [each for each in found[:end] if not isinstance(each, Page)]
        base_offset, next_offset = rows[0].base_offset, rows[-1].next_offset
        body = encode_rows(rows)
        self.bodies[digest(body)] = body
        writer = self.story.machine.incarnations.get(holder)
        assert writer is not None
        named = (*place, base_offset, next_offset, len(rows))
        if draw < 6:
            page = NewPage(*named, 3, len(body), digest(body))
            return SpillRows(writer.index_last + rng.choice([1, 1, 3]), len(body) + 3, (page,))
        spans = (NewSpan(0, 10, base_offset, rng.randrange(10_000)),)
        job = rng.choice([JobKind.MERGE, JobKind.COMPACT])
        clean_to = next_offset if job is JobKind.COMPACT else -1
        moved = Replacement(*named, digest(body), spans, clean_to)
        return ReplaceRows(job, writer.segment_last + rng.choice([1, 1, 2]), 10, (moved,))


def job_history(seed: int, *, steps: int) -> Story:
    drawn = JobHistory(random.Random(seed))
    for _ in range(steps):
        drawn.step()
    return drawn.story


def main() -> None:
    print(snapshot_digest(int(sys.argv[1])))


def snapshot_digest(seed: int) -> str:
    return blake2b(b"".join(dump(job_history(seed, steps=400).machine))).hexdigest()


if __name__ == "__main__":
    main()
