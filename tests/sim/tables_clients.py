"""Clients of tables: exporters, those who widen topics, set what is held, and register schemas.

Their HTTP goes through the same network as everything else: it may be late, and answers get lost.
"""

import asyncio
import json

from broker.registry.errors import STORE_ERROR
from protocol import apis, messages
from protocol.errors import ErrorCode
from tests.sim import web_client
from tests.sim.bounded_account import Partition
from tests.sim.bounded_clients import EARLIEST, LATEST, Bounded, LaggingReader, Writer
from tests.sim.client import LostError
from tests.sim.tables_account import State, TablesAccount

HTTP_PORT, REGISTRY_PORT = 8080, 8081
PARTITIONS_MAX = 5
MEANINGS = ("int", "long", "double", "string")
SUBJECTS = ("s-value", "s-key", "shared")
UNAVAILABLE = 503


class TableClient(Bounded):
    """Also knows HTTP."""

    def __init__(self, *given, tables: TablesAccount) -> None:
        super().__init__(*given)
        self.tables = tables

    async def web(self, port: int, method: str, path: str, body=None) -> tuple[int, object] | None:
        """From whichever agent; None when there is no answer."""
        host, _ = self.addresses.any()
        late_s = (
            self.rng.choice((2.0, 9.0)) if method != "GET" and self.rng.random() < 0.05 else 0.0
        )
        loop = asyncio.get_running_loop()
        try:
            return await web_client.ask(loop, (host, port), method, path, body, late_s=late_s)
        except LostError:
            await asyncio.sleep(0.2)
            return None

    def wrong(self, told: str) -> None:
        self.tables.violations.append(f"{self.client.name}: {told}")


