"""Clients of the load, each on one connection: prebuilt requests out, answers in, an account of both.

Nothing is decoded but error codes, and nothing is built while requests are timed: one core has to
offer more than the other can serve.
"""

import errno
import socket
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from protocol import apis, messages
from protocol.framing import parse_response_header, request_frame
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.kit.requests import errors_in

CLIENT_ID = "load"
RECEIVED_AT_ONCE = 1 << 18
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION, CONFIGS_VERSION = 8, 11, 8, 3
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION = 3, 3, 1


@dataclass
class Account:
    """What befell requests of one kind."""

    offered: int = 0
    """That were due, whether or not a client could send them."""
    offered_bytes: int = 0
    sent: int = 0
    served: int = 0
    """Answered without an error while load was offered."""
    late: int = 0
    """Likewise, afterwards."""
    seconds: list[float] = field(default_factory=list)
    """From sending to the answer."""
    errors: Counter[str] = field(default_factory=Counter)


class Books:
    """The accounts of one step, by kind."""

    def __init__(self) -> None:
        self.kinds: dict[str, Account] = {}
        self.over = False
        """No more load is offered; answers are late."""

    def of(self, kind: str) -> Account:
        return self.kinds.setdefault(kind, Account())


class Client(ABC):
    """One connection that does not block. `answered` says what comes of each answer."""

    def __init__(self, port: int, address: str, kind: str) -> None:
        self.kind = kind
        self.sent_at: deque[float] = deque()
        """Of its requests that are not answered, in order."""
        self.closed = False
        self.account = Account()
        self.books = Books()
        self._rest = b""
        self._unsent = b""
        self.socket = socket.socket()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "IP_BIND_ADDRESS_NO_PORT"):
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
        self.socket.settimeout(60)
        self.socket.bind((address, 0))
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)

    def begin(self, books: Books) -> None:
        """From now on it is told in these books."""
        self.books, self.account = books, books.of(self.kind)

    def send(self, frame: bytes, now: float) -> bool:
        """False when the connection does not take it now, or no more."""
        if self._unsent or self.closed:
            return False
        try:
            count = self.socket.send(frame)
        except BlockingIOError:
            return False
        except OSError as error:
            self._close(errno.errorcode.get(error.errno or 0, "broken"))
            return False
        self._unsent = frame[count:]
        self.sent_at.append(now)
        self.account.sent += 1
        return True

    def flush(self) -> None:
        """Send what the connection did not take whole; to be called now and then."""
        if self._unsent and not self.closed:
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                pass
            except OSError as error:
                self._close(errno.errorcode.get(error.errno or 0, "broken"))

    def receive(self) -> None:
        """Take what has come."""
        try:
            data = self.socket.recv(RECEIVED_AT_ONCE)
        except BlockingIOError:
            return
        except OSError as error:
            self._close(errno.errorcode.get(error.errno or 0, "broken"))
            return
        if not data:
            self._close("closed by the agent")
            return
        if self._rest:
            data = self._rest + data
        now = time.monotonic()
        at, size = 0, len(data)
        while size - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4])
            if end > size:
                break
            self._count(self.answered(data[at:end]), now)
            at = end
        self._rest = data[at:]

    @abstractmethod
    def answered(self, frame: bytes) -> str:
        """What is wrong with the answer; "" when nothing is."""

    def _count(self, wrong: str, now: float) -> None:
        account = self.account
        account.seconds.append(now - self.sent_at.popleft())
        if wrong:
            account.errors[wrong] += 1
        elif self.books.over:
            account.late += 1
        else:
            account.served += 1

    def _close(self, why: str) -> None:
        self.closed = True
        self.account.errors[why] += 1
        self.sent_at.clear()
        self.socket.close()


class Repeater(Client):
    """Sends frames again and again; an answer's error code lies at `error_at`."""

    def __init__(
        self, port: int, address: str, kind: str, frames: list[bytes], *, error_at: int, first: int
    ) -> None:
        super().__init__(port, address, kind)
        self._frames = frames
        self._next = first
        self._error_at = error_at

    @property
    def frame(self) -> bytes:
        return self._frames[self._next]

    def offer(self, now: float, in_flight_max: int) -> None:
        """One more request is due."""
        frame = self._frames[self._next]
        account = self.account
        account.offered += 1
        account.offered_bytes += len(frame)
        if len(self.sent_at) < in_flight_max and self.send(frame, now):
            self._next = (self._next + 1) % len(self._frames)

    def answered(self, frame: bytes) -> str:
        at = self._error_at
        code = frame[at : at + 2]
        return "" if code == b"\0\0" else f"error {int.from_bytes(code, signed=True)}"


