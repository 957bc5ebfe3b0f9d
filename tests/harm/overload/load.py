"""The load: thousands of honest clients in one process: `python -m tests.harm.overload.load`.

The first line of its input says where the agent is and how many clients there are (`Crowd`, as
JSON); it makes topics, writes old data, connects, and answers "ready". Each line after that is a
`Step`: so many requests a second are offered for a while, whatever becomes of those before. A client
has at most five requests in flight; what it cannot send is offered, and not served. The answer is
what became of them, as JSON, when all are answered or it has waited long enough.

Everything at rate 1.0 of `background` is: a reader of old data per partition, four fetches a
second each; `kafka-topics.sh --describe`, twice a second; and all groups rejoin at once, every two
seconds (at less, as many fewer of them).
"""

import json
import random
import resource
import select
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from protocol import apis
from protocol.records import Record, build_batch
from tests.harm.overload.clients import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Account,
    Books,
    ClassicMember,
    Client,
    ConsumerMember,
    Describer,
    Member,
    Repeater,
    decoded,
    frame_of,
)
from tests.kit import requests
from tests.kit.requests import error_of

LOAD, OLD = "load", "old-data"
IN_FLIGHT_MAX = 5
OLD_BATCH_RECORDS, OLD_RECORD_BYTES, OLD_BATCHES_A_FETCH = 16, 4096, 4
FETCHES_A_SECOND, DESCRIPTIONS_A_SECOND, REJOIN_S = 4.0, 2.0, 2.0
SHOWN_AT_ONCE = 25
"""Connections that are made before one of them is answered: the agent's backlog takes 50."""
EVENTS_MAX, SLOTS_MAX = 512, 512
PAUSE_S = 0.001
SETTLED_S_MAX = 60.0


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """Who there is."""

    port: int
    producers: int = 5000
    addresses: Sequence[str] = ("127.0.0.1",)
    partitions: int = 50
    """That they write to."""
    record_bytes: int = 1024
    groups: int = 200
    """Half of them classic, half KIP-848's; of one member each."""
    readers: int = 12
    """Partitions of old data."""
    old_bytes: int = 10 << 20
    """In each of them."""
    topics: int = 100
    """That are described."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is offered."""

    produces_a_second: float
    background: float
    seconds: float
    patience_s: float = 10.0
    """For answers, after that."""


@dataclass(kw_only=True)
class Told:
    """What became of one kind of requests; times in ms."""

    offered: int = 0
    offered_bytes: int = 0
    sent: int = 0
    served: int = 0
    late: int = 0
    unanswered: int = 0
    """When the load gave up waiting."""
    p50: float = 0.0
    p99: float = 0.0
    longest: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)


class Paced:
    """Clients of a kind whose requests are due at a rate, round robin."""

    def __init__(self, clients: Sequence[Any], rate: float, *, in_flight_max: int) -> None:
        self._clients = clients
        self._rate = rate if clients else 0.0
        self._in_flight_max = in_flight_max
        self._offered = 0

    def offer(self, now: float, begun: float) -> bool:
        """Whether more is due than was offered in this turn."""
        due = int((now - begun) * self._rate)
        self._offer(now, min(due, self._offered + SLOTS_MAX), self._in_flight_max)
        return self._offered < due

    def end(self, seconds: float) -> None:
        """What was due within so many and was not offered in time counts, and is not sent."""
        self._offer(0.0, int(seconds * self._rate), 0)

    def _offer(self, now: float, until: int, in_flight_max: int) -> None:
        clients, count = self._clients, len(self._clients)
        for slot in range(self._offered, until):
            clients[slot % count].offer(now, in_flight_max)
        self._offered = until


