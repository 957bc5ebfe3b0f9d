"""The coordinator of the groups whose shards this agent holds: requests in, answers out."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from broker.config import Settings
from broker.dispatch import Call
from broker.groups.live import Kinds, LiveGroup
from broker.groups.settings import GroupSettings
from coordinator.commands import Outcome, Rejected
from coordinator.coordinator import Coordinator
from coordinator.group_commands import GroupCommand
from coordinator.groups import shard_of
from coordinator.metadata_log import LogError
from coordinator.proposer import NotDoneError
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.types import Incarnation

WAIT_S_MAX: Final = 5.0
"""As Kafka's offsets.commit.timeout.ms."""

_NOT_OURS: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.STALE_BROKER_EPOCH)
"""What apply says to whoever does not hold the shard, or is dead."""


class GroupCoordinator:
    """`run` must be going for anything to happen. All methods belong to its loop."""

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        settings: Settings,
        kinds: Kinds,
        boot_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self._kinds = kinds
        self._boot_ms = boot_ms
        self._rng = rng

    async def run(self) -> None:
        """Coordinate for ever."""

    async def depart(self) -> None:
        """Give the shards to others; from now on nothing is coordinated here (design §13)."""

    def now_ms(self) -> int:
        """The group clock: boot time without the stalls of this agent."""
        return self._boot_ms()

    def settings_for(self, group_id: str) -> GroupSettings:
        """The agent's settings and the group's own configs, in one."""
        return GroupSettings()

    def coordinates(self, group_id: str) -> None:
        """Return if this agent may answer for the group at this instant (P5).

        Raises KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE (leaving), INVALID_GROUP_ID.
        """
        if group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        incarnation = self._coordinator.incarnation()
        if incarnation is None or self.coordinator_of(group_id) != incarnation:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "another agent coordinates this group")

    def coordinator_of(self, group_id: str) -> Incarnation | None:
        """The live incarnation that holds the group's shard, as far as this agent knows."""
        return self._coordinator.machine.groups.holder(shard_of(group_id))

    def live(self, group_id: str) -> LiveGroup | None:
        """The group; None when there is neither a row nor soft state of it.

        To be asked and dropped before the next await. Raises KafkaError as `coordinates` does,
        and UNKNOWN_SERVER_ERROR for a row that this version cannot read.
        """
        self.coordinates(group_id)
        row = self._coordinator.machine.groups.get(group_id)
        if row is None:
            return None
        return self._kinds.loaded(row, self.settings_for(group_id), self.now_ms())

    async def settled(self, group_id: str) -> None:
        """Wait until no write of the group is under way. Raises KafkaError as `coordinates`."""
        self.coordinates(group_id)

    async def propose(self, command: GroupCommand) -> Outcome:
        """Put a command about a group into the log, under the incarnation that coordinates now.

        Raises KafkaError: NOT_COORDINATOR when it did not happen and will not, REQUEST_TIMED_OUT
        when it still may (P4), UNKNOWN_SERVER_ERROR when it cannot be written. What apply refuses
        for other reasons is an outcome.
        """
        incarnation = self._coordinator.incarnation()
        future = self._coordinator.propose(command, incarnation)
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                outcome = await asyncio.shield(future)
        except NotDoneError as error:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"not done: {error.reason}") from error
        except (LogError, TimeoutError) as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it may still happen") from error
        if isinstance(outcome, Rejected) and outcome.error in _NOT_OURS:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, outcome.message)
        return outcome

    # The protocols.

    async def join(self, call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
        self.coordinates(request.group_id)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def sync(self, call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
        self.coordinates(request.group_id)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def leave(self, call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
        self.coordinates(request.group_id)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def consumer_heartbeat(
        self, call: Call, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        self.coordinates(request.group_id)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
