"""What must hold of tables: exports that retention waits for, schemas, topics that grow.

All is judged by the log alone, entry by entry as it is appended: `TablesAccount` has a machine of
its own that no weather reaches, and what it decides is held against rules that are written out here
once more, in their shortest form. Whatever a client is told must have been so at some time between
its question and the answer (P8); `since` is what `now` was when it asked.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.commands.codec import decode_entry
from coordinator.commands.entries import DONE, Command, CreateTopic, DeleteTopic, Entry, Outcome
from coordinator.commands.job_commands import ExpireRecords
from coordinator.commands.table_commands import (
    TABLES_LEVEL,
    DeleteSubject,
    ExpireHeldRecords,
    RegisterSchema,
    ReportExport,
    SchemaRegistered,
    SetSubjectRules,
    SubjectDeleted,
    TableCommand,
)
from coordinator.machine.machine import FENCED, Machine
from coordinator.tables.schemas import GLOBAL
from coordinator.tables.topics import Topic
from protocol.types import Position
from tests.kit.requests import Partition
from tests.sim.account import Account, RecordAccount

HOLD = "frazil.iceberg.retention.hold"
HOLD_MAX = "frazil.iceberg.retention.hold.max.ms"
HOLD_MAX_MS = 604_800_000
WIDTHS = ("int", "long", "double")
"""Types that a later one reads, in Avro."""


class Version(NamedTuple):
    schema_id: int
    meaning: str
    hidden: bool


class State(NamedTuple):
    """What agents may tell, as it is at one position."""

    versions: dict[str, dict[int, tuple[int, str]]]
    """By subject and number, of those that are not hidden: id and meaning."""
    ids: frozenset[int]
    partition_counts: dict[str, int]
    exported: dict[str, dict[int, int]]


class Removal(NamedTuple):
    """Records of a topic that waits for its export went."""

    partition: Partition
    first: int
    end: int
    now_ms: int
    exported: int
    retention_ms: int
    retention_bytes: int
    hold_ms: int
    """-1: it does not wait."""


@dataclass
class TablesAccount(Account):
    """Of the tables of one run."""

    states: list[State] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    now_ms: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        self.machine = Machine()
        self._subjects: dict[str, dict[int, Version]] = {}
        self._rules: dict[str, tuple[str, str]] = {}
        self._ever: dict[int, str] = {}
        self._exported: dict[str, dict[int, int]] = {}
        self._tables: list[tuple[Position, dict[str, str]]] = []
        self._note()

    # What clients were told.

    def now(self) -> int:
        """For `check`."""
        return len(self.states) - 1

    def check(self, since: int, was_so: Callable[[State], bool], told: str) -> None:
        if not any(was_so(state) for state in self.states[since:]):
            seen = [*self.states[since:][-3:]]
            self.violations.append(f"{told}, and that was never so: {seen}")

    # What the log says.

    def placed(self, position: Position, payload: bytes) -> None:
        """An entry is in the log."""
        entry = decode_entry(payload)
        before = self._starts()
        configs = {topic.name: topic for topic in self.machine.topics}
        outcomes = self.machine.apply(position, entry)
        # As each command met it: in one entry an exporter may go back after records went.
        exported: dict[Partition, int] = {}
        for command, outcome in zip(entry.commands, outcomes, strict=True):
            if isinstance(command, ExpireRecords | ExpireHeldRecords):
                for topic, offsets in self._exported.items():
                    for number, end in offsets.items():
                        exported[topic, number] = max(exported.get((topic, number), 0), end)
            if isinstance(command, TableCommand) and outcome != FENCED:
                self._validate_level(position, command)
            self._check(command, outcome)
            if isinstance(command, TableCommand):
                # Who sent it is told how it was then, whatever the entry's next command does.
                self._note()
        if any(isinstance(each, ExpireRecords | ExpireHeldRecords) for each in entry.commands):
            self._note_removals(before, configs, exported)
        if touches_tables(entry):
            self._note()
            self._tables.append((position, tables_of(self.machine)))

    def _validate_level(self, position: Position, command: TableCommand) -> None:
        self.counts[type(command).__name__] += 1
        if not self.machine.incarnations.all_support(TABLES_LEVEL):
            self.violations.append(f"{command} at {position:#x} while an older agent is live")

    def _check(self, command: Command, outcome: Outcome) -> None:
        match command, outcome:
            case RegisterSchema(), SchemaRegistered(schema_id, number):
                self._registered(command, schema_id, number)
            case DeleteSubject(), SubjectDeleted(numbers):
                self._deleted(command, numbers)
            case SetSubjectRules(subject, level, mode), _ if outcome == DONE:
                old_level, old_mode = self._rules.get(subject, ("", ""))
                self._rules[subject] = (
                    old_level if level is None else level,
                    old_mode if mode is None else mode,
                )
            case ReportExport(topic_id, ends), _ if outcome == DONE:
                topic = self.machine.topics.by_id(topic_id)
                assert topic is not None
                self._exported.setdefault(topic.name, {}).update(ends)
            case _:
                pass

    # Schemas.

    def _registered(self, command: RegisterSchema, schema_id: int, number: int) -> None:
        subject, meaning = command.subject, meaning_of(command.body)
        versions = self._subjects.setdefault(subject, {})
        told = f"{meaning} of {subject} is version {number} with id {schema_id}"
        for known, version in versions.items():
            if version.meaning == meaning and not version.hidden:
                if (known, version.schema_id) != (number, schema_id):
                    self.violations.append(f"{told}; it was {known} with {version.schema_id}")
                return
        if self._ever.setdefault(schema_id, meaning) != meaning:
            self.violations.append(f"{told}; the id was {self._ever[schema_id]}'s")
        ids = {v.schema_id for each in self._subjects.values() for v in each.values()}
        same = {
            v.schema_id
            for each in self._subjects.values()
            for v in each.values()
            if v.meaning == meaning
        }
        if same - {schema_id} or (not same and schema_id in ids):
            self.violations.append(f"{told}; it has ids {sorted(same)}")
        if not same and schema_id != max(self._ever):
            self.violations.append(f"{told}; ids went up to {max(self._ever)}")
        if number != max(versions, default=0) + 1:
            self.violations.append(f"{told}; there are versions {sorted(versions)}")
        level, mode = self.in_force(subject)
        newest = [v.meaning for _, v in sorted(versions.items()) if not v.hidden][-1:]
        if mode == "READONLY":
            self.violations.append(f"{told}; the subject is read-only")
        if level != "NONE" and newest and not can_read(meaning, newest[0]):
            self.violations.append(f"{told}; it cannot read {newest[0]}, the level is {level}")
        versions[number] = Version(schema_id, meaning, hidden=False)

    def known_as(self, schema_id: int) -> str | None:
        """What the schema of this id means, or meant."""
        return self._ever.get(schema_id)

    def in_force(self, subject: str) -> tuple[str, str]:
        level, mode = self._rules.get(subject, ("", ""))
        level_of_all, mode_of_all = self._rules.get(GLOBAL, ("", ""))
        return level or level_of_all or "BACKWARD", mode or mode_of_all or "READWRITE"

    def _deleted(self, command: DeleteSubject, numbers: tuple[int, ...]) -> None:
        subject = command.subject
        versions = self._subjects.get(subject, {})
        for number in numbers:
            version = versions.get(number)
            if version is None or version.hidden != command.permanent:
                self.violations.append(f"{command} deleted {number}, that was {version}")
            elif command.permanent:
                del versions[number]
            else:
                versions[number] = version._replace(hidden=True)
        if command.version == -1 and not command.permanent:
            self._rules.pop(subject, None)

    # Retention.

    def _starts(self) -> dict[Partition, int]:
        return {
            (topic.name, number): partition.log_start
            for topic in self.machine.topics
            for number in range(topic.partition_count)
            if (partition := self.machine.partitions.find(topic.topic_id, number)) is not None
        }

    def _note_removals(
        self,
        before: dict[Partition, int],
        topics: dict[str, Topic],
        exported: dict[Partition, int],
    ) -> None:
        for partition, start in self._starts().items():
            if start == before.get(partition, start):
                continue
            configs = topics[partition[0]].configs
            holds = configs.get(HOLD) == "true"
            removal = Removal(
                partition,
                before[partition],
                start,
                self.now_ms(),
                exported.get(partition, 0),
                int(configs.get("retention.ms", "-1")),
                int(configs.get("retention.bytes", "-1")),
                int(configs.get(HOLD_MAX, HOLD_MAX_MS)) if holds else -1,
            )
            self.removals.append(removal)
            self.counts["removals held" if holds else "removals"] += 1
            if holds and start > removal.exported:
                self.counts["removals after the hold"] += 1

    def too_much(self, records: RecordAccount) -> list[str]:
        """What retention let go of though it was to stay."""
        found = []
        for each in self.removals:
            lines = {**records.acked[each.partition], **records.seen[each.partition]}
            for offset in range(each.first, each.end):
                line = lines.get(offset)
                if line is None:
                    continue
                age_ms = each.now_ms - line.timestamp
                held_ms = max(each.retention_ms, 0) + each.hold_ms
                if each.retention_bytes < 0 and age_ms <= each.retention_ms:
                    found.append(f"{line} at {offset} was {age_ms} ms old: {each}")
                if each.hold_ms >= 0 and offset >= each.exported and age_ms <= held_ms:
                    found.append(f"{line} at {offset} was not exported: {each}")
        return found

    # Replicas.

    def _note(self) -> None:
        state = State(
            {
                subject: {n: (v.schema_id, v.meaning) for n, v in each.items() if not v.hidden}
                for subject, each in self._subjects.items()
            },
            frozenset(v.schema_id for each in self._subjects.values() for v in each.values()),
            {topic.name: topic.partition_count for topic in self.machine.topics},
            {topic: dict(offsets) for topic, offsets in self._exported.items()},
        )
        if not self.states or self.states[-1] != state:
            self.states.append(state)

    def compare(self, agent: str, machine: Machine) -> None:
        """A replica has the tables that follow from the log to its position."""
        wanted = next((t for at, t in reversed(self._tables) if at <= machine.position), None)
        there = tables_of(machine)
        if wanted is not None and there != wanted:
            names = [name for name in wanted if there[name] != wanted[name]]
            differing = [f"{name}: {there[name]}, not {wanted[name]}" for name in names]
            self.violations.append(f"{agent} at {machine.position:#x} has other {differing}")


def tables_of(machine: Machine) -> dict[str, str]:
    """All that is in the tables about tables, those that follow from others too, by name."""
    subjects = {
        name: (row.versions, row.compatibility, row.mode, row.changed)
        for name, row in machine.schemas._subjects.items()
    }
    uses = {schema_id: sorted(each) for schema_id, each in sorted(machine.schemas._uses.items())}
    exports = {topic_id.hex(): row for topic_id, row in machine.exports.items()}
    counts = {topic.name: topic.partition_count for topic in machine.topics}
    tables = {**vars(machine.schemas), "_subjects": subjects, "_uses": uses}
    return {name: repr(each) for name, each in {**tables, "exports": exports, "n": counts}.items()}


def touches_tables(entry: Entry, *, topics: bool = True) -> bool:
    """`topics`: those that come and go count, too."""
    kinds = TableCommand | CreateTopic | DeleteTopic if topics else TableCommand
    return any(isinstance(each, kinds) for each in entry.commands)


def meaning_of(body: bytes) -> str:
    """The type of the one field that simulated schemas have."""
    return str(json.loads(zlib.decompress(body))["fields"][0]["type"])


def can_read(new: str, old: str) -> bool:
    """In Avro: what was written as `old`."""
    if new not in WIDTHS or old not in WIDTHS:
        return new == old
    return WIDTHS.index(new) >= WIDTHS.index(old)
