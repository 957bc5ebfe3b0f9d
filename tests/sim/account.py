"""What clients were told and shown of records, and what must hold of it in every run.

The account is kept while the run goes on: acknowledgements, definite refusals, every record that
any reader saw. `verdict` holds it against what each agent shows in the end; no violation is a pass.

Offsets of records never change, in no topic. Where nothing compacts and nothing is transactional,
they are dense from the log start on, and the log start says what is gone: it only grows, for
whomever one asks, and moves by a client's wish or by retention alone. A compacted topic keeps, of
each key, the newest record that was acknowledged, or a newer one whose fate was open.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.kit.requests import Partition


class Line(NamedTuple):
    """A record."""

    ident: bytes
    """No other record has it."""
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass
class Shown:
    """One agent's partition, read from its log start to its end."""

    start: int
    """Where reading ended up beginning."""
    end: int
    lines: dict[int, Line]


@dataclass
class Account:
    """What accounts of one run share."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """What happened how often; a replayed seed tells it."""


@dataclass
class RecordAccount(Account):
    """Of the records of one run."""

    dense: set[str] = field(default_factory=set)
    """Topics with neither compaction nor transactions."""
    compacted: set[str] = field(default_factory=set)
    keeps_tombstones: bool = False
    """None is old enough to go from a compacted topic."""
    sent: dict[Partition, dict[bytes, Line]] = field(default_factory=lambda: defaultdict(dict))
    acked: dict[Partition, dict[int, Line]] = field(default_factory=lambda: defaultdict(dict))
    refused: dict[Partition, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    seen: dict[Partition, dict[int, Line]] = field(default_factory=lambda: defaultdict(dict))
    places: dict[bytes, tuple[Partition, int]] = field(default_factory=dict)
    starts: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    """The greatest log start that anybody was told of."""
    wished: dict[Partition, int | None] = field(default_factory=lambda: defaultdict(int))
    """The greatest offset that a client wanted to delete to; None: to the end."""
    retention_ms: dict[str, int] = field(default_factory=dict)
    """The least that was ever asked for; -1: none. Absent: not to be judged."""

    def acknowledge(self, partition: Partition, offset: int, lines: list[Line]) -> None:
        if offset < 0:
            self.violations.append(f"{lines} were acknowledged at {offset} of {partition}")
        self.counts["acknowledged"] += len(lines)
        for at, line in enumerate(lines, start=offset):
            self._placed(partition, at, line, "an acknowledgement")
            self.acked[partition][at] = line

    def saw(self, who: str, partition: Partition, offset: int, line: Line) -> None:
        if self.sent[partition].get(line.ident) != line:
            self.violations.append(f"{who} read {line} at {offset} of {partition}: never sent")
        if line.ident in self.refused[partition]:
            self.violations.append(f"{who} read {line} at {offset}, which was refused (P4)")
        self._placed(partition, offset, line, who)
        self.seen[partition][offset] = line

    def _placed(self, partition: Partition, offset: int, line: Line, who: str) -> None:
        place = self.places.setdefault(line.ident, (partition, offset))
        if place != (partition, offset):
            self.violations.append(f"{who}: {line} at {offset} of {partition}, before at {place}")
        known = self.seen[partition].get(offset) or self.acked[partition].get(offset)
        if known not in (None, line):
            self.violations.append(f"{who}: {line} at {offset} of {partition}, before {known}")

    def end_least(self, partition: Partition) -> int:
        """Behind all that was acknowledged."""
        return max(self.acked[partition], default=-1) + 1

    def ends_at(self, who: str, partition: Partition, end: int, *, least: int) -> None:
        """`least`: what was acknowledged before the question was asked."""
        if end < least:
            self.violations.append(f"{who}: {partition} ends at {end}, before at {least} (P8)")

    def starts_at(
        self, who: str, partition: Partition, start: int, *, least: int, now_ms: int
    ) -> None:
        """`least`: what somebody had been told before the question was asked."""
        if start < least:
            self.violations.append(f"{who}: {partition} starts at {start}, before at {least} (P8)")
        before = self.starts[partition]
        if start <= before:
            return
        self.starts[partition] = start
        self.counts["starts"] += 1
        topic = partition[0]
        wished = self.wished[partition]
        if wished is None or start <= wished:
            return
        limit_ms = self.retention_ms.get(topic)
        if limit_ms is None:
            return
        young = [
            (offset, line)
            for offset, line in self.acked[partition].items()
            if before <= offset < start and (limit_ms < 0 or line.timestamp >= now_ms - limit_ms)
        ]
        if young or limit_ms < 0:
            self.violations.append(
                f"{who}: {partition} starts at {start}, limit {limit_ms} ms, time {now_ms}, "
                f"wish {wished}: {sorted(young)[:2]} is gone"
            )

    def verdict(self, final: dict[str, dict[Partition, Shown]]) -> list[str]:
        """Violations at the end; `final`: what each agent showed then."""
        found = []
        for agent, partitions in final.items():
            for partition, shown in sorted(partitions.items()):
                where = f"{agent}: {partition}"
                found += [f"{where}: {each}" for each in self._check(partition, shown)]
        ends: dict[Partition, set[int]] = defaultdict(set)
        for partitions in final.values():
            for partition, shown in partitions.items():
                ends[partition].add(shown.end)
        found += [f"{p} ends at {sorted(e)}" for p, e in sorted(ends.items()) if len(e) > 1]
        return found

    def _check(self, partition: Partition, shown: Shown) -> list[str]:
        topic = partition[0]
        # Between one agent's reading and the next, retention may go on.
        start = max(shown.start, self.starts[partition])
        if shown.end < self.end_least(partition):
            return [f"ends at {shown.end}, {self.end_least(partition) - 1} was acknowledged"]
        if topic in self.compacted:
            return self._validate_compacted(partition, shown)
        known = self.acked[partition]
        if topic in self.dense:
            known = {**known, **self.seen[partition]}
        found = [
            f"{line} is not at {offset}, there is {shown.lines.get(offset)}"
            for offset, line in sorted(known.items())
            if offset >= start and shown.lines.get(offset) != line
        ]
        if topic in self.dense:
            found += [
                f"nothing at {offset}, log {start} to {shown.end}"
                for offset in range(start, shown.end)
                if offset not in shown.lines
            ]
        return found

    def _validate_compacted(self, partition: Partition, shown: Shown) -> list[str]:
        newest_acked: dict[bytes | None, int] = {}
        for offset, line in self.acked[partition].items():
            newest_acked[line.key] = max(newest_acked.get(line.key, -1), offset)
        newest_shown: dict[bytes | None, int] = {}
        for offset, line in shown.lines.items():
            newest_shown[line.key] = max(newest_shown.get(line.key, -1), offset)
        acked = {line.ident for line in self.acked[partition].values()}
        open_tombstones = {
            line.key
            for line in self.sent[partition].values()
            if line.value is None and line.ident not in acked
        }
        found = []
        for key, offset in sorted(newest_acked.items()):
            line = self.acked[partition][offset]
            there = newest_shown.get(key, -1)
            # A tombstone goes after its time, and it takes older ones along.
            is_deleted = line.value is None or key in open_tombstones
            may_be_gone = is_deleted and not self.keeps_tombstones
            if there < offset and not (may_be_gone and there == -1):
                found.append(f"of key {key!r} {line} at {offset} is gone, the newest is at {there}")
        self.counts["compacted away"] += len(self.acked[partition]) - len(shown.lines)
        return found
