"""Clients of a classic group who do anything at any time, and what must hold whatever they do.

`Crowd` keeps a second account, of what clients were told and what the log took:

* a token is answered exactly once (`World` sees to that), with an answer that fits its request;
* in a generation one member is told that it leads, or a successor of it under the same instance;
* a generation's members are told the same protocol;
* an assignment is given only when the log has it, and it is the one that the leader made;
* what another agent would make of the row of a stable group is that group;
* `deadline_ms` is not later than any timer, and a member that is silent is gone in time.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.phases import NEW_MEMBER_MS
from broker.groups.classic.rows import decode_member
from protocol.errors import ErrorCode
from protocol.messages import (
    DescribedGroup,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.broker.groups import requests
from tests.broker.groups.pure import GROUP, Asked, classic_world
from tests.broker.groups.requests import SESSION_MS, Protocols

BEAT_MS = 3_000
BACKOFF_MS = 100
NOISE = random.Random(4).randbytes(40_000)
TOO_MUCH = random.Random(4).randbytes(70_000)
"""Of the one a write is cut, the other fits into no entry."""

ORDINARY: Protocols = (("range", b"1"),)


@dataclass
class Client:
    """What one client knows. It follows the protocol in `Crowd.live`, and only there."""

    name: str
    instance: str | None = None
    version: int = 9
    rebalance_ms: int = 20_000
    protocols: Protocols = ORDINARY
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    member_ids: list[str] = field(default_factory=list)
    assignment: bytes | None = None
    tokens: set[int] = field(default_factory=set)
    beat_ms: int = 0
    leaves: bool = False
    asks_ms: int = 0
    """Whoever was refused asks again a little later."""


class Crowd:
    def __init__(self, *clients: Client, delay_ms: int = 0) -> None:
        self.world = classic_world(initial_rebalance_delay_ms=delay_ms)
        self.clients = clients
        self.askers: dict[int, Client] = {}
        self.life = 0
        """Of the coordinator: what it did not write, its successor does not know."""
        self.syncs = 0
        self.leaders: dict[tuple[int, int], str] = {}
        """Who was told to lead, by life and generation."""
        self.chosen: dict[tuple[int, int], str] = {}
        self.proposed: dict[str, bytes] = {}
        """What the write under way assigns."""
        self.assigned: dict[int, dict[str, bytes]] = {}
        """What the log has, by generation and member id."""
        self.heard_ms: dict[str, int] = {}
        """When a member's session can have begun at the latest."""
        self.changed_ms = 0
        """When all members' can have."""

    # Requests.

    def ask(self, client: Client, what: str, request: Any, *, version: int | None = None) -> None:
        world = self.world
        before = {member.member_id for member in world.classic.members}
        instances = {member.instance_id: member.member_id for member in world.classic.members}
        asked = world.ask(what, request, version=version or client.version, client_id=client.name)
        self.askers[asked.token] = client
        client.tokens.add(asked.token)
        # What was asked has come to a write, and is not answered before it is written.
        assert world.writing is None or asked.token in world.waiting
        if world.writing is not None and what == "sync":
            self._propose(request)
        elif world.writing is not None and what == "join" and world.row is not None:
            self._replace(before, instances)
        self.hear()

    def _propose(self, request: SyncGroupRequest) -> None:
        """Only the leader's assignments may be written."""
        assert self.leaders[self.life, request.generation_id] == request.member_id
        self.proposed = {each.member_id: each.assignment for each in request.assignments}

    def _replace(self, before: set[str], instances: dict[str | None, str]) -> None:
        """A static member's new id is being written: it has the assignment of the old one."""
        for member in self.world.classic.members:
            if member.member_id not in before and member.instance_id in instances:
                old = self.assigned[self.world.classic.generation]
                old_id = instances[member.instance_id]
                self.proposed = {**old, member.member_id: old.get(old_id, b"")}
                place = (self.life, self.world.classic.generation)
                if self.leaders.get(place) == old_id:
                    self.leaders[place] = member.member_id

    def join(self, client: Client, *, member_id: str | None = None) -> None:
        request = requests.join(
            GROUP,
            client.member_id if member_id is None else member_id,
            instance_id=client.instance,
            rebalance_ms=client.rebalance_ms,
            protocols=client.protocols,
        )
        self.ask(client, "join", request)

    def sync(self, client: Client, *, generation: int | None = None) -> None:
        """Everyone sends assignments; followers' must not be looked at."""
        self.syncs += 1
        request = requests.sync(
            GROUP,
            client.member_id,
            client.generation if generation is None else generation,
            instance_id=client.instance,
            assignments={each: f"{self.syncs}:{each}".encode() for each in client.member_ids},
        )
        self.ask(client, "sync", request)

    def leave(self, client: Client, *, version: int = 5, by_instance: bool = False) -> None:
        member_id = "" if by_instance else client.member_id
        request = requests.leave(GROUP, (member_id, client.instance))
        by_instance = client.instance is not None and member_id == ""
        for other in self.clients:
            other.leaves = other is client or (by_instance and other.instance == client.instance)
        self.ask(client, "leave", request, version=version)
        for other in self.clients:
            other.leaves = False

    def beat(self, client: Client) -> ErrorCode:
        code = self.world.heartbeat(client.member_id, client.generation, client.instance)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.heard_ms[client.member_id] = self.world.now_ms
        return code

    def commit(self, client: Client) -> ErrorCode:
        code = self.world.check_commit(client.member_id, client.generation, client.instance)
        if code is ErrorCode.NONE:
            self.heard_ms[client.member_id] = self.world.now_ms
            # What the log would say of it (CommitOffsets is fenced by the member's row).
            row = self.world.row
            member = self.world.classic.members.get(client.member_id)
            if member is not None and member.join_token is None:
                assert row is not None
                assert row.members[client.member_id].epoch == client.generation
        return code

    # The log, the clock.

    def write(self) -> None:
        self.world.write()
        self._taken()
        self.hear()

    def fail(self, code: ErrorCode, *, applied: int = 0) -> None:
        commands = len(self.world.writing.commands) if self.world.writing is not None else 0
        whole = self.world.writing is not None and applied >= commands
        self.world.fail(code, applied=applied)
        if whole:
            self._taken()
        self.proposed = {}
        self.life += 1
        self.changed_ms = self.world.now_ms
        self.hear()
        for client in self.clients:
            client.tokens.clear()

    def _taken(self) -> None:
        row = self.world.row
        assert row is not None
        if row.epoch in self.assigned:
            assert row.members, "an empty generation has a number of its own"
        self.assigned[row.epoch] = self.proposed
        self.proposed = {}

    def advance(self, ms: int) -> None:
        """Let time go on, up to a write."""
        until_ms = self.world.now_ms + ms
        while (at_ms := self.world.next_tick_ms(until_ms)) is not None:
            self.world.now_ms = at_ms
            self.world.tick()
            self.hear()
        if self.world.writing is None:
            self.world.now_ms = until_ms

    # Answers.

    def hear(self) -> None:
        generation = self.world.classic.generation
        for asked in self.world.heard():
            client = self.askers.pop(asked.token)
            client.tokens.discard(asked.token)
            self._gone(client, asked)
            if asked.response.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.asks_ms = self.world.now_ms + BACKOFF_MS
            match asked.response:
                case JoinGroupResponse() as joined:
                    self._joined(client, asked.request, joined, generation)
                case SyncGroupResponse() as synced:
                    self._synced(client, asked.request, synced)
                case left:
                    assert isinstance(left, LeaveGroupResponse)
                    if left.error_code == ErrorCode.NONE and client.version >= 3:
                        assert len(left.members) in (0, 1)

    def _gone(self, client: Client, asked: Asked) -> None:
        """Whoever waits is not given up, unless it leaves, or nobody can tell if it is there."""
        response = asked.response
        if response.error_code != ErrorCode.UNKNOWN_MEMBER_ID or client.leaves:
            return
        waited_ms = self.world.now_ms - asked.at_ms
        new = isinstance(response, JoinGroupResponse) and response.member_id == ""
        assert waited_ms == 0 or (new and waited_ms >= NEW_MEMBER_MS)

    def _joined(
        self, client: Client, request: Any, joined: JoinGroupResponse, generation: int
    ) -> None:
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            assert client.version >= 4
            assert request.member_id == ""
            client.member_id = joined.member_id
        elif joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""
        if joined.error_code != ErrorCode.NONE:
            return
        assert request.member_id in ("", joined.member_id)
        assert joined.generation_id == generation
        assert joined.protocol_type == "consumer"
        assert joined.protocol_name is not None
        assert joined.protocol_name in {name.name for name in request.protocols}
        place = (self.life, generation)
        assert self.chosen.setdefault(place, joined.protocol_name) == joined.protocol_name
        self.changed_ms = self.world.now_ms  # Perhaps the end of a join phase.
        self.heard_ms[joined.member_id] = self.world.now_ms
        member_ids = [member.member_id for member in joined.members]
        leads = joined.leader == joined.member_id and not joined.skip_assignment
        if leads:
            assert self.leaders.setdefault(place, joined.member_id) == joined.member_id
            assert sorted(member_ids) == sorted(self.world.classic.members.ids())
        elif not joined.skip_assignment:
            assert not member_ids
            assert (
                place not in self.leaders
                or self.leaders[place] == joined.leader
                or (client.instance is not None and client.version < 9)
            )
        client.member_id = joined.member_id
        client.generation = generation
        client.leads = leads
        client.member_ids = member_ids
        client.assignment = None

    def _synced(self, client: Client, request: SyncGroupRequest, synced: SyncGroupResponse) -> None:
        # The last one: it was taken, but what the leader assigned fits into no entry.
        if synced.error_code in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ):
            self.heard_ms[request.member_id] = self.world.now_ms
        if synced.error_code != ErrorCode.NONE:
            return
        row = self.world.row
        assert row is not None, "an assignment that the log does not have"
        assert row.epoch == request.generation_id == self.world.classic.generation
        member = row.members[request.member_id]
        assert member.epoch == row.epoch
        assert decode_member(member.body).assignment == synced.assignment
        assert self.assigned[row.epoch].get(request.member_id, b"") == synced.assignment
        if request.generation_id == client.generation:
            client.assignment = synced.assignment
        self.heard_ms[request.member_id] = self.world.now_ms

    # What holds between any two events.

    def check(self) -> None:
        world, group = self.world, self.world.classic
        timers = [at_ms for at_ms, _, _ in group._timers()]
        deadline_ms = group.deadline_ms()
        if timers:
            assert deadline_ms is not None
            assert deadline_ms <= min(timers)
        waiting = [member for member in group.members if member.join_token is not None]
        assert group.members.awaiting_join == len(waiting)
        if world.writing is not None:
            return
        assert (group.state() == "Empty") == (not len(group.members)) or group.state() == (
            "PreparingRebalance"
        )
        for member in group.members:
            since_ms = max(self.changed_ms, self.heard_ms.get(member.member_id, 0))
            if member.is_new:
                assert member.join_token is not None
            elif member.may_expire():
                assert world.now_ms < since_ms + SESSION_MS, "a silent member"
            assert member.deadline_ms <= world.now_ms + NEW_MEMBER_MS or not member.may_expire()
        if group.state() in ("Stable", "Empty") and world.row is not None:
            self._check_row()

    def _check_row(self) -> None:
        """A successor would know the same."""
        group = self.world.classic
        if len(group.members) > group.size_max() or group.generation == 0:
            return
        other = self.world.loaded()
        assert isinstance(other, ClassicGroup)
        assert _told(other) == _told(group)
        assert other.generation == group.generation
        assert other.members.leader_id == group.members.leader_id
        for member in group.members:
            twin = other.members.get(member.member_id)
            assert twin is not None
            assert twin.protocols == member.protocols
            assert twin.session_timeout_ms == member.session_timeout_ms
            assert twin.rebalance_timeout_ms == member.rebalance_timeout_ms

    # From now on everybody follows the protocol.

    def live(self, clients: Sequence[Client], ms: int, *, writes: bool = True) -> None:
        """Let these clients do what clients do, and the log take what is written."""
        until_ms = self.world.now_ms + ms
        while self.world.now_ms < until_ms:
            busy = False
            if self.world.writing is not None:
                if not writes:
                    return
                self.write()
                busy = True
            else:
                for client in clients:
                    busy = self._go_on(client) or busy
                    self.check()
                    if self.world.writing is not None:
                        break
            if not busy:
                now_ms = self.world.now_ms
                turns = [ms for c in clients for ms in (c.beat_ms, c.asks_ms) if ms > now_ms]
                at_ms = self.world.next_tick_ms(until_ms)
                self.advance(min(*turns, until_ms, until_ms if at_ms is None else at_ms) - now_ms)

    def _go_on(self, client: Client) -> bool:
        """Did it send anything but a heartbeat?"""
        due = self.world.now_ms >= client.beat_ms
        if due:
            client.beat_ms = self.world.now_ms + BEAT_MS
        if client.tokens or self.world.now_ms < client.asks_ms:
            return False
        if client.member_id == "" or client.generation < 0:
            self.join(client)
            return True
        if client.assignment is None:
            generation = client.generation
            self.sync(client)
            if not client.tokens and client.assignment is None and generation == client.generation:
                client.generation = -1
            return True
        if due:
            code = self.beat(client)
            if code is not ErrorCode.NONE:
                client.generation = -1
                if code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    client.member_id = ""
        return False


def _told(group: ClassicGroup) -> DescribedGroup:
    described = group.describe()
    described.members.sort(key=lambda member: member.member_id)
    return described
