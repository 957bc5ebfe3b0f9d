"""What must hold of groups in every run: who owned what when, and what was committed.

A member *believes* that it owns a partition from the answer that gave it until it gives it up,
or until a session timeout has passed since it last sent a heartbeat that was answered well: a
member that counts on more is wrong in Kafka too.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.commands.group_commands import CommitOffsets, OffsetsCommitted
from coordinator.log_client import Applied
from protocol.errors import ErrorCode
from tests.sim.account import Account


@dataclass
class Belief:
    member: str
    until_s: float


class Committed(NamedTuple):
    offset: int
    member_id: str
    epoch: int


@dataclass
class GroupAccount(Account):
    """Of one group."""

    group_id: str = ""
    beliefs: dict[int, Belief] = field(default_factory=dict)
    given: dict[tuple[int, int], str] = field(default_factory=dict)
    """(generation, partition) to member id, of a classic group."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Highest offset per partition whose commit was acknowledged."""
    in_log: dict[int, Committed] = field(default_factory=dict)
    taken_back: set[int] = field(default_factory=set)
    """Partitions in which a member's commit that came late took back its own later one. Nothing in
    it says that it is late, so Kafka takes it as well, as long as member and epoch are right."""
    position: int = 0

    def gives(self, generation: int, partition: int, member_id: str) -> None:
        """A SyncGroup answer: one owner per partition and generation."""
        other = self.given.setdefault((generation, partition), member_id)
        if other != member_id:
            self.violations.append(
                f"partition {partition} of {self.group_id} belongs to {other} and to {member_id} "
                f"in generation {generation}"
            )

    def owns(self, member: str, partitions: set[int], now_s: float, until_s: float) -> None:
        """From now on the member believes that these, and no others, are its own."""
        if until_s <= now_s:
            partitions = set()  # The answer took too long: it believes in nothing.
        for partition in [p for p, belief in self.beliefs.items() if belief.member == member]:
            if partition not in partitions:
                del self.beliefs[partition]
        for partition in partitions:
            belief = self.beliefs.get(partition)
            if belief is not None and belief.member != member and belief.until_s > now_s:
                self.violations.append(
                    f"partition {partition} of {self.group_id} was given to {member} at {now_s:.3f}"
                    f" while {belief.member} held it until {belief.until_s:.3f}"
                )
            self.beliefs[partition] = Belief(member, until_s)

    def committed(self, partition: int, offset: int) -> None:
        """A commit was acknowledged."""
        self.counts["commits"] += 1
        self.acknowledged[partition] = max(self.acknowledged.get(partition, -1), offset)

    def fetched(self, partition: int, offset: int, least: int) -> None:
        """OffsetFetch, asked when `least` was the highest acknowledged commit, told this."""
        if offset < least and partition not in self.taken_back:
            self.violations.append(
                f"partition {partition} of {self.group_id} was told as {offset} after the commit "
                f"of {least} had been acknowledged (P8)"
            )

    def applied(self, applied: Applied) -> None:
        """An entry, from whichever agent applies it first: no offset moves back."""
        if applied.position <= self.position:
            return
        self.position = applied.position
        for command, outcome in zip(applied.entry.commands, applied.outcomes, strict=True):
            if not isinstance(command, CommitOffsets) or command.group_id != self.group_id:
                continue
            if not isinstance(outcome, OffsetsCommitted):
                continue
            for committed, error in zip(command.offsets, outcome.errors, strict=True):
                if error == ErrorCode.NONE:
                    self._committed_in_log(
                        committed.partition,
                        Committed(committed.offset, command.member_id, command.epoch),
                    )

    def _committed_in_log(self, partition: int, now: Committed) -> None:
        before = self.in_log.get(partition)
        self.in_log[partition] = now
        if before is None or now.offset >= before.offset:
            return
        if before._replace(offset=now.offset) == now:
            self.taken_back.add(partition)
            return
        self.violations.append(
            f"partition {partition} of {self.group_id} moved back from {before.offset} to "
            f"{now.offset} by {now.member_id!r} of epoch {now.epoch}"
        )
