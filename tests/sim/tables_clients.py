"""Clients of tables: exporters, those who widen topics, set what is held, and register schemas.

Their HTTP goes through the same network as everything else: it may be late, and answers get lost.
"""

import asyncio
import json
from typing import Any

from typing_extensions import override

from broker.registry.errors import STORE_ERROR
from protocol import apis, messages
from protocol.errors import ErrorCode
from tests.kit import requests
from tests.kit.requests import LATEST
from tests.sim import web_client
from tests.sim.client import Address, LostError
from tests.sim.tables_account import State, TablesAccount
from tests.sim.workload import LaggingReader, Producer, RecordsCluster, RecordWorker

HTTP_PORT, REGISTRY_PORT = 8080, 8081
PARTITIONS_MAX = 5
MEANINGS = ("int", "long", "double", "string")
SUBJECTS = ("s-value", "s-key", "shared")
UNAVAILABLE = 503


class TableClient(RecordWorker):
    """Also knows HTTP."""

    def __init__(self, world: RecordsCluster, name: str, tables: TablesAccount) -> None:
        super().__init__(world, name)
        self.tables = tables

    async def web(
        self, port: int, method: str, path: str, body: object = None
    ) -> tuple[int, Any] | None:
        """From whichever agent; None when there is no answer."""
        host, _ = self.client.anybody()
        late_s = 0.0
        if method != "GET" and self.rng.random() < 0.05:
            late_s = self.rng.choice((2.0, 9.0))
        ask = web_client.ask(self.client.loop, (host, port), method, path, body, late_s=late_s)
        try:
            return await ask
        except LostError:
            await asyncio.sleep(0.2)
            return None


class Exporter(TableClient):
    """Has a table of one topic, tells agents how far it is, and now and then goes back."""

    def __init__(self, world: RecordsCluster, name: str, tables: TablesAccount, topic: str) -> None:
        super().__init__(world, name, tables)
        self.topic = topic
        self.at: dict[int, int] = {}

    @override
    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.choice((0.1, 0.5, 3.0)))
            if (topic := await self.look()) is None:
                continue
            for number in range(topic["partitions"]):
                await self._move(number)
            await self.report(topic["topic_id"])

    async def look(self) -> dict[str, Any] | None:
        """What an agent tells of the topic."""
        since = self.tables.now()
        answer = await self.web(HTTP_PORT, "GET", "/export/topics")
        if answer is None or answer[0] == UNAVAILABLE:
            return None
        assert answer[0] == 200, answer
        topics: list[dict[str, Any]] = answer[1]["topics"]
        topic = next(each for each in topics if each["name"] == self.topic)
        told = {int(number): offset for number, offset in topic["exported"].items()}

        def was_so(state: State) -> bool:
            counted = state.partition_counts[self.topic] == topic["partitions"]
            return counted and state.exported.get(self.topic, {}) == told

        self.tables.check(since, was_so, f"{self.name} was told {topic}")
        return topic

    async def _move(self, number: int) -> None:
        at = self.at.get(number, 0)
        if self.rng.random() < 0.25:
            self.at[number] = self.rng.randrange(at + 1)
            self.tables.counts["went back"] += 1
        elif self.rng.random() < 0.6:
            end = await self.limit((self.topic, number), LATEST)
            if end is not None:
                self.at[number] = self.rng.choice((end, self.rng.randint(min(at, end), end)))

    async def report(self, topic_id: str) -> bool:
        """Whether it is known."""
        if not self.at:
            return False
        body = {"topic": self.topic, "topic_id": topic_id, "offsets": self.at}
        since = self.tables.now()
        answer = await self.web(HTTP_PORT, "POST", "/export/progress", body)
        if answer is None or answer[0] == UNAVAILABLE:
            return False
        if answer[0] != 200:
            self.wrong(f"{body}: {answer}")
            return False
        at = dict(self.at)
        self.tables.check(
            since,
            lambda state: at.items() <= state.exported.get(self.topic, {}).items(),
            f"{self.name} was told that {at} is known",
        )
        return True

    async def finish(self, offsets: dict[int, int]) -> None:
        """The table is there, and stays there. What is still under way comes first."""
        await asyncio.sleep(10.0)
        self.at = offsets
        while (topic := await self.look()) is None or not await self.report(topic["topic_id"]):
            await asyncio.sleep(0.3)


