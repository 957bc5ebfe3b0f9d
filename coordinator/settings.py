"""The identity of an agent, and the settings of its log client: plain values, checked when they are made."""

from dataclasses import dataclass

from coordinator.commands.entries import Listener

FEATURE_LEVEL_MAX = 6
"""Newest behaviour of `apply` that this version knows (docs/design/running.md §11)."""


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """What an agent says of itself when it opens an incarnation (docs/design/running.md §1)."""

    node_name: str
    """Its name over restarts; a new process of a name replaces the old one."""
    node_id_wanted: int
    """-1: the one that this name had, else the smallest free."""
    zone: str
    listeners: tuple[Listener, ...]
    software_version: str

    def __post_init__(self) -> None:
        assert self.node_name
        assert self.node_id_wanted >= -1


@dataclass(frozen=True, slots=True)
class LogClientSettings:
    """Durations in ms, and the budget of the log in bytes.

    The lease is short so that consumer groups go on within 5 s of their coordinator's death: its
    ttl, etcd's half second to notice, the interval between reads, an entry for the Close and
    one for the claim. etcd itself grants no less than one and a half of its election timeouts.
    """

    lease_ttl_ms: int = 3_000
    session_deadline_ms: int = 2_000
    """An agent trusts its session this long after the last renewal that was answered was sent."""
    session_read_ms: int = 500
    """Between linearizable reads of the session."""
    barrier_deadline_ms: int = 5_000
    leave_deadline_ms: int = 5_000
    tick_ms: int = 60_000
    """An agent with nothing to say writes its clock this often."""
    log_bytes_max: int = 512 * 1024 * 1024
    """Payloads since the older published snapshot; over it the log takes only what bounds it."""

    def __post_init__(self) -> None:
        durations = (
            self.lease_ttl_ms,
            self.session_deadline_ms,
            self.session_read_ms,
            self.barrier_deadline_ms,
            self.leave_deadline_ms,
            self.tick_ms,
        )
        if min(durations) <= 0:
            raise ValueError("durations of the session must be positive")
        if self.log_bytes_max <= 0:
            raise ValueError("the budget of the log must be positive")
        if not self.lease_ttl_ms // 3 < self.session_deadline_ms < self.lease_ttl_ms:
            raise ValueError(
                f"the session deadline ({self.session_deadline_ms} ms) must lie between a third of"
                f" the lease's ttl, when it is renewed, and the ttl ({self.lease_ttl_ms} ms)"
            )
