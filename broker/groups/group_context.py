"""A live group with its queue and parked requests: Kafka's `CoordinatorContext`. Pure."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.groups.group.effects import Caller, Effects
from broker.groups.group.live import LiveGroup
from coordinator.commands.group_commands import GroupKind
from protocol.errors import ErrorCode, KafkaError


class GroupRequest(NamedTuple):
    """A request about one group; it is answered or refused once."""

    kind: GroupKind
    """Of the group, if there is none yet."""
    ask: Callable[[LiveGroup, Caller], Effects]
    version: int
    client_id: str
    client_host: str
    fresh_id: str
    respond: Callable[[Any], None]
    """With a response of `protocol.messages`."""
    refuse: Callable[[KafkaError], None]


class PendingHeartbeat(NamedTuple):
    """A heartbeat of the classic protocol that has to wait."""

    member_id: str
    generation: int
    instance_id: str | None
    respond: Callable[[ErrorCode], None]

    def refuse(self, error: KafkaError) -> None:
        self.respond(error.code)


@dataclass(slots=True, eq=False)
class GroupContext:
    """One group in this agent's memory."""

    group_id: str
    shard: int
    group: LiveGroup | None = None
    """None only while its row is being changed by somebody else than itself."""
    writing: bool = False
    """A change of its row is under way: what comes waits in `queue`."""
    dead: bool = False
    """Dropped: nothing may be done to it any more."""
    stable: bool = False
    """It has been in state Stable since its epoch last grew."""
    parked: dict[int, GroupRequest] = field(default_factory=dict)
    """By the token that the group has."""
    queue: deque[GroupRequest | PendingHeartbeat] = field(default_factory=deque)
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Called once when it is not writing any more, or dead."""
    armed_ms: int | None = None
    """When its newest timer fires; None: it has none."""

    @property
    def ready(self) -> bool:
        """May something happen to it now?"""
        return not (self.dead or self.writing)
