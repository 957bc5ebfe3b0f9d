"""A group of KIP-848 over a machine: what it writes goes into a log and is applied, as in an agent.

Commands pass through the log's codec; the row they leave must be the image that the live group
has. Every token is answered exactly once. The log may fail: a Write is then lost, cut, or applied
without anybody hearing of it, and the group is made anew from its row.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from broker.config.group_settings import GroupSettings
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.image import GroupImage
from broker.groups.group.effects import Answer, Caller, Effects, Write
from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import DONE, CreateTopic, DeleteTopic, Entry, TopicCreated
from coordinator.commands.group_commands import ClaimShards
from coordinator.tables.groups import GROUP_SHARDS, GroupRow, shard_of
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
SETTINGS = GroupSettings()


def partitions_of(response: ConsumerGroupHeartbeatResponse) -> dict[TopicId, set[int]] | None:
    """What an answer assigns; None: the same as before."""
    if response.assignment is None:
        return None
    return {t.topic_id: set(t.partitions) for t in response.assignment.topic_partitions}


@dataclass
class World:
    settings: GroupSettings = SETTINGS
    now_ms: int = 1_000_000
    story: Story = field(default_factory=Story)
    token: int = 0
    fresh_ids: int = 0
    writes: int = 0
    """ChangeGroup commands applied so far."""
    fail_after: int | None = None
    """The next Write fails after so many of its commands."""

    def __post_init__(self) -> None:
        self.agent = self.story.open()
        self.story.do(self.agent, ClaimShards((*range(GROUP_SHARDS),)))
        self.group = ConsumerGroup.new(GROUP, self.settings)
        self.parked: set[int] = set()

    @property
    def topics(self) -> Topics:
        return self.story.machine.topics

    @property
    def row(self) -> GroupRow | None:
        return self.story.machine.groups.get(GROUP)

    # Topics.

    def create(self, name: str, partitions: int) -> TopicId:
        outcome = self.story.do(self.agent, CreateTopic(name, partitions, ()))
        assert isinstance(outcome, TopicCreated)
        return outcome.topic_id

    def delete(self, name: str) -> None:
        topic = self.topics.by_name(name)
        assert topic is not None
        assert self.story.do(self.agent, DeleteTopic(topic.topic_id)) == DONE

    # Requests.

    def caller(
        self, version: int = 1, client_id: str = "client", host: str = "/10.0.0.1"
    ) -> Caller:
        self.token += 1
        self.fresh_ids += 1
        fresh_id = f"fresh-{self.fresh_ids}"
        self.parked.add(self.token)
        return Caller(self.token, version, client_id, host, self.now_ms, fresh_id)

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        version: int = 1,
        client_id: str = "client",
        host: str = "/10.0.0.1",
        owned: dict[TopicId, set[int]] | None = None,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat, and its answer."""
        fields.setdefault("group_id", GROUP)
        topic_partitions = None
        if owned is not None:
            topic_partitions = [
                TopicPartitions(topic_id=topic, partitions=sorted(numbers))
                for topic, numbers in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=topic_partitions,
            **fields,
        )
        caller = self.caller(version, client_id, host)
        answers = self.perform(self.group.consumer_heartbeat(caller, request, self.topics))
        (answer,) = answers
        assert answer.token == caller.token
        assert isinstance(answer.response, ConsumerGroupHeartbeatResponse)
        return answer.response

    def join(self, member_id: str, *names: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        fields.setdefault("rebalance_timeout_ms", 300_000)
        fields.setdefault("owned", {})
        fields.setdefault("subscribed_topic_names", [*names])
        return self.beat(member_id, 0, **fields)

    def tick(self) -> None:
        assert self.perform(self.group.tick(self.now_ms)) == []

    def wait(self, ms: int) -> None:
        """Time passes, and what falls due on the way is done."""
        until_ms = self.now_ms + ms
        while (due_ms := self.group.deadline_ms()) is not None and due_ms <= until_ms:
            assert due_ms >= self.now_ms, "a deadline that has passed"
            self.now_ms = due_ms
            self.tick()
        self.now_ms = until_ms

    def reconfigure(self, **settings: Any) -> None:
        self.settings = replace(self.settings, **settings)
        self.group.settings = self.settings

    # The log.

    def perform(self, effects: Effects) -> list[Answer]:
        answers = [effect for effect in effects if isinstance(effect, Answer)]
        if len(answers) < len(effects):
            assert isinstance(effects[-1], Write), "a Write comes last"
            assert len(effects) == len(answers) + 1, "one Write at most"
            answers += self._write(effects[-1])
        for answer in answers:
            self.parked.remove(answer.token)
        assert not self.parked, "somebody waits though nothing is under way"
        self.check()
        return answers

    def _write(self, write: Write) -> list[Answer]:
        fail_after, self.fail_after = self.fail_after, None
        assert write.commands
        for index, command in enumerate(write.commands):
            if index == fail_after:
                break
            entry = Entry(self.agent, 1, 0, (command,))
            (read,) = decode_entry(encode_entry(entry)).commands
            assert read == command
            assert self.story.do(self.agent, read) == DONE
            self.writes += 1
        if fail_after is None:
            effects = self.group.written(self.now_ms)
            assert not any(isinstance(effect, Write) for effect in effects)
            return [*effects]
        answers = self.group.abandon(ErrorCode.REQUEST_TIMED_OUT)
        assert self.group.state() == "Dead"
        self.take_over()
        return answers

    def take_over(self) -> None:
        """The group, as whoever has its shard next makes it from the row."""
        row = self.row
        if row is None:
            self.group = ConsumerGroup.new(GROUP, self.settings)
        else:
            self.group = ConsumerGroup.loaded(row, self.settings, self.now_ms)
        self.check()

    def check(self) -> None:
        """The live group and its row are one."""
        image = self.group.image
        assert self.group.has_members() == bool(image.members)
        if self.row is None:
            assert not image.members
            return
        told = GroupImage.of(self.row)
        assert told.members == image.members
        assert [*told.members] == [*image.members]
        for name in ("epoch", "row_epoch", "assignment_epoch", "fingerprint", "instances"):
            assert getattr(told, name) == getattr(image, name), name
        assert told.subscriptions == image.subscriptions
        for member in image.members.values():
            for partitions in (member.assigned, member.revoking):
                for topic, numbers in partitions.items():
                    assert numbers
                    assert {image.owners.of(topic, number) for number in numbers} == {
                        member.member_id
                    }


assert 0 <= shard_of(GROUP) < GROUP_SHARDS