class Load:
    """All clients of a crowd."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._rng = random.Random(1)
        self._poll = select.epoll()
        self._clients: dict[int, Client] = {}
        self._prepare()
        self.producers = self._connect_producers()
        self.readers = [self._reader(index) for index in range(crowd.readers)]
        topics = [f"topic-{number}" for number in range(crowd.topics)]
        self.describer = self._add(Describer(crowd.port, self._address(0), topics))
        self.members = [self._member(index) for index in range(crowd.groups)]
        self._settle()

    # Before anything is timed.

    def _prepare(self) -> None:
        crowd = self._crowd
        asking = Asking(crowd.port)
        counts = {f"topic-{number}": 3 for number in range(crowd.topics)}
        counts |= {LOAD: crowd.partitions}
        if crowd.readers:
            counts[OLD] = crowd.readers
        asking.ask(apis.CREATE_TOPICS, 5, requests.create_topics(counts))
        value = self._rng.randbytes(OLD_RECORD_BYTES)
        now_ms = int(time.time() * 1000)
        batch = build_batch([Record(timestamp=now_ms, value=value)] * OLD_BATCH_RECORDS)
        rows = {(OLD, index): batch for index in range(crowd.readers)}
        for _ in range(crowd.old_bytes // len(batch) if rows else 0):
            asking.ask(apis.PRODUCE, PRODUCE_VERSION, requests.produce(rows))
        asking.close()

    def _address(self, index: int) -> str:
        return self._crowd.addresses[index * len(self._crowd.addresses) // self._crowd.producers]

    def _add(self, client: Any) -> Any:
        self._clients[client.socket.fileno()] = client
        self._poll.register(client.socket.fileno(), select.EPOLLIN)
        if len(self._clients) % SHOWN_AT_ONCE == 0:
            asking = Asking(self._crowd.port)  # Behind all that wait to be accepted.
            asking.ask(apis.API_VERSIONS, 0, requests.messages.ApiVersionsRequest())
            asking.close()
        return client

    def _connect_producers(self) -> list[Repeater]:
        crowd = self._crowd
        frames = []
        for partition in range(crowd.partitions):
            value = self._rng.randbytes(crowd.record_bytes)
            batch = build_batch([Record(timestamp=int(time.time() * 1000), value=value)])
            request = requests.produce({(LOAD, partition): batch}, timeout_ms=30_000)
            frames.append(frame_of(apis.PRODUCE, PRODUCE_VERSION, request))
        error_at = 4 + 4 + 4 + 2 + len(LOAD) + 4 + 4
        return [
            self._add(
                Repeater(
                    crowd.port,
                    self._address(index),
                    "produce",
                    [frames[index % len(frames)]],
                    error_at=error_at,
                    first=0,
                )
            )
            for index in range(crowd.producers)
        ]

    def _reader(self, partition: int) -> Repeater:
        crowd = self._crowd
        batch_bytes = OLD_BATCH_RECORDS * OLD_RECORD_BYTES
        step = OLD_BATCHES_A_FETCH * OLD_BATCH_RECORDS
        offsets = range(0, crowd.old_bytes // batch_bytes * OLD_BATCH_RECORDS - step, step)
        frames = [
            frame_of(
                apis.FETCH,
                FETCH_VERSION,
                requests.fetch(
                    {(OLD, partition): offset},
                    partition_max_bytes=(OLD_BATCHES_A_FETCH - 1) * batch_bytes,
                ),
            )
            for offset in offsets
        ]
        error_at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(OLD) + 4 + 4
        address = self._address(partition % crowd.producers)
        return self._add(
            Repeater(
                crowd.port,
                address,
                "fetch old data",
                frames,
                error_at=error_at,
                first=partition % len(frames),
            )
        )

    def _member(self, index: int) -> Member:
        crowd = self._crowd
        address = self._address(index * crowd.producers // crowd.groups)
        if index % 2:
            return self._add(ConsumerMember(crowd.port, address, f"consumer-{index}", "topic-0"))
        return self._add(ClassicMember(crowd.port, address, f"classic-{index}"))

    def _settle(self) -> None:
        """Have all groups settled: the first join of a group takes its initial delay."""
        books = self._begin()
        for member in self.members:
            member.rejoin(time.monotonic())
        deadline = time.monotonic() + SETTLED_S_MAX
        while not all(member.settled for member in self.members):
            assert time.monotonic() < deadline, "the groups do not settle"
            self._receive(0.1)
        wrong = [account.errors for account in books.kinds.values() if account.errors]
        assert not wrong, wrong

    # Steps.

    def _begin(self) -> Books:
        books = Books()
        for client in self._clients.values():
            client.begin(books)
        return books

    def run(self, step: Step) -> dict[str, Any]:
        """Offer what the step says, wait for answers, and tell."""
        books = self._begin()
        background = step.background
        fetches = len(self.readers) * FETCHES_A_SECOND * background
        described = 2 * DESCRIPTIONS_A_SECOND * background
        paced = [
            Paced(self.producers, step.produces_a_second, in_flight_max=IN_FLIGHT_MAX),
            Paced(self.readers, fetches, in_flight_max=1),
            Paced([self.describer], described, in_flight_max=1),
        ]
        rejoining = self.members[: int(len(self.members) * min(1.0, background))]
        begun = time.monotonic()
        cpu = time.process_time()
        rejoin_at = begun
        while (now := time.monotonic()) < begun + step.seconds:
            behind = [each.offer(now, begun) for each in paced]
            if now >= rejoin_at:
                rejoin_at += REJOIN_S
                for member in rejoining:
                    member.rejoin(now)
            self._receive(0.0 if any(behind) else PAUSE_S)
        busy = (time.process_time() - cpu) / step.seconds
        for each in paced:
            each.end(step.seconds)
        books.over = True
        deadline = time.monotonic() + step.patience_s
        while self._unanswered() and time.monotonic() < deadline:
            self._receive(0.01)
        drained_s = time.monotonic() - begun - step.seconds
        return self._told(books) | {"busy": round(busy, 2), "drained_s": round(drained_s, 2)}

    def _receive(self, timeout_s: float) -> None:
        for number, _ in self._poll.poll(timeout_s, EVENTS_MAX):
            client = self._clients[number]
            client.receive()
            client.flush()
            if client.closed:  # The poll forgot it.
                del self._clients[number]

    def _unanswered(self) -> int:
        return sum(len(client.sent_at) for client in self._clients.values())

    def _told(self, books: Books) -> dict[str, Any]:
        waiting: dict[str, int] = {}
        for client in self._clients.values():
            waiting[client.kind] = waiting.get(client.kind, 0) + len(client.sent_at)
        kinds = {
            kind: asdict(told(account, waiting.get(kind, 0)))
            for kind, account in books.kinds.items()
        }
        return {"kinds": kinds}


def told(account: Account, unanswered: int) -> Told:
    times = sorted(account.seconds)

    def part(share: float) -> float:
        return round(times[min(len(times) - 1, int(share * len(times)))] * 1000, 1)

    return Told(
        offered=account.offered,
        offered_bytes=account.offered_bytes,
        sent=account.sent,
        served=account.served,
        late=account.late,
        unanswered=unanswered,
        p50=part(0.5) if times else 0.0,
        p99=part(0.99) if times else 0.0,
        longest=part(1.0) if times else 0.0,
        errors=dict(account.errors),
    )


class Asking(Client):
    """A client that waits for each answer."""

    def __init__(self, port: int) -> None:
        super().__init__(port, "127.0.0.1", "asking")
        self.socket.setblocking(True)
        self._frame = b""

    def ask(self, key: int, version: int, request: Any) -> Any:
        """The answer; it has no error."""
        self._frame = b""
        self.send(frame_of(key, version, request), time.monotonic())
        while not self._frame:
            self.receive()
            assert not self.closed, self.account.errors
        answer = decoded(key, version, self._frame)
        assert not error_of(answer), answer
        return answer

    def answered(self, frame: bytes) -> str:
        self._frame = frame
        return ""

    def close(self) -> None:
        self.socket.close()


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    load = Load(Crowd(**json.loads(sys.stdin.readline())))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(load.run(Step(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
