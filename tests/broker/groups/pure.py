"""One pure group over a machine: what it writes goes into a log and is applied, as in an agent.

Commands pass through the log's codec, and the row they leave is the image that a KIP-848 group has.
Each request is answered exactly once, by a response of its own kind; who asks while something is
carried out comes after it. A Write is taken at once, or, in a world that `holds`, waits for `write`
or `fail`. It may fail: it is then lost, cut, or applied without anybody hearing of it, and the group
is made anew from its row. `ReplaceGroup` replaces the group, as the runtime does.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from broker.config.group_settings import GroupSettings
from broker.groups.classic.group import ClassicGroup
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.image import GroupImage
from broker.groups.group.effects import Answer, Caller, Effects, ReplaceGroup, Write
from broker.groups.group.live import GroupFactory, LiveGroup
from broker.groups.migration import protocol_change
from broker.groups.migration.classic_in_consumer import MixedGroup
from broker.groups.migration.members import as_consumer
from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import DONE, CreateTopic, DeleteTopic, Entry, TopicCreated
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    GroupKind,
    OffsetsCommitted,
)
from coordinator.tables.groups import GROUP_SHARDS, GroupRow
from coordinator.tables.topics import Topics
from protocol.errors import ErrorCode
from protocol.messages import (
    ConsumerGroupHeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from protocol.types import TopicId
from tests.broker.groups import requests
from tests.coordinator.machine.story import Story

GROUP = "g"
HOST = "/10.0.0.1"
RESPONSES = {
    "join": JoinGroupResponse,
    "sync": SyncGroupResponse,
    "leave": LeaveGroupResponse,
    "consumer_heartbeat": ConsumerGroupHeartbeatResponse,
}
CLASSIC = GroupFactory(
    lambda kind, group_id, settings, topics: ClassicGroup.new(group_id, settings),
    lambda row, settings, topics, now_ms: ClassicGroup.loaded(row, settings, now_ms),
)
CONSUMER = GroupFactory(
    lambda kind, group_id, settings, topics: MixedGroup(
        group_id, settings, GroupImage(), topics=topics
    ),
    lambda row, settings, topics, now_ms: MixedGroup(
        GROUP, settings, GroupImage.of(row), now_ms, topics=topics
    ),
)
EITHER = GroupFactory(protocol_change.new, protocol_change.loaded)


def partitions_of(response: ConsumerGroupHeartbeatResponse) -> dict[TopicId, set[int]] | None:
    """Returns what an answer assigns; None: the same as before."""
    if response.assignment is None:
        return None
    return {t.topic_id: set(t.partitions) for t in response.assignment.topic_partitions}


@dataclass(eq=False)
class Asked:
    """A request, and its response once it is there."""

    token: int
    what: str
    request: Any
    at_ms: int
    hear: Callable[[Any], None]
    response: Any = None


@dataclass
class World:
    factory: GroupFactory
    settings: GroupSettings = field(default_factory=GroupSettings)
    now_ms: int = 1_000_000
    holds: bool = False
    """Writes wait for `write` or `fail`."""
    client_id: str = "c"
    fresh: str = "fresh-"
    """What fresh ids begin with; then comes the number of the request."""
    fail_after: int | None = None
    """The next Write fails after so many of its commands."""
    story: Story = field(default_factory=Story)
    token: int = 0
    waiting: dict[int, Asked] = field(default_factory=dict)
    answered: list[Asked] = field(default_factory=list)
    """In the order of the answers; `heard` empties it."""
    queue: deque[tuple[Asked, Caller]] = field(default_factory=deque)
    busy: int = 0
    writing: Write | None = None
    writes: int = 0
    """Commands of the group that were applied."""
    kinds: list[str] = field(default_factory=list)
    """What the group has become, one after the other."""

    def __post_init__(self) -> None:
        self.agent = self.story.open()
        self.story.do(self.agent, ClaimShards((*range(GROUP_SHARDS),)))
        self.group: LiveGroup = self.loaded()

    @property
    def topics(self) -> Topics:
        return self.story.machine.topics

    @property
    def row(self) -> GroupRow | None:
        return self.story.machine.groups.get(GROUP)

    @property
    def image(self) -> GroupImage:
        """Of a KIP-848 group."""
        return self.consumer.image

    @property
    def consumer(self) -> ConsumerGroup:
        assert isinstance(self.group, ConsumerGroup)
        return self.group

    @property
    def classic(self) -> ClassicGroup:
        assert isinstance(self.group, ClassicGroup)
        return self.group

    # What is around the group.

    def configure(self, **settings: Any) -> None:
        self.settings = replace(self.settings, **settings)
        self.group.settings = self.settings

    def create(self, name: str, partitions: int) -> TopicId:
        outcome = self.story.do(self.agent, CreateTopic(name, partitions, ()))
        assert isinstance(outcome, TopicCreated)
        return outcome.topic_id

    def delete(self, name: str) -> None:
        topic = self.topics.by_name(name)
        assert topic is not None
        assert self.story.do(self.agent, DeleteTopic(topic.topic_id)) == DONE

    def commit(self, topic: TopicId, member_id: str = "", epoch: int = EPOCH_NONE) -> None:
        """Put the offset of a partition into the log."""
        offsets = (CommittedOffset(topic, 0, 7, -1, ""),)
        outcome = self.story.do(self.agent, CommitOffsets(GROUP, member_id, epoch, offsets))
        assert outcome == OffsetsCommitted((ErrorCode.NONE,))

    # Requests.

    def ask(
        self,
        what: str,
        request: Any,
        *,
        version: int,
        client_id: str | None = None,
        host: str = HOST,
        hear: Callable[[Any], None] = lambda response: None,
    ) -> Asked:
        """`hear` is called with the response, now or later."""
        assert self.writing is None
        self.token += 1
        asked = Asked(self.token, what, request, self.now_ms, hear)
        client_id = self.client_id if client_id is None else client_id
        fresh_id = f"{self.fresh}{self.token}"
        caller = Caller(self.token, version, client_id, host, self.now_ms, fresh_id)
        self.waiting[self.token] = asked
        self.queue.append((asked, caller))
        self._go_on()
        return asked

    def heard(self) -> list[Asked]:
        """Who was answered since this was called last."""
        answered, self.answered = self.answered, []
        return answered

    def join(self, member_id: str = "", *, version: int = 9, **fields: Any) -> Any:
        """The response; None: it waits."""
        request = requests.join(GROUP, member_id, **fields)
        return self.ask("join", request, version=version).response

    def sync(self, member_id: str, generation: int, *, version: int = 5, **fields: Any) -> Any:
        """The response; None: it waits."""
        request = requests.sync(GROUP, member_id, generation, **fields)
        return self.ask("sync", request, version=version).response

    def leave(self, *members: str | tuple[str, str | None], version: int = 5) -> Any:
        """The response; None: it waits."""
        return self.ask("leave", requests.leave(GROUP, *members), version=version).response

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None = None
    ) -> ErrorCode:
        return self.group.heartbeat(member_id, generation, instance_id, self.now_ms)

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None = None, *, version: int = 9
    ) -> ErrorCode:
        return self.group.check_commit(
            member_id, epoch, instance_id, version=version, now_ms=self.now_ms
        )

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        version: int = 1,
        client_id: str | None = None,
        host: str = HOST,
        group_id: str = GROUP,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat of KIP-848, and its answer."""
        request = requests.consumer_heartbeat(group_id, member_id, epoch, **fields)
        asked = self.ask(
            "consumer_heartbeat", request, version=version, client_id=client_id, host=host
        )
        response = asked.response
        assert isinstance(response, ConsumerGroupHeartbeatResponse), "it waits for nothing"
        return response

    def subscribe(
        self, member_id: str, *names: str, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """A member's first heartbeat, which says everything."""
        whole = {"rebalance_timeout_ms": 300_000, "owned": {}, "subscribed_topic_names": [*names]}
        return self.beat(member_id, 0, **{**whole, **fields})

    # The clock.

    def tick(self) -> None:
        self.perform(self.group.tick(self.now_ms))

    def next_tick_ms(self, until_ms: int) -> int | None:
        """When the runtime would call `tick` next, not after `until_ms`."""
        deadline_ms = self.group.deadline_ms()
        if self.writing is not None or deadline_ms is None or deadline_ms > until_ms:
            return None
        return max(deadline_ms, self.now_ms)

    def wait(self, ms: int) -> None:
        """Time passes, and what falls due on the way is done."""
        until_ms = self.now_ms + ms
        while (at_ms := self.next_tick_ms(until_ms)) is not None:
            self.now_ms = at_ms
            self.tick()
        self.now_ms = until_ms

    # The log.

    def perform(self, effects: Effects) -> None:
        with self._carrying_out():
            for index, effect in enumerate(effects):
                match effect:
                    case Answer(token, response):
                        self._answer(token, response)
                    case ReplaceGroup(group):
                        assert group.group_id == GROUP
                        assert group is not self.group
                        self.group = group
                        self.kinds.append(group.kind.name)
                    case Write():
                        assert index == len(effects) - 1, "a Write comes last"
                        assert self.writing is None
                        assert effect.commands
                        self.writing = effect
            if self.writing is not None and self.fail_after is not None:
                applied, self.fail_after = self.fail_after, None
                self.fail(ErrorCode.REQUEST_TIMED_OUT, applied=applied)
            elif self.writing is not None and not self.holds:
                self.write()

    def _answer(self, token: int, response: Any) -> None:
        asked = self.waiting.pop(token)
        assert type(response) is RESPONSES[asked.what]
        asked.response = response
        self.answered.append(asked)
        asked.hear(response)

    @contextmanager
    def _carrying_out(self) -> Iterator[None]:
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1
        if not self.busy and self.writing is None:
            self.check()
            self._go_on()

    def _go_on(self) -> None:
        while self.queue and not self.busy and self.writing is None:
            asked, caller = self.queue.popleft()
            topics = [self.topics] if asked.what == "consumer_heartbeat" else []
            self.perform(getattr(self.group, asked.what)(caller, asked.request, *topics))

    def apply(self, commands: Sequence[ChangeGroup | DeleteGroup]) -> None:
        for command in commands:
            # As it would stand in an entry of its own.
            entry = Entry(self.agent, 1, self.now_ms, (command,))
            (read,) = decode_entry(encode_entry(entry)).commands
            assert read == command
            assert self.story.do(self.agent, read, clock_ms=self.now_ms) == DONE
            self.writes += 1

    def write(self) -> None:
        """The log takes the Write."""
        assert self.writing is not None
        commands, self.writing = self.writing.commands, None
        self.apply(commands)
        self.perform(self.group.written(self.now_ms))

    def fail(self, code: ErrorCode, *, applied: int = 0) -> None:
        """The log takes `applied` commands of the Write, and the agent hears of none."""
        if self.writing is not None:
            commands, self.writing = self.writing.commands, None
            self.apply(commands[:applied])
        with self._carrying_out():
            for token, response in self.group.abandon(code):
                self._answer(token, response)
            assert self.group.state() == "Dead"
            assert self._waiting() == set(), "abandoned, and somebody still waits"
            self.group = self.loaded()

    def take_over(self) -> None:
        """Another agent has the group's shard, and makes it from the row."""
        self.fail(ErrorCode.NOT_COORDINATOR)

    def loaded(self) -> LiveGroup:
        """What another agent has in place of this group."""
        if self.row is None:
            return self.factory.new(GroupKind.CLASSIC, GROUP, self.settings, self.topics)
        return self.factory.loaded(self.row, self.settings, self.topics, self.now_ms)

    def _waiting(self) -> set[int]:
        """Tokens that the group has."""
        return self.waiting.keys() - {asked.token for asked, _ in self.queue}

    def check(self) -> None:
        """A KIP-848 group and its row are one, and keep nobody waiting."""
        if not isinstance(self.group, ConsumerGroup):
            return
        assert self._waiting() == set(), "somebody waits though nothing is under way"
        image, row = self.group.image, self.row
        assert self.group.has_members() == bool(image.members)
        if row is None or row.kind is not self.group.kind:
            assert not image.members
            return
        told = GroupImage.of(as_consumer(row, self.topics))
        assert told.members == image.members
        assert [*told.members] == [*image.members]
        for name in ("epoch", "row_epoch", "assignment_epoch", "fingerprint", "instances"):
            assert getattr(told, name) == getattr(image, name), name
        assert told.subscriptions == image.subscriptions
        for member in image.members.values():
            for partitions in (member.assigned, member.revoking):
                for topic, numbers in partitions.items():
                    assert numbers
                    owners = {image.owners.of(topic, number) for number in numbers}
                    assert owners == {member.member_id}


def classic_world(**settings: Any) -> World:
    """A classic group, whose writes wait; ids are "c-1", "c-2", by the number of the request."""
    whole = GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings})
    return World(CLASSIC, whole, now_ms=0, holds=True, fresh="")


def consumer_world(**settings: Any) -> World:
    """A KIP-848 group."""
    return World(CONSUMER, GroupSettings(**settings), client_id="client")


def world_of_either(**settings: Any) -> World:
    """A group of either protocol, which is changed when the other one's members come."""
    return World(EITHER, GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings}))
