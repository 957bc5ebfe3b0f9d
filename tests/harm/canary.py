"""An honest client beside an attack: `python -m tests.harm.canary PORT TOPIC`.

When the line "begin" comes on its input it produces 100 records a second, each in a request of its own,
reads them back, and pings with ApiVersions, over three connections from 127.0.0.2. The line "watch"
begins the account, "lap" writes it (`Account`, as JSON) and begins another. The line "tell" ends it: it sends no more, waits
until all that was acknowledged is read, and writes the account. A connection that is closed, an error,
or a record that is not read within 30 s is told as what was lost.
"""

import asyncio
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.records import Record, build_batch
from tests.harm.addresses import address
from tests.kit import requests
from tests.kit.requests import Exchange, batches_in, error_of, rows_of

PERIOD_S = 0.01
PATIENCE_S = 30.0
PRODUCE_VERSION, FETCH_VERSION, API_VERSIONS_VERSION, CREATE_TOPICS_VERSION = 9, 12, 0, 5
"""Those that name topics."""


@dataclass
class Account:
    """What befell the canary from "watch" to "tell"; times in ms."""

    acknowledged: int = 0
    ack_p50: float = 0.0
    ack_p99: float = 0.0
    read_p50: float = 0.0
    """From before it was sent until it was read."""
    read_p99: float = 0.0
    longest_ping: float = 0.0
    """About the longest time that the agent's loop stood still."""
    lost: list[str] = field(default_factory=list)