class Exporter(TableClient):
    """Has a table of one topic, tells agents how far it is, and now and then goes back."""

    def __init__(self, *given, topic: str, tables: TablesAccount) -> None:
        super().__init__(*given, tables=tables)
        self.topic = topic
        self.at: dict[int, int] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.choice((0.1, 0.5, 3.0)))
            if (topic := await self.look()) is None:
                continue
            for number in range(topic["partitions"]):
                await self._move(number)
            await self.report(topic["topic_id"])

    async def look(self) -> dict | None:
        """What an agent tells of the topic."""
        since = self.tables.now()
        answer = await self.web(HTTP_PORT, "GET", "/export/topics")
        if answer is None or answer[0] == UNAVAILABLE:
            return None
        assert answer[0] == 200, answer
        topic = next(each for each in answer[1]["topics"] if each["name"] == self.topic)
        told = {int(number): offset for number, offset in topic["exported"].items()}

        def was_so(state: State) -> bool:
            counted = state.partition_counts[self.topic] == topic["partitions"]
            return counted and state.exported.get(self.topic, {}) == told

        self.tables.check(since, was_so, f"{self.client.name} was told {topic}")
        return topic

    async def _move(self, number: int) -> None:
        at = self.at.get(number, 0)
        if self.rng.random() < 0.25:
            self.at[number] = self.rng.randrange(at + 1)
            self.tables.count("went back")
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
            f"{self.client.name} was told that {at} is known",
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

    def __init__(self, *given, topics: list[str], tables: TablesAccount) -> None:
        super().__init__(*given, tables=tables)
        self._topics = topics

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.choice((0.1, 0.5, 3.0)))
            topic = self.rng.choice(self._topics)
            if self.rng.random() < 0.5:
                await self._describe(topic)
            else:
                await self._grow(topic)

    async def _describe(self, topic: str) -> None:
        since = self.tables.now()
        request = messages.DescribeTopicPartitionsRequest(
            topics=[messages.TopicRequest(name=topic)]
        )
        answer = await self.ask(apis.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        if answer is None or answer.topics[0].error_code:
            return
        count = len(answer.topics[0].partitions)
        told = f"{self.client.name} was told of {count} partitions of {topic}"
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
        answer = await self.ask(apis.CREATE_PARTITIONS, self.rng.choice((0, 3)), request)
        if answer is None:
            return
        error = answer.results[0].error_code
        told = f"{self.client.name}: {count} partitions of {topic}, {validate_only=}: {error}"
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

    def __init__(self, *given, topic: str, tables: TablesAccount) -> None:
        super().__init__(*given, tables=tables)
        self._topic = topic
        self._given = given
        self._writers: dict[int, Writer] = {}
        self._count = 1

    async def run(self) -> None:
        while not self.stopping:
            if self.rng.random() < 0.3:
                await self._refresh()
            await self._writer(self.rng.randrange(self._count)).write()
            await asyncio.sleep(self.rng.choice((0.0, 0.2, 1.0)))

    async def _refresh(self) -> None:
        request = messages.MetadataRequest(
            topics=[messages.MetadataRequestTopic(name=self._topic)],
            allow_auto_topic_creation=False,
        )
        answer = await self.ask(apis.METADATA, 12, request)
        if answer is None or answer.topics[0].error_code:
            return
        count = len(answer.topics[0].partitions)
        if count > self.tables.states[-1].partition_counts[self._topic]:
            self.wrong(f"was told of {count} partitions of {self._topic}: there are fewer")
        # Brokers learn of new partitions one after the other, in Kafka too.
        self._count = max(self._count, count)

    def _writer(self, number: int) -> Writer:
        writer = self._writers.get(number)
        if writer is None:
            writer = Writer(*self._given, partition=(self._topic, number))
            writer.number = number * 1_000_000
            self._writers[number] = writer
        return writer


class WideReader(LaggingReader):
    """Reads all partitions of some topics, new ones from their beginning."""

    def __init__(self, *given, topics: list[str], tables: TablesAccount) -> None:
        super().__init__(*given, partitions=[(topic, 0) for topic in topics])
        self._topics = topics
        self._tables = tables

    async def poll(self, address: tuple[str, int], *, max_wait_ms: int) -> None:
        for partition in partitions_of(self._tables, self._topics):
            self.offsets.setdefault(partition, 0)
            self.lines.setdefault(partition, {})
        await super().poll(address, max_wait_ms=max_wait_ms)


class WideAsker(TableClient):
    """Asks where logs start and end, those of new partitions too: they are there."""

    def __init__(self, *given, topics: list[str], tables: TablesAccount) -> None:
        super().__init__(*given, tables=tables)
        self._topics = topics

    async def run(self) -> None:
        while True:
            partition = self.rng.choice(partitions_of(self.tables, self._topics))
            await self.limit(partition, EARLIEST)
            least = max(self.account.acked[partition], default=-1) + 1
            end = await self.limit(partition, LATEST)
            if end is not None and end < least:
                self.wrong(f"{partition} ends at {end}, before at {least} (P8)")
            await asyncio.sleep(self.rng.choice((0.1, 0.7)))


def partitions_of(tables: TablesAccount, topics: list[str]) -> list[Partition]:
    counts = tables.states[-1].partition_counts
    return [(topic, number) for topic in topics for number in range(counts.get(topic, 0))]


class Holder(TableClient):
    """Sets configs of topics until they are so, and changes some of them later."""

    async def until_set(self, topic: str, configs: dict[str, str]) -> None:
        """Agents of an older release stand in its way for as long as one lives."""
        await self.until_done(
            apis.INCREMENTAL_ALTER_CONFIGS,
            1,
            _configs_request(topic, configs),
            lambda answer: answer.responses[0].error_code,
            (ErrorCode.NONE,),
        )

    async def keep_changing(self, topic: str, choices: list[dict[str, str]]) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(2.0, 12.0))
            request = _configs_request(topic, self.rng.choice(choices))
            await self.ask(apis.INCREMENTAL_ALTER_CONFIGS, 1, request)


def _configs_request(topic: str, configs: dict[str, str]):
    rows = [
        messages.IncrementalAlterableConfig(name=name, config_operation=0, value=value)
        for name, value in configs.items()
    ]
    resource = messages.IncrementalAlterConfigsResource(
        resource_type=2, resource_name=topic, configs=rows
    )
    return messages.IncrementalAlterConfigsRequest(resources=[resource])


class Registrar(TableClient):
    """Registers schemas, deletes them, changes the rules, and looks at what there is."""

    async def run(self) -> None:
        acts = (self._register, self._register, self._list, self._list, self._look, self._by_id)
        acts += (self._delete, self._set_rules)
        while True:
            await self.rng.choice(acts)(self.rng.choice(SUBJECTS))
            await asyncio.sleep(self.rng.choice((0.0, 0.1, 0.5)))

    async def _asked(self, method: str, path: str, body=None) -> tuple[int, int, object] | None:
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
                f"{self.client.name} registered {meaning} at {subject} and was told {view}",
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
                f"{self.client.name}: {subject} has {answer}",
            )

    async def _look(self, subject: str) -> None:
        since = self.tables.now()
        number = self.rng.randint(1, 4)
        answer = await self._asked("GET", f"/subjects/{subject}/versions/{number}")
        if answer is None:
            return
        told = f"{self.client.name}: version {number} of {subject} is {answer}"
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
        told = f"{self.client.name}: {schema_id} is {answer}"
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
                f"{self.client.name} deleted {subject}{number}{permanent}: {answer}",
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


def _meaning(view: dict) -> str:
    return json.loads(view["schema"])["fields"][0]["type"]
