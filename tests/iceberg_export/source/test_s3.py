"""The data source over a real S3 server: chunks of a topic, data files of a table, deletes and all."""

import pickle

import pyarrow as pa
import pytest

from iceberg_export import names
from iceberg_export.errors import StoreReadError
from iceberg_export.records.rows import ROW_SCHEMA
from iceberg_export.runs.export import export_topic
from iceberg_export.source.planning import plan_topic
from iceberg_export.source.read_options import parse_options
from iceberg_export.source.reading import read_task
from iceberg_export.source.tables import open_options, plan_table
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.world import make_job, some_records
from tests.iceberg_export.runs.test_s3 import S3World, in_bucket, upload
from tests.iceberg_export.source.test_queries import client

pytestmark = pytest.mark.integration


def rows_of(tasks, found):
    """As executors read: of a task they have what was pickled, and nothing else."""
    sent = pickle.loads(pickle.dumps(tasks))
    batches = [b for task in sent for b in read_task(task, ROW_SCHEMA, found.query_range)]
    order = [(names.PARTITION, "ascending"), (names.OFFSET, "ascending")]
    return pa.Table.from_batches(batches, ROW_SCHEMA).sort_by(order)


def test_topics_and_tables_with_what_is_not_in_them_are_read_from_s3(minio, tmp_path):
    bucket = minio.new_bucket()
    world = S3World(tmp_path / "store")
    world.endpoint = minio.endpoint
    world.create("orders", 2)
    world.commit("orders", {p: [some_records(40)] for p in range(2)}, codec=4)
    upload(minio, bucket, world)
    sets = in_bucket(minio, bucket, tmp_path)
    with served(world) as address:
        job = make_job(address, tmp_path / "data", sets=[*sets, "table.partition.by=none"])
        export_topic(job, *job.client.topics().topics)
        job.catalog.load_table(("frazil", "orders")).delete(f"{names.OFFSET} < 10")
        job.catalog.engine.dispose()
        world.store_url = f"file://{world.folder}"
        world.commit("orders", {1: [some_records(5)]})
        upload(minio, bucket, world)
        given = {"agent": address, **dict(one.split("=", 1) for one in sets)}
        topic = parse_options({"topic": "orders", **given}, streaming=False)
        log = rows_of(plan_topic(topic, client(topic), topic.query_range), topic)
        assert log.num_rows == 85
        both = parse_options({"table": "orders", **given}, streaming=False)
        table = open_options(both)
        found = rows_of(plan_table(both, client(both), table, both.query_range), both)
        table.catalog.engine.dispose()
        wanted = [row for row in log.to_pylist() if row[names.OFFSET] >= 10]
        assert [(row[names.PARTITION], row[names.OFFSET], row[names.VALUE]) for row in wanted] == [
            (row[names.PARTITION], row[names.OFFSET], row[names.VALUE]) for row in found.to_pylist()
        ]
        stranger = parse_options(
            {"topic": "orders", **given, "store.secret.key": "wrong"}, streaming=False
        )
        with pytest.raises(StoreReadError):
            rows_of(plan_topic(stranger, client(stranger), stranger.query_range), stranger)
