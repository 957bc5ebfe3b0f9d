"""Counters of the shell of groups, read at each scrape. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class GroupStats:
    heartbeats: int = 0
    """Of both protocols."""
    rebalances: int = 0
    """Times that a group became Stable."""
    writes: int = 0
    """Changes of groups that are in the log."""
    writes_failed: int = 0
    """Changes that are not: their groups were made anew from the log."""
    writes_fenced: int = 0
    """Of those, refused by the log for their epoch or members: bugs."""
    expired_members: int = 0
    takeovers: int = 0
    """Groups with members that were taken over with their shard."""
    shards_claimed: int = 0
    shards_released: int = 0
    parked: int = 0
    """Requests that wait: for others to join or sync, or for the log."""
    overflows: int = 0
    """Requests refused because too many waited for the log to take a change of their group."""
    unreadable: int = 0
    """Rows that this version could not read."""
