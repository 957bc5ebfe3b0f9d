"""A topic whose records may be dead letters, and whose schemas come and go: for tests of both tables.

Values are Avro; those of `LATE` are dead letters until the registry knows their schema.
"""

from contextlib import contextmanager

from iceberg_export.upkeep.replay import replay
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.place import DEAD_TABLE, TABLE, Place, place
from tests.iceberg_export.kit.registry import FakeRegistry

NUMBER = '{"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}'
GOOD = b"\0\0\0\0\1\2"
LATE = b"\0\0\0\0\2\2"
NEVER = b"no schema"


class Letters:
    """What befalls the topic, its registry, and either table."""

    def __init__(self, place: Place, registry: FakeRegistry, url: str):
        self.place = place
        self.registry = registry
        self.url = url
        place.sets = (f"schema.registry.url={url}",)
        self.policy("dlq")
        registry.register("orders-value", NUMBER)
        self.job, self.export, self.reset = place.job, place.export, place.reset
        self.send, self.table, self.head, self.expire = (
            place.send, place.table, place.head, place.expire_all,
        )  # fmt: skip

    def replay(self, *sets: str, **how):
        job = self.job(*sets, **how)
        return replay(job, self.place.topic(job))

    def policy(self, name: str) -> None:
        self.place.configure(value_mode="avro", bad_records=name)

    def late_schema(self, *, known: bool) -> None:
        """The registry learns, or forgets, the schema of `LATE`."""
        if known and 2 not in self.registry.schemas:
            self.registry.register("elsewhere", NUMBER)
        elif not known:
            self.registry.schemas.pop(2, None)

    def problems(self):
        return self.place.verify().problems

    def set_head(self, snapshot_id: int, name=TABLE) -> None:
        """Back or forth, also to what is no ancestor of the head."""
        self.table(name).manage_snapshots().set_current_snapshot(snapshot_id).commit()

    def offsets(self, name=TABLE):
        """(partition, offset) of all rows, doubles included, in order."""
        return self.place.columns("kafka_partition", "kafka_offset", table=name)

    def both(self):
        """Offsets of partition 0 in the table, and among its dead letters."""
        return tuple([o for p, o in self.offsets(name) if p == 0] for name in (TABLE, DEAD_TABLE))


@contextmanager
def letters(partitions: int = 1):
    """A place with dead letters of its own."""
    registry = FakeRegistry()
    with place(partitions) as found, served(registry) as url:
        yield Letters(found, registry, url)
