"""Kafka's wire spoken by hand through our codec: what clients know of a group and do not tell."""

import socket
import struct
from typing import Any

from protocol import framing, messages
from protocol.errors import ErrorCode
from protocol.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

OFFSET_COMMIT, FIND_COORDINATOR, HEARTBEAT = 8, 10, 12
OFFSET_COMMIT_VERSION, FIND_COORDINATOR_VERSION, HEARTBEAT_VERSION = 8, 3, 4

GENERATIONS_MAX = 200
"""More than any test's group goes through."""


def ask(address: str, key: int, version: int, request: Any, *, seconds: float = 10.0) -> Any:
    """One request on a connection of its own, and its answer. Raises OSError."""
    host, _, port = address.rpartition(":")
    body = messages.encode_request(key, version, request)
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.settimeout(seconds)
        connection.sendall(framing.request_frame(key, version, 1, "raw", body))
        (length,) = struct.unpack(">i", _exactly(connection, 4))
        _, answer = framing.parse_response_header(key, version, _exactly(connection, length))
        return messages.decode_response(key, version, answer)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the connection was closed")
        data += more
    return data


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


def commit(
    address: str, group: str, place: tuple[str, int], offset: int, *, epoch: int, member_id: str
) -> int:
    """The error code that one partition's commit is answered with."""
    topic, partition = place
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    asked = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )
    answered = ask(address, OFFSET_COMMIT, OFFSET_COMMIT_VERSION, asked)
    return answered.topics[0].partitions[0].error_code
