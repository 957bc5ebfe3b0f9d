"""Transactional producers that speak to agents frame by frame.

A `Producer` is one client's: its id and epoch, over whatever connection it is told to use. Agents
with a topic "logs" are in `tests.broker.groups.world`; `producing` and `in_transaction` are those,
with a producer at the first of them.
"""

import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from protocol import apis
from protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    hot,
)
from protocol.records import TRANSACTIONAL, batch_positions, iterate, read_header
from tests.broker.groups.world import agents
from tests.kit.agents import Agent
from tests.kit.batches import batch, fetch_request, produce_request
from tests.kit.client import Client
from txn.transactions import State

ABORT_KEY = bytes(4)
"""Of the control record: version 0, type 0."""
OPEN, COMMITTED, ABORTED, EMPTY = (
    State.ONGOING,
    State.COMPLETE_COMMIT,
    State.COMPLETE_ABORT,
    State.EMPTY,
)


def txn_metadata(agent: Agent, transactional_id: str = "id"):
    return agent.node.transactions.txn_metadata(transactional_id)


def partition(agent: Agent, index: int = 0, topic: str = "logs"):
    row = agent.machine.topics.by_name(topic)
    return agent.machine.partitions.get(row.topic_id, index)


def commands_of(agent: Agent, *kinds: type) -> list:
    """What this agent applies from now on, of these kinds of commands, as it grows."""
    seen: list = []

    def applied(applied) -> None:
        seen.extend(each for each in applied.entry.commands if isinstance(each, kinds))

    agent.log_client.on_applied(applied)
    return seen


@dataclass
class Producer:
    """A transactional producer. Every call may name another connection, or another version."""

    agent: Agent
    peer: Client
    transactional_id: str = "id"
    producer_id: int = -1
    epoch: int = -1
    sequences: dict | None = None

    @classmethod
    async def begin(cls, agent: Agent, transactional_id: str = "id", **more) -> "Producer":
        """One that has its id and epoch."""
        producer = cls(agent, agent.connect(), transactional_id)
        assert await producer.init(**more) == 0
        return producer

    def copy(self) -> "Producer":
        """The same producer in other hands: a zombie, or its successor's view of it."""
        return Producer(self.agent, self.peer, self.transactional_id, self.producer_id, self.epoch)

    async def init(
        self,
        *,
        version: int = 4,
        timeout_ms: int = 60_000,
        given: bool = False,
        peer: Client | None = None,
    ) -> int:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if given else -1,
            producer_epoch=self.epoch if given else -1,
        )
        answer = await (peer or self.peer).call(apis.INIT_PRODUCER_ID, version, request)
        if answer.error_code == 0:
            if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
                self.sequences = None
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    # Frames.

    def add_frame(self, peer: Client, topics: dict | None = None, *, version: int = 3) -> bytes:
        return peer.frame(apis.ADD_PARTITIONS_TO_TXN, version, self.add_request(topics))

    def end_frame(self, peer: Client, *, commit: bool = True, version: int = 3) -> bytes:
        return peer.frame(apis.END_TXN, version, self.end_request(commit=commit))

    def produce_request(
        self, *indexes: int, value: bytes = b"v", sequence: int = 0, acks: int = -1
    ) -> hot.ProduceRequest:
        """The same record to each of these partitions, which ascend by one."""
        data = batch(
            value,
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
        )
        return produce_request(
            "logs",
            *[data for _ in indexes],
            partition=indexes[0],
            acks=acks,
            transactional_id=self.transactional_id,
        )

    def add_request(self, topics: dict | None = None) -> AddPartitionsToTxnRequest:
        topics = {"logs": [0]} if topics is None else topics
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=list(partitions))
                for name, partitions in topics.items()
            ],
        )

    def end_request(self, *, commit: bool = True) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    # Requests with their answers.

    async def add(
        self, topics: dict | None = None, *, version: int = 3, peer: Client | None = None
    ) -> dict:
        """Codes by (topic, partition)."""
        request = self.add_request(topics)
        answer = await (peer or self.peer).call(apis.ADD_PARTITIONS_TO_TXN, version, request)
        return {
            (topic.name, row.partition_index): row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }

    async def add_offsets(
        self, group_id: str, *, version: int = 3, peer: Client | None = None
    ) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        answer = await (peer or self.peer).call(apis.ADD_OFFSETS_TO_TXN, version, request)
        return answer.error_code

    async def end(
        self, *, commit: bool = True, version: int = 3, peer: Client | None = None
    ) -> int:
        request = self.end_request(commit=commit)
        answer = await (peer or self.peer).call(apis.END_TXN, version, request)
        if version >= 5 and answer.error_code == 0:
            assert answer.producer_id >= 0
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = None
        return answer.error_code

    async def produce(
        self,
        index: int = 0,
        value: bytes = b"v",
        *,
        version: int = 9,
        peer: Client | None = None,
    ) -> int:
        """One record; the error code."""
        self.sequences = {} if self.sequences is None else self.sequences
        request = self.produce_request(index, value=value, sequence=self.sequences.get(index, 0))
        answer = await (peer or self.peer).call(apis.PRODUCE, version, request)
        (row,) = answer.responses[0].partition_responses
        if row.error_code == 0:
            self.sequences[index] = self.sequences.get(index, 0) + 1
        return row.error_code

    def offsets_request(self, group_id: str, offsets: dict, **member) -> TxnOffsetCommitRequest:
        topics: dict[str, list] = {}
        for (topic, index), what in offsets.items():
            offset, metadata = what if isinstance(what, tuple) else (what, "")
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=rows)
                for name, rows in topics.items()
            ],
            **member,
        )

    async def commit_offsets(
        self,
        agent: Agent,
        group_id: str,
        offsets: dict,
        *,
        version: int = 3,
        peer: Client | None = None,
        **member,
    ) -> dict:
        """Of {(topic, partition): offset or (offset, metadata)}; codes likewise."""
        request = self.offsets_request(group_id, offsets, **member)
        return offset_codes(
            await (peer or agent.connect()).call(apis.TXN_OFFSET_COMMIT, version, request)
        )


