"""Agents' hot paths: Produce and Fetch are called as the server would call them, without its order.

`world.agents(…)` has agents whose coordinator and produce path run, and nothing else: no groups, so
nothing is in the log but what a test writes. `agent.produce` and `agent.fetch` start a call; the
`Answer` may come later.
"""

import asyncio

from broker.calls.call import Call
from broker.calls.requester import Requester
from broker.calls.software import UNKNOWN
from broker.handlers import fetch as fetch_handler
from broker.handlers import produce as produce_handler
from protocol import apis, messages
from protocol.types import TOPIC_ID_ZERO
from tests.kit import agents as kit
from tests.kit.batches import fetch_request, produce_request, records_of
from tests.kit.faults import held


class FakeConnection:
    """A client's end: what was answered, and whether it was closed."""

    made = 0

    def __init__(self, number: int) -> None:
        self.number = number
        self.listener = "PLAINTEXT"
        self.peer = "test"
        self.requester = Requester(host="test")
        self.software = UNKNOWN
        self.closed = False
        self.close_reason = ""
        self.answered: list[Call] = []

    def call_answered(self, call: Call) -> None:
        self.answered.append(call)

    def close(self, reason: str) -> None:
        self.closed = True
        self.close_reason = reason


class Agent(kit.Agent):
    """One agent's hot paths."""

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self.connection = self.another_connection()
        tasks.create_task(self.log_client.run())
        tasks.create_task(self.producing.run())

    def is_serving(self) -> bool:
        return True

    @property
    def producing(self):
        return self.node.producing

    @property
    def fetching(self):
        return self.node.fetching

    def another_connection(self) -> FakeConnection:
        FakeConnection.made += 1
        return FakeConnection(FakeConnection.made)

    def send(self, key: int, version: int, request, connection=None, clock=None) -> "Answer":
        """Start a call as the server would; the answer may come later.

        `clock`: the position applied when the request was read, if that is not the one of now.
        """
        body = messages.encode_request(key, version, request)
        call = Call(
            api_key=key,
            version=version,
            correlation_id=1,
            client_id="test",
            body=memoryview(bytes(body)),
            connection=connection or self.connection,
            received_ms=0,
            clock=self.log_client.machine.position if clock is None else clock,
        )
        handler = produce_handler if key == apis.PRODUCE else fetch_handler
        handler.start(self.node, call)
        return Answer(call)

    def produce(
        self,
        topic: str,
        *batches: bytes,
        partition: int = 0,
        version: int = 9,
        acks: int = -1,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
        connection=None,
        clock=None,
    ) -> "Answer":
        """One request with one batch for each of the partitions from `partition` on."""
        request = produce_request(
            topic,
            *batches,
            partition=partition,
            acks=acks,
            timeout_ms=timeout_ms,
            transactional_id=transactional_id,
        )
        if version >= 13:
            known = self.log_client.machine.topics.by_name(topic)
            request.topic_data[0].topic_id = TOPIC_ID_ZERO if known is None else known.topic_id
        return self.send(apis.PRODUCE, version, request, connection, clock)

    def fetch(
        self,
        topic: str | bytes,
        *offsets: int,
        version: int = 11,
        isolation: int = 0,
        connection=None,
        **fields,
    ) -> "Answer":
        """One request for the partitions from 0 on, at these offsets."""
        request = fetch_request(topic, *offsets, isolation_level=isolation, **fields)
        return self.send(apis.FETCH, version, request, connection)


class Answer:
    """What a call was answered, once it is."""

    def __init__(self, call: Call) -> None:
        self.call = call

    @property
    def there(self) -> bool:
        return self.call.answered

    async def wait(self, seconds: float = 120.0):
        """The decoded response; virtual time passes meanwhile."""
        for _ in range(int(seconds * 100)):
            if self.there:
                return self.now()
            await asyncio.sleep(0.01)
        raise AssertionError("not answered")

    async def waits(self, seconds: float = 1) -> None:
        """It has not come after this time."""
        await asyncio.sleep(seconds)
        assert not self.there

    def now(self):
        assert self.there
        assert self.call.parts is not None
        head, *body = self.call.parts
        joined = b"".join(bytes(part) for part in body)
        assert len(head) in {8, 9}
        return messages.decode_response(self.call.api_key, self.call.version, joined)

    async def partition(self, index: int = 0):
        """The partition of that index in the answer."""
        return (await self.partitions())[index]

    async def partitions(self) -> list:
        """All of them, whatever their topic."""
        found = []
        for topic in (await self.wait()).responses:
            found += getattr(topic, "partition_responses", None) or getattr(topic, "partitions", [])
        return found

    async def code(self, index: int = 0) -> int:
        return (await self.partition(index)).error_code

    async def values(self, index: int = 0) -> list[bytes | None]:
        """Of the records that came, but control records."""
        return [record.value for record in records_of((await self.partition(index)).records)]

    async def written(self, index: int = 0) -> tuple[int, int]:
        """Error code and base offset."""
        row = await self.partition(index)
        return row.error_code, row.base_offset


def stall_put(world, number: int, seconds: float = 1000) -> asyncio.Event:
    """PUTs of the chunk of this number take so long. The event: one has begun."""
    begun = asyncio.Event()

    async def gate(key: str, *_parts: object) -> None:
        if key.endswith(str(number)):
            begun.set()
            await asyncio.sleep(seconds)

    world.store.before["put_new"] = gate
    return begun


def hold_puts(world) -> asyncio.Event:
    """PUTs wait for the event."""
    gate = asyncio.Event()
    world.store.before["put_new"] = held(gate)
    return gate


async def expire_session(agent: Agent) -> None:
    """Its lease runs out; until it has another."""
    before = agent.log_client.incarnation()
    agent.world.cluster.expire(next(iter(agent.world.cluster._leases)))
    while agent.log_client.incarnation() in {before, None}:
        await asyncio.sleep(0.1)
