"""Members of many groups, each on a connection of its own, that do nothing but heartbeat.

`python -m tests.bench.group_load --port 9092`: joins, says "ready" on its output, waits for a line of
input, sends heartbeats for a while, evenly spread, and prints what it saw as JSON. A process of
its own, so that the broker's CPU is not the load's; frames are encoded before they are timed.
"""

import argparse
import contextlib
import heapq
import json
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol import apis, messages
from protocol.framing import parse_response_header, request_frame
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    CreatableTopic,
    CreateTopicsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

TOPIC = "bench-groups"
SESSION_MS = 45_000
JOIN_VERSION, SYNC_VERSION, LEAVE_VERSION, HEARTBEAT_VERSION, CONSUMER_VERSION = 3, 3, 4, 4, 1
LAST = {
    "classic": (apis.HEARTBEAT, HEARTBEAT_VERSION),
    "consumer": (apis.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION),
}
ERROR_AT = 13
"""Of an answer's error code: length, correlation id, tags, throttle time."""
ROUNDS_MAX = 30
BACKLOG = 25
AT_ONCE = 500
"""Members that ask without waiting for others; ten thousand at once are no test of heartbeats."""


@dataclass
class Member:
    """One member and its connection."""

    group_id: str
    socket: socket.socket
    member_id: str = ""
    generation: int = -1
    leads: list[str] = field(default_factory=list)
    """Classic: the members that it has to assign."""
    owned: object = None
    """KIP-848: what it was assigned and has not told that it has."""
    frame: bytes = b""
    """Its heartbeat."""
    sent_s: float = 0.0
    answered_s: float = 0.0
    settled: bool = False

    def send(self, key: int, version: int, request: object) -> None:
        body = messages.encode_request(key, version, request)
        self.socket.sendall(request_frame(key, version, 1, "bench", body))

    def read(self, key: int, version: int):
        (length,) = struct.unpack(">i", self._read(4))
        _, body = parse_response_header(key, version, self._read(length))
        return messages.decode_response(key, version, body)

    def receive(self, key: int, version: int):
        answer = self.read(key, version)
        assert answer.error_code == 0, f"{self.group_id}: {answer}"
        return answer

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data


def connect(port: int, group_ids: list[str]) -> list[Member]:
    """A connection for each; never more at once than a listener's backlog takes."""
    members = []
    for index, group_id in enumerate(group_ids):
        member = Member(group_id, socket.create_connection(("127.0.0.1", port), timeout=60))
        member.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        members.append(member)
        if index % BACKLOG == 0:
            member.send(apis.API_VERSIONS, 0, messages.ApiVersionsRequest())
            member.receive(apis.API_VERSIONS, 0)
    return members


def await_coordinator(port: int, group_id: str) -> None:
    """Until the broker coordinates groups; Kafka makes its topic of offsets when first asked."""
    (member,) = connect(port, [group_id])
    request = messages.FindCoordinatorRequest(key=group_id, coordinator_keys=[group_id])
    while True:
        member.send(apis.FIND_COORDINATOR, 4, request)
        if member.read(apis.FIND_COORDINATOR, 4).coordinators[0].error_code == 0:
            break
        time.sleep(0.2)
    member.socket.close()
    time.sleep(3.0)


def create_topic(port: int, partitions: int) -> None:
    member = Member("", socket.create_connection(("127.0.0.1", port)))
    topic = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    body = messages.encode_request(apis.CREATE_TOPICS, 5, request)
    member.socket.sendall(request_frame(apis.CREATE_TOPICS, 5, 1, "bench", body))
    member.socket.recv(4096)
    member.socket.close()
    time.sleep(1.0)


def _batches(members: list[Member]) -> Iterator[list[Member]]:
    """Slowly, so that the broker has time for other things in between."""
    for start in range(0, len(members), AT_ONCE):
        yield members[start : start + AT_ONCE]
        time.sleep(0.2)


def join_classic(members: list[Member]) -> None:
    """Join; the leaders assign; sync."""
    for batch in _batches(members):
        for member in batch:
            request = JoinGroupRequest(
                group_id=member.group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(100))],
            )
            member.send(apis.JOIN_GROUP, JOIN_VERSION, request)
    for batch in _batches(members):
        for member in batch:
            answer = member.receive(apis.JOIN_GROUP, JOIN_VERSION)
            member.member_id, member.generation = answer.member_id, answer.generation_id
            member.leads = [each.member_id for each in answer.members]
        for member in batch:
            _send_sync(member)
    for member in members:
        answer = member.receive(apis.SYNC_GROUP, SYNC_VERSION)
        assert answer.assignment == member.member_id.encode() * 3
        request = HeartbeatRequest(
            group_id=member.group_id, generation_id=member.generation, member_id=member.member_id
        )
        body = messages.encode_request(apis.HEARTBEAT, HEARTBEAT_VERSION, request)
        member.frame = request_frame(apis.HEARTBEAT, HEARTBEAT_VERSION, 1, "bench", body)


