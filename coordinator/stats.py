"""The counters of an agent's log client: plain numbers, read by the metrics page."""

from dataclasses import dataclass

from protocol.types import POSITION_ZERO, Position


@dataclass(slots=True)
class LogClientStats:
    """Counters only grow; the few gauges say so. Times are seconds of the loop's clock."""

    entries_applied: int = 0
    commands_applied: int = 0
    commands_rejected: int = 0
    apply_seconds: float = 0.0
    tail_restarts: int = 0
    entries_appended: int = 0
    bytes_appended: int = 0
    """Payloads, without keys."""
    append_seconds: float = 0.0
    """From the first sending to the answer, of the appends that were answered."""
    append_seconds_last: float = 0.0
    """Gauge."""
    appends_repeated: int = 0
    """Sent again because no answer came (P3)."""
    commands_not_done: int = 0
    commands_over_budget: int = 0
    """Among those not done: refused because the log was over its budget."""
    barriers: int = 0
    barrier_seconds: float = 0.0
    barriers_failed: int = 0
    head_reads: int = 0
    keep_alives: int = 0
    keep_alives_failed: int = 0
    sessions_opened: int = 0
    sessions_lost: int = 0
    others_closed: int = 0
    """Dead incarnations of others whose Close this agent proposed."""
    head_position: Position = POSITION_ZERO
    """Gauge: the newest position that the log is known to hold."""
    applied_position: Position = POSITION_ZERO
    """Gauge."""
    snapshot_position: Position = POSITION_ZERO
    """Gauge: of the snapshot that this agent began with; 0: it began with the log's beginning."""
    snapshot_seconds: float = 0.0
    """Gauge: what finding, reading and restoring it took."""
    snapshot_bytes: int = 0
    """Gauge: of that snapshot."""
    log_bytes: int = 0
    """Gauge: payloads applied since the older published snapshot, or since this agent began."""

    @property
    def lag(self) -> int:
        """Positions between what the log is known to hold and what was applied; not dense."""
        return max(0, self.head_position - self.applied_position)
