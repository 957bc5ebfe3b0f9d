"""A small cluster to export from: chunks in a folder, an admin endpoint, and what is in them.

The endpoint speaks what agents speak (`/export/topics`, `/export/plan`, `/export/pin`); tests
turn its answers into errors through `World.refuse`.
"""

import copy
import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from iceberg_export.plan.agent_client import AgentClient
from iceberg_export.runs.job import Job
from iceberg_export.settings import parse
from iceberg_export.table.catalog import open_catalog
from iceberg_export.table.commit import Pause
from iceberg_export.tasks.run_splits import TaskRunner
from protocol.records import TRANSACTIONAL, Record, build_batch, empty_batch, patch
from protocol.types import Incarnation, Position, era_of, first_position
from storage.formats.spans import ObjectId, ObjectKind
from tests.iceberg_export.kit.http import Asked
from tests.iceberg_export.kit.tasks import HereRunner

TOPIC_ID = f"{1:016x}{1:016x}"
NO_PAUSE = Pause(lambda _seconds: None, random.Random(7))


class InTransaction(NamedTuple):
    """A batch of a producer's transaction; `World.end` decides over its records."""

    producer_id: int
    records: Sequence[Record]


class Log:
    """One partition: its spans and, to compare with, its committed records."""

    def __init__(self) -> None:
        self.spans: list[list[Any]] = []
        """As agents tell them: key, start, length, base offset, offsets, newest timestamp."""
        self.records: list[Record] = []
        self.log_start = 0
        self.compacted = False
        self.lost: list[list[int]] = []
        """As agents tell them: first offset, the one after the last, when (ms)."""
        self.end = 0
        self.markers: list[int] = []
        self.aborted: list[list[int]] = []
        """(producer, first offset, marker's offset)."""
        self.open: dict[int, list[Record]] = {}
        """By producer: the records of its open transaction, with their offsets."""

    @property
    def stable(self) -> int:
        return min((records[0].offset for records in self.open.values()), default=self.end)

    @property
    def wanted(self) -> list[Record]:
        """What a table must have, and nothing else."""
        below = [record for record in self.records if record.offset < self.stable]
        return sorted(below, key=lambda record: record.offset)


