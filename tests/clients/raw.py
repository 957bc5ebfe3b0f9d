"""Kafka's wire spoken by hand through our codec: what clients know of a group and do not tell."""

import socket
import struct
import time
from collections import deque
from typing import Any, Self

from protocol import framing, messages
from protocol.errors import ErrorCode
from protocol.messages import (
    ConsumerGroupDescribeRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 8, 9, 10, 12, 69
OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION, FIND_COORDINATOR_VERSION, HEARTBEAT_VERSION = (
    9,
    7,
    3,
    4,
)
CONSUMER_GROUP_DESCRIBE_VERSION = 0

MOVING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Ask again, and ask who the coordinator is."""

Place = tuple[str, int]
COMMITTED_S = 20.0
GENERATIONS_MAX = 200
"""More than any test's group goes through."""


class Connection:
    """One connection; requests may be sent long before their answers are asked for."""

    def __init__(self, address: str, *, seconds: float = 10.0) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=seconds)
        self._sent: deque[tuple[int, int]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, key: int, version: int, request: Any) -> None:
        self.send_bytes(self.frame(key, version, request))

    def frame(self, key: int, version: int, request: Any) -> bytes:
        """The request's bytes, for `send_bytes`, now or later; answers come in this order."""
        body = messages.encode_request(key, version, request)
        self._sent.append((key, version))
        return bytes(framing.request_frame(key, version, 1, "raw", body))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, key: int, version: int, request: Any) -> Any:
        """A request and its answer. Raises OSError."""
        self.send(key, version, request)
        return self.receive()

    def receive(self) -> Any:
        """The answer to the oldest request that has none. Raises OSError."""
        key, version = self._sent.popleft()
        (length,) = struct.unpack(">i", self._exactly(4))
        _, answer = framing.parse_response_header(key, version, self._exactly(length))
        return messages.decode_response(key, version, answer)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the connection was closed")
            data += more
        return data


def ask(address: str, key: int, version: int, request: Any, *, seconds: float = 10.0) -> Any:
    """One request on a connection of its own, and its answer. Raises OSError."""
    with Connection(address, seconds=seconds) as connection:
        return connection.ask(key, version, request)


def coordinator(address: str, group: str) -> str | None:
    """The group's coordinator, "host:port", as this agent has it; None when there is none now."""
    asked = FindCoordinatorRequest(key=group, key_type=0)
    found = ask(address, FIND_COORDINATOR, FIND_COORDINATOR_VERSION, asked)
    return f"{found.host}:{found.port}" if found.error_code == ErrorCode.NONE else None


def heartbeat(address: str, group: str, generation: int, member_id: str) -> int:
    """The error code that a classic member's heartbeat is answered with."""
    asked = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
    return ask(address, HEARTBEAT, HEARTBEAT_VERSION, asked).error_code


def generation(address: str, group: str, member_id: str) -> int:
    """The generation of a stable classic group: the one that this member's heartbeat may name."""
    for number in range(GENERATIONS_MAX):
        error = heartbeat(address, group, number, member_id)
        if error == ErrorCode.NONE:
            return number
        assert error == ErrorCode.ILLEGAL_GENERATION, ErrorCode(error)
    raise AssertionError(f"{group} is beyond generation {GENERATIONS_MAX}")


def epochs(address: str, group: str) -> tuple[int, dict[str, int]]:
    """Of a group of KIP-848: its epoch, and its members' by their ids."""
    asked = ConsumerGroupDescribeRequest(group_ids=[group])
    answered = ask(address, CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_DESCRIBE_VERSION, asked)
    (found,) = answered.groups
    assert found.error_code == ErrorCode.NONE, found
    return found.group_epoch, {row.member_id: row.member_epoch for row in found.members}


def commit_of(group: str, place: Place, offset: int, *, epoch: int, member_id: str) -> Any:
    """The request that commits one partition's offset."""
    topic, partition = place
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )


def commit(
    address: str, group: str, place: Place, offset: int, *, epoch: int, member_id: str
) -> int:
    """The error code that one partition's commit is answered with."""
    asked = commit_of(group, place, offset, epoch=epoch, member_id=member_id)
    answered = ask(address, OFFSET_COMMIT, OFFSET_COMMIT_VERSION, asked)
    return answered.topics[0].partitions[0].error_code


def committed(address: str, group: str, topic: str, partitions: int) -> list[int]:
    """The committed offset of each partition, -1 where there is none.

    librdkafka's AdminClient remembers the coordinator, and dies of NOT_COORDINATOR.
    """
    rows = OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(partitions)))
    asked = OffsetFetchRequest(group_id=group, topics=[rows])
    deadline = time.monotonic() + COMMITTED_S
    while time.monotonic() < deadline:
        found = coordinator(address, group)
        if found is not None:
            answered = ask(found, OFFSET_FETCH, OFFSET_FETCH_VERSION, asked)
            if answered.error_code not in MOVING:
                assert answered.error_code == ErrorCode.NONE, answered
                (of_topic,) = answered.topics
                return [
                    row.committed_offset
                    for row in sorted(of_topic.partitions, key=lambda row: row.partition_index)
                ]
        time.sleep(0.02)
    raise AssertionError(f"{group} has no coordinator for {COMMITTED_S:.0f} s")