class Grower(TableClient):
    """Asks for more partitions, or whether it could have them."""

    @override
    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.choice((0.1, 0.5, 3.0)))
            topic = self.rng.choice(sorted({topic for topic, _ in self.world.partitions()}))
            if self.rng.random() < 0.5:
                await self._describe(topic)
            else:
                await self._grow(topic)

    async def _describe(self, topic: str) -> None:
        since = self.tables.now()
        request = messages.DescribeTopicPartitionsRequest(
            topics=[messages.TopicRequest(name=topic)]
        )
        answer = await self.client.try_ask(apis.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        if answer is None or answer.topics[0].error_code:
            return
        count = len(answer.topics[0].partitions)
        told = f"{self.name} was told of {count} partitions of {topic}"
        self.tables.check(since, lambda state: state.partition_counts[topic] == count, told)

    async def _grow(self, topic: str) -> None:
        since = self.tables.now()
        count = self.tables.states[since].partition_counts[topic] + self.rng.choice((-1, 0, 1, 2))
        count = min(max(count, 1), PARTITIONS_MAX)
        validate_only = self.rng.random() < 0.4
        request = messages.CreatePartitionsRequest(
            topics=[messages.CreatePartitionsTopic(name=topic, count=count)],
            timeout_ms=5000,
            validate_only=validate_only,
        )
        answer = await self.client.try_ask(apis.CREATE_PARTITIONS, self.rng.choice((0, 3)), request)
        if answer is None:
            return
        error = answer.results[0].error_code
        told = f"{self.name}: {count} partitions of {topic}, {validate_only=}: {error}"
        check = self.tables.check
        match error:
            case ErrorCode.NONE if validate_only:
                check(since, lambda state: state.partition_counts[topic] < count, told)
            case ErrorCode.NONE:
                check(since, lambda state: state.partition_counts[topic] == count, told)
            case ErrorCode.INVALID_PARTITIONS:
                check(since, lambda state: state.partition_counts[topic] >= count, told)
            case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.wrong(told)
            case _:
                pass


class Spreader(TableClient):
    """Writes to all partitions that there are, new ones as soon as it hears of them."""

    def __init__(self, world: RecordsCluster, name: str, tables: TablesAccount, topic: str) -> None:
        super().__init__(world, name, tables)
        self._topic = topic
        self._producers: dict[int, Producer] = {}
        self._count = 1

    @override
    async def run(self) -> None:
        while not self.stopping:
            if self.rng.random() < 0.3:
                await self._refresh()
            await self._producer(self.rng.randrange(self._count)).write()
            await asyncio.sleep(self.rng.choice((0.0, 0.2, 1.0)))

    async def _refresh(self) -> None:
        answer = await self.client.try_ask(apis.METADATA, 12, requests.metadata(self._topic))
        if answer is None or answer.topics[0].error_code:
            return
        count = len(answer.topics[0].partitions)
        if count > self.tables.states[-1].partition_counts[self._topic]:
            self.wrong(f"was told of {count} partitions of {self._topic}: there are fewer")
        # Brokers learn of new partitions one after the other, in Kafka too.
        self._count = max(self._count, count)

    def _producer(self, number: int) -> Producer:
        producer = self._producers.get(number)
        if producer is None:
            producer = Producer(self.world, self.name, (self._topic, number))
            producer.number = number * 1_000_000
            self._producers[number] = producer
        return producer


class WideReader(LaggingReader):
    """Reads all partitions that there are, new ones from their beginning."""

    @override
    async def poll(self, address: Address, *, max_wait_ms: int) -> bool:
        for partition in self.world.partitions():
            self.offsets.setdefault(partition, 0)
            self.lines.setdefault(partition, {})
        return await super().poll(address, max_wait_ms=max_wait_ms)


class Registrar(TableClient):
    """Registers schemas, deletes them, changes the rules, and looks at what there is."""

    @override
    async def run(self) -> None:
        often = [self._register, self._list]
        acts = [*often, *often, self._look, self._by_id, self._delete, self._set_rules]
        while True:
            await self.rng.choice(acts)(self.rng.choice(SUBJECTS))
            await asyncio.sleep(self.rng.choice((0.0, 0.1, 0.5)))

    async def _asked(
        self, method: str, path: str, body: object = None
    ) -> tuple[int, int, Any] | None:
        """Status, code and body; None when nothing is known."""
        answer = await self.web(REGISTRY_PORT, method, path, body)
        if answer is None:
            return None
        status, view = answer
        code = view.get("error_code", 0) if isinstance(view, dict) else 0
        if status >= 500 and code < STORE_ERROR:
            self.wrong(f"{method} {path} {body}: {status} {view}")
        return None if status >= 500 else (status, code, view)

    async def _register(self, subject: str) -> None:
        meaning = self.rng.choice(MEANINGS)
        fields = [{"name": "x", "type": meaning}]
        schema = {"type": "record", "name": "R", "fields": fields}
        text = json.dumps(schema, indent=self.rng.choice((None, 2)))
        since = self.tables.now()
        path = f"/subjects/{subject}/versions"
        answer = await self._asked("POST", path, {"schema": text})
        if answer is None:
            return
        status, code, view = answer
        if status == 200:
            wanted = (view["id"], meaning)
            self.tables.check(
                since,
                lambda state: wanted in state.versions.get(subject, {}).values(),
                f"{self.name} registered {meaning} at {subject} and was told {view}",
            )
        elif code not in (409, 42205, 42201):
            self.wrong(f"{meaning} at {subject}: {status} {view}")

    async def _list(self, subject: str) -> None:
        since = self.tables.now()
        answer = await self._asked("GET", f"/subjects/{subject}/versions")
        if answer is not None:
            numbers = answer[2] if answer[0] == 200 else []
            self.tables.check(
                since,
                lambda state: sorted(state.versions.get(subject, {})) == numbers,
                f"{self.name}: {subject} has {answer}",
            )

    async def _look(self, subject: str) -> None:
        since = self.tables.now()
        number = self.rng.randint(1, 4)
        answer = await self._asked("GET", f"/subjects/{subject}/versions/{number}")
        if answer is None:
            return
        told = f"{self.name}: version {number} of {subject} is {answer}"
        there = None
        if answer[0] == 200:
            there = (answer[2]["id"], _meaning(answer[2]))
        self.tables.check(
            since, lambda state: state.versions.get(subject, {}).get(number) == there, told
        )

    async def _by_id(self, _subject: str) -> None:
        since = self.tables.now()
        schema_id = self.rng.randint(1, 12)
        answer = await self._asked("GET", f"/schemas/ids/{schema_id}")
        if answer is None:
            return
        told = f"{self.name}: {schema_id} is {answer}"
        if answer[0] != 200:
            self.tables.check(since, lambda state: schema_id not in state.ids, told)
        elif self.tables.known_as(schema_id) != _meaning(answer[2]):
            # What is known stays known to agents that lag, for it never changes.
            self.wrong(told)

    async def _delete(self, subject: str) -> None:
        number = self.rng.choice(("", "", "/versions/1", "/versions/2", "/versions/latest"))
        permanent = "?permanent=true" if self.rng.random() < 0.5 else ""
        since = self.tables.now()
        answer = await self._asked("DELETE", f"/subjects/{subject}{number}{permanent}")
        if answer is None:
            return
        if answer[0] == 200:
            gone = [answer[2]] if isinstance(answer[2], int) else answer[2]
            self.tables.check(
                since,
                lambda state: not state.versions.get(subject, {}).keys() & set(gone),
                f"{self.name} deleted {subject}{number}{permanent}: {answer}",
            )
            if not permanent and self.rng.random() < 0.5:
                await self._asked("DELETE", f"/subjects/{subject}{number}?permanent=true")

    async def _set_rules(self, subject: str) -> None:
        path = self.rng.choice(("/config", f"/config/{subject}", f"/mode/{subject}"))
        if "mode" in path:
            body = {"mode": self.rng.choice(("READWRITE", "READWRITE", "READONLY"))}
        else:
            body = {"compatibility": self.rng.choice(("NONE", "BACKWARD"))}
        if self.rng.random() < 0.2:
            await self._asked("DELETE", path)
        else:
            await self._asked("PUT", path, body)


def _meaning(view: dict[str, Any]) -> str:
    return str(json.loads(view["schema"])["fields"][0]["type"])