def _send_sync(member: Member) -> None:
    given = [
        SyncGroupRequestAssignment(member_id=member_id, assignment=member_id.encode() * 3)
        for member_id in member.leads
    ]
    request = SyncGroupRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        assignments=given,
    )
    member.send(apis.SYNC_GROUP, SYNC_VERSION, request)


def _consumer_request(member: Member) -> ConsumerGroupHeartbeatRequest:
    joins = member.generation < 0
    return ConsumerGroupHeartbeatRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        member_epoch=0 if joins else member.generation,
        rebalance_timeout_ms=60_000 if joins else -1,
        subscribed_topic_names=[TOPIC] if joins else None,
        topic_partitions=[] if joins else member.owned,
    )


def join_consumer(members: list[Member]) -> None:
    """Rounds of heartbeats until nobody is told anything new."""
    for index, member in enumerate(members):
        member.member_id = f"member-{index:08d}-0123456789"
    for round_number in range(ROUNDS_MAX):
        for batch in _batches(members):
            for member in batch:
                request = _consumer_request(member)
                member.send(apis.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION, request)
            for member in batch:
                answer = member.receive(apis.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION)
                told = None if answer.assignment is None else answer.assignment.topic_partitions
                member.settled = told is None and answer.member_epoch == member.generation
                member.generation, member.owned = answer.member_epoch, told
        if all(member.settled for member in members):
            print(f"settled after {round_number} rounds", file=sys.stderr)
            break
    else:
        raise AssertionError("the groups did not settle")
    for member in members:
        body = messages.encode_request(
            apis.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION, _consumer_request(member)
        )
        member.frame = request_frame(
            apis.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION, 1, "bench", body
        )


def heartbeat(members: list[Member], *, every_s: float, seconds: float) -> dict[str, object]:
    """Every member every `every_s`, evenly spread; counts, errors, latencies in ms."""
    begun_s = time.monotonic()
    due = [(begun_s + every_s * i / len(members), i) for i in range(len(members))]
    heapq.heapify(due)
    by_fd = {member.socket.fileno(): member for member in members}
    latencies: list[float] = []
    errors: dict[int, int] = {}
    with contextlib.closing(select.epoll()) as poll:
        for fd in by_fd:
            poll.register(fd, select.EPOLLIN)
        while (now_s := time.monotonic()) < begun_s + seconds:
            while due[0][0] <= now_s:
                at_s, index = due[0]
                member = members[index]
                member.sent_s = now_s
                member.socket.send(member.frame)
                heapq.heapreplace(due, (at_s + every_s, index))
            for fd, _ in poll.poll(max(0.001, due[0][0] - time.monotonic())):
                member = by_fd[fd]
                data = member.socket.recv(65536)
                assert data, f"the broker closed the connection of {member.group_id}"
                member.answered_s = time.monotonic()
                latencies.append((member.answered_s - member.sent_s) * 1000)
                (error,) = struct.unpack_from(">h", data, ERROR_AT)
                if error:
                    errors[error] = errors.get(error, 0) + 1
    latencies.sort()
    return {
        "answers": len(latencies),
        "errors": errors,
        "p50_ms": latencies[len(latencies) // 2],
        "p99_ms": latencies[int(len(latencies) * 0.99)],
        "own_cpu_s": time.process_time(),
    }


def leave(members: list[Member], protocol: str) -> None:
    """Nobody expires in the middle of the next measurement."""
    if protocol == "consumer":
        for batch in _batches(members):
            for member in batch:
                request = ConsumerGroupHeartbeatRequest(
                    group_id=member.group_id, member_id=member.member_id, member_epoch=-1
                )
                member.send(apis.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION, request)
            for member in batch:
                member.receive(apis.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION)
        return
    by_group: dict[str, list[Member]] = {}
    for member in members:
        by_group.setdefault(member.group_id, []).append(member)
    for batch in _batches([group[0] for group in by_group.values()]):
        for member in batch:
            leaving = [
                MemberIdentity(member_id=each.member_id) for each in by_group[member.group_id]
            ]
            request = LeaveGroupRequest(group_id=member.group_id, members=leaving)
            member.send(apis.LEAVE_GROUP, LEAVE_VERSION, request)
        for member in batch:
            member.receive(apis.LEAVE_GROUP, LEAVE_VERSION)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.group_load")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--members", type=int, default=5, help="of each group")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between heartbeats")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    if options.protocol == "consumer":
        create_topic(options.port, options.members)
    await_coordinator(options.port, f"{options.protocol}-0")
    names = [f"{options.protocol}-{number}" for number in range(options.groups)]
    members = connect(options.port, [name for name in names for _ in range(options.members)])
    begun_s = time.monotonic()
    (join_classic if options.protocol == "classic" else join_consumer)(members)
    print(f"joined within {time.monotonic() - begun_s:.1f} s", file=sys.stderr)
    print("ready", flush=True)
    sys.stdin.readline()
    seen = heartbeat(members, every_s=options.every, seconds=options.seconds)
    print(json.dumps(seen), flush=True)
    for member in members:
        if member.sent_s > member.answered_s:
            member.read(*LAST[options.protocol])
    leave(members, options.protocol)


if __name__ == "__main__":
    main()
