"""The language of the stories of a classic group: who asks what, and what everybody is told.

    settings [delay=MS] [size=N] [min=MS] [max=MS]     of the group from now on (default delay 0)
    NAME joins [OPTION ...] [+PROTOCOL=BYTES ...]
    NAME syncs [OPTION ...] [+NAME=BYTES ...]          the leader with assignments
    NAME beats | commits | leaves [OPTION ...]
    leave WHO ...                                      an administrator's; WHO is NAME, NAME/INSTANCE
                                                       or /INSTANCE
    wait MS [NAME ...]                                 the clock goes on; what is due is done, and the
                                                       named send heartbeats every three seconds
    hold                                               from now on writes wait for `write` or `fail`
    write · fail CODE [COUNT]                          the log takes a write, or it does not, or it
                                                       takes COUNT commands and nobody hears of it
    takeover                                           another agent coordinates from the row
    show · row · owner TOPIC/PARTITION · subscribes TOPIC
    simple                                             an offset commit has made the row

OPTION is v=VERSION id=ID instance=ID type=TYPE name=PROTOCOL session=MS rebalance=MS generation=N
client=ID. A member remembers what it sent and was told: an option that is left out is as before.
`-` as a value is none, `id=@NAME` is the id of another member. BYTES are text, or topics(T,...), a consumer's
subscription, or parts(T:P,P;...), an assignment, or zeros(N) or noise(N): as many bytes.
A member's id is its client's id and a number. Lines that are indented are the outcomes.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from broker.groups.group.effects import Write
from coordinator.commands.codec import encoded_size
from coordinator.commands.group_commands import ChangeGroup
from protocol.consumer_protocol import write_assignment
from protocol.errors import ErrorCode
from protocol.messages import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupResponse,
)
from protocol.types import TOPIC_ID_ZERO
from tests.broker.groups import requests
from tests.broker.groups.pure import GROUP, Asked, classic_world
from tests.kit.script import meaning, options

SETTINGS = {
    "delay": "initial_rebalance_delay_ms",
    "size": "max_size",
    "min": "min_session_timeout_ms",
    "max": "max_session_timeout_ms",
}
BEAT_MS = 3_000
CALL = re.compile(r"(\w+)\(([^)]*)\)")


@dataclass
class Member:
    """What a client knows of itself."""

    client: str
    version: int = 9
    id: str = ""
    instance: str | None = None
    type: str | None = "consumer"
    name: str | None = None
    session: int = 10_000
    rebalance: int = 60_000
    generation: int = -1
    protocols: dict[str, bytes] = field(default_factory=lambda: {"range": b"r"})


class Script:
    def __init__(self) -> None:
        self.world = classic_world()
        self.members: dict[str, Member] = {}
        self.askers: dict[int, str] = {}
        self.holds = False
        self.requests = {
            "joins": self._join,
            "syncs": self._sync,
            "beats": self._beat,
            "commits": self._commit,
            "leaves": self._leave,
        }
        self.phrases: dict[str, Callable[..., Iterable[str] | None]] = {
            "settings": self._settings,
            "leave": self._leave_many,
            "wait": self._wait,
            "hold": self._hold,
            "write": self._write,
            "fail": self._fail,
            "takeover": lambda: self._fail("NOT_COORDINATOR"),
            "show": self._show,
            "row": self._row,
            "owner": self._owner,
            "subscribes": lambda topic: ["yes" if self.world.group.subscribes(topic) else "no"],
            "simple": self._simple,
        }

    def step(self, line: str) -> Iterable[str] | None:
        """Carries out one line; a line for each outcome."""
        name, *words = line.split()
        if not words or words[0] not in self.requests:
            return meaning(line, self.phrases)
        member = self.members.setdefault(name, Member(client=name))
        _, given = options(word for word in words if not word.startswith("+"))
        parted = [word[1:].partition("=") for word in words if word.startswith("+")]
        extras = {key: text for key, _, text in parted}
        return self.requests[words[0]](name, self._updated(member, given), extras)

    def _updated(self, member: Member, given: dict[str, str]) -> Member:
        """The member as it speaks in this request; only what identifies it is for once."""
        for option in ("instance", "type", "name", "client"):
            if option in given:
                setattr(member, option, None if given[option] == "-" else given[option])
        for option in ("session", "rebalance"):
            if option in given:
                setattr(member, option, int(given[option]))
        once = replace(member)
        if "v" in given:
            once.version = int(given["v"])
        if "generation" in given:
            once.generation = int(given["generation"])
        if "id" in given:
            once.id = self._id(given["id"])
        return once

    def _id(self, text: str) -> str:
        if text == "-":
            return ""
        return self.members[text[1:]].id if text.startswith("@") else text

    # Requests.

    def _join(self, name: str, member: Member, extras: dict[str, str]) -> Iterator[str]:
        if extras:
            protocols = {key: _bytes(text) for key, text in extras.items() if key}
            member.protocols = self.members[name].protocols = protocols
        request = requests.join(
            GROUP,
            member.id,
            instance_id=member.instance,
            session_ms=member.session,
            rebalance_ms=member.rebalance,
            protocol_type=member.type or "",
            protocols=tuple(member.protocols.items()),
        )
        return self._ask("join", name, member, request)

    def _sync(self, name: str, member: Member, extras: dict[str, str]) -> Iterator[str]:
        request = requests.sync(
            GROUP,
            member.id,
            member.generation,
            instance_id=member.instance,
            protocol_type=member.type if member.version >= 5 else None,
            protocol_name=member.name if member.version >= 5 else None,
            assignments={self._id_of(each): _bytes(text) for each, text in extras.items()},
        )
        return self._ask("sync", name, member, request)

    def _id_of(self, who: str) -> str:
        return self.members[who].id if who in self.members else who

    def _leave(self, name: str, member: Member, _: dict[str, str]) -> Iterator[str]:
        request = requests.leave(GROUP, (member.id, member.instance))
        return self._ask("leave", name, member, request)

    def _leave_many(self, *words: str) -> Iterator[str]:
        pairs = [word.partition("/") for word in words]
        members = [(self._id_of(name), instance or None) for name, _, instance in pairs]
        admin = Member(client="admin", version=5)
        return self._ask("leave", "leave", admin, requests.leave(GROUP, *members))

    def _ask(self, what: str, name: str, member: Member, request: Any) -> Iterator[str]:
        asked = self.world.ask(what, request, version=member.version, client_id=member.client)
        self.askers[asked.token] = name
        yield from self._told()
        if asked.token in self.world.waiting and not self.world.writing:
            yield f"{name} waits"

    def _beat(self, name: str, member: Member, _: dict[str, str]) -> Iterator[str]:
        yield f"{name}: {self._beat_code(member).name}"

    def _beat_code(self, member: Member) -> ErrorCode:
        return self.world.heartbeat(member.id, member.generation, member.instance)

    def _commit(self, name: str, member: Member, _: dict[str, str]) -> Iterator[str]:
        code = self.world.check_commit(member.id, member.generation, member.instance)
        yield f"{name}: {code.name}"

    # What happens otherwise.

    def _settings(self, *words: str) -> None:
        _, given = options(words)
        self.world.configure(**{SETTINGS[key]: int(value) for key, value in given.items()})

    def _wait(self, text: str, *names: str) -> Iterator[str]:
        world = self.world
        until_ms = world.now_ms + int(text)
        heard = dict.fromkeys(names, ErrorCode.NONE)
        beat_ms = world.now_ms + BEAT_MS if names else until_ms + 1
        while True:
            at_ms = world.next_tick_ms(min(until_ms, beat_ms))
            if at_ms is not None:
                world.now_ms = at_ms
                world.tick()
                for line in self._told():
                    yield f"at {at_ms}: {line}"
            elif beat_ms <= until_ms:
                world.now_ms = beat_ms
                beat_ms += BEAT_MS
                for name in names:
                    code = self._beat_code(self.members[name])
                    if code is not heard[name]:
                        heard[name] = code
                        yield f"at {world.now_ms}: {name} beats: {code.name}"
            else:
                break
        world.now_ms = until_ms

    def _hold(self) -> None:
        self.holds = True

    def _write(self) -> Iterator[str]:
        self.world.write()
        return self._told()

    def _fail(self, code: str, applied: str = "0") -> Iterator[str]:
        self.world.fail(ErrorCode[code], applied=int(applied))
        return self._told()

    def _simple(self) -> None:
        self.world.commit(self.world.create("events", 1))
        # What creates the row ends the live group.
        self.world.group = self.world.loaded()

    def _show(self) -> Iterator[str]:
        described = self.world.group.describe()
        told = [f"{described.protocol_type or 'no type'}", f"{described.protocol_data or 'none'}"]
        yield f"{described.group_state}, generation {self.world.classic.generation}: {'/'.join(told)}"
        for member in described.members:
            told = [member.member_id]
            if member.group_instance_id is not None:
                told.append(f"instance {member.group_instance_id}")
            told.append(f"client {member.client_id} {member.client_host}")
            told.append(f"metadata {_text(member.member_metadata)}")
            told.append(f"assignment {_text(member.member_assignment)}")
            yield ", ".join(told)

    def _row(self) -> Iterator[str]:
        row = self.world.row
        if row is None:
            yield "none"
            return
        members = [f"{member_id}@{member.epoch}" for member_id, member in row.members.items()]
        yield f"epoch {row.epoch}: {' '.join(members) or 'no members'}"

    def _owner(self, place: str) -> Iterator[str]:
        topic, _, partition = place.rpartition("/")
        yield self.world.group.owner_of(topic, TOPIC_ID_ZERO, int(partition)) or "nobody known"

    # What is told of an outcome.

    def _told(self) -> Iterator[str]:
        for asked in self.world.heard():
            yield self._answer(asked)
        if self.world.writing is not None:
            yield _written(self.world.writing)
            if not self.holds:
                yield from self._write()

    def _answer(self, asked: Asked) -> str:
        name = self.askers.pop(asked.token)
        match asked.response:
            case JoinGroupResponse() as joined:
                self._learn(name, joined)
                return f"{name}: {_joined(joined)}"
            case SyncGroupResponse() as synced:
                if synced.error_code != ErrorCode.NONE:
                    assert synced.protocol_type is None
                    assert synced.protocol_name is None
                    assert synced.assignment == b""
                    return f"{name}: sync {ErrorCode(synced.error_code).name}"
                told = f"{synced.protocol_type}/{synced.protocol_name}"
                return f"{name}: synced {_text(synced.assignment)}, {told}"
            case LeaveGroupResponse() as left:
                rows = [f"{_named(row)} {ErrorCode(row.error_code).name}" for row in left.members]
                return f"{name}: {', '.join([f'left {ErrorCode(left.error_code).name}', *rows])}"
            case _:
                raise AssertionError(asked)

    def _learn(self, name: str, joined: JoinGroupResponse) -> None:
        member = self.members[name]
        if joined.member_id and joined.error_code in (
            ErrorCode.NONE,
            ErrorCode.MEMBER_ID_REQUIRED,
        ):
            member.id = joined.member_id
        if joined.error_code == ErrorCode.NONE:
            member.generation = joined.generation_id
            member.name = joined.protocol_name


def _joined(joined: JoinGroupResponse) -> str:
    if joined.error_code != ErrorCode.NONE:
        assert joined.generation_id == -1
        assert joined.protocol_name is None
        assert joined.protocol_type is None
        assert not joined.leader
        assert not joined.members
        return f"join {ErrorCode(joined.error_code).name} as {joined.member_id or 'nobody'}"
    told = [
        f"joined {joined.generation_id} as {joined.member_id}",
        f"{joined.protocol_type}/{joined.protocol_name}",
        f"leader {joined.leader}",
    ]
    if joined.skip_assignment:
        told.append("skips the assignment")
    if joined.members:
        members = [f"{_named(member)}={_text(member.metadata)}" for member in joined.members]
        told.append(f"members {' '.join(members)}")
    return ", ".join(told)


def _named(member: JoinGroupResponseMember | MemberResponse) -> str:
    return member.member_id + (f"/{member.group_instance_id}" if member.group_instance_id else "")


def _written(write: Write) -> str:
    told = []
    for command in write.commands:
        assert isinstance(command, ChangeGroup)
        assert encoded_size(command) <= 65_491
        put = [f"{member.member_id}@{member.epoch}" for member in command.put]
        text = f"{command.epoch_before} to {command.epoch}"
        if put:
            text += f", put {' '.join(put)}"
        if command.removed:
            text += f", removed {' '.join(command.removed)}"
        told.append(text)
    return f"written: {' | '.join(told)}"


def _bytes(text: str) -> bytes:
    call = CALL.fullmatch(text)
    if call is None:
        return text.encode()
    word, inside = call.groups()
    if word == "topics":
        return requests.subscription(*(inside.split(",") if inside else []))
    if word == "parts":
        places = [place.split(":") for place in inside.split(";")]
        return write_assignment(
            {topic: [int(number) for number in numbers.split(",")] for topic, numbers in places}
        )
    if word == "zeros":
        return bytes(int(inside))
    assert word == "noise"
    return random.Random(int(inside)).randbytes(int(inside))


def _text(data: bytes) -> str:
    if not data:
        return "nothing"
    return data.decode() if data.isalnum() and len(data) < 50 else f"{len(data)} bytes"
