"""Objects and warehouse in a real S3 server; tasks run in this process."""

import asyncio

import pytest

from iceberg_export.errors import StoreReadError
from iceberg_export.job import export_topic
from iceberg_export.plan import StoreAddress
from iceberg_export.read_chunks import open_reader
from iceberg_export.verify import verify_topic
from storage.open_store import StoreOptions, open_store
from tests.iceberg_export.world import World, make_job, served, some_records

pytestmark = pytest.mark.integration


def keys(minio):
    return {"store.access.key": minio.access_key, "store.secret.key": minio.secret_key}


def upload(minio, bucket, world):
    """Put the world's chunks where an agent would, by the agents' own adapter."""

    async def put():
        options = StoreOptions(
            endpoint=minio.endpoint,
            region="us-east-1",
            access_key=minio.access_key,
            secret_key=minio.secret_key,
        )
        store = open_store(f"s3://{bucket}/cluster", options)
        for path in sorted(world.folder.rglob("chunks/*/*")):
            await store.put_new(str(path.relative_to(world.folder)), [path.read_bytes()])
        await store.aclose()

    asyncio.run(put())
    world.store_url = f"s3://{bucket}/cluster"


class S3World(World):
    endpoint = ""

    def plan(self, *arguments, **options):
        found = super().plan(*arguments, **options)
        found["store"] |= {"endpoint": self.endpoint, "path_style": True}
        return found


def test_chunks_and_tables_may_lie_in_s3(minio, tmp_path):
    bucket = minio.new_bucket()
    world = S3World(tmp_path / "store")
    world.endpoint = minio.endpoint
    world.create("orders", 2)
    for codec in range(5):
        world.commit("orders", {0: [some_records(40)], 1: [some_records(10)]}, codec=codec)
    upload(minio, bucket, world)
    sets = [
        *(f"{name}={value}" for name, value in keys(minio).items()),
        "catalog.type=sql",
        f"catalog.uri=sqlite:///{tmp_path}/catalog.db",
        f"catalog.warehouse=s3://{bucket}/warehouse",
        f"catalog.s3.endpoint={minio.endpoint}",
        f"catalog.s3.access-key-id={minio.access_key}",
        f"catalog.s3.secret-access-key={minio.secret_key}",
        "catalog.s3.region=us-east-1",
    ]
    with served(world) as address:
        job = make_job(world, address, tmp_path / "data", sets=sets)
        (topic,) = job.client.topics().topics
        assert export_topic(job, topic).rows == 250
        verdict = verify_topic(job, topic)
        assert (verdict.records, verdict.problems) == (250, ())
        job.catalog.engine.dispose()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"store.secret.key": "wrong"}, "cannot read s3://"),
        ({"store.endpoint": "http://127.0.0.1:9"}, "cannot read s3://"),
        ({"store.ca": "/nowhere/ca.pem"}, "cannot read store.ca"),
    ],
)
def test_a_store_that_refuses_is_one_sentence(minio, monkeypatch, changes, sentence):
    monkeypatch.setattr("iceberg_export.read_chunks.RETRIES_MAX", 0)
    address = StoreAddress(f"s3://{minio.new_bucket()}/x", minio.endpoint, "us-east-1", True)
    with pytest.raises(StoreReadError, match=sentence) as caught:
        open_reader(address, {**keys(minio), **changes}).read("chunks/a/b", 0, 4)
    assert "\n" not in str(caught.value)


def test_a_chunk_that_is_gone_is_definite(minio):
    address = StoreAddress(f"s3://{minio.new_bucket()}/x", minio.endpoint, "us-east-1", True)
    with pytest.raises(StoreReadError) as caught:
        open_reader(address, keys(minio)).read("chunks/a/b", 0, 4)
    assert not caught.value.again
