"""All connections of an agent, as one of them knows them; `broker.edge.server` has them."""

import asyncio
from typing import Protocol, TypeVar

from broker.calls.stalls import StallWatch
from broker.calls.untaken import UntakenAnswers
from broker.edge.authentication import Authenticator, Refusals
from broker.edge.dispatch import Dispatcher
from broker.edge.limits import ServerLimits
from broker.edge.muting import Mutes
from broker.edge.pressure import RequestMemory
from broker.edge.starts import Starts
from broker.node import Node

MemberT_contra = TypeVar("MemberT_contra", contravariant=True)
"""One of them."""


class Connections(Protocol[MemberT_contra]):
    """All connections of an agent, as one of them knows them (`broker.edge.server`)."""

    node: Node
    limits: ServerLimits
    dispatcher: Dispatcher
    watch: StallWatch
    scratch: memoryview
    """What every connection receives into; emptied before anybody else receives."""
    memory: RequestMemory
    starts: Starts
    untaken: UntakenAnswers
    authenticator: Authenticator
    refusals: Refusals
    mutes: Mutes
    keeps_connections: bool
    """None is closed by itself because it was answered."""

    @property
    def tasks(self) -> asyncio.TaskGroup: ...

    def admit(self, connection: MemberT_contra, /) -> int: ...

    def forget(self, connection: MemberT_contra, /) -> None: ...

    def mark(self, connection: MemberT_contra, /) -> None: ...

    def show(self, connection: MemberT_contra, /) -> None: ...

    def taken(self, connection: MemberT_contra, /) -> None: ...
