"""Counters of the transactions that an agent ended, read at each scrape. Pure."""

from dataclasses import dataclass, field
from enum import Enum


class Ending(Enum):
    """How a transaction ended, by a command of this agent."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    FENCED = "fenced"
    """By an InitProducerId, while it was open."""
    TIMED_OUT = "timed_out"
    GIVEN_UP = "given_up"
    """By an admin."""


@dataclass(slots=True)
class TransactionStats:
    """Counts since the start of the agent; of this agent's own commands."""

    ended: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    challenges: int = 0
    """EndTxn that were asked to come again because they may have been late ones."""
    moved: int = 0
    """Adds and EndTxn that `apply` refused because the transaction was another by then."""
    open_fates: int = 0
    """Connections closed because the fate of what was asked stayed open too long (P4)."""
    ids_expired_early: int = 0
    """Transactional ids that were forgotten before their time, since there were nearly too many."""
