"""Members of real groups, of both protocols, and their offsets."""

import asyncio
from dataclasses import dataclass, field

from protocol import apis
from protocol.consumer_protocol import write_assignment
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    TopicPartitions,
)
from tests.broker.groups import requests
from tests.kit.agents import Agent
from tests.kit.client import Client

SESSION_MS = 30_000


@dataclass
class Member:
    """One that has joined; `epoch` is its generation, or its member epoch."""

    agent: Agent
    peer: Client
    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None

    async def heartbeat(self) -> int:
        request = requests.heartbeat(self.group_id, self.member_id, self.epoch, self.instance_id)
        return (await self.peer.call(apis.HEARTBEAT, 4, request)).error_code

    async def leave(self) -> None:
        request = requests.leave(self.group_id, (self.member_id, self.instance_id))
        assert (await self.peer.call(apis.LEAVE_GROUP, 5, request)).error_code == 0

    async def commit(self, offsets, *, version: int = 9, epoch: int | None = None) -> dict:
        """Codes by (topic, partition)."""
        request = commit(
            self.group_id,
            offsets,
            member_id=self.member_id,
            epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance_id,
        )
        return codes(await self.peer.call(apis.OFFSET_COMMIT, version, request))


def join_request(
    group_id: str,
    topics=("logs",),
    *,
    member_id: str = "",
    instance_id: str | None = None,
    protocol_type: str = "consumer",
) -> JoinGroupRequest:
    return requests.join(
        group_id,
        member_id,
        instance_id=instance_id,
        session_ms=SESSION_MS,
        rebalance_ms=60_000,
        protocol_type=protocol_type,
        protocols=((requests.RANGE, requests.subscription(*topics)),),
    )


async def classic_group(
    agent: Agent,
    group_id: str,
    *assignments: dict[str, list[int]],
    topics=("logs",),
    protocol_type: str = "consumer",
    instance_ids=(),
    before: list[Member] | None = None,
) -> list[Member]:
    """A stable group with a member for each assignment, in one rebalance.

    `before`: members of the generation before, who come first here, and join again last, the
    leader before the others.
    """
    peers, asked = [], []
    before = before or []
    for index in range(len(assignments)):
        old = before[index] if index < len(before) else None
        peer = agent.connect() if old is None else old.peer
        instance_id = instance_ids[index] if index < len(instance_ids) else None
        request = join_request(
            group_id,
            topics,
            member_id="" if old is None else old.member_id,
            instance_id=instance_id,
            protocol_type=protocol_type,
        )
        peers.append(peer)
        # Version 3 joins without being told its id first; static members need a later one.
        asked.append(peer.call(apis.JOIN_GROUP, 3 if instance_id is None else 5, request))
    tasks: list[asyncio.Task] = [None] * len(asked)
    for index in [*range(len(before), len(asked)), *range(len(before))]:
        tasks[index] = asyncio.get_running_loop().create_task(asked[index])
        await asyncio.sleep(0.1)
    answers = await asyncio.gather(*tasks)
    members = [
        Member(
            agent,
            peer,
            group_id,
            answer.member_id,
            answer.generation_id,
            instance_ids[index] if index < len(instance_ids) else None,
        )
        for index, (peer, answer) in enumerate(zip(peers, answers, strict=True))
    ]
    assert [answer.error_code for answer in answers] == [0] * len(answers)
    assert len({answer.generation_id for answer in answers}) == 1, answers
    shares = {
        member.member_id: write_assignment(share)
        for member, share in zip(members, assignments, strict=True)
    }
    syncs = []
    for member, answer in zip(members, answers, strict=True):
        request = requests.sync(
            group_id,
            member.member_id,
            member.epoch,
            instance_id=member.instance_id,
            assignments=shares if answer.leader == member.member_id else {},
        )
        syncs.append(member.peer.call(apis.SYNC_GROUP, 4, request))
    assert [answer.error_code for answer in await asyncio.gather(*syncs)] == [0] * len(answers)
    return members


