"""The effects of a group's decision: answers to parked requests, and a write to the log. Pure.

A method of a live group that takes a `Caller` consumes its token: the token is in one `Answer`,
of this call or of a later one, exactly once. There is at most one `Write` in what a call returns,
and it comes last. From then on the group is *writing*: nothing but `written` or `abandon` is
called until the log has spoken. `written`: all commands are applied. `abandon`: they are not, or
the shard is lost; the group is dropped and its successor is made from the row.

A group that changes its protocol says `ReplaceGroup`: from there on the other object is the group, also
for a Write that follows. Whoever was parked with the old one has been answered before; the caller's
token is the new one's.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from coordinator.commands.group_commands import ChangeGroup, DeleteGroup


class TopicsSeen(NamedTuple):
    """Which topics a client may see, where there is an authorizer."""

    version: int
    """Another one: it may be others by now."""
    sees: Callable[[str], bool]
    """By name."""

    def of(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the names that it may see."""
        return frozenset(filter(self.sees, names))


class Caller(NamedTuple):
    """The context of a request: its client, the time, and a random id."""

    token: int
    version: int
    """Of the request."""
    client_id: str
    client_host: str
    """As Kafka tells it in descriptions: "/127.0.0.1"."""
    now_ms: int
    """The group clock: boot time without the stalls of this agent."""
    fresh_id: str
    """A random UUID, for a member id if one is needed."""
    topics_seen: TopicsSeen | None = None
    """None: all."""


class Answer(NamedTuple):
    token: int
    response: Any
    """A response of `protocol.messages`."""


class Write(NamedTuple):
    commands: tuple[ChangeGroup | DeleteGroup, ...]
    """In this order, nothing of the same group between them."""


class ReplaceGroup(NamedTuple):
    group: Any
    """A `broker.groups.group.live.LiveGroup`, of the same id."""


Effects = list[Answer | ReplaceGroup | Write]
