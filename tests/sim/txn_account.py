"""What must hold of transactions in every run, whatever befell it.

Every record carries the number that its client gave to its transaction, so the account knows what
each client asked for (`Told`) and what became of it (the markers behind the records). While the
run goes on, `applied` looks into the machine of every agent after every entry; `verdict` judges
the logs as they are at the end. An empty list is a pass.

* A transaction is whole: one fate in all partitions and in its group's offsets, given at one
  position; committed if that was acknowledged, aborted unless a commit was asked for.
* Nothing but its own client's EndTxn, its timeout or a takeover ends a transaction: what a marker
  ended is compared with what was asked for that very number.
* An LSO never goes back, and is the first offset of the oldest open transaction.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from broker.calls.stalls import TICK_MS
from broker.transactions.batch_transactions import Producer, explain
from coordinator.commands.transaction_commands import (
    EndTransaction,
    GiveUpTransaction,
    InitProducer,
    Marked,
    ProducerInitialized,
    TransactionEnded,
)
from coordinator.log_client import Applied
from coordinator.machine.machine import Machine
from protocol.errors import ErrorCode
from protocol.types import Incarnation
from tests.anomalies import Recorder, check
from tests.kit.requests import Partition
from tests.sim.account import Account
from txn.producers import describe

KEYS: list[Partition] = [("a", 0), ("a", 1), ("b", 0), ("out", 0), ("out", 1)]
"""What readers follow, and what is judged; by number in histories."""
DOOMED = "doomed"
"""A topic that is deleted in the middle; what becomes of its records is not looked at."""


ANOTHER_HAS_BEGUN = explain(ErrorCode.NOT_ENOUGH_REPLICAS, None, Producer(0, 0))
"""What a client is told whose batch is of a transaction that is not the open one."""


@dataclass(eq=False)
class Told:
    """One transaction as its client knows it."""

    number: int
    transactional_id: str
    client: str
    process: int
    """In the history: one for each life of a producer."""
    began_s: float
    commit_asked: bool = False
    """An EndTxn(commit) was sent; never before every record and offset was acknowledged."""
    abort_asked: bool = False
    outcome: bool | None = None
    """What was acknowledged: committed or aborted. None: nothing."""
    sent: dict[bytes, Partition] = field(default_factory=dict)
    acked: dict[bytes, int] = field(default_factory=dict)
    """Offset of each acknowledged value."""
    offsets_sent: bool = False
    offsets_acked: bool = False
    refused: bool = False
    """Its commit, asked for again, was refused behind an abort of nothing that came late: it is committed."""
    completed: bool = False
    """The history says how it went."""


class Line(NamedTuple):
    """One offset of a partition's log, as a read_uncommitted reader is shown it."""

    offset: int
    producer_id: int
    epoch: int
    value: bytes | None
    """None: a marker."""
    commit: bool = False
    """Of a marker."""


class Ending(NamedTuple):
    """The entry that ended a transaction."""

    position: int
    command: int
    """Its place in the entry."""
    cause: str
    transactional_id: str
    epoch_stays: bool = False
    """The producer goes on in the epoch of the transaction (TV1)."""


@dataclass
class Fate:
    """What the logs say about one transaction."""

    commits: dict[tuple[Partition, int], bool] = field(default_factory=dict)
    """By partition and marker."""
    values: list[bytes] = field(default_factory=list)


def number_of(value: bytes) -> int:
    """The transaction that a record belongs to, by its client's count."""
    return int(value.partition(b".")[0])


def as_int(value: bytes) -> int:
    """In the history, where values are numbers."""
    number, _, rest = value.partition(b".")
    return int(number) * 1000 + int(rest.partition(b":")[0])


def key_of(partition: Partition) -> int:
    """In the history, where partitions are numbers."""
    return KEYS.index(partition)


