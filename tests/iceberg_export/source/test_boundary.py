"""A table and what is not in it yet, read as one: a record says the same on both sides."""

from iceberg_export import names
from iceberg_export.runs.export import export_topic
from tests.iceberg_export.kit.world import World, some_records
from tests.iceberg_export.source.test_queries import exported, read_table

COLUMNS = (names.PARTITION, names.OFFSET, names.TIMESTAMP, names.TIMESTAMP_RAW)


def test_a_timestamp_that_is_not_believed_is_null_before_the_export_as_after(tmp_path):
    world = World(tmp_path / "store")
    world.create("orders", 1)
    with exported(world, tmp_path) as (address, job):
        world.commit("orders", {0: [some_records(3, timestamp=1000)]})

        def told():
            return [tuple(row[name] for name in COLUMNS) for row in read_table(address, job)]

        before = told()
        assert before == [(0, offset, None, 1000 + offset) for offset in range(3)]
        assert read_table(address, job, timestampTo="5000") == []
        (topic,) = job.client.topics().topics
        export_topic(job._replace(run_id="r2"), topic)
        assert told() == before