class Describer(Client):
    """What `kafka-topics.sh --describe` asks, again and again: all topics, then their configs."""

    def __init__(self, port: int, address: str, topics: list[str]) -> None:
        super().__init__(port, address, "describe")
        resources = [
            messages.DescribeConfigsResource(
                resource_type=2, resource_name=name, configuration_keys=None
            )
            for name in topics
        ]
        self._round = (
            (apis.METADATA, METADATA_VERSION, messages.MetadataRequest(topics=None)),
            (
                apis.DESCRIBE_CONFIGS,
                CONFIGS_VERSION,
                messages.DescribeConfigsRequest(resources=resources),
            ),
        )
        self._frames = [frame_of(*each) for each in self._round]
        self._sound: list[bytes] = [b"", b""]
        """Answers that have no error; the next ones are the same."""
        self._next = 0
        self._answers = 0

    def offer(self, now: float, in_flight_max: int) -> None:
        frame = self._frames[self._next]
        self.account.offered += 1
        self.account.offered_bytes += len(frame)
        if len(self.sent_at) < in_flight_max and self.send(frame, now):
            self._next = 1 - self._next

    def answered(self, frame: bytes) -> str:
        which = self._answers % 2
        self._answers += 1
        if frame == self._sound[which]:
            return ""
        key, version, _ = self._round[which]
        wrong = _error_in(key, version, frame)
        if not wrong:
            self._sound[which] = frame
        return wrong


class Member(Client):
    """The one member of a group. `rejoin` begins a round of requests, each when the one before is
    answered; `settled` when it has an assignment again."""

    def __init__(self, port: int, address: str, group_id: str, kind: str) -> None:
        super().__init__(port, address, kind)
        self.group_id = group_id
        self.member_id = ""
        self.settled = True
        self._rounds: Iterator[bytes] = iter(())
        self._answer: Any = None

    def rejoin(self, now: float) -> None:
        """One more is due; one that has not settled since the last cannot."""
        self.account.offered += 1
        if self.settled and not self.closed:
            self.settled = False
            self._rounds = self.requests()
            self._go_on(now)

    @abstractmethod
    def requests(self) -> Iterator[bytes]:
        """The requests of a round; `_answer` is the answer to the one before."""

    @abstractmethod
    def read(self, frame: bytes) -> Any:
        """The answer in its shape."""

    def answered(self, frame: bytes) -> str:
        self._answer = self.read(frame)
        wrong = ", ".join(code.name for code in errors_in(self._answer))
        if wrong:
            self.settled = True  # And tries again when the next round is due.
            self.forget()
        else:
            self._go_on(time.monotonic())
        return wrong

    def forget(self) -> None:
        """It was told that it is no member, or not now."""
        self.member_id = ""

    def _go_on(self, now: float) -> None:
        frame = next(self._rounds, None)
        if frame is None:
            self.settled = True
        else:
            self.send(frame, now)


class ClassicMember(Member):
    """Joins, and as the leader gives itself all."""

    def __init__(self, port: int, address: str, group_id: str) -> None:
        super().__init__(port, address, group_id, "classic groups")
        self._syncs = False

    def requests(self) -> Iterator[bytes]:
        self._syncs = False
        join = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(100))],
        )
        yield frame_of(apis.JOIN_GROUP, JOIN_VERSION, join)
        joined = self._answer
        self.member_id = joined.member_id
        self._syncs = True
        sync = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=self.member_id, assignment=bytes(100))
            ],
        )
        yield frame_of(apis.SYNC_GROUP, SYNC_VERSION, sync)

    def read(self, frame: bytes) -> Any:
        if self._syncs:
            return decoded(apis.SYNC_GROUP, SYNC_VERSION, frame)
        return decoded(apis.JOIN_GROUP, JOIN_VERSION, frame)


class ConsumerMember(Member):
    """KIP-848: leaves, joins, and tells that it has what it was given."""

    def __init__(self, port: int, address: str, group_id: str, topic: str) -> None:
        super().__init__(port, address, group_id, "consumer groups")
        self._topic = topic
        self._number = 0

    def requests(self) -> Iterator[bytes]:
        if self.member_id:
            yield self._heartbeat(epoch=-1)
        self._number += 1
        self.member_id = f"member-{self._number:09}"
        yield self._heartbeat(epoch=0)
        owned: list[messages.TopicPartitions] = []
        while self._answer.assignment is not None:
            owned = self._answer.assignment.topic_partitions
            yield self._heartbeat(epoch=self._answer.member_epoch, owned=owned)

    def _heartbeat(self, *, epoch: int, owned: Any = None) -> bytes:
        joins = epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=[self._topic] if joins else None,
            topic_partitions=[] if joins else owned,
        )
        return frame_of(apis.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, request)

    def read(self, frame: bytes) -> Any:
        return decoded(apis.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, frame)


def frame_of(key: int, version: int, request: Any) -> bytes:
    body = messages.encode_request(key, version, request)
    return request_frame(key, version, 1, CLIENT_ID, body)


def decoded(key: int, version: int, frame: bytes) -> Any:
    _, body = parse_response_header(key, version, frame[4:])
    return messages.decode_response(key, version, body)


def _error_in(key: int, version: int, frame: bytes) -> str:
    return ", ".join(sorted({code.name for code in errors_in(decoded(key, version, frame))}))
