"""Exports without any server: agents answer in this process, the catalog is in memory, and files
are on disk without fsync. For tests that run hundreds of exports."""

import json
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

from iceberg_export.plan.agent_client import AgentClient
from iceberg_export.runs.job import Job
from iceberg_export.settings import parse
from iceberg_export.steps import no_hook
from iceberg_export.table.catalog import open_catalog, view_of
from iceberg_export.table.state import read_state
from tests.iceberg_export.world import NO_PAUSE, HereRunner, World

TABLE = ("frazil", "orders")


class DirectClient(AgentClient):
    """Asks the world itself instead of its HTTP endpoint."""

    def __init__(self, world: World):
        super().__init__(["http://world"], timeout_ms=1000, sleep=lambda _seconds: None)
        self._world = world

    def _once(self, address, method, path, body):
        status, answer = self._world.answer(method, path, body)
        assert status == 200, answer
        return json.loads(json.dumps(answer))


class Place:
    """A topic `orders` of some partitions, a catalog, and jobs over both."""

    def __init__(self, folder: Path, partitions: int = 2, catalog=None, table=TABLE):
        self.world = World(folder / "store")
        self.world.create("orders", partitions)
        self.folder = folder
        self.name = table
        self.catalog = catalog or open_catalog(
            {
                "type": "sql",
                "uri": "sqlite:///:memory:",
                "warehouse": f"file://{folder}/warehouse",
                "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            },
            folder,
        )
        self.jobs = 0

    def job(self, *sets: str, hook=no_hook, runner=None) -> Job:
        """A new run, on a table that is not partitioned unless `sets` say so: PyIceberg deletes
        rows of partitioned tables only with an optional part of it."""
        named = f"table.name.orders={self.name[1]}"
        sets = (f"table.namespace={self.name[0]}", named, "table.partition.by=none", *sets)
        settings = parse(data=self.folder, config=None, assignments=sets)
        self.jobs += 1
        runner = runner or HereRunner()
        return Job(
            settings=settings,
            client=DirectClient(self.world),
            catalog=self.catalog,
            cluster_id=self.world.cluster_id,
            run_id=f"r{self.jobs}",
            runner=lambda: runner,
            pause=NO_PAUSE,
            hook=hook,
        )

    def topic(self, job: Job):
        (found,) = job.client.topics().topics
        return found

    def table(self):
        return self.catalog.load_table(self.name)

    def state(self):
        return read_state(view_of(self.table()))

    def rows(self) -> list[tuple[int, int, bytes | None]]:
        """(partition, offset, value) of all rows, doubles included, in order."""
        found = self.table().scan().to_arrow()
        columns = ("kafka_partition", "kafka_offset", "value")
        return sorted(
            zip(*(found[name].to_pylist() for name in columns), strict=True), key=lambda r: r[:2]
        )

    def wanted(self) -> list[tuple[int, int, bytes | None]]:
        """What the log has for it, below each partition's last stable offset."""
        logs = self.world.topics["orders"][1]
        return [(p, one.offset, one.value) for p, log in enumerate(logs) for one in log.wanted]

    def close(self) -> None:
        if hasattr(self.catalog, "engine"):
            self.catalog.engine.dispose()


@contextmanager
def place(partitions: int = 2):
    """A place of its own, in memory where the system has such a folder."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    found = Place(folder, partitions)
    try:
        yield found
    finally:
        found.close()
        shutil.rmtree(folder)