@dataclass
class Consumer(Member):
    """A member of KIP-848, and what it owns."""

    topics: list[str] = field(default_factory=lambda: ["logs"])
    owned: list[TopicPartitions] = field(default_factory=list)

    async def beat(self) -> int:
        joining = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joining else -1,
            subscribed_topic_names=self.topics if joining else None,
            topic_partitions=[] if joining else self.owned,
        )
        answer = await self.peer.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = answer.assignment.topic_partitions
        return answer.error_code

    def owns(self, partition: int) -> bool:
        return any(partition in topic.partitions for topic in self.owned)

    async def go(self) -> None:
        """Leave the group."""
        self.epoch = -1
        assert await self.beat() == 0


async def consumer_group(agent: Agent, group_id: str, count: int = 1, **more) -> list[Consumer]:
    """A stable KIP-848 group."""
    members = [
        Consumer(agent, agent.connect(), group_id, f"member-{index}", 0, **more)
        for index in range(count)
    ]
    await settle(members)
    return members


async def settle(members: list[Consumer]) -> None:
    """Heartbeats until nothing changes any more."""
    for _ in range(20):
        before = [(member.epoch, member.owned) for member in members]
        for member in members:
            assert await member.beat() == 0
        if before == [(member.epoch, member.owned) for member in members]:
            return
    raise AssertionError("not settled")


# Offsets.


def commit(
    group_id: str,
    offsets: dict,
    *,
    member_id: str = "",
    epoch: int = -1,
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    """Of {topic or id: {partition: offset, or (offset, leader epoch, metadata)}}."""
    topics = []
    for topic, wanted in offsets.items():
        partitions = []
        for partition, what in wanted.items():
            offset, leader_epoch, metadata = what if isinstance(what, tuple) else (what, -1, "")
            partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        by_id = isinstance(topic, bytes)
        which = {"topic_id": topic} if by_id else {"name": topic}
        topics.append(OffsetCommitRequestTopic(partitions=partitions, **which))
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=topics,
    )


def codes(response) -> dict:
    """Of a response to OffsetCommit or OffsetDelete, by (topic, partition)."""
    return {
        (topic.name or topic.topic_id, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


async def put(agent: Agent, group_id: str, offsets: dict, *, version: int = 9, **more) -> dict:
    """Commit on a connection of its own, by no member unless one is named."""
    request = commit(group_id, offsets, **more)
    return codes(await agent.call(apis.OFFSET_COMMIT, request, version=version))


def fetch(
    group_id: str,
    topics: dict | None,
    *,
    member_id: str | None = None,
    epoch: int = -1,
    require_stable: bool = False,
) -> OffsetFetchRequest:
    """Of {topic or id: [partitions]}, None for all; right for every version."""
    wanted = None
    if topics is not None:
        wanted = [
            OffsetFetchRequestTopic(
                partition_indexes=partitions,
                **({"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}),
            )
            for topic, partitions in topics.items()
        ]
    group = OffsetFetchRequestGroup(
        group_id=group_id, member_id=member_id, member_epoch=epoch, topics=wanted
    )
    return OffsetFetchRequest(
        group_id=group_id, topics=wanted, require_stable=require_stable, groups=[group]
    )


async def fetched(agent: Agent, group_id: str, topics: dict | None, *, version: int = 9) -> dict:
    """Offsets by (topic, partition); no errors."""
    answer = await agent.call(apis.OFFSET_FETCH, fetch(group_id, topics), version=version)
    group = answer.groups[0] if version >= 8 else answer
    assert group.error_code == 0
    rows = {}
    for topic in group.topics:
        for partition in topic.partitions:
            assert partition.error_code == 0
            key = (topic.name or topic.topic_id, partition.partition_index)
            rows[key] = partition.committed_offset
    return rows


def rows(agent, group_id: str) -> dict:
    """What the table has, by partition of "logs"."""
    group = agent.machine.groups.get(group_id)
    topic = agent.machine.topics.by_name("logs")
    return {} if group is None else dict(group.offsets.of_topic(topic.topic_id))
