"""When a round of each kind of job is due. Pure: time is handed in.

Retention, merging, spilling, compaction and collection look again after their interval, since
time alone makes records old. A snapshot is worth its bytes only when the machine has changed:
twice after the newest change, since objects go, and the log is cut, by the older of two. Ticks,
what keeps snapshots, and the like are no changes, but there must not be ever more of them in the log, nor may they fill its
budget, so many entries or bytes are a reason as well. Who starts has to load the newest snapshot and to apply
what came since: the next is due when that has become as much as the snapshot, within two bounds, so that
neither grows alone and snapshots cost no more than the log. Rounds that fail are repeated after pauses that double.

`RequestJob` runs a kind at once; requests are told apart by their positions. Until
the first of them, or for a while, a new worker waits: an agent that takes the jobs has just started, often, and may not stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.config.settings import Settings
from coordinator.commands.declaration import DECLARATIONS
from coordinator.commands.entries import Command
from coordinator.commands.job_commands import JobKind
from coordinator.snapshot.keeping import is_snapshot_pin
from protocol.types import POSITION_ZERO, Position
from storage.stores.retry_policy import RetryPolicy

FAILED: Final = RetryPolicy(first_s=5.0, longest_s=600.0)
"""Of whole rounds: each may have read and written much before it failed."""
SNAPSHOTS_AFTER_CHANGE: Final = 2
QUIET_ENTRIES_MAX: Final = 10_000
"""Of an idle cluster, since its newest snapshot: a week of ticks of one agent."""
SNAPSHOT_LOG_BYTES_MIN: Final = 8 << 20
"""About half a second of applying."""
ENTRY_BYTES: Final = 256
"""An entry takes as long to apply as so many bytes more of the batches that it names."""


def intervals_ms(settings: Settings) -> dict[JobKind, int]:
    """Of the kinds that are to run."""
    kafka = settings.kafka
    intervals = {
        JobKind.SNAPSHOT: settings.snapshot_interval_ms,
        JobKind.RETENTION: kafka.log_retention_check_interval_ms,
        JobKind.MERGE: settings.merge_interval_ms,
        JobKind.SPILL: settings.spill_interval_ms,
        JobKind.COLLECT: settings.collect_interval_ms,
    }
    if kafka.log_cleaner_enable:
        intervals[JobKind.COMPACT] = kafka.log_cleaner_backoff_ms
    return intervals


@dataclass(slots=True)
class _Kind:
    """One kind's turn."""

    interval_ms: int
    due_ms: int
    failures: int = 0
    """Rounds that failed since one succeeded."""
    running: bool = False
    served: Position = POSITION_ZERO
    """Newest request that a round has answered."""


class Schedule:
    """All kinds' turns, in one worker. What has no interval never runs."""

    def __init__(
        self,
        intervals: dict[JobKind, int],
        *,
        snapshot_log_bytes: int,
        now_ms: int,
        begin_ms: int = 0,
    ) -> None:
        """All rounds are due at once, but a snapshot's: there may have been one just before.

        Before `begin_ms` none is, until somebody asks for one."""
        self._begin_ms = begin_ms
        self._snapshot_log_bytes = snapshot_log_bytes
        self._kinds = {kind: _Kind(interval_ms, now_ms) for kind, interval_ms in intervals.items()}
        if (snapshot := self._kinds.get(JobKind.SNAPSHOT)) is not None:
            snapshot.due_ms += snapshot.interval_ms
        self._since_change = 0
        """Snapshots since the newest change."""
        self._entries = 0
        """Since the newest snapshot."""

    def applied(self, commands: Iterable[Command]) -> None:
        """The machine has taken in an entry with these commands."""
        self._entries += 1
        for command in commands:
            if DECLARATIONS[type(command)].changes_state and not is_snapshot_pin(command):
                self._since_change = 0
                return

    def set_intervals(self, intervals: Mapping[JobKind, int], *, now_ms: int) -> None:
        """Other intervals from now on; a shorter one counts for the round that is waited for."""
        for kind, row in self._kinds.items():
            row.interval_ms = intervals.get(kind, row.interval_ms)
            if row.failures == 0:
                row.due_ms = min(row.due_ms, now_ms + row.interval_ms)

    def due(
        self,
        kind: JobKind,
        *,
        now_ms: int,
        requested: Position,
        log_bytes: int,
        snapshot_bytes: int,
    ) -> bool:
        """Should a round begin? `requested`: position of the newest request for the kind, of those
        that are to be answered here; `log_bytes`: of the log since the newest snapshot, with
        ENTRY_BYTES for each entry; `snapshot_bytes`: of that snapshot."""
        row = self._kinds.get(kind)
        if row is None or row.running:
            return False
        if requested > row.served:
            return row.failures == 0 or now_ms >= row.due_ms
        if now_ms < self._begin_ms:
            return False
        if kind is not JobKind.SNAPSHOT:
            return now_ms >= row.due_ms
        enough = max(snapshot_bytes, SNAPSHOT_LOG_BYTES_MIN)
        if log_bytes >= min(enough, self._snapshot_log_bytes) and row.failures == 0:
            return True
        if self._since_change >= SNAPSHOTS_AFTER_CHANGE and self._entries < QUIET_ENTRIES_MAX:
            return False
        return now_ms >= row.due_ms

    def begun(self, kind: JobKind, *, requested: Position) -> bool:
        """A round begins; does it answer a request?"""
        row = self._kinds[kind]
        row.running = True
        asked = requested > row.served
        if asked:
            self._begin_ms = 0
        row.served = max(row.served, requested)
        return asked

    def ended(self, kind: JobKind, *, now_ms: int, failed: bool) -> None:
        row = self._kinds[kind]
        row.running = False
        if failed:
            row.failures += 1
            row.due_ms = now_ms + int(1000 * FAILED.delay_s(row.failures))
            return
        row.failures = 0
        row.due_ms = now_ms + row.interval_ms
        if kind is JobKind.SNAPSHOT:
            self._since_change += 1
            self._entries = 0
