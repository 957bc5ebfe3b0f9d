"""A group of either protocol over a machine: what it writes is applied, as in an agent.

Commands pass through the log's codec. Every token is answered exactly once, and a Write is carried
out at once; it may fail: it is then lost, cut, or applied without anybody hearing of it, and the
group is made anew from its row. `ReplaceGroup` replaces the group, as the shell does.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from broker.config.group_settings import GroupSettings
from broker.groups.consumer.image import GroupImage
from broker.groups.group.effects import Answer, Caller, Effects, ReplaceGroup, Write
from broker.groups.group.live import LiveGroup
from broker.groups.migration.members import as_consumer
from broker.groups.migration.protocol_change import (
    MigratingClassicGroup,
    MigratingConsumerGroup,
    loaded,
    new,
)
from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import DONE, CreateTopic, Entry, TopicCreated
from coordinator.commands.group_commands import ClaimShards, GroupKind
from coordinator.tables.groups import GROUP_SHARDS, GroupRow
from coordinator.tables.topics import Topics
from protocol.errors import ErrorCode
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.types import TopicId
from tests.coordinator.machine.story import Story

GROUP = "g"
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)


@dataclass
class World:
    settings: GroupSettings = SETTINGS
    now_ms: int = 1_000_000
    story: Story = field(default_factory=Story)
    token: int = 0
    fail_after: int | None = None
    """The next Write fails after so many of its commands."""
    hears: dict[int, Callable[[Any], None]] = field(default_factory=dict)
    """Who waits for the answer to a token."""
    queue: deque[tuple[str, Caller, Any]] = field(default_factory=deque)
    busy: int = 0
    kinds: list[str] = field(default_factory=list)
    """What the group has become, one after the other."""

    def __post_init__(self) -> None:
        self.agent = self.story.open()
        self.story.do(self.agent, ClaimShards((*range(GROUP_SHARDS),)))
        self.group: LiveGroup = new(GroupKind.CLASSIC, GROUP, self.settings, self.topics)

    @property
    def topics(self) -> Topics:
        return self.story.machine.topics

    @property
    def row(self) -> GroupRow | None:
        return self.story.machine.groups.get(GROUP)

    @property
    def classic(self) -> MigratingClassicGroup:
        assert isinstance(self.group, MigratingClassicGroup)
        return self.group

    @property
    def consumer(self) -> MigratingConsumerGroup:
        assert isinstance(self.group, MigratingConsumerGroup)
        return self.group

    def configure(self, **settings: Any) -> None:
        self.settings = replace(self.settings, **settings)
        self.group.settings = self.settings

    def create(self, name: str, partitions: int) -> TopicId:
        outcome = self.story.do(self.agent, CreateTopic(name, partitions, ()))
        assert isinstance(outcome, TopicCreated)
        return outcome.topic_id

    # Requests.

    def ask(
        self,
        what: str,
        request: Any,
        hear: Callable[[Any], None],
        *,
        version: int,
        client_id: str = "c",
    ) -> None:
        """`hear` is called with the answer, now or later."""
        self.token += 1
        self.hears[self.token] = hear
        caller = Caller(
            self.token, version, client_id, "/10.0.0.1", self.now_ms, f"fresh-{self.token}"
        )
        self.queue.append((what, caller, request))
        self._go_on()

    def _go_on(self) -> None:
        """Who asks while something is carried out comes after it, as in the shell."""
        while self.queue and not self.busy:
            what, caller, request = self.queue.popleft()
            if what == "consumer_heartbeat":
                self.perform(self.group.consumer_heartbeat(caller, request, self.topics))
            else:
                self.perform(getattr(self.group, what)(caller, request))

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        owned: dict[TopicId, set[int]] | None = None,
        version: int = 1,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat of KIP-848, and its answer."""
        topic_partitions = None
        if owned is not None:
            topic_partitions = [
                TopicPartitions(topic_id=topic, partitions=sorted(numbers))
                for topic, numbers in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=topic_partitions,
            **fields,
        )
        heard: list[ConsumerGroupHeartbeatResponse] = []
        self.ask("consumer_heartbeat", request, heard.append, version=version)
        (response,) = heard
        return response

    def wait(self, ms: int) -> None:
        """Time passes, and what falls due on the way is done."""
        until_ms = self.now_ms + ms
        while (due_ms := self.group.deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.perform(self.group.tick(self.now_ms))
        self.now_ms = until_ms

    # The log.

    def perform(self, effects: Effects) -> None:
        self.busy += 1
        self._perform(effects)
        self.busy -= 1
        self._go_on()

    def _perform(self, effects: Effects) -> None:
        for index, effect in enumerate(effects):
            match effect:
                case Answer(token, response):
                    self.hears.pop(token)(response)
                case ReplaceGroup(group):
                    assert group.group_id == GROUP
                    assert group is not self.group
                    self.group = group
                    self.kinds.append(group.kind.name)
                case Write():
                    assert index == len(effects) - 1, "a Write comes last"
                    self._write(effect)

    def _write(self, write: Write) -> None:
        fail_after, self.fail_after = self.fail_after, None
        assert write.commands
        for index, command in enumerate(write.commands):
            if index == fail_after:
                break
            entry = Entry(self.agent, 1, 0, (command,))
            (read,) = decode_entry(encode_entry(entry)).commands
            assert self.story.do(self.agent, read) == DONE
        if fail_after is None:
            self.perform(self.group.written(self.now_ms))
            self.check()
        else:
            self.perform([*self.group.abandon(ErrorCode.REQUEST_TIMED_OUT)])
            self.take_over()

    def take_over(self) -> None:
        """The group, as whoever has its shard next makes it from the row."""
        if self.group.state() != "Dead":
            self.perform([*self.group.abandon(ErrorCode.NOT_COORDINATOR)])
        waiting = self.hears.keys() - {caller.token for _, caller, _ in self.queue}
        assert not waiting, "abandoned, and somebody still waits"
        row = self.row
        if row is None:
            self.group = new(GroupKind.CLASSIC, GROUP, self.settings, self.topics)
        else:
            self.group = loaded(row, self.settings, self.topics, self.now_ms)
        self.check()

    def check(self) -> None:
        """The live group and its row are one."""
        row = self.row
        if row is None or row.kind is not self.group.kind:
            return
        if isinstance(self.group, MigratingConsumerGroup) and self.group.image.row_epoch >= 0:
            told = GroupImage.of(as_consumer(row, self.topics))
            assert told.members == self.group.image.members
            assert told.epoch == self.group.image.epoch
            assert told.assignment_epoch == self.group.image.assignment_epoch