class LateClient:
    """A client that gives connections up, to any of the agents, with frames that nobody has read."""

    def __init__(self, agents, producer: Producer, rng: random.Random) -> None:
        self.agents = agents
        self.producer = producer
        self.rng = rng
        self.left: list[Client] = []

    def leave_unread(self, *frames: bytes) -> None:
        """They are on a connection that is the client's no more."""
        self.producer.peer.put(b"".join(frames))
        self.left.append(self.producer.peer)
        self.producer.peer = self.rng.choice(self.agents).connect()


async def opened(agent: Agent) -> Producer:
    """One whose transaction is open, with partition 0 of "logs"."""
    producer = await Producer.begin(agent)
    await producer.add()
    return producer


@contextlib.asynccontextmanager
async def producing(
    *names: str, begin: Callable[[Agent], Awaitable[Any]] = Producer.begin, **settings: str
) -> AsyncGenerator[tuple[Any, ...], None]:
    """A producer as `begin` makes it at the first of the agents, and all of them."""
    async with agents(*names, **settings) as everybody:
        yield await begin(everybody[0]), *everybody


def in_transaction(*names: str, **settings: str):
    """As `producing`, with an open transaction."""
    return producing(*names, begin=opened, **settings)


def offset_codes(answer) -> dict:
    """Codes by (topic, partition)."""
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }


def of_member(member, *, by: int = 0, **changes) -> dict:
    """What a member's offsets say of it; `by`: its generation or epoch is another by so much."""
    return {"generation_id": member.epoch + by, "member_id": member.member_id} | changes


async def records(agent: Agent, index: int = 0, *, committed: bool = True) -> list[bytes]:
    """Values that a consumer gets which begins at 0: read_committed, or everything."""
    await agent.log_client.barrier()
    end = partition(agent, index).last_stable if committed else partition(agent, index).end_offset
    values: list[bytes] = []
    at, peer = 0, agent.connect()
    while at < end:
        request = fetch_request("logs", at, partition=index, isolation_level=int(committed))
        answer = await peer.call(apis.FETCH, 11, request)
        row = answer.responses[0].partitions[0]
        assert row.error_code == 0
        at, some = _read(row, at)
        values += some
    return values


def _read(row, at: int) -> tuple[int, list[bytes]]:
    """As clients do: batches of an aborted transaction are left out until its marker."""
    data = bytes(row.records or b"")
    assert data, "nothing below the bound"
    waiting = sorted(
        (each.first_offset, each.producer_id) for each in row.aborted_transactions or []
    )
    dropped: set[int] = set()
    values = []
    for start in batch_positions(data)[0]:
        header = read_header(data, start)
        at = header.last_offset + 1
        while waiting and waiting[0][0] <= header.last_offset:
            dropped.add(waiting.pop(0)[1])
        if header.is_control:
            (marker,) = iterate(data, start)
            if marker.key == ABORT_KEY:
                dropped.discard(header.producer_id)
        elif header.producer_id not in dropped:
            values += [record.value for record in iterate(data, start)]
    return at, values