@dataclass
class TxnAccount(Account):
    """Of one run."""

    merged: bool = False
    """Jobs merge rows: batches of aborted transactions may be gone, from some time on."""
    told: dict[int, Told] = field(default_factory=dict)
    endings: dict[tuple[str, int, int], Ending] = field(default_factory=dict)
    """By topic, partition and offset of a marker."""
    position: int = 0
    begun: dict[tuple[str, int], tuple[float, int]] = field(default_factory=dict)
    """Virtual time at which (transactional id, instance) was first seen open, and its timeout."""
    stable: dict[tuple[str, Partition], int] = field(default_factory=dict)
    """By agent's life: LSO at its last entry."""
    offsets_least: dict[str, int] = field(default_factory=dict)
    """By group: the newest transaction with offsets whose commit was acknowledged."""
    stable_least: dict[Partition, int] = field(default_factory=dict)
    """The highest LSO that ListOffsets has told."""
    open: dict[str, int] = field(default_factory=dict)
    """The instance that is open of each transactional id, after the newest entry."""
    emptied: set[tuple[str, int, int]] = field(default_factory=set)
    """Transactional ids, with producer ids and epochs, whose newest end aborted a transaction with nothing in it."""
    proven_s: Callable[[Incarnation, float], tuple[float, int]] = lambda _writer, _since_s: (inf, 0)
    """For how long since then an incarnation's agent has had a proven session, in how many pieces."""

    recorder: Recorder = field(default_factory=Recorder)
    processes: int = 0

    def process(self) -> int:
        """A new number for a client's life, in the history."""
        self.processes += 1
        return self.processes

    def begin(self, transactional_id: str, client: str, process: int, now_s: float) -> Told:
        told = Told(len(self.told) + 1, transactional_id, client, process, now_s)
        self.told[told.number] = told
        self.counts["begun"] += 1
        self.recorder.invoke(process, "txn", [])
        return told

    def complete(self, told: Told) -> None:
        """Nothing more will be known of it."""
        if told.completed:
            return
        told.completed = True
        if told.outcome is None:
            self.counts["never told" if told.commit_asked or told.abort_asked else "given up"] += 1
        unknown = "info" if told.commit_asked else "fail"
        steps = [
            ["send", key_of(place), [told.acked.get(value), as_int(value)]]
            for value, place in told.sent.items()
            if place[0] != DOOMED
        ]
        self.recorder.complete(told.process, "ok" if told.outcome else unknown, "txn", steps)

    def ended(self, told: Told, *, commit: bool, group_id: str | None) -> None:
        """The end was acknowledged."""
        told.outcome = commit
        self.complete(told)
        self.counts["committed" if commit else "aborted"] += 1
        if commit and told.offsets_acked and group_id is not None:
            least = self.offsets_least.get(group_id, -1)
            self.offsets_least[group_id] = max(least, told.number)

    def is_known_refusal(self, told: Told, producer_id: int, epoch: int) -> bool:
        """Whether INVALID_TXN_STATE is no surprise for this commit (docs/design/transactions.md §10); then it is
        looked for in the logs."""
        told.refused = (told.transactional_id, producer_id, epoch) in self.emptied
        self.counts["refused"] += told.refused
        return told.refused

    def shown(self, reader: str, value: bytes) -> None:
        """A read_committed reader was given this record."""
        told = self.told[number_of(value)]
        if not told.commit_asked:
            self.violations.append(f"{reader} was shown {value!r} before a commit was asked for")

    def offset_shown(self, group_id: str, number: int, least: int) -> None:
        """OffsetFetch, asked when `least` was the newest acknowledged one, told this one."""
        if number < least:
            self.violations.append(f"{group_id} was told as {number} after {least} was committed")
        if number >= 0 and not self.told[number].commit_asked:
            self.violations.append(f"{group_id} was told as {number} before a commit was asked for")

    def refused(self, client: str, transactional_id: str, message: str | None) -> None:
        """A batch was, with these words."""
        others = [number for name, number in self.begun if name == transactional_id and number > 1]
        if message == ANOTHER_HAS_BEGUN and not others:
            self.violations.append(
                f"{client} was told that {message}, and {transactional_id} has had but one (P8)"
            )

    # What is seen in the machines.

    def applied(self, owner: str, machine: Machine, applied: Applied, now_s: float) -> None:
        """An entry, from every agent that applies it."""
        self._look_at_stable(owner, machine)
        ended: list[tuple[int, Any, Any]] = [
            (index, command, outcome)
            for index, (command, outcome) in enumerate(
                zip(applied.entry.commands, applied.outcomes, strict=True)
            )
            if isinstance(outcome, TransactionEnded | ProducerInitialized)
        ]
        for _, command, outcome in ended:
            self._look_for_rests(owner, machine, command, outcome)
        if applied.position <= self.position:
            return
        self.position = applied.position
        for index, command, outcome in ended:
            ending = Ending(
                applied.position,
                index,
                _cause(command),
                command.transactional_id,
                epoch_stays=outcome.producer_epoch == command.producer_epoch,
            )
            if isinstance(command, GiveUpTransaction):
                self._look_at_timeout(machine, command, applied.incarnation, now_s)
            if isinstance(command, EndTransaction):
                self.keep_emptied(command, outcome.marked)
            self._look_at_fences(machine, command, outcome)
            self.open.pop(command.transactional_id, None)
            for marked in outcome.marked:
                topic = machine.topics.by_id(marked.topic_id)
                if topic is not None:  # Else it was deleted later in the same entry.
                    self.endings[topic.name, marked.partition, marked.offset] = ending
        self.open.clear()
        for row in machine.transactions.ongoing.values():
            self.open[row.transactional_id] = row.txn_metadata.instance
            begun = (now_s, row.timeout_ms)
            self.begun.setdefault((row.transactional_id, row.txn_metadata.instance), begun)

    def keep_emptied(self, command: EndTransaction, marked: Sequence[Marked]) -> None:
        """What `is_known_refusal` looks for."""
        producer = (command.transactional_id, command.producer_id, command.producer_epoch)
        if command.commit or marked:
            self.emptied.discard(producer)
        else:
            self.emptied.add(producer)

    def _look_at_stable(self, owner: str, machine: Machine) -> None:
        for topic in machine.topics:
            for index in range(topic.partition_count):
                row = machine.partitions.get(topic.topic_id, index)
                if row is None:
                    continue
                stable = row.last_stable
                if stable != min([row.end_offset, *row.open_transactions.values()]):
                    self.violations.append(
                        f"{owner}: the LSO of {topic.name}-{index} is {stable}, its end "
                        f"{row.end_offset}, open {dict(row.open_transactions)}"
                    )
                place = (owner, (f"{topic.name}/{topic.topic_id.hex()}", index))
                if stable < self.stable.get(place, 0):
                    self.violations.append(f"{owner}: the LSO of {topic.name}-{index} went back")
                self.stable[place] = stable

    def _look_for_rests(self, owner: str, machine: Machine, command: Any, outcome: Any) -> None:
        """What ended has ended everywhere at this position."""
        row = machine.transactions.get(command.transactional_id)
        if row is None or row.transactional_id in machine.transactions.ongoing:
            # Open again: by a later command of this entry.
            return
        ids = {outcome.producer_id, row.txn_metadata.producer_id, row.txn_metadata.previous_id}
        for topic in machine.topics:
            for index in range(topic.partition_count):
                partition = machine.partitions.get(topic.topic_id, index)
                if partition is not None and not ids.isdisjoint(partition.open_transactions):
                    self.violations.append(
                        f"{owner}: {command.transactional_id} has ended but in {topic.name}-{index}"
                    )

    def _look_at_fences(self, machine: Machine, command: Any, outcome: Any) -> None:
        """Behind a marker of an epoch no partition takes anything of the epoch before."""
        for marked in outcome.marked:
            partition = machine.partitions.get(marked.topic_id, marked.partition)
            windows = {} if partition is None else partition.windows or {}
            if (window := windows.get(outcome.producer_id)) is None:
                continue  # Its topic was deleted, or the producer has got another id.
            if (epoch := describe(window).epoch) < outcome.producer_epoch:
                self.violations.append(
                    f"{command.transactional_id} has epoch {outcome.producer_epoch}, and partition "
                    f"{marked.partition} takes batches of epoch {epoch} behind its marker (P11)"
                )

    def _look_at_timeout(
        self, machine: Machine, command: GiveUpTransaction, writer: Incarnation, now_s: float
    ) -> None:
        self.counts["timed out"] += 1
        row = machine.transactions.get(command.transactional_id)
        begun = self.begun.get((command.transactional_id, command.instance))
        if begun is None or row is None:
            self.violations.append(f"{command.transactional_id} gave up what was never open")
            return
        instance = self.open.get(command.transactional_id, command.instance)
        if instance != command.instance:
            self.violations.append(
                f"{command} ended the transaction {instance} of {command.transactional_id} (P6)"
            )
        # A later command of the entry may have set another timeout already.
        seconds, timeout_ms = now_s - begun[0], min(begun[1], row.timeout_ms)
        if command.timed_out and seconds < timeout_ms / 1000 - 0.001:
            self.violations.append(
                f"transaction {command.instance} of {command.transactional_id} was given up after "
                f"{seconds:.3f} s of {timeout_ms} ms"
            )
        proven_s, pieces = self.proven_s(writer, begun[0])
        if command.timed_out and proven_s + pieces * TICK_MS / 1000 < timeout_ms / 1000:
            self.violations.append(
                f"transaction {command.instance} of {command.transactional_id} was given up by an "
                f"agent that had a session for {proven_s:.3f} s of {timeout_ms} ms (P6)"
            )

    # The end.

    def verdict(self, logs: dict[Partition, list[Line]]) -> list[str]:
        """All violations, from each partition's whole log; those of `DOOMED` are not given."""
        for told in self.told.values():
            self.complete(told)
        fates, found = self.fates(logs)
        for told in self.told.values():
            found += self._check(told, fates.get(told.number, Fate()), logs)
        history = self.recorder.history
        return found + [repr(anomaly) for anomaly in check(history, transactional=True)]

    def fates(self, logs: dict[Partition, list[Line]]) -> tuple[dict[int, Fate], list[str]]:
        """By transaction. Also what no transaction of any number may look like."""
        found: list[str] = []
        fates: dict[int, Fate] = defaultdict(Fate)
        for partition, lines in sorted(logs.items()):
            open_values: dict[int, list[bytes]] = defaultdict(list)
            for line in lines:
                if line.producer_id == -1:
                    continue
                if line.value is not None:
                    open_values[line.producer_id].append(line.value)
                    continue
                values = open_values.pop(line.producer_id, [])
                found += self._validate_marker(partition, line, values)
                for value in values:
                    fate = fates[number_of(value)]
                    fate.values.append(value)
                    fate.commits[partition, line.offset] = line.commit
            found += [
                f"{values!r} in {partition} are still open" for values in open_values.values()
            ]
        return fates, found

    def _validate_marker(self, partition: Partition, line: Line, values: list[bytes]) -> list[str]:
        """It ended one transaction, and something that may have ended it."""
        where = f"the marker at {line.offset} of {partition}"
        numbers = {number_of(value) for value in values}
        if not numbers and self.merged and not line.commit:
            return []
        if len(numbers) != 1:
            return [f"{where} ends the transactions {sorted(numbers)}"]
        told = self.told[numbers.pop()]
        ending = self.endings.get((*partition, line.offset))
        if ending is None:
            return [f"{where} is none of any entry"]
        if ending.transactional_id != told.transactional_id:
            return [f"{where} is one of {ending.transactional_id}, ends {told}"]
        if line.commit and not told.commit_asked:
            return [f"{where} commits {told}, which was never asked for"]
        if line.commit != (ending.cause == "commit"):
            return [f"{where} is not what its entry says, {ending.cause}"]
        if ending.cause == "abort" and not told.abort_asked:
            return [f"{where} aborts {told}, which was never asked for"]
        return []

    def _check(self, told: Told, fate: Fate, logs: dict[Partition, list[Line]]) -> list[str]:
        kept = {value for value, place in told.sent.items() if place[0] != DOOMED}
        if len(fate.values) != len(set(fate.values)) or not kept.issuperset(fate.values):
            return [f"{told} is there as {fate.values}"]
        found = []
        commits = set(fate.commits.values())
        if len(commits) > 1:
            found.append(f"{told} is torn: {fate.commits}")
        ends = {self.endings.get((*place, offset)) for place, offset in fate.commits}
        is_twice = len(ends) > 1 or len({place for place, _ in fate.commits}) < len(fate.commits)
        if is_twice and not (commits == {False} and _came_late(ends)):
            found.append(f"{told} was ended more than once: {ends}")
        if told.outcome is True and commits == {False}:
            found.append(f"{told} was acknowledged as committed, and is aborted")
        if told.outcome is False and commits == {True}:
            found.append(f"{told} was acknowledged as aborted, and is committed")
        if told.refused and kept and commits != {True}:
            found.append(f"{told} was refused its commit, and is not committed")
        missing = sorted(kept.intersection(told.acked).difference(fate.values))
        may_be_gone = self.merged and told.outcome is not True and True not in commits
        if missing and not may_be_gone:
            found.append(f"{told} has lost {missing}")
        if commits == {True} and kept.difference(fate.values):
            found.append(f"{told} is committed without {sorted(kept.difference(fate.values))}")
        for value, offset in told.acked.items():
            place = told.sent[value]
            if place[0] != DOOMED and value in fate.values:
                line = next((line for line in logs[place] if line.offset == offset), None)
                if line is None or line.value != value:
                    found.append(f"{value!r} of {told} is not at {offset} of {place}")
        return found

    def validate_offsets(
        self, group_id: str, transactional_id: str, number: int, fates: dict[int, Fate]
    ) -> list[str]:
        """What a writer's group has at the end is the number of the newest committed one."""

        def committed(told: Told) -> bool:
            values = fates.get(told.number, Fate()).commits.values()
            return told.outcome is True or True in values

        newest = max(
            (
                told.number
                for told in self.told.values()
                if told.transactional_id == transactional_id
                and told.offsets_acked
                and committed(told)
            ),
            default=-1,
        )
        if number < newest:
            return [f"{group_id} has the offset of {number}, {newest} was committed"]
        if number == -1:
            return []
        told = self.told[number]
        aborted = told.outcome is False or False in fates.get(number, Fate()).commits.values()
        if aborted or not told.commit_asked or told.transactional_id != transactional_id:
            return [f"{group_id} has an offset of {told}"]
        return []


def _came_late(ends: set[Ending | None]) -> bool:
    """Whether what was on its way when the transaction was aborted may have begun it anew: then the epoch was the same, and
    is over with the last of these (docs/design/transactions.md §10)."""
    known = sorted([each for each in ends if each is not None])
    return len(known) == len(ends) and [each.epoch_stays for each in known] == [True, False]


def _cause(command: Any) -> str:
    match command:
        case EndTransaction():
            return "commit" if command.commit else "abort"
        case GiveUpTransaction():
            return "timeout" if command.timed_out else "admin"
        case InitProducer():
            return "takeover"
        case _:
            raise AssertionError(command)