class World:
    """Topics with their chunks. `commit` writes one chunk of several partitions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster_id = "cluster-a"
        self.topics: dict[str, tuple[str, list[Log]]] = {}
        self.configs: dict[str, dict[str, str]] = {}
        """By topic: its `frazil.iceberg.*`, without the prefix."""
        self.exported: dict[str, dict[str, int]] = {}
        self.dead_letters: dict[str, dict[str, int] | None] = {}
        """By topic, as last told."""
        self.exported_from: dict[str, tuple[str | None, int | None]] = {}
        """Table and snapshot, by topic."""
        """By topic: the offsets last reported."""
        self.chunk_number = 0
        self.position = (1 << 48) + 99
        self.eras: list[tuple[int, dict[tuple[str, int], int]]] = []
        """Those after the first: where each began, and where what was stable ended."""
        self.rows_max: int | None = None
        """Spans in one answer about a partition; for logs without transactions."""
        self.pins: dict[str, int] = {}
        self.refuse: Callable[[str], tuple[int, Any] | None] = lambda _path: None
        self.requests: list[str] = []
        self.store_url = f"file://{folder}"
        self.registry: str | None = None
        """Where agents tell that their schema registry is."""

    def create(self, name: str, partitions: int, topic_id: str = TOPIC_ID) -> None:
        self.topics[name] = (topic_id, [Log() for _ in range(partitions)])

    def commit(
        self,
        topic: str,
        batches: dict[int, Sequence[Sequence[Record] | bytes | InTransaction]],
        *,
        codec: int = 0,
    ) -> Path:
        """One chunk: for each partition its batches (records, or bytes made by hand)."""
        chunk = ObjectId(Incarnation((1 << 48) + 2), self.chunk_number)
        self.chunk_number += 1
        self.position += 1
        data = bytearray(b"FRZL-head")
        for partition, parts in batches.items():
            log = self.topics[topic][1][partition]
            start, base = len(data), log.end
            for part in parts:
                kept = log.records
                if isinstance(part, InTransaction):
                    kept = log.open.setdefault(part.producer_id, [])
                    batch = bytearray(_transactional(part, codec))
                    part = part.records  # noqa: PLW2901
                else:
                    batch = bytearray(
                        part if isinstance(part, bytes) else build_batch(part, codec=codec)
                    )
                patch(batch, 0, 0)
                count = int.from_bytes(batch[23:27], "big") + 1
                if not isinstance(part, bytes):
                    for delta, record in enumerate(part):
                        kept.append(record._replace(offset=log.end + delta))
                log.end += count
                data += batch
            log.spans.append([chunk.key, start, len(data) - start, base, log.end - base, -1])
        return self._write(chunk, bytes(data) + b"index")

    def _write(self, object_id: ObjectId, data: bytes) -> Path:
        path = self.folder / object_id.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def end(self, topic: str, partition: int, producer_id: int, *, commit: bool) -> None:
        """The producer's transaction ends in that partition, with a marker."""
        log = self.topics[topic][1][partition]
        records = log.open.pop(producer_id)
        log.markers.append(log.end)
        if commit:
            log.records += records
        else:
            log.aborted.append([producer_id, records[0].offset, log.end])
        log.end += 1

    def backup(self) -> dict[str, Any]:
        """A copy of the log as it is, for `put_back`. Objects are not in it."""
        return copy.deepcopy({"topics": self.topics, "position": self.position, "eras": self.eras})

    def put_back(self, backup: dict[str, Any]) -> None:
        """The log is what it was. New chunks have other names than all before them."""
        vars(self).update(copy.deepcopy(backup))

    def recover(self) -> None:
        """The log that there is begins anew: open transactions are aborted."""
        self.position = begun = first_position(era_of(Position(self.position)) + 1)
        logs = {
            (name, number): log
            for name, (_, partitions) in self.topics.items()
            for number, log in enumerate(partitions)
        }
        self.eras = [*self.eras, (begun, {place: log.stable for place, log in logs.items()})]
        for (name, number), log in logs.items():
            for producer_id in [*log.open]:
                self.end(name, number, producer_id, commit=False)

    def compact(self, topic: str, partition: int, keep: set[int], spans: int | None = None) -> None:
        """Moves all, or the first `spans`, into a segment, one batch for each record that stays."""
        log = self.topics[topic][1][partition]
        whole = log.spans if spans is None else log.spans[:spans]
        first, end = (0 if spans is None else whole[0][3]), whole[-1][3] + whole[-1][4]
        open_from = (records[0].offset for records in log.open.values())
        assert not any(at < end for at in (*log.markers, *open_from))
        below = [one for one in log.records if one.offset < end]
        log.records = [one for one in log.records if one.offset >= end or one.offset in keep]
        data = b"FRZL-head"
        for record in below:
            if record.offset in keep:
                data += build_batch([record], base_offset=record.offset)
        if end - 1 not in keep:
            data += empty_batch(end - 1)
        log.spans[: len(whole)] = [self._segment(data, first, end)]
        log.compacted = True

    def _segment(self, data: bytes, first: int, end: int) -> list[Any]:
        segment = ObjectId(Incarnation((1 << 48) + 2), self.chunk_number, ObjectKind.SEGMENT)
        self.chunk_number += 1
        self._write(segment, data)
        return [segment.key, 9, len(data) - 9, first, end - first, -1]

    def lose(self, topic: str, partition: int, span: int, declared_ms: int) -> None:
        """The records of one span are declared lost."""
        log = self.topics[topic][1][partition]
        _, _, _, first, count, _ = log.spans[span]
        end = first + count
        log.records = [one for one in log.records if not first <= one.offset < end]
        log.spans[span] = self._segment(b"FRZL-head" + empty_batch(end - 1), first, end)
        log.compacted = True
        log.lost.append([first, end, declared_ms])

    def plan(self, topic: str, only: int | None = None, start: int = 0) -> dict[str, Any]:
        topic_id, logs = self.topics[topic]
        partitions = []
        for number, log in enumerate(logs):
            if only is not None and number != only:
                continue
            first, stable = max(start, log.log_start), log.stable
            spans = [s for s in log.spans if s[3] + s[4] > first and s[3] < stable]
            end = stable
            if self.rows_max is not None and len(spans) > self.rows_max:
                spans = spans[: self.rows_max]
                end = spans[-1][3] + spans[-1][4]
            partitions.append(
                {
                    "partition": number,
                    "log_start": log.log_start,
                    "end": end,
                    "stable": stable,
                    "compacted": log.compacted,
                    "eras": [[begun, ends.get((topic, number), 0)] for begun, ends in self.eras],
                    "lost": log.lost,
                    "spans": spans,
                    "markers": [offset for offset in log.markers if first <= offset < end],
                    "aborted": sorted(
                        (a for a in log.aborted if a[2] >= first and a[1] < end),
                        key=lambda aborted: aborted[1],
                    ),
                }
            )
        store = {"url": self.store_url, "endpoint": None, "region": None, "path_style": False}
        return {
            "topic": topic,
            "topic_id": topic_id,
            "position": self.position,
            "store": store,
            "registry": self.registry,
            "configs": self.table_settings(topic),
            "partitions": partitions,
        }

    def table_settings(self, topic: str) -> dict[str, str]:
        found = self.configs.get(topic, {})
        return {f"frazil.iceberg.{name}": value for name, value in found.items()}

    def all_topics(self) -> dict[str, Any]:
        topics = [
            {
                "name": name,
                "topic_id": topic_id,
                "partitions": len(logs),
                "configs": self.table_settings(name),
                "exported": self.exported.get(name, {}),
            }
            for name, (topic_id, logs) in self.topics.items()
        ]
        return {"cluster_id": self.cluster_id, "registry": self.registry, "topics": topics}

    def respond(self, asked: Asked) -> tuple[int, Any]:
        self.requests.append(f"{asked.method} {asked.path}")
        body = json.loads(asked.body) if asked.body else {}
        return self.refuse(asked.path) or self.answer(asked.method, asked.path, body)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        url = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/export/topics":
            return 200, self.all_topics()
        if url.path == "/export/plan" and method == "POST":
            if body["topic"] not in self.topics:
                return 404, {"error": f"there is no topic {body['topic']}"}
            offsets = {int(number): offset for number, offset in body["offsets"].items()}
            if body["others"] is not None:
                numbers = range(len(self.topics[body["topic"]][1]))
                offsets = dict.fromkeys(numbers, body["others"]) | offsets
            plans = [self.plan(body["topic"], one, start) for one, start in offsets.items()]
            parts = [part for plan in plans for part in plan["partitions"]]
            return 200, plans[0] | {"partitions": parts, "cluster_id": self.cluster_id}
        if url.path == "/export/plan":
            if query["topic"] not in self.topics:
                return 404, {"error": f"there is no topic {query['topic']}"}
            only = int(query["partition"]) if "partition" in query else None
            return 200, self.plan(query["topic"], only, int(query.get("from", 0)))
        if url.path == "/export/progress" and method == "POST":
            self.exported[body["topic"]] = body["offsets"]
            self.exported_from[body["topic"]] = (body.get("table"), body.get("snapshot_id"))
            self.dead_letters[body["topic"]] = body.get("dead_letters")
            return 200, {}
        if url.path == "/export/pin" and method == "POST":
            self.pins[body["name"]] = body["lifetime_ms"]
            return 200, {"position": 98}
        if url.path.startswith("/export/pin/") and method == "DELETE":
            self.pins.pop(url.path.removeprefix("/export/pin/"))
            return 200, {}
        return 404, {"error": "no such page"}


