"""When a round of a job is due."""

import pytest

from broker.jobs.worker.schedule import (
    FAILED,
    QUIET_ENTRIES_MAX,
    SNAPSHOT_LOG_BYTES_MIN,
    Schedule,
)
from coordinator.commands.entries import CreateTopic, Tick
from coordinator.commands.job_commands import BeginSnapshot, JobKind, ReportJob
from coordinator.snapshot.keeping import next_pin
from coordinator.tables.pins import Pins
from protocol.types import POSITION_ZERO, Position

FAILED_MS_MIN = int(1000 * FAILED.first_s)
MERGE, SNAPSHOT = JobKind.MERGE, JobKind.SNAPSHOT
INTERVALS = {MERGE: 60_000, SNAPSHOT: 600_000}
CHANGE = [CreateTopic("t", 1, ())]


class Scheduled:
    def __init__(self, *, snapshot_log_bytes: int = 1_000) -> None:
        self.now_ms = 1_000_000
        self.log_bytes = 0
        self.snapshot_bytes = 0
        self.requested = dict.fromkeys(JobKind, POSITION_ZERO)
        self.schedule = Schedule(
            dict(INTERVALS), snapshot_log_bytes=snapshot_log_bytes, now_ms=self.now_ms
        )

    def due(self, kind: JobKind) -> bool:
        return self.schedule.due(
            kind,
            now_ms=self.now_ms,
            requested=self.requested[kind],
            log_bytes=self.log_bytes,
            snapshot_bytes=self.snapshot_bytes,
        )

    def round(self, kind: JobKind, *, failed: bool = False) -> bool:
        assert self.due(kind)
        asked = self.schedule.begun(kind, requested=self.requested[kind])
        assert not self.due(kind), "only one round of a kind at a time"
        self.schedule.ended(kind, now_ms=self.now_ms, failed=failed)
        return asked


def test_a_job_runs_at_once_and_then_after_its_interval() -> None:
    at = Scheduled()
    at.round(MERGE)
    at.now_ms += INTERVALS[MERGE] - 1
    assert not at.due(MERGE)
    at.now_ms += 1
    at.round(MERGE)


def test_an_interval_that_changes_counts_at_once_when_it_is_shorter() -> None:
    at = Scheduled()
    at.round(MERGE)
    at.schedule.set_intervals({MERGE: 5}, now_ms=at.now_ms)
    at.now_ms += 5
    at.round(MERGE)
    at.schedule.set_intervals({MERGE: 1_000}, now_ms=at.now_ms)
    at.now_ms += 5
    at.round(MERGE)  # That round was promised before.
    at.now_ms += 999
    assert not at.due(MERGE)
    at.now_ms += 1
    at.round(MERGE)


def test_a_shorter_interval_does_not_shorten_the_pause_after_a_failure() -> None:
    at = Scheduled()
    at.round(MERGE, failed=True)
    at.schedule.set_intervals({MERGE: 1}, now_ms=at.now_ms)
    at.now_ms += 5
    assert not at.due(MERGE)


def test_a_kind_without_an_interval_never_runs() -> None:
    at = Scheduled()
    at.requested[JobKind.COMPACT] = Position(5)
    assert not at.due(JobKind.COMPACT)


def test_a_request_is_answered_at_once_and_once() -> None:
    at = Scheduled()
    assert at.round(MERGE) is False
    at.requested[MERGE] = Position(7)
    assert at.round(MERGE) is True
    assert not at.due(MERGE)
    at.requested[MERGE] = Position(8)
    assert at.due(MERGE)


def test_a_request_during_a_round_is_answered_by_the_next() -> None:
    at = Scheduled()
    at.schedule.begun(MERGE, requested=POSITION_ZERO)
    at.requested[MERGE] = Position(7)
    assert not at.due(MERGE)
    at.schedule.ended(MERGE, now_ms=at.now_ms, failed=False)
    assert at.round(MERGE) is True


