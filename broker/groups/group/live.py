"""The interface of a live group, and the factory of live groups. Pure.

`LiveGroup` is what `ClassicGroup` and `ConsumerGroup` have in common; what a method that takes a
`Caller` returns is described in `broker.groups.group.effects`. Between a `Write` and its outcome nothing
is called but `written` and `abandon`.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.config.group_settings import GroupSettings
from broker.groups.group.effects import Answer, Caller, Effects, TopicsSeen
from coordinator.commands.group_commands import GroupKind
from coordinator.tables.groups import GroupRow
from coordinator.tables.topics import Topics
from protocol.errors import ErrorCode
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    DescribedGroup,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from protocol.types import TopicId


class LiveGroup(Protocol):
    """One group of either protocol, with its soft state."""

    settings: GroupSettings
    """May be replaced at any time."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def protocol_type(self) -> str: ...

    # Requests.

    def join(self, caller: Caller, request: JoinGroupRequest) -> Effects: ...

    def sync(self, caller: Caller, request: SyncGroupRequest) -> Effects: ...

    def leave(self, caller: Caller, request: LeaveGroupRequest) -> Effects: ...

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None, now_ms: int
    ) -> ErrorCode: ...

    def consumer_heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, topics: Topics
    ) -> Effects: ...

    def is_behind(self, member_id: str, seen: TopicsSeen) -> bool:
        """Whether the member's next heartbeat has an expression resolved anew, since rights changed."""
        ...

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, version: int, now_ms: int
    ) -> ErrorCode:
        """May this OffsetCommit be made?"""
        ...

    def check_fetch(self, member_id: str, epoch: int, *, now_ms: int) -> ErrorCode:
        """May this OffsetFetch (v9+) be answered?"""
        ...

    # The log, the clock.

    def written(self, now_ms: int) -> Effects:
        """The Write that an earlier call returned is applied."""
        ...

    def abandon(self, code: ErrorCode) -> list[Answer]:
        """An answer with this error for every parked token; the object is dead afterwards."""
        ...

    def tick(self, now_ms: int) -> Effects:
        """Do what is due."""
        ...

    def deadline_ms(self) -> int | None:
        """When `tick` must be called next; an earlier call does nothing."""
        ...

    # Questions.

    def state(self) -> str:
        """Kafka's name of it."""
        ...

    def has_members(self) -> bool:
        """Members of the row, joining and pending ones; False: nothing is lost with the object."""
        ...

    def member_size(self, member_id: str) -> int:
        """Bytes, about, of what only memory may have: a pending member, or one of the classic
        protocol; 0: there is no such one."""
        ...

    def owner_of(self, topic_name: str, topic_id: TopicId, partition: int) -> str | None:
        """The member that owns the partition in the current generation or assignment."""
        ...

    def subscribes(self, topic_name: str) -> bool:
        """True when unknown, unless the group is empty."""
        ...

    def describe(self) -> DescribedGroup: ...


class GroupFactory(NamedTuple):
    """Makes live groups of either protocol."""

    new: Callable[[GroupKind, str, GroupSettings, Topics], LiveGroup]
    """Of an id that has no row, over the machine's topics."""
    loaded: Callable[[GroupRow, GroupSettings, Topics, int], LiveGroup]
    """From a row, at a time of the group clock. Raises ValueError for a body of an unknown
    version."""
