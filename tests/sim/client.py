"""The one Kafka client of simulated worlds: connections, requests in flight, time-outs, agents to ask.

It speaks the wire format through `protocol`, as real clients do, and knows nothing of agents but
their addresses. Losing a connection fails everything in flight on it, a time-out closes it, as in
Kafka's clients. What a client asks for is said by `tests.kit.requests`; load generators are built
upon it (`workload`, `group_members`, `txn_client`).
"""

import asyncio
import contextlib
import random
import struct
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from typing_extensions import override

from protocol import apis
from protocol.errors import ErrorCode
from tests.kit import requests
from tests.kit.loop import SimLoop
from tests.kit.requests import LATEST, Partition, error_of, errors_in, rows_of

REQUEST_TIMEOUT_S = 20.0
Address = tuple[str, int]
ELSEWHERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""Nothing is wrong with who asked: find the coordinator again."""


class LostError(Exception):
    """No answer: the connection broke, or the time was up. What was asked may have happened."""


class Addresses:
    """The agents' addresses, as clients know them; any agent serves any partition."""

    def __init__(self, every: list[Address], zones: Mapping[Address, str]) -> None:
        self.all = every
        self.zones = zones
        """Of those that have one."""

    def of(self, zone: str) -> list[Address]:
        return [each for each in self.all if self.zones.get(each) == zone]


class Connection(asyncio.Protocol):
    """Requests in flight, and their answers in order."""

    transport: Any

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.exchange = requests.Exchange()
        self.waiting: deque[tuple[int, asyncio.Future[Any]]] = deque()
        self.lost = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < 4 + length:
                return
            frame = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            number, future = self.waiting.popleft()
            answered, answer = self.exchange.response(frame)
            assert answered == number, "answers came out of order (P10)"
            if not future.done():
                future.set_result(answer)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        for _, future in self.waiting:
            if not future.done():
                future.set_exception(LostError("the connection was lost"))
        self.waiting.clear()


class Client:
    """One client process; a connection per address, made when needed."""

    def __init__(
        self,
        loop: SimLoop,
        name: str,
        addresses: Addresses,
        rng: random.Random,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.loop = loop
        self.name = name
        self.addresses = addresses
        self.rng = rng
        self._timeout_s = timeout_s
        self._connections: dict[Address, Connection] = {}

    # One connection.

    async def connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or connection.lost:
            try:
                _, connection = await self.loop.create_connection(Connection, *address)
            except OSError as error:
                raise LostError(str(error)) from error
            self._connections[address] = connection
        return connection

    def send(
        self, connection: Connection, key: int, version: int, request: Any
    ) -> asyncio.Future[Any]:
        """Send now; the future has the answer or LostError. Order of calls = order of frames."""
        future = self.loop.create_future()
        if connection.lost:
            future.set_exception(LostError("the connection was lost"))
            return future
        # Who sent it may be gone when it fails.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        exchange = connection.exchange
        frame = exchange.request(key, version, request, client_id=self.name)
        connection.waiting.append((exchange.sent, future))
        connection.transport.write(frame)
        return future

    async def answer(self, connection: Connection, future: asyncio.Future[Any]) -> Any:
        """Wait for a sent request's answer; after the time-out the connection is closed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            connection.transport.close()
            raise LostError("the request timed out") from None

    async def asked(self, connection: Connection, key: int, version: int, request: Any) -> Any:
        return await self.answer(connection, self.send(connection, key, version, request))

    def close(self) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(AttributeError):
                connection.transport.close()

    # Any agent.

    def anybody(self, zone: str = "") -> Address:
        """An agent; `zone`: one of there."""
        return self.rng.choice(self.addresses.of(zone) if zone else self.addresses.all)

    async def ask(self, key: int, version: int, request: Any, *, at: Address | None = None) -> Any:
        """From whichever agent, or that one. Raises LostError."""
        return await self.asked(await self.connect(at or self.anybody()), key, version, request)

    async def try_ask(
        self, key: int, version: int, request: Any, *, at: Address | None = None
    ) -> Any:
        """As `ask`; None, after a rest, when there is no answer."""
        try:
            return await self.ask(key, version, request, at=at)
        except LostError:
            await asyncio.sleep(0.2)
            return None

    async def until_done(
        self,
        key: int,
        version: int,
        request: Any,
        fine: Collection[ErrorCode] = (),
    ) -> Any:
        """Ask until it has happened; these errors say so as well."""
        while True:
            answer = await self.try_ask(key, version, request)
            if answer is not None and set(errors_in(answer)).issubset(fine):
                return answer
            await asyncio.sleep(0.3)

    # What many load generators ask.

    async def create_topics(
        self, partition_counts: Mapping[str, int], configs: Mapping[str, str] | None = None
    ) -> None:
        """Until they are there."""
        request = requests.create_topics(partition_counts, configs)
        await self.until_done(apis.CREATE_TOPICS, 5, request, [ErrorCode.TOPIC_ALREADY_EXISTS])

    async def init_producer(self) -> requests.Producer:
        """A producer without transactions."""
        request = requests.init_producer_id()
        answer = await self.until_done(apis.INIT_PRODUCER_ID, self.rng.choice((3, 4)), request)
        return answer.producer_id, answer.producer_epoch

    async def limits(
        self,
        partitions: Iterable[Partition],
        timestamp: int = LATEST,
        *,
        at: Address | None = None,
        isolation_level: int = 0,
        version: int = 2,
    ) -> dict[Partition, int]:
        """What ListOffsets tells of the ends; what is in error is left out, all without an answer."""
        request = requests.list_offsets(partitions, timestamp, isolation_level=isolation_level)
        answer = await self.try_ask(apis.LIST_OFFSETS, version, request, at=at)
        rows = {} if answer is None else rows_of(answer)
        return {each: row.offset for each, row in rows.items() if row.error_code == ErrorCode.NONE}

    async def coordinator(self, key: str, key_type: int) -> Address:
        """Of a group or a transactional id. Raises LostError when there is none now."""
        request = requests.find_coordinator(key, key_type)
        answer = await self.ask(apis.FIND_COORDINATOR, self.rng.choice((1, 2, 4, 6)), request)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code != ErrorCode.NONE:
            raise LostError("there is no coordinator now")
        return found.host, found.port

    def offset_fetch(
        self, group_id: str, partitions: Iterable[Partition], *, stable: bool = False
    ) -> tuple[int, int, Any]:
        """Key, version and request."""
        request = requests.offset_fetch(group_id, partitions, stable=stable)
        return apis.OFFSET_FETCH, self.rng.choice((7, 8, 9) if stable else (3, 7, 8, 9)), request


def offsets_in(answer: Any) -> dict[Partition, int] | None:
    """What an OffsetFetch tells; -1 where nothing is committed. None when anything is in error."""
    if answer is None or error_of(answer) != ErrorCode.NONE:
        return None
    rows = rows_of(answer.groups[0] if answer.groups else answer)
    return {partition: row.committed_offset for partition, row in rows.items()}
