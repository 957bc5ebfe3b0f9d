"""The words of the scripts about jobs: commands in text, tables in text.

    claim jobs JOB ... · release jobs JOB ... [to NAME] · report JOB DONE/TOTAL NOTE · request JOB
    begin snapshot · publish snapshot [digest=HEX]
    trim PLACE=OFFSET ... · drop PLACE ...
    expire rows PLACE=OFFSET [ms=MS] [bytes=BYTES] [seen=-ENTRIES]
    merge PLACE FROM-TO [AT ...] [| ...]      rows into a segment, a span for each offset AT as well
    compact PLACE FROM-TO [AT ...] [| ...]    the same by the other job; all below TO is clean then
    spill PLACE FROM-TO [| ...] · recall PLACE OFFSET
    doom MS OBJECT ... · forget OBJECT ...
    show jobs | snapshots

OBJECT is KIND:NAME#NUMBER. What `merge`, `compact` and `spill` name is what is there before the
entry, so of two in one entry the second is late; a span of a segment has 7 bytes for each row of
the run, and the newest timestamp of all of them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.commands.entries import Command, Outcome
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    DoomObjects,
    DropRows,
    ExpireRecords,
    Expiry,
    ForgetObjects,
    JobKind,
    JobsClaimed,
    LogsTrimmed,
    NewPage,
    NewSpan,
    ObjectsDoomed,
    PublishSnapshot,
    RecallPage,
    ReleaseJobs,
    Replacement,
    ReplaceRows,
    ReportJob,
    RequestJob,
    RowsMoved,
    SpillRows,
    Trim,
    TrimLogs,
)
from coordinator.machine.machine import Machine
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE, Incarnation, Position, TopicId, revision_of
from storage.formats.page import digest, encode_rows
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Row
from tests.coordinator.machine.story import REVISIONS_PER_ENTRY
from tests.kit.script import options
from tests.scripts.names import Names

HEAD_BYTES = 8
SPAN_BYTES_PER_ROW = 7
OBJECT = re.compile(r"(\w+):([\w']+)#(\d+)")


@dataclass
class JobWords:
    """What jobs have written: bodies of pages, numbers of objects."""

    machine: Machine
    names: Names
    bodies: dict[tuple[TopicId, int, int], bytes] = field(default_factory=dict)
    numbers: dict[tuple[Incarnation, ObjectKind], int] = field(default_factory=dict)

    def commands(self, agent: Incarnation) -> Mapping[str, Callable[..., Command]]:
        place = self.names.place
        return {
            "claim jobs": lambda *jobs: ClaimJobs(_jobs(jobs)),
            "release jobs": self._release,
            "report": _report,
            "request": lambda job: RequestJob(JobKind[job.upper()]),
            "begin snapshot": BeginSnapshot,
            "publish snapshot": self._publish,
            "trim": self._trim,
            "drop": lambda *places: DropRows(tuple(map(place, places))),
            "expire rows": self._expire,
            "merge": lambda *words: self._replace(JobKind.MERGE, words, agent),
            "compact": lambda *words: self._replace(JobKind.COMPACT, words, agent),
            "spill": lambda *words: self._spill(words, agent),
            "recall": self._recall,
            "doom": lambda ms, *objects: DoomObjects(int(ms), self._objects(objects)),
            "forget": lambda *objects: ForgetObjects(self._objects(objects)),
        }

    def tables(self) -> Mapping[str, Callable[..., Iterator[str]]]:
        return {"show jobs": self._show_jobs, "show snapshots": self._show_snapshots}

    def told(self, command: Command, outcome: Outcome) -> str | None:
        """None: the outcome is not one of jobs."""
        match outcome:
            case JobsClaimed(jobs):
                return "holds jobs: " + (", ".join(job.name.lower() for job in jobs) or "none")
            case LogsTrimmed(results):
                assert isinstance(command, TrimLogs | ExpireRecords)
                rows = command.trims if isinstance(command, TrimLogs) else command.expiries
                return "logs: " + " | ".join(
                    f"{self._named(row)} "
                    + (f"{error.name}, " if error is not ErrorCode.NONE else "")
                    + f"starts at {start}"
                    for row, (error, start) in zip(rows, results, strict=True)
                )
            case RowsMoved(errors):
                assert isinstance(command, ReplaceRows | SpillRows)
                moves: tuple[Replacement, ...] | tuple[NewPage, ...] = (
                    command.pages if isinstance(command, SpillRows) else command.replacements
                )
                return "moved: " + " | ".join(
                    f"{self._named(row)} {row.base_offset}-{row.next_offset}"
                    + (f" {error.name}" if error is not ErrorCode.NONE else "")
                    for row, error in zip(moves, errors, strict=True)
                )
            case ObjectsDoomed(objects):
                return "doomed: " + (", ".join(map(self.object_name, objects)) or "nothing")
        return None

    def page(self, row: Page) -> str:
        """A row that is a page, as it is shown."""
        return (
            f"{row.base_offset} to {row.next_offset}: page of {row.rows} rows with"
            f" {row.data_bytes} bytes, {self.object_name(row.object_id)}, newest"
            f" {row.timestamp_max}"
        )

    def object_name(self, object_id: ObjectId) -> str:
        kind = ObjectKind(object_id.kind).name.lower()
        return f"{kind} {self.names.of_agent(object_id.incarnation)}#{object_id.number}"

    def _release(self, *words: str) -> ReleaseJobs:
        if "to" not in words:
            return ReleaseJobs(_jobs(words), INCARNATION_NONE)
        return ReleaseJobs(_jobs(words[:-2]), self.names.agents[words[-1]])

    def _publish(self, digest: str = "") -> PublishSnapshot:
        begun = self.machine.snapshots.begun
        assert begun is not None
        wanted = bytes.fromhex(digest.removeprefix("digest=")) or begun.digest
        return PublishSnapshot(begun.position, wanted, f"snapshot-{revision_of(begun.position)}")

    def _trim(self, *words: str) -> TrimLogs:
        pairs = [word.split("=") for word in words]
        return TrimLogs(tuple([Trim(*self.names.place(place), int(at)) for place, at in pairs]))

    def _expire(self, what: str, *words: str) -> ExpireRecords:
        place, _, offset = what.partition("=")
        _, given = options(words)
        back = REVISIONS_PER_ENTRY * int(given.get("seen", 0))
        limits = (int(given.get("ms", -1)), int(given.get("bytes", -1)))
        expiry = Expiry(*self.names.place(place), int(offset), *limits)
        return ExpireRecords(Position(self.machine.position + back), (expiry,))

    def _replace(self, job: JobKind, words: tuple[str, ...], agent: Incarnation) -> ReplaceRows:
        at = HEAD_BYTES
        replacements = []
        for place, ends, *bounds in _parts(words):
            base, following, rows = self._run(place, ends)
            length = SPAN_BYTES_PER_ROW * len(rows)
            newest = max(map(_newest, rows))
            spans = []
            for offset in (base, *map(int, bounds)):
                spans.append(NewSpan(at, length, offset, newest))
                at += length
            replacements.append(
                Replacement(
                    *self.names.place(place),
                    base,
                    following,
                    len(rows),
                    _digest(rows),
                    tuple(spans),
                    following if job is JobKind.COMPACT else -1,
                )
            )
        number = self._next(agent, ObjectKind.SEGMENT)
        return ReplaceRows(job, number, at, tuple(replacements))

    def _spill(self, words: tuple[str, ...], agent: Incarnation) -> SpillRows:
        at = HEAD_BYTES
        pages = []
        for place, ends in _parts(words):
            base, following, rows = self._run(place, ends)
            body = encode_rows([row for row in rows if not isinstance(row, Page)])
            if not isinstance(rows[0], Page):  # Else it is refused, and the page keeps its body.
                self.bodies[*self.names.place(place), base] = body
            named = (base, following, len(rows), at, len(body), digest(body))
            pages.append(NewPage(*self.names.place(place), *named))
            at += len(body)
        return SpillRows(self._next(agent, ObjectKind.INDEX), at, tuple(pages))

    def _recall(self, place: str, offset: str) -> RecallPage:
        at = (*self.names.place(place), int(offset))
        return RecallPage(*at, self.bodies[at])

    def _run(self, place: str, ends: str) -> tuple[int, int, list[Row]]:
        """The rows in FROM-TO, also of a topic that is deleted."""
        base, following = map(int, ends.split("-"))
        partition = self.machine.partitions.find(*self.names.place(place))
        assert partition is not None, f"{place} has no records"
        rows = partition.rows_from(base, partition.row_count)
        return base, following, [row for row in rows if row.base_offset < following]

    def _next(self, agent: Incarnation, kind: ObjectKind) -> int:
        number = self.numbers.get((agent, kind), 0)
        self.numbers[agent, kind] = number + 1
        return number

    def _objects(self, words: tuple[str, ...]) -> tuple[ObjectId, ...]:
        objects = []
        for word in words:
            found = OBJECT.fullmatch(word)
            assert found is not None, f"{word!r} is no object"
            kind = ObjectKind[found[1].upper()]
            objects.append(ObjectId(self.names.agents[found[2]], int(found[3]), kind))
        return tuple(objects)

    def _named(self, row: Trim | Expiry | Replacement | NewPage) -> str:
        return self.names.of_place(row.topic_id, row.partition)

    def _show_jobs(self) -> Iterator[str]:
        for kind in JobKind:
            row = self.machine.jobs.get(kind)
            told = f"{kind.name.lower()}: "
            if row.holder == INCARNATION_NONE:
                told += "free"
            else:
                told += f"{self.names.of_agent(row.holder)} since {revision_of(row.claimed)}"
            if row.reported_ms:
                told += f", {row.done} of {row.total} {row.note}"
            if row.requested:
                told += f", requested at {revision_of(row.requested)}"
            yield told

    def _show_snapshots(self) -> Iterator[str]:
        snapshots = self.machine.snapshots
        if snapshots.begun is not None:
            yield f"begun at {revision_of(snapshots.begun.position)}"
        for each in snapshots.published:
            yield f"{each.key}: published at {revision_of(each.published_at)}"


def _jobs(words: tuple[str, ...]) -> tuple[JobKind, ...]:
    return tuple(sorted(JobKind[word.upper()] for word in words))


def _report(job: str, progress: str, *note: str) -> ReportJob:
    done, _, total = progress.partition("/")
    kind = JobKind[job.upper()]
    return ReportJob(kind, done=int(done), total=int(total), running=True, note=" ".join(note))


def _parts(words: tuple[str, ...]) -> list[list[str]]:
    return [part.split() for part in " ".join(words).split("|")]


def _digest(rows: list[Row]) -> bytes:
    return digest(encode_rows([row for row in rows if not isinstance(row, Page)]))


def _newest(row: Row) -> int:
    return row.timestamp if isinstance(row, Marker) else row.timestamp_max