def test_failed_rounds_come_again_after_pauses_that_double_up_to_a_bound() -> None:
    at = Scheduled()
    pauses = []
    for _ in range(12):
        at.round(MERGE, failed=True)
        before_ms = at.now_ms
        while not at.due(MERGE):
            at.now_ms += FAILED_MS_MIN
        pauses.append(at.now_ms - before_ms)
    assert pauses[:4] == [FAILED_MS_MIN << each for each in range(4)]
    assert pauses[-1] == 1000 * FAILED.longest_s
    at.round(MERGE)
    at.now_ms += INTERVALS[MERGE]
    assert at.due(MERGE)


def test_a_snapshot_waits_for_its_interval_or_for_enough_of_the_log() -> None:
    at = Scheduled()
    assert not at.due(SNAPSHOT)
    at.log_bytes = 1_000
    at.round(SNAPSHOT)
    at.log_bytes = 999
    assert not at.due(SNAPSHOT)
    at.now_ms += INTERVALS[SNAPSHOT]
    at.round(SNAPSHOT)


def test_a_snapshot_is_due_after_as_much_log_as_the_newest_has_bytes_within_two_bounds() -> None:
    most = 8 * SNAPSHOT_LOG_BYTES_MIN
    for snapshot_bytes, due_bytes in (
        (0, SNAPSHOT_LOG_BYTES_MIN),
        (2 * SNAPSHOT_LOG_BYTES_MIN, 2 * SNAPSHOT_LOG_BYTES_MIN),
        (2 * most, most),
    ):
        at = Scheduled(snapshot_log_bytes=most)
        at.snapshot_bytes = snapshot_bytes
        at.log_bytes = due_bytes - 1
        assert not at.due(SNAPSHOT)
        at.log_bytes = due_bytes
        assert at.due(SNAPSHOT)


def test_an_idle_cluster_makes_two_snapshots_and_no_more() -> None:
    at = Scheduled()
    for _ in range(2):
        at.now_ms += INTERVALS[SNAPSHOT]
        at.round(SNAPSHOT)
        kept = next_pin(Pins(), 1_000_000, retention_ms=1_000)
        assert kept is not None
        idle = [Tick(), kept, BeginSnapshot(), ReportJob(MERGE, 1, 1, running=False, note="")]
        at.schedule.applied(idle)
    at.now_ms += 10 * INTERVALS[SNAPSHOT]
    assert not at.due(SNAPSHOT)
    at.schedule.applied(CHANGE)
    assert at.due(SNAPSHOT)


def test_an_idle_cluster_makes_one_more_after_very_many_ticks() -> None:
    at = Scheduled()
    for _ in range(2):
        at.now_ms += INTERVALS[SNAPSHOT]
        at.round(SNAPSHOT)
    at.now_ms += INTERVALS[SNAPSHOT]
    for _ in range(QUIET_ENTRIES_MAX - 1):
        at.schedule.applied([Tick()])
    assert not at.due(SNAPSHOT)
    at.schedule.applied([Tick()])
    at.round(SNAPSHOT)
    at.now_ms += INTERVALS[SNAPSHOT]
    assert not at.due(SNAPSHOT)


def test_much_of_the_log_is_a_reason_whatever_it_says() -> None:
    at = Scheduled()
    for _ in range(2):
        at.now_ms += INTERVALS[SNAPSHOT]
        at.round(SNAPSHOT)
    at.schedule.applied([Tick()])
    at.log_bytes = 1_000
    at.round(SNAPSHOT)


def test_a_snapshot_that_is_asked_for_is_made_though_nothing_has_changed() -> None:
    at = Scheduled()
    at.now_ms += INTERVALS[SNAPSHOT]
    at.round(SNAPSHOT)
    at.now_ms += INTERVALS[SNAPSHOT]
    at.round(SNAPSHOT)
    at.requested[SNAPSHOT] = Position(9)
    assert at.round(SNAPSHOT) is True


@pytest.mark.parametrize("log_bytes", [0, 5_000])
def test_a_snapshot_that_fails_is_not_tried_without_a_pause(log_bytes: int) -> None:
    at = Scheduled()
    at.now_ms += INTERVALS[SNAPSHOT]
    at.log_bytes = log_bytes
    at.round(SNAPSHOT, failed=True)
    assert not at.due(SNAPSHOT)
    at.now_ms += FAILED_MS_MIN
    assert at.due(SNAPSHOT)
