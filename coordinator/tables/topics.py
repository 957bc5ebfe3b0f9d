"""The table of topics: names, ids, and the rules of Kafka for creating one.

The rules are in docs/design/kafka-semantics.md §9.2.
Topic ids are made from the position of the command that creates the topic, so they are unique
without chance. A deleted topic gives its name free at once.

Invariants: a name and an id name the same topic; both maps are in order of creation; names
differ also after "." is replaced by "_", as metric names of clients do not tell them apart.

Left out: configs are checked by whoever proposes the command (`broker.config.topic_configs`).
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from coordinator.commands.entries import CreateTopic, Rejected
from coordinator.commands.layout import UInt63
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position, TopicId

TOPIC_NAME_MAX = 249
NAME_SHOWN_MAX = 80
"""Characters of a name in a sentence: one is told of each partition, and old clients take 32,767."""
TOPIC_PARTITIONS_MAX = 10_000
TOPIC_CONFIGS_MAX = 1_000
PARTITIONS_MAX = 100_000
"""Of the whole cluster, deleted topics until their purge included (docs/design/bounded.md §8)."""

assert TOPIC_PARTITIONS_MAX <= PARTITIONS_MAX

_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Topic:
    topic_id: TopicId
    name: str
    partition_count: UInt63
    configs: dict[str, str]
    """Only what differs from the defaults."""
    created: Position
    configs_changed: Position = POSITION_ZERO
    """Of the newest change of configs; POSITION_ZERO: none since the creation."""


def topic_id_at(position: Position, index: int) -> TopicId:
    """The id of the topic that command `index` of the entry at `position` creates."""
    return TopicId(struct.pack(">QQ", position, 1 + index))


def shown(name: str) -> str:
    """A topic's name, or what somebody takes for one, as sentences have it."""
    return name if len(name) <= NAME_SHOWN_MAX else f"{name[:NAME_SHOWN_MAX]}…"


def name_error(name: str) -> str | None:
    """Why `name` is no topic's name (Kafka's `Topic.validate`); None when it may be."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in {".", ".."}:
        reason = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_MAX:
        reason = (
            f"the length of '{shown(name)}' is longer than the max allowed length {TOPIC_NAME_MAX}"
        )
    elif _NAME.fullmatch(name) is None:
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_'"
            " and '-'"
        )
    else:
        return None
    return f"Topic name is invalid: {reason}"


class Topics:
    """Topics that exist, by name and by id. Iterates in order of creation."""

    def __init__(self) -> None:
        self._by_id: dict[TopicId, Topic] = {}
        self._by_name: dict[str, Topic] = {}
        self._by_folded_name: dict[str, str] = {}
        self.version = 0
        """Grows whenever a topic is created, widened or deleted; what is derived from names, ids and
        numbers of partitions holds until then. Not when configs change."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_id.values())

    def by_name(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: TopicId) -> Topic | None:
        return self._by_id.get(topic_id)

    def validate(self, command: CreateTopic, *, partitions: int) -> Rejected | None:
        """Why the topic cannot be created beside `partitions` partitions; None when it can.

        Also for validate_only requests, whose answer another command may overtake.
        """
        if (reason := name_error(command.name)) is not None:
            return Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if command.name in self._by_name:
            reason = f"Topic '{command.name}' already exists."
            return Rejected(ErrorCode.TOPIC_ALREADY_EXISTS, reason)
        if (other := self._by_folded_name.get(_folded(command.name))) is not None:
            reason = f"Topic '{command.name}' collides with existing topic: {other}"
            return Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if not 1 <= command.partition_count <= TOPIC_PARTITIONS_MAX:
            reason = f"a topic has 1 to {TOPIC_PARTITIONS_MAX} partitions"
            return Rejected(ErrorCode.INVALID_PARTITIONS, reason)
        if partitions + command.partition_count > PARTITIONS_MAX:
            reason = f"a cluster has at most {PARTITIONS_MAX} partitions, this one {partitions}"
            return Rejected(ErrorCode.INVALID_PARTITIONS, reason)
        return None

    def add(self, topic: Topic) -> None:
        """`validate` had no objection."""
        assert topic.topic_id not in self._by_id
        assert topic.name not in self._by_name
        self._by_id[topic.topic_id] = topic
        self._by_name[topic.name] = topic
        self._by_folded_name[_folded(topic.name)] = topic.name
        self.version += 1

    def remove(self, topic_id: TopicId) -> None:
        topic = self._by_id.pop(topic_id)
        del self._by_name[topic.name]
        del self._by_folded_name[_folded(topic.name)]
        self.version += 1

    def validate_growth(
        self, topic: Topic, partition_count: int, *, partitions: int
    ) -> Rejected | None:
        """Why the topic cannot have so many partitions; None when it can. As Kafka says it."""
        if partition_count < topic.partition_count:
            reason = (
                f"The topic {topic.name} currently has {topic.partition_count} partition(s);"
                f" {partition_count} would not be an increase."
            )
            return Rejected(ErrorCode.INVALID_PARTITIONS, reason)
        if partition_count == topic.partition_count:
            reason = f"Topic already has {partition_count} partition(s)."
            return Rejected(ErrorCode.INVALID_PARTITIONS, reason)
        if partition_count > TOPIC_PARTITIONS_MAX:
            reason = f"a topic has 1 to {TOPIC_PARTITIONS_MAX} partitions"
            return Rejected(ErrorCode.INVALID_PARTITIONS, reason)
        if partitions - topic.partition_count + partition_count > PARTITIONS_MAX:
            reason = f"a cluster has at most {PARTITIONS_MAX} partitions, this one {partitions}"
            return Rejected(ErrorCode.INVALID_PARTITIONS, reason)
        return None

    def grow(self, topic_id: TopicId, partition_count: int) -> None:
        """`validate_growth` had no objection. The row is replaced."""
        topic = replace(self._by_id[topic_id], partition_count=partition_count)
        self._by_id[topic_id] = topic
        self._by_name[topic.name] = topic
        self.version += 1

    def set_configs(self, topic_id: TopicId, configs: dict[str, str], position: Position) -> None:
        """The topic's row is replaced; who holds on to the old one has the old configs."""
        topic = replace(self._by_id[topic_id], configs=configs, configs_changed=position)
        self._by_id[topic_id] = topic
        self._by_name[topic.name] = topic


def _folded(name: str) -> str:
    return name.replace(".", "_")
