"""Simulated members of groups: they follow the protocol, stall, crash, leave and come back.

`ClassicMember` is an eager consumer (JoinGroup, SyncGroup; the leader deals the partitions out in
turn); `ConsumerMember` speaks KIP-848. Both read nothing: their work is to commit offsets that
grow, from the one they were told.
"""

import asyncio
from typing import Any

from typing_extensions import override

from protocol import apis, messages
from protocol.consumer_protocol import (
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from protocol.errors import ErrorCode
from protocol.types import TopicId
from tests.kit.requests import GROUP, error_of
from tests.sim.client import ELSEWHERE, REQUEST_TIMEOUT_S, Address, LostError, offsets_in
from tests.sim.group_account import GroupAccount
from tests.sim.workload import TOPIC
from tests.sim.world import Worker, World

SESSION_S = 6.0
CONSUMER_SESSION_S = 6.0
REBALANCE_S = 30.0
HEARTBEAT_S = 1.0


class Member(Worker):
    """What members of both protocols do."""

    session_s = SESSION_S

    def __init__(
        self,
        world: World,
        name: str,
        account: GroupAccount,
        *,
        partitions: int,
        instance_id: str | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        super().__init__(world, name, timeout_s)
        self.who = instance_id or name
        """Two with one instance id are one member; until the older one hears that it is fenced
        both believe, as in Kafka (KIP-345)."""
        self.account = account
        self.partitions = partitions
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = -1
        self.owned: set[int] = set()
        self.positions: dict[int, int] = {}
        self.settled = False
        """The last heartbeat was answered well, and there was nothing to do."""
        self._coordinator: Address | None = None
        self._loop = world.loop
        self._proven_s = 0.0
        self.calm = False
        """No more stalls."""

    def hold(self, partitions: set[int]) -> None:
        """Believe in these partitions."""
        self.owned = partitions
        self.account.owns(self.who, partitions, self._loop.time(), self._proven_s + self.session_s)

    def crash(self) -> None:
        """What a killed process leaves behind: nothing."""
        self.account.owns(self.who, set(), self._loop.time(), 0.0)

    async def ask(self, key: int, version: int, request: Any) -> Any:
        """From the coordinator; None when there is none to be had, or it changed."""
        try:
            if self._coordinator is None:
                self._coordinator = await self.client.coordinator(self.account.group_id, GROUP)
            sent_s = self._loop.time()
            connection = await self.client.connect(self._coordinator)
            if key == apis.OFFSET_COMMIT and not self.calm and self.rng.random() < 0.03:
                # It comes when the member has been fenced, or nearly so.
                connection.transport.hold_back(self.rng.choice((2.0, 5.0, 8.0, 15.0, 25.0)))
            answer = await self.client.asked(connection, key, version, request)
        except LostError:
            self._coordinator = None
            return None
        error = error_of(answer)
        if error in ELSEWHERE or error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._coordinator = None
            return None
        if error == ErrorCode.NONE and key in (
            apis.HEARTBEAT,
            apis.CONSUMER_GROUP_HEARTBEAT,
        ):
            self._proven_s = sent_s
        return answer

    async def rest(self, seconds: float) -> None:
        """Between two steps; sometimes far too long, as in a garbage collection."""
        if not self.calm and self.rng.random() < 0.02:
            seconds = self.rng.choice((2.0, 4.0, 8.0, 12.0))
        await asyncio.sleep(seconds)

    async def fetch_offsets(self, partitions: set[int]) -> bool:
        """Where to go on; True when all are known."""
        wanted = sorted(partition for partition in partitions if partition not in self.positions)
        if not wanted:
            return True
        least = {partition: self.account.acknowledged.get(partition, -1) for partition in wanted}
        places = [(TOPIC, partition) for partition in wanted]
        # Any agent tells, and none what another one contradicts.
        request = self.client.offset_fetch(self.account.group_id, places)
        told = offsets_in(await self.client.try_ask(*request))
        if told is None:
            return False
        for (_, partition), offset in told.items():
            self.account.fetched(partition, offset, least[partition])
            self.positions[partition] = max(offset, 0)
        return True

    async def commit(self) -> int:
        """Commit a little progress of some owned partitions; the error, 0 when all went well."""
        chosen = [partition for partition in sorted(self.owned) if self.rng.random() < 0.7]
        if not chosen:
            return ErrorCode.NONE
        # What was done is done, whatever becomes of the commit.
        for partition in chosen:
            self.positions[partition] += self.rng.randrange(3)
        wanted = {partition: self.positions[partition] for partition in chosen}
        topic = messages.OffsetCommitRequestTopic(
            name=TOPIC,
            partitions=[
                messages.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=self.name
                )
                for partition, offset in wanted.items()
            ],
        )
        request = messages.OffsetCommitRequest(
            group_id=self.account.group_id,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[topic],
        )
        answer = await self.ask(apis.OFFSET_COMMIT, 9, request)
        if answer is None:
            return ErrorCode.NONE
        for row in answer.topics[0].partitions:
            if row.error_code != ErrorCode.NONE:
                return ErrorCode(row.error_code)
            self.account.committed(row.partition_index, wanted[row.partition_index])
        return ErrorCode.NONE


class ClassicMember(Member):
    """An eager consumer of the classic protocol."""

    @override
    async def run(self) -> None:
        while not self.stopping:
            if await self._join():
                await self._work()
            self.settled = False
            self.hold(set())
            await self.rest(self.rng.choice((0.1, 0.5)))
        await self._leave()

    async def _join(self) -> bool:
        """Join and sync; True when there is an assignment."""
        self.positions = {}
        subscription = write_subscription(Subscription([TOPIC], None, {}))
        request = messages.JoinGroupRequest(
            group_id=self.account.group_id,
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(REBALANCE_S * 1000),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[messages.JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        version = 9 if self.instance_id else self.rng.choice((2, 5, 9))
        answer = await self.ask(apis.JOIN_GROUP, version, request)
        if answer is None:
            return False
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return False
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
            return False
        if answer.error_code != ErrorCode.NONE:
            return False
        self.member_id = answer.member_id
        self.epoch = answer.generation_id
        self.account.counts["rebalances"] += 1
        assignments: list[messages.SyncGroupRequestAssignment] = []
        if answer.leader == self.member_id and not answer.skip_assignment:
            assignments = self._deal(answer)
        return await self._sync(assignments)

    def _deal(self, answer: Any) -> list[messages.SyncGroupRequestAssignment]:
        members = sorted(member.member_id for member in answer.members)
        if len(set(members)) != len(members) or self.member_id not in members:
            self.wrong(f"leads the members {members}")
        return [
            messages.SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=write_assignment(
                    {TOPIC: list(range(index, self.partitions, len(members)))}
                ),
            )
            for index, member_id in enumerate(members)
        ]

    async def _sync(self, assignments: list[messages.SyncGroupRequestAssignment]) -> bool:
        request = messages.SyncGroupRequest(
            group_id=self.account.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        sent_s = self._loop.time()
        answer = await self.ask(apis.SYNC_GROUP, self.rng.choice((3, 5)), request)
        if answer is None or answer.error_code != ErrorCode.NONE:
            if answer is not None and answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return False
        self._proven_s = sent_s
        partitions = set(read_assignment(answer.assignment).get(TOPIC, []))
        for partition in partitions:
            self.account.gives(self.epoch, partition, self.instance_id or self.member_id)
        self.hold(partitions)
        return await self.fetch_offsets(partitions)

    async def _work(self) -> None:
        """Until the group changes."""
        while not self.stopping:
            await self.rest(HEARTBEAT_S)
            error = await self._beat()
            if error is None:
                continue
            if error == ErrorCode.NONE:
                self.hold(self.owned)
                self.settled = bool(self.owned) or self.rng.random() < 0.5
                error = await self.commit()
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member_id = ""
            if error != ErrorCode.NONE:
                return

    async def _beat(self) -> int | None:
        """A heartbeat; its error, None when there was no answer."""
        request = messages.HeartbeatRequest(
            group_id=self.account.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        answer = await self.ask(apis.HEARTBEAT, self.rng.choice((3, 4)), request)
        return None if answer is None else answer.error_code

    async def _leave(self) -> None:
        self.hold(set())
        request = messages.LeaveGroupRequest(
            group_id=self.account.group_id,
            members=[
                messages.MemberIdentity(
                    member_id=self.member_id, group_instance_id=self.instance_id
                )
            ],
        )
        await self.ask(apis.LEAVE_GROUP, self.rng.choice((3, 5)), request)


class ConsumerMember(Member):
    """A member of KIP-848: gives up what it is told to before it gets anything new."""

    session_s = CONSUMER_SESSION_S

    @override
    async def run(self) -> None:
        self.member_id = f"{self.name}-{self.rng.getrandbits(32):08x}"
        self.epoch = 0
        full = True
        while not self.stopping:
            answer = await self._beat(full=full)
            full = answer is None
            if answer is not None:
                full = await self._answered(answer)
            await self.rest(HEARTBEAT_S)
        self.hold(set())
        self.epoch = -1 if self.instance_id is None else -2
        await self._beat(full=False)

    async def _beat(self, *, full: bool) -> Any:
        joining = self.epoch == 0
        owned = []
        if self.owned and self._topic_id is not None:
            owned = [
                messages.TopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))
            ]
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self.account.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=int(REBALANCE_S * 1000) if full or joining else -1,
            subscribed_topic_names=[TOPIC] if full or joining else None,
            topic_partitions=owned if full or joining or self._tell else None,
        )
        return await self.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)

    _topic_id: TopicId | None = None
    _tell = False
    """What it owns has changed since it last said so."""

    async def _answered(self, answer: Any) -> bool:
        """Do as told; True when the next heartbeat must say everything."""
        self.settled = False
        fenced = (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNRELEASED_INSTANCE_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        )
        if answer.error_code in fenced:
            self.hold(set())
            self.positions = {}
            self.epoch = 0
            return True
        if answer.error_code != ErrorCode.NONE:
            return True
        self._tell = False
        self.epoch = answer.member_epoch
        target = self.owned
        if answer.assignment is not None:
            self.account.counts["rebalances"] += 1
            target = set()
            for topic in answer.assignment.topic_partitions:
                self._topic_id = topic.topic_id
                target |= set(topic.partitions)
        self._tell = target != self.owned
        for partition in self.owned - target:
            self.positions.pop(partition, None)
        self.hold(target)
        if not await self.fetch_offsets(self.owned):
            return False
        self.settled = not self._tell
        await self.commit()
        return False

    @override
    async def commit(self) -> int:
        """Only where the position is known."""
        if any(partition not in self.positions for partition in self.owned):
            return ErrorCode.NONE
        return await super().commit()
