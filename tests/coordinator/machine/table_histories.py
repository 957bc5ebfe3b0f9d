"""Random histories with tables in them: exports are reported, schemas come and go, topics grow."""

import random
from hashlib import sha256

from coordinator.commands.job_commands import JobKind
from coordinator.commands.table_commands import (
    DeleteSubject,
    ExpireHeldRecords,
    ExportEnd,
    GrowTopic,
    HeldExpiry,
    Reference,
    RegisterSchema,
    ReportExport,
    SchemaKind,
    SetSubjectRules,
    TableCommand,
)
from protocol.types import Position
from tests.coordinator.machine.story import Story
from tests.coordinator.snapshot.histories import JobHistory

SUBJECTS = ("events-value", "events-key", "common")


class TableHistory(JobHistory):
    """A history one step in four of which is about tables."""

    def step(self) -> None:
        live = list(self.story.machine.incarnations)
        if self.rng.random() > 0.25 or not live:
            super().step()
            return
        holder = self.story.machine.jobs.get(JobKind.RETENTION).holder
        command = self._table_command()
        is_job = isinstance(command, ExpireHeldRecords)
        if not is_job or self.story.machine.incarnations.get(holder) is None:
            holder = self.rng.choice(live).incarnation
        self.story.do(holder, command, clock_ms=self._clock())

    def _table_command(self) -> TableCommand:
        rng, machine = self.rng, self.story.machine
        subject = rng.choice(SUBJECTS)
        match rng.randrange(12):
            case 0 | 1:
                topic_id, partition = self._place()
                row = machine.partitions.get(topic_id, partition)
                end = 1 if row is None else row.end_offset + rng.choice([0, 0, 1])
                return ReportExport(topic_id, (ExportEnd(partition, rng.randrange(end + 1)),))
            case 2:
                topic_id, partition = self._place()
                row = machine.partitions.get(topic_id, partition)
                offset = 1 if row is None else row.end_offset
                expiry = HeldExpiry(topic_id, partition, offset, -1, 0, rng.choice([0, 5_000]))
                return ExpireHeldRecords(machine.position, (expiry,))
            case 3:
                topic_id, partition = self._place()
                return GrowTopic(topic_id, rng.randrange(1, 6))
            case 4:
                return SetSubjectRules(
                    rng.choice(["", subject]),
                    rng.choice([None, "", "FULL", "NONE", "HALF"]),
                    rng.choice([None, "", "READONLY"]),
                )
            case 5 | 6 | 7:
                permanent = rng.random() < 0.5
                return DeleteSubject(subject, rng.choice([-1, 1, 2, 3, 4]), permanent)
            case _:
                return self._register(subject)

    def _register(self, subject: str) -> RegisterSchema:
        rng, machine = self.rng, self.story.machine
        references: tuple[Reference, ...] = ()
        if rng.random() < 0.3:
            to = rng.choice(SUBJECTS)
            versions = machine.schemas.versions(to, deleted=True)
            references = (Reference("a", to, rng.choice([1, *versions])),)
        body = rng.choice([b"a", b"bb", b"ccc", b"dddd", b"eeeee", b"ffffff"])
        seen = rng.choice([0, machine.position, machine.position, machine.position - 30])
        return RegisterSchema(
            subject,
            rng.choice([*SchemaKind]),
            body,
            sha256(body + repr(references).encode()).digest(),
            references,
            Position(max(seen, 0)),
            schema_id=rng.choice([0, 0, 0, rng.randrange(9)]),
            version=rng.choice([0, 0, 0, rng.randrange(9)]),
        )


def table_history(seed: int, *, steps: int) -> Story:
    drawn = TableHistory(random.Random(seed))
    for _ in range(steps):
        drawn.step()
    return drawn.story