def _transactional(part: InTransaction, codec: int) -> bytes:
    return build_batch(
        part.records,
        attributes=TRANSACTIONAL,
        producer_id=part.producer_id,
        producer_epoch=0,
        base_sequence=0,
        codec=codec,
    )


def make_job(
    address: str,
    data: Path,
    run_id: str = "r1",
    sets: Iterable[str] = (),
    runner: TaskRunner | None = None,
) -> Job:
    """A job that asks this agent, a real one or a world's, with the embedded catalog under `data`
    unless `sets` say otherwise."""
    settings = parse(data=data, config=None, assignments=[f"agent={address}", *sets])
    client = AgentClient(settings.agents, timeout_ms=60_000, sleep=lambda _seconds: None)
    given = runner or HereRunner()
    return Job(
        settings=settings,
        client=client,
        catalog=open_catalog(settings.catalog, settings.data),
        cluster_id=client.topics().cluster_id,
        run_id=run_id,
        runner=lambda: given,
        pause=NO_PAUSE,
    )


def some_records(count: int, first: int = 0, timestamp: int = 1_700_000_000_000) -> list[Record]:
    """Records of many kinds: null keys, tombstones, headers twice and without value."""
    found = []
    for i in range(first, first + count):
        headers = (("h", b"1"), ("h", None), ("", b"")) if i % 10 == 3 else ()
        found.append(
            Record(
                timestamp=timestamp + i,
                key=None if i % 4 == 1 else f"key-{i}".encode(),
                value=None if i % 7 == 5 else bytes([i % 256]) * (i % 50),
                headers=headers,
            )
        )
    return found
