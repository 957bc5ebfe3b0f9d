"""What must hold among agents in every run, whatever clients see of it.

Nobody believes in a lease for longer than it lasts, or sends anything new without one; of two agents
one coordinates a group; who acts again has reached the log's end; a barrier leads to it; what was said
not to be done is not in the log; an incarnation that is over does nothing, and nothing is taken for it. It
looks on where agents touch the log, and schedules nothing: a run is the same with it and without.
"""

import asyncio
import functools
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from typing_extensions import override

from broker.node import Node
from broker.produce.commit_queue import PendingChunk
from coordinator.commands.entries import Close, CommitChunk, Open, Outcome, Rejected, Tick
from coordinator.commands.group_commands import (
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    ReleaseShards,
    ShardsClaimed,
)
from coordinator.log.memory import MemoryLogCluster
from coordinator.log.metadata_log import LAST_UNKNOWN, Session
from coordinator.log_client import Applied
from coordinator.proposer import NotDoneError
from coordinator.tables.groups import shard_of
from protocol.types import POSITION_ZERO, Incarnation, Position
from tests.kit.faults import FaultyLog, Gate
from tests.kit.loop import SimLoop

T = TypeVar("T")
EntryKey = tuple[Incarnation, int]
Futures = list[asyncio.Future[Outcome]]
OF_HOLDER = (ChangeGroup, CommitOffsets, DeleteGroup, DeleteOffsets, ExpireOffsets)
"""Commands that are only for who holds the group's shard."""
CLOCK_S = 0.01
"""Clocks tell whole milliseconds."""


class Reading(int):
    """Of an agent's clock, which tells whole milliseconds; and how long the log was when it was read."""

    entries: int