class Client:
    """One connection; answers are waited for in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._exchange = Exchange()

    @classmethod
    async def open(cls, port: int) -> "Client":
        return cls(
            *await asyncio.open_connection("127.0.0.1", port, local_addr=(address("canary"), 0))
        )

    def send(self, key: int, version: int, request: Any) -> None:
        self._writer.write(self._exchange.request(key, version, request, client_id="canary"))

    async def receive(self) -> Any:
        length = int.from_bytes(await self._reader.readexactly(4))
        return self._exchange.response(await self._reader.readexactly(length))[1]

    async def ask(self, key: int, version: int, request: Any) -> Any:
        self.send(key, version, request)
        return await self.receive()


class Canary:
    """The tasks of one canary, and its account."""

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic
        self._place = (topic, 0)
        self._sending = True
        self._watched = False
        self._sent_at: dict[int, float] = {}
        """By number: of records that were not read yet."""
        self._unanswered: asyncio.Queue[tuple[int, float] | None] = asyncio.Queue()
        self._waits_since: deque[float] = deque()
        """Of each record that is not acknowledged, in order."""
        self._acknowledged: set[int] = set()
        """And not read yet."""
        self._acks: list[float] = []
        self._reads: list[float] = []
        self._pings: list[float] = []
        self._lost: list[str] = []
        self._refused: Counter[str] = Counter()
        """Records, by the error."""

    async def run(self, orders: asyncio.StreamReader, tell: Callable[[Account], None]) -> None:
        assert (await orders.readline()).strip() == b"begin", "the canary's owner is gone"
        producer, consumer, pinger = [await Client.open(self._port) for _ in range(3)]
        created = await producer.ask(
            apis.CREATE_TOPICS, CREATE_TOPICS_VERSION, requests.create_topics({self._topic: 1})
        )
        assert error_of(created) == ErrorCode.NONE, created
        async with asyncio.TaskGroup() as tasks:
            told = [
                tasks.create_task(self._guarded(name, work))
                for name, work in (
                    ("producer", self._produce(producer)),
                    ("acknowledgements", self._acknowledge(producer)),
                    ("pings", self._ping(pinger)),
                )
            ]
            consumed = tasks.create_task(self._guarded("consumer", self._consume(consumer)))
            while (order := (await orders.readline()).strip()) != b"tell":
                if not order:
                    sys.exit("the canary's owner is gone")
                if order == b"lap":
                    tell(self._account())
                self._watch()
            self._sending = False
            await asyncio.gather(*told)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    while self._acknowledged and not consumed.done():
                        await asyncio.sleep(0.02)
            except TimeoutError:
                self._lost.append(f"{len(self._acknowledged)} acknowledged records were not read")
            consumed.cancel()
        tell(self._account())

    def _watch(self) -> None:
        self._watched = True
        self._acks.clear()
        self._reads.clear()
        self._pings.clear()
        self._refused.clear()

    async def _guarded(self, name: str, work: Any) -> None:
        """What goes wrong is what was lost."""
        try:
            async with asyncio.timeout(None if name == "consumer" else 600):
                await work
        except (OSError, EOFError, TimeoutError, AssertionError) as error:
            self._lost.append(f"{name}: {error!r}")
            self._sending = False
            self._unanswered.put_nowait(None)

    async def _produce(self, client: Client) -> None:
        number = 0
        due = time.monotonic()
        while self._sending:
            now = time.monotonic()
            self._sent_at[number] = now
            record = Record(timestamp=int(time.time() * 1000), key=None, value=b"%d" % number)
            request = requests.produce({self._place: build_batch([record])})
            client.send(apis.PRODUCE, PRODUCE_VERSION, request)
            self._unanswered.put_nowait((number, now))
            self._waits_since.append(now)
            number += 1
            due += PERIOD_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        self._unanswered.put_nowait(None)

    async def _acknowledge(self, client: Client) -> None:
        while (sent := await self._unanswered.get()) is not None:
            number, at = sent
            async with asyncio.timeout(PATIENCE_S):
                answer = await client.receive()
            error = rows_of(answer)[self._place].error_code
            self._waits_since.popleft()
            self._acks.append(time.monotonic() - at)
            if error != ErrorCode.NONE:
                self._refused[ErrorCode(error).name] += 1
                continue
            if number in self._sent_at:  # Else it was read before.
                self._acknowledged.add(number)

    async def _consume(self, client: Client) -> None:
        offset = 0
        while True:
            wanted = requests.fetch({self._place: offset}, max_wait_ms=500)
            answer = await client.ask(apis.FETCH, FETCH_VERSION, wanted)
            row = rows_of(answer)[self._place]
            assert row.error_code == ErrorCode.NONE, ErrorCode(row.error_code).name
            now = time.monotonic()
            for header, records in batches_in(row.records):
                offset = header.base_offset + header.last_offset_delta + 1
                for record in records:
                    number = int(bytes(record.value or b""))
                    if number in self._sent_at:  # A batch comes whole, from whatever offset on.
                        self._reads.append(now - self._sent_at.pop(number))
                    self._acknowledged.discard(number)

    async def _ping(self, client: Client) -> None:
        while self._sending:
            at = time.monotonic()
            request = messages.ApiVersionsRequest()
            async with asyncio.timeout(PATIENCE_S):
                await client.ask(apis.API_VERSIONS, API_VERSIONS_VERSION, request)
            self._pings.append(time.monotonic() - at)
            await asyncio.sleep(PERIOD_S)

    def _account(self) -> Account:
        if not self._watched:
            self._lost.append("nobody watched")
        now = time.monotonic()
        # What waits counts with the time that it has waited so far.
        acks = self._acks + [now - since for since in self._waits_since]
        return Account(
            acknowledged=len(self._acks),
            ack_p50=_part(acks, 0.5),
            ack_p99=_part(acks, 0.99),
            read_p50=_part(self._reads, 0.5),
            read_p99=_part(self._reads, 0.99),
            longest_ping=_part(self._pings, 1.0),
            lost=[*self._lost, *(f"{n} records: {name}" for name, n in self._refused.items())],
        )


def _part(times: list[float], part: float) -> float:
    if not times:
        return 0.0
    ordered = sorted(times)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1000, 1)


async def main(port: int, topic: str) -> None:
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    await Canary(port, topic).run(
        orders, lambda account: print(json.dumps(asdict(account)), flush=True)
    )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
