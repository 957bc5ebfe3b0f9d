"""The language of the scripts about KIP-848 groups: requests in text, answers and writes in text.

    topic NAME PARTITIONS · delete NAME · wait 5s · config SETTING=VALUE
    takeover                     another agent makes the group from its row
    fail N: STEP                 the log takes N commands of what the step writes, then no more
    rows N                       a command has N rows at most
    show group | members | describe | classic | deadline

    NAME: join TOPIC... [OPTION...]   a first request: it subscribes to these topics
    NAME: beat [OPTION...]            a heartbeat in the epoch that it was told last
    NAME: full TOPIC... [OPTION...]   one that says everything, as after an error
    NAME: leave · NAME: away          for good; as a static member that will be back
    NAME: commit · NAME: fetch        may its offsets be committed (v=9), fetched?
    NAME: who TOPIC/PARTITION         the owner of a partition
    NAME: classic join | sync | leave | heartbeat

Options: epoch=N, id=ID (of the member; its name if not said), v=VERSION, has=TOPIC/0-2,5+TOPIC/1
or has=nothing, topics=A,B (or nothing), regex=R, instance=I, rack=R, assignor=A, timeout=MS,
client=ID, host=H, group=G. A topic that was deleted keeps its name here until it is created again.

Indented lines are outcomes: the answer, then each command that was written. Lines that begin with
# are comments.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.groups.consumer import delta
from broker.groups.consumer.members import Partitions
from broker.groups.consumer.rows import decode_group
from coordinator.commands.entries import Entry
from coordinator.commands.group_commands import ChangeGroup
from protocol.errors import ErrorCode
from protocol.messages import ConsumerGroupHeartbeatResponse
from protocol.types import TopicId
from tests.broker.groups.pure import World, consumer_world, partitions_of
from tests.kit.script import meaning, options, runs

FIELDS = {
    "regex": "subscribed_topic_regex",
    "instance": "instance_id",
    "rack": "rack_id",
    "assignor": "server_assignor",
    "group": "group_id",
}


def listed(numbers: Iterable[int]) -> str:
    return ",".join(runs(numbers))


@dataclass
class Script:
    patch: pytest.MonkeyPatch
    world: World = field(default_factory=consumer_world)
    topics: dict[str, TopicId] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)

    def step(self, line: str) -> Iterator[str]:
        entries = len(self.world.story.log)
        if line.startswith("fail "):
            head, _, line = line.removeprefix("fail ").partition(": ")
            self.world.fail_after = int(head)
        name, is_request, request = line.partition(": ")
        if is_request:
            yield from self._ask(name, *request.split())
        else:
            phrases: dict[str, Callable[..., Iterable[str] | None]] = {
                "topic": self._topic,
                "delete": self.world.delete,
                "wait": lambda time: self.world.wait(int(time[:-1]) * 1000),
                "config": self._config,
                "takeover": self.world.take_over,
                "rows": lambda rows: self.patch.setattr(delta, "GROUP_COMMAND_ROWS_MAX", int(rows)),
                "show group": self._show_group,
                "show members": self._show_members,
                "show describe": self._show_describe,
                "show classic": lambda: [str(self.world.group.describe())],
                "show deadline": self._show_deadline,
            }
            yield from meaning(line, phrases) or ()
        for _, entry in self.world.story.log[entries:]:
            yield from self._written(entry)

    # What happens around the group.

    def _topic(self, name: str, count: str) -> None:
        self.topics[name] = self.world.create(name, int(count))

    def _config(self, setting: str) -> None:
        name, _, value = setting.partition("=")
        wanted = tuple(value.split(",")) if name == "consumer_assignors" else int(value)
        self.world.configure(**{name: wanted})

    # Members.

    def _ask(self, name: str, verb: str, *words: str) -> list[str]:
        names, given = options(words)
        member_id = given.pop("id", self.ids.get(name, name))
        epoch = int(given.pop("epoch", self.epochs.get(name, 0)))
        version = int(given.pop("v", 1))
        match verb:
            case "commit" | "fetch":
                return [self._may(verb, member_id, epoch, version)]
            case "who":
                topic, _, partition = names[0].partition("/")
                owner = self.world.group.owner_of(topic, self.topics[topic], int(partition))
                return [str(owner)]
            case "classic":
                return [self._classic(names[0], member_id, version)]
        fields = self._fields(verb, names, given)
        if verb in ("join", "leave", "away"):
            epoch = {"join": 0, "leave": -1, "away": -2}[verb]
        response = self.world.beat(member_id, epoch, version=version, **fields)
        if response.error_code == ErrorCode.NONE and epoch >= 0:
            assert response.member_id is not None
            self.ids[name] = response.member_id
            self.epochs[name] = response.member_epoch
        return [self._answer(response)]

    def _fields(self, verb: str, names: list[str], given: dict[str, str]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if verb in ("join", "full"):
            fields = {"rebalance_timeout_ms": 60_000, "owned": {}, "subscribed_topic_names": names}
        for option, value in given.items():
            match option:
                case "has":
                    fields["owned"] = self._partitions(value)
                case "topics":
                    fields["subscribed_topic_names"] = (
                        [] if value == "nothing" else value.split(",")
                    )
                case "timeout":
                    fields["rebalance_timeout_ms"] = int(value)
                case "client":
                    fields["client_id"] = value
                case "host":
                    fields["host"] = value
                case "without":
                    fields.pop(
                        {"timeout": "rebalance_timeout_ms", "has": "owned"}.get(value, value)
                    )
                case _:
                    fields[FIELDS[option]] = value.strip('"')
        return fields

    def _may(self, verb: str, member_id: str, epoch: int, version: int) -> str:
        world = self.world
        if verb == "commit":
            code = world.check_commit(member_id, epoch, version=9 if version == 1 else version)
        else:
            known = None if member_id == "none" else member_id
            code = world.group.check_fetch(known, epoch, now_ms=world.now_ms)
        return _code(code)

    def _classic(self, verb: str, member_id: str, version: int) -> str:
        world = self.world
        match verb:
            case "heartbeat":
                return _code(world.heartbeat(member_id, 1))
            case "join":
                return str(world.join(member_id, version=version, protocol_type="connect"))
            case "sync":
                return str(world.sync(member_id, -1, version=version))
            case _:
                return str(world.leave(member_id, version=version))

    # Words.

    def _partitions(self, text: str) -> dict[TopicId, set[int]]:
        partitions: dict[TopicId, set[int]] = {}
        if text == "nothing":
            return partitions
        for part in text.split("+"):
            topic, _, numbers = part.partition("/")
            for run in numbers.split(","):
                first, _, last = run.partition("-")
                held = partitions.setdefault(self.topics[topic], set())
                held.update(range(int(first), int(last or first) + 1))
        return partitions

    def _named(self, partitions: Partitions | dict[TopicId, set[int]] | None) -> str:
        if not partitions:
            return "nothing"
        names = {topic_id: name for name, topic_id in self.topics.items()}
        return " ".join(
            f"{name}/{listed(partitions[topic])}"
            for name, topic in sorted((names.get(topic, "?"), topic) for topic in partitions)
        )

    def _answer(self, response: ConsumerGroupHeartbeatResponse) -> str:
        if response.error_code:
            return f"{_code(ErrorCode(response.error_code))}: {response.error_message}"
        told = f"{response.member_id}: epoch {response.member_epoch}"
        if (partitions := partitions_of(response)) is not None:
            told += f", {self._named(partitions)}"
        return told

    def _written(self, entry: Entry) -> Iterator[str]:
        for command in entry.commands:
            if not isinstance(command, ChangeGroup):
                continue
            told = f"log: group epoch {command.epoch}, assignment {decode_group(command.body)[0]}"
            if command.put:
                told += ", put " + " ".join(f"{row.member_id}@{row.epoch}" for row in command.put)
            if command.removed:
                told += ", removed " + " ".join(command.removed)
            yield told

    def _show_group(self) -> Iterator[str]:
        image = self.world.image
        yield f"{self.world.group.state()}: epoch {image.epoch}, assignment {image.assignment_epoch}"

    def _show_members(self) -> Iterator[str]:
        for member in self.world.image.members.values():
            told = f"{member.member_id}: {member.state.name} epoch {member.epoch}"
            told += f" (before {member.previous_epoch})"
            if member.instance_id is not None:
                told += f" instance {member.instance_id}"
            told += f", has {self._named(member.assigned)}"
            if member.revoking:
                told += f", revokes {self._named(member.revoking)}"
            if member.target != member.assigned:
                told += f", target {self._named(member.target)}"
            yield told

    def _show_describe(self) -> Iterator[str]:
        told = self.world.consumer.describe_consumer(self.world.topics)
        yield (
            f"{told.group_id} {told.group_state} {told.group_epoch}/{told.assignment_epoch} "
            f"{told.assignor_name}"
        )
        for member in told.members:
            yield (
                f"{member.member_id} {member.instance_id} {member.rack_id} {member.member_epoch} "
                f"{member.client_id}{member.client_host} {member.subscribed_topic_names} "
                f"{member.subscribed_topic_regex} type {member.member_type}"
            )
            for what in (member.assignment, member.target_assignment):
                yield "  " + " ".join(
                    f"{topic.topic_name}/{listed({*topic.partitions})}"
                    for topic in what.topic_partitions
                )

    def _show_deadline(self) -> Iterator[str]:
        due_ms = self.world.group.deadline_ms()
        yield "none" if due_ms is None else f"in {due_ms - self.world.now_ms} ms"


def _code(code: ErrorCode) -> str:
    return f"{int(code)} {code.name}"