class _Sent(dict[EntryKey, Futures]):
    """Of a proposer: those that wait for entries; remembers who was let go."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[tuple[EntryKey, Futures]] = []

    @override
    def pop(self, key: EntryKey, default: Any = None) -> Any:
        futures = super().pop(key, default)
        if futures is not None:
            self.left.append((key, futures))
        return futures


class AgentAccount:
    """Of all agents of one run."""

    def __init__(
        self,
        loop: SimLoop,
        log: MemoryLogCluster,
        violations: list[str],
        *,
        acting: Callable[[], Iterable[str]],
        revoked: set[int],
    ) -> None:
        """`acting`: whose code may run now; `revoked`: sessions of which no lease says that they are over."""
        self._loop = loop
        self._violations = violations
        self._acting = acting
        self._revoked = revoked
        self._nodes: dict[str, Node] = {}
        self._begun_at: dict[str, Position] = {}
        """Where the log ended when they began."""
        self._first: set[tuple[int, int]] = set()
        """Entries that were sent, by session and number."""
        self._sent: list[_Sent] = []
        self._undone: set[EntryKey] = set()
        """Said never to be in the log."""
        self._in_log: set[EntryKey] = set()
        self._given_up: set[tuple[Incarnation, int]] = set()
        """Chunks whose records were said to have failed."""
        self._chunks: set[tuple[Incarnation, int]] = set()
        """That are in the log."""
        self._over: set[Incarnation] = set()
        self._holders: list[Incarnation | None] = [None] * GROUP_SHARDS
        """Of the shards of groups, after the newest entry."""
        self._owners: dict[Incarnation, str] = {}
        self._proven: dict[str, list[tuple[float, float]]] = {}
        """By agent's life: from when to when it had a proven session."""
        self._newest: Position = POSITION_ZERO
        self._places: list[Position] = []
        """Of the entries of the log, one after the other."""
        self.look_at(log)

    def look_at(self, log: MemoryLogCluster) -> None:
        """It is this log's agents that are to come."""
        self._log = log
        log.__dict__["_place"] = functools.partial(self._place, log._place)

    # An agent begins.

    def begins(self, owner: str, node: Node) -> None:
        self._nodes[owner] = node
        self._begun_at[owner] = self._log.head()
        client, runtime = node.log_client, node.groups.runtime
        client._proposer._sent = sent = _Sent()
        self._sent.append(sent)
        lost = functools.partial(self._lost, owner, sent, client._proposer._on_lost)
        client._proposer.on_lost(lost)
        client.on_incarnation(self._incarnation_watch(owner, node))
        client.__dict__["barrier"] = functools.partial(self._barrier, owner, node, client.barrier)
        runtime.__dict__["serve"] = functools.partial(self._serve, owner, node, runtime.serve)
        runtime.__dict__["serves"] = functools.partial(self._serves, owner, node, runtime.serves)
        producing = node.producing
        producing.__dict__["_give_up"] = functools.partial(self._give_up, producing._give_up)

    def watch_log(self, owner: str, log: FaultyLog) -> None:
        """Before what the weather does to calls."""
        log.before["append"] = functools.partial(self._append, owner, log.before["append"])
        log.before["open"] = functools.partial(self._open, owner, log.before["open"])

    def _incarnation_watch(self, owner: str, node: Node) -> Callable[[Incarnation | None], None]:
        end = POSITION_ZERO
        times = self._proven.setdefault(owner, [])

        def changed(incarnation: Incarnation | None) -> None:
            nonlocal end
            here, now_s = node.log_client.machine.position, self._loop.time()
            if times and times[-1][1] > now_s:
                times[-1] = times[-1][0], now_s
            if incarnation is None:
                end = self._log.head()
                self._look_at_what_was_taken(owner, node)
                return
            self._look_at_incarnation(owner, node, incarnation)
            self._owners[incarnation] = owner
            times.append((now_s, math.inf))
            if (session := self._sessions().get(incarnation)) is not None:
                self._look_at_lease(owner, session, "acts", _believed_s(node))
            if here < end:
                self._violations.append(
                    f"{owner} acts again at {here:#x}, and when it had lapsed the log ended at {end:#x} (P12)"
                )

        return changed

    def _look_at_what_was_taken(self, owner: str, node: Node) -> None:
        """Nothing that was not proposed under a session is kept for another (P3)."""
        producing = node.producing
        if producing._queue._unproposed or producing._accumulator.due_ms(0) is not None:
            text = f"{owner} has lost its session, and keeps records that it took under it (P3)"
            self._violations.append(text)

    def _look_at_incarnation(self, owner: str, node: Node, now: Incarnation) -> None:
        """Whoever still holds on to one that is over is refused (P3)."""
        numbers = self._loop._numbers
        for before in [each for each, its in self._owners.items() if its == owner and each != now]:
            # What is made here takes no number away from what the run makes.
            self._loop._numbers = itertools.count()
            refused = _is_not_done(node.log_client.propose(Tick(), before))
            self._loop._numbers = numbers
            if not refused:
                text = f"{owner} takes what was to be done under {before}, and is {now} (P3)"
                self._violations.append(text)

    def _give_up(
        self, give_up: Callable[..., None], chunk: PendingChunk, *arguments: object
    ) -> None:
        """Its clients are told that it is not in the log."""
        self._given_up.add((chunk.chunk_id.incarnation, chunk.chunk_id.number))
        give_up(chunk, *arguments)

    def _place(self, place: Callable[..., Position], *arguments: object) -> Position:
        position = place(*arguments)
        self._places.append(position)
        return position

    def clock(self, read_ms: Callable[[], int]) -> Callable[[], int]:
        """An agent's, of which each reading tells how long the log was then."""

        def read() -> Reading:
            reading = Reading(read_ms())
            reading.entries = len(self._places)
            return reading

        return read

    def _end_at(self, since_ms: int | None) -> Position:
        """Where the log ended when an agent read its clock; None: where it ends now."""
        if since_ms is None:
            return self._log.head()
        assert isinstance(since_ms, Reading)
        return self._places[since_ms.entries - 1] if since_ms.entries else POSITION_ZERO

    def proven_s(self, incarnation: Incarnation, since_s: float) -> tuple[float, int]:
        """For how long since then its agent has had a proven session, in how many pieces."""
        pieces = [
            min(to_s, self._loop.time()) - max(from_s, since_s)
            for from_s, to_s in self._proven[self._owners[incarnation]]
            if to_s > since_s
        ]
        return sum(pieces), len(pieces)

    async def _barrier(
        self, owner: str, node: Node, barrier: Callable[..., Any], since_ms: int | None = None
    ) -> None:
        end = self._end_at(since_ms)
        await barrier(since_ms)
        if (here := node.log_client.machine.position) < end:
            text = f"a barrier of {owner} ended at {here:#x}, and began when the log ended at {end:#x} (P9)"
            self._violations.append(text)

    def _serve(
        self, owner: str, node: Node, serve: Callable[..., None], *arguments: object
    ) -> None:
        runtime = node.groups.runtime
        if runtime.incarnation is None and runtime.in_doubt:
            text = f"{owner} begins to answer for groups, and what it proposed about some is in doubt (P3)"
            self._violations.append(text)
        serve(*arguments)

    def _serves(self, owner: str, node: Node, serves: Callable[[str], bool], group_id: str) -> bool:
        """When a member asks, too: between two entries of the log nobody else looks."""
        if not serves(group_id):
            return False
        sessions = self._sessions()
        if (session := sessions.get(node.groups.runtime.incarnation)) is not None:
            self._look_at_lease(owner, session, "answers for groups")
        return True

    async def _append(
        self, owner: str, before: Gate, session: Session, n: int, payload: object
    ) -> None:
        """What is sent again may be sent whenever the session lives: it is in doubt."""
        if (session.id, n) not in self._first:
            self._first.add((session.id, n))
            if self._nodes[owner].log_client.incarnation() is None:
                self._violations.append(
                    f"{owner} sends its entry {n}, and its session is not proven (P5)"
                )
        await before(session, n, payload)

    async def _open(self, owner: str, before: Gate, *arguments: object) -> None:
        here, end = self._nodes[owner].log_client.machine.position, self._begun_at[owner]
        if here < end:
            text = f"{owner} joins at {here:#x}, and when it began the log ended at {end:#x} (P12)"
            self._violations.append(text)
        await before(*arguments)

    # An entry is applied by one of them.

    def applied(self, node: Node, applied: Applied) -> None:
        self._in_log.add((applied.incarnation, applied.entry.n))
        self._look_at_undone()
        if applied.position > self._newest:
            self._newest = applied.position
            self._look_at_closed(applied)
            self._look_at_holders(applied)
            self._holders = [*node.log_client.machine.groups._holders]
        self._look_at_leases()

    def _lost(
        self,
        owner: str,
        sent: _Sent,
        lost: Callable[[Session, int], None],
        session: Session,
        last: int,
    ) -> None:
        """An append was told that its session is gone, and which number was the last that got in."""
        for (incarnation, n), futures in sent.left if last == LAST_UNKNOWN else ():
            if incarnation == session.incarnation and any(map(_is_not_done, futures)):
                text = f"{owner} says that entry {n} was not done, and the log does not know (P4)"
                self._violations.append(text)
        lost(session, last)

    def _look_at_undone(self) -> None:
        for sent in self._sent:
            for key, futures in sent.left:
                if any(_is_not_done(each) for each in futures):
                    self._undone.add(key)
            sent.left.clear()
        for incarnation, n in sorted(self._undone & self._in_log):
            self._violations.append(
                f"entry {n} of incarnation {incarnation} was said not to be done, and is in the log (P4)"
            )
        for incarnation, number in sorted(self._given_up & self._chunks):
            self._violations.append(
                f"chunk {number} of incarnation {incarnation} was said to have failed, and is in the log (P4)"
            )

    def _look_at_closed(self, applied: Applied) -> None:
        for command, outcome in zip(applied.entry.commands, applied.outcomes, strict=True):
            if isinstance(outcome, Rejected):
                continue
            if applied.incarnation in self._over:
                what = type(command).__name__
                text = (
                    f"{what} of incarnation {applied.incarnation} was done when that was over (P5)"
                )
                self._violations.append(text)
            if isinstance(command, Close):
                self._over.add(command.incarnation)
            elif isinstance(command, CommitChunk):
                self._chunks.add((applied.incarnation, command.number))

    def _look_at_holders(self, applied: Applied) -> None:
        """Nobody is robbed of a group's shard, and who does not hold it changes no group."""
        writer, holders = applied.incarnation, self._holders
        for command, outcome in zip(applied.entry.commands, applied.outcomes, strict=True):
            what = type(command).__name__
            if isinstance(outcome, ShardsClaimed):
                taken = [each for each in outcome.shards if holders[each] not in (None, writer)]
                if taken:
                    text = f"{what} of {writer} took the shards {taken} of groups from others (P5)"
                    self._violations.append(text)
            elif isinstance(command, OF_HOLDER) and not isinstance(outcome, Rejected):
                holder = holders[shard_of(command.group_id)]
                if holder != writer:
                    text = f"{what} of {writer} was done, and {holder} holds the group's shard (P5)"
                    self._violations.append(text)
            if isinstance(command, ClaimShards | ReleaseShards | Close | Open):
                return  # Who holds what by now, only the end of the entry tells.

    def _look_at_leases(self) -> None:
        """Who believes to act by a lease, does; and groups have one coordinator."""
        sessions = self._sessions()
        coordinators: list[tuple[str, frozenset[int]]] = []
        for owner in self._acting():
            if (node := self._nodes.get(owner)) is None:
                continue
            runtime = node.groups.runtime
            if (session := sessions.get(node.log_client.incarnation())) is not None:
                self._look_at_lease(owner, session, "acts", _believed_s(node))
            if runtime.proven and (session := sessions.get(runtime.incarnation)) is not None:
                self._look_at_lease(owner, session, "answers for groups")
                if session not in self._revoked:
                    coordinators.append((owner, runtime.shards))
        for (owner, shards), (other, its) in itertools.combinations(coordinators, 2):
            if both := shards & its:
                text = f"{owner} and {other} coordinate shard {min(both)} of groups (P5)"
                self._violations.append(text)

    def _sessions(self) -> dict[Incarnation | None, int]:
        return {incarnation: session for session, incarnation in self._log._sessions.items()}

    def _look_at_lease(self, owner: str, session: int, does: str, believed_s: float = 0.0) -> None:
        if session in self._revoked:
            return
        lease = self._log._leases.get(session)
        left_s = 0.0 if lease is None else lease.expires_s - self._loop.time()
        if left_s <= 0:
            self._violations.append(f"{owner} {does} under a lease that is over (P5)")
        elif believed_s > left_s + CLOCK_S:
            text = f"{owner} believes in its lease for {believed_s:.3f} s, it ends in {left_s:.3f} s (P5)"
            self._violations.append(text)


def _believed_s(node: Node) -> float:
    """For how long it will act by its lease."""
    lifecycle = node.log_client._lifecycle
    return (lifecycle._proven_until_ms - lifecycle._boot_ms()) / 1000


def _is_not_done(future: asyncio.Future[Outcome]) -> bool:
    return future.done() and not future.cancelled() and isinstance(future.exception(), NotDoneError)
