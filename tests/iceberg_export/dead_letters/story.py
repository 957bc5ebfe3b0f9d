"""A topic whose records may be dead letters, and whose schemas come and go: for tests of both tables.

Values are Avro; those of `LATE` are dead letters until the registry knows their schema.
"""

from contextlib import contextmanager

from iceberg_export.dead_letters.dead_letter_table import dead_letter_identifier
from iceberg_export.runs.job import export_topic
from iceberg_export.steps import no_hook
from iceberg_export.upkeep.reset import reset_offsets
from iceberg_export.verify.proof import verify_topic
from protocol.records import Record
from tests.iceberg_export.direct import TABLE, Place, place
from tests.iceberg_export.fake_registry import FakeRegistry, served_registry

NUMBER = '{"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}'
DEAD_TABLE = dead_letter_identifier(TABLE)
GOOD = b"\0\0\0\0\1\2"
LATE = b"\0\0\0\0\2\2"
NEVER = b"no schema"


class Letters:
    """The place, its registry, and what people do to either table."""

    def __init__(self, place: Place, registry: FakeRegistry, url: str):
        self.place = place
        self.registry = registry
        self.url = url
        self.policy("dlq")
        registry.register("orders-value", NUMBER)

    def policy(self, name: str) -> None:
        self.place.world.configs["orders"] = {"value.mode": "avro", "bad.records": name}

    def late_schema(self, *, known: bool) -> None:
        """The registry learns, or forgets, the schema of `LATE`."""
        if known and 2 not in self.registry.schemas:
            self.registry.register("elsewhere", NUMBER)
        elif not known:
            self.registry.schemas.pop(2, None)

    def send(self, *values: bytes, partition: int = 0) -> None:
        records = [Record(timestamp=1_763_000_000_000, value=value) for value in values]
        self.place.world.commit("orders", {partition: [records]})

    def job(self, *sets: str, hook=no_hook):
        return self.place.job(f"schema.registry.url={self.url}", *sets, hook=hook)

    def export(self, *sets: str, hook=no_hook):
        job = self.job(*sets, hook=hook)
        return export_topic(job, self.place.topic(job))

    def reset(self, to):
        job = self.job()
        return reset_offsets(job, self.place.topic(job), to)

    def problems(self):
        job = self.job()
        return verify_topic(job, self.place.topic(job)).problems

    def table(self, name=TABLE):
        return self.place.catalog.load_table(name)

    def head(self, name=TABLE) -> int:
        return self.table(name).metadata.current_snapshot_id

    def set_head(self, snapshot_id: int, name=TABLE) -> None:
        """Back or forth, also to what is no ancestor of the head."""
        self.table(name).manage_snapshots().set_current_snapshot(snapshot_id).commit()

    def expire(self, name=TABLE) -> None:
        """All but the head, as strangers do it."""
        table = self.table(name)
        head = table.metadata.current_snapshot_id
        old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != head]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def offsets(self, name=TABLE):
        """(partition, offset) of all rows, doubles included, in order."""
        rows = self.table(name).scan().to_arrow()
        found = zip(
            rows["kafka_partition"].to_pylist(), rows["kafka_offset"].to_pylist(), strict=True
        )
        return sorted(found)

    def both(self):
        """Offsets of partition 0 in the table, and among its dead letters."""
        return tuple([o for p, o in self.offsets(name) if p == 0] for name in (TABLE, DEAD_TABLE))


@contextmanager
def letters(partitions: int = 1):
    """A place with dead letters of its own."""
    registry = FakeRegistry()
    with place(partitions) as found, served_registry(registry) as url:
        yield Letters(found, registry, url)
