"""Exports without any server: agents answer in this process, the catalog is in memory, and files
are on disk without fsync."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from typing_extensions import override

from iceberg_export.dead_letters.dead_letter_table import dead_letter_identifier
from iceberg_export.plan.agent_client import AgentClient, Topic
from iceberg_export.runs.backfill import BackfillReport, Bounds, backfill
from iceberg_export.runs.export import ExportReport, export_topic
from iceberg_export.runs.job import Job
from iceberg_export.settings import parse
from iceberg_export.steps import Hook, no_hook
from iceberg_export.table.catalog import open_catalog, view_of
from iceberg_export.table.state import State, read_state
from iceberg_export.tasks.run_splits import TaskRunner
from iceberg_export.upkeep.reset import ResetReport, reset_offsets
from iceberg_export.verify.proof import Verdict, verify_topic
from iceberg_export.verify.upsert import is_upsert, verify_upsert
from protocol.records import Record
from tests.iceberg_export.kit import strangers
from tests.iceberg_export.kit.http import Asked, body_of
from tests.iceberg_export.kit.tasks import HereRunner
from tests.iceberg_export.kit.world import NO_PAUSE, Log, World, some_records

TABLE = ("frazil", "orders")
DEAD_TABLE = dead_letter_identifier(TABLE)
NOW_MS = 1_763_000_000_000
"""The timestamp of records that are sent."""
DAY_MS = 86_400_000
FAR = 1 << 50
"""A time at which every file is old."""
ON_DISK = "pyiceberg.io.pyarrow.PyArrowFileIO"
"""Without fsync, which has tests of its own: no power is cut here."""


def memory_catalog(folder: Path) -> Catalog:
    told = {"type": "sql", "uri": "sqlite:///:memory:", "py-io-impl": ON_DISK}
    return open_catalog({**told, "warehouse": f"file://{folder}/warehouse"}, folder)


class DirectClient(AgentClient):
    """Asks the world itself instead of its HTTP endpoint."""

    def __init__(self, world: World) -> None:
        super().__init__(["http://localhost"], timeout_ms=1000, sleep=lambda _seconds: None)
        self._world = world

    @override
    def _once(self, address: str, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        status, answer = self._world.respond(Asked(method, path, data))
        assert status == 200, answer
        return json.loads(body_of(answer))


class Place:
    """A topic `orders` of some partitions, a catalog, and jobs over both."""

    def __init__(
        self,
        folder: Path,
        partitions: int = 2,
        catalog: Catalog | None = None,
        table: tuple[str, str] = TABLE,
    ) -> None:
        self.world = World(folder / "store")
        self.world.create("orders", partitions)
        self.folder = folder
        self.name = table
        self.catalog: Any = catalog or memory_catalog(folder)
        self.jobs = 0
        self.sets: tuple[str, ...] = ()
        """Settings of all runs."""

    def configure(self, **configs: str) -> None:
        """The topic's `frazil.iceberg.*`, and no others: `value_mode="avro"` is value.mode."""
        found = {name.replace("_", "."): value for name, value in configs.items()}
        self.world.configs["orders"] = found

    def log(self, partition: int = 0) -> Log:
        return self.world.topics["orders"][1][partition]

    # Records.

    def fill(self, count: int = 5) -> None:
        """One chunk with so many records for each partition."""
        numbers = range(len(self.world.topics["orders"][1]))
        self.world.commit("orders", {number: [some_records(count)] for number in numbers})

    def send(
        self,
        *values: bytes | None,
        partition: int = 0,
        keys: Sequence[bytes | None] | None = None,
        timestamp: int = NOW_MS,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """One chunk with a record for each value, a millisecond apart."""
        given = keys or [None] * len(values)
        records = [
            Record(timestamp=timestamp + i, key=key, value=value, headers=tuple(headers))
            for i, (key, value) in enumerate(zip(given, values, strict=True))
        ]
        self.world.commit("orders", {partition: [records]})

    # Runs.

    def job(
        self,
        *sets: str,
        hook: Hook = no_hook,
        runner: TaskRunner | None = None,
        now_ms: int | None = None,
    ) -> Job:
        """A new run, on a table that is not partitioned unless `sets` say so: PyIceberg deletes
        rows of partitioned tables only with an optional part of it."""
        named = f"table.name.orders={self.name[1]}"
        own = (f"table.namespace={self.name[0]}", named, "table.partition.by=none")
        settings = parse(data=self.folder, config=None, assignments=(*own, *self.sets, *sets))
        self.jobs += 1
        given = runner or HereRunner()
        made = Job(
            settings=settings,
            client=DirectClient(self.world),
            catalog=self.catalog,
            cluster_id=self.world.cluster_id,
            run_id=f"r{self.jobs}",
            runner=lambda: given,
            pause=NO_PAUSE,
            hook=hook,
        )
        return made if now_ms is None else made._replace(clock_ms=lambda: now_ms)

    def topic(self, job: Job, name: str = "orders") -> Topic:
        (found,) = [one for one in job.client.topics().topics if one.name == name]
        return found

    def export(self, *sets: str, topic: str = "orders", **how: Any) -> ExportReport:
        job = self.job(*sets, **how)
        return export_topic(job, self.topic(job, topic))

    def exported(self, times: int = 1, *sets: str) -> None:
        """So many chunks come, each with an export."""
        for _ in range(times):
            self.fill()
            self.export(*sets)

    def reset(self, to: Mapping[int, int] | None, **how: Any) -> ResetReport:
        job = self.job(**how)
        return reset_offsets(job, self.topic(job), to)

    def backfill(self, bounds: Bounds | None = None, *sets: str, **how: Any) -> BackfillReport:
        """All that was skipped, or within these bounds."""
        job = self.job(*sets, **how)
        everything = dict.fromkeys(range(len(self.world.topics["orders"][1])), (0, FAR))
        return backfill(job, self.topic(job), everything if bounds is None else bounds)

    def verify(self, *sets: str, **how: Any) -> Verdict:
        """What the product's proof says of the table, in whichever mode it is."""
        job = self.job(*sets, **how)
        topic = self.topic(job)
        return (verify_upsert if is_upsert(topic) else verify_topic)(job, topic)

    # The table, and what must be in it.

    def table(self, name: tuple[str, str] | None = None) -> Table:
        found: Table = self.catalog.load_table(name or self.name)
        return found

    def has_head(self, name: tuple[str, str] | None = None) -> bool:
        """Is there a table, with a snapshot?"""
        found = name or self.name
        return self.catalog.table_exists(found) and self.head(found) is not None

    def head(self, name: tuple[str, str] | None = None) -> int | None:
        found: int | None = self.table(name).metadata.current_snapshot_id
        return found

    def state(self) -> State:
        found = read_state(view_of(self.table()))
        assert found is not None
        return found

    def columns(self, *columns: str, table: tuple[str, str] | None = None) -> list[tuple[Any, ...]]:
        """These columns of all rows, doubles included, in order of partition and offset."""
        found = self.table(table).scan().to_arrow()
        by = [("kafka_partition", "ascending"), ("kafka_offset", "ascending")]
        return [tuple(one.values()) for one in found.sort_by(by).select(columns).to_pylist()]

    def rows(self) -> list[tuple[Any, ...]]:
        """(partition, offset, value) of all rows."""
        return self.columns("kafka_partition", "kafka_offset", "value")

    def dead(self, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of all dead letters."""
        return self.columns(*columns, table=dead_letter_identifier(self.name))

    def dead_offsets(self) -> list[int]:
        return [offset for (offset,) in self.dead("kafka_offset")]

    def wanted(self) -> list[tuple[int, int, bytes | None]]:
        """What the log has for it, below each partition's last stable offset."""
        logs = self.world.topics["orders"][1]
        return [(p, one.offset, one.value) for p, log in enumerate(logs) for one in log.wanted]

    def wanted_newest(self) -> list[tuple[int, int, bytes, bytes]]:
        """(partition, offset, key, value) that mode upsert keeps, of keys in one partition each."""
        last = {
            one.key: (partition, one.offset, one.key, one.value)
            for partition, log in enumerate(self.world.topics["orders"][1])
            for one in log.wanted
            if one.key is not None
        }
        return sorted((p, o, key, value) for p, o, key, value in last.values() if value is not None)

    # Files.

    def live_files(self) -> set[Path]:
        """Data files that the table names."""
        tasks = self.table().scan().plan_files()
        return {Path(one.file.file_path.removeprefix("file://")) for one in tasks}

    def data_files(self) -> set[Path]:
        """All data files of the table, and what tasks leave for each other."""
        return set(Path(self.table().location().removeprefix("file://")).rglob("*.parquet"))

    def lose_marks(self) -> None:
        """As if all runs at work had slept until their marks were deleted."""
        for path in self.folder.rglob("runs/*"):
            path.unlink()

    def forget_metadata(self) -> None:
        """No metadata file but the newest is there any more."""
        for entry in self.table().metadata.metadata_log:
            Path(entry.metadata_file.removeprefix("file://")).unlink()

    # What others do to it.

    def roll_back(self, snapshot_id: int) -> None:
        self.table().manage_snapshots().rollback_to_snapshot(snapshot_id).commit()

    def expire_all(self, name: tuple[str, str] | None = None, *, kept: int = 0) -> None:
        strangers.expire(self.table(name), kept=kept)

    def close(self) -> None:
        if hasattr(self.catalog, "engine"):
            self.catalog.engine.dispose()


def age(paths: Iterable[Path], age_ms: int) -> None:
    """As if they had been written so long ago."""
    for path in paths:
        told = time.time() - age_ms / 1000
        os.utime(path, (told, told))


@contextmanager
def place(partitions: int = 2) -> Iterator[Place]:
    """A place of its own, in memory where the system has such a folder."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    found = Place(folder, partitions)
    try:
        yield found
    finally:
        found.close()
        shutil.rmtree(folder)
