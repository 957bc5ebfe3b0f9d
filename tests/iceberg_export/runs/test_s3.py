"""Objects and warehouse in a real S3 server; tasks run in this process."""

import asyncio
import time

import pytest

from iceberg_export.errors import StoreReadError
from iceberg_export.plan.splits import StoreAddress
from iceberg_export.records.read_chunks import open_reader
from iceberg_export.runs.export import export_topic
from iceberg_export.steps import Step, no_hook
from iceberg_export.table.run_marks import list_files
from iceberg_export.upkeep import maintain
from iceberg_export.upkeep.compact import compact
from iceberg_export.upkeep.maintain import delete_orphans, expire, store_now_ms
from iceberg_export.verify.proof import verify_topic
from iceberg_export.verify.upsert import is_upsert, verify_upsert
from storage.stores.open_store import StoreOptions, open_store
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.strangers import scatter
from tests.iceberg_export.kit.world import World, make_job, some_records

pytestmark = pytest.mark.integration

TABLE = ("frazil", "orders")
BY = {"append": "none", "upsert": "bucket(2, kafka_key)"}
FAR = 1 << 50
APART_MS = 4000
"""Orphans of this age are old; several times what upkeep of so few files takes."""


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


def in_bucket(minio, bucket, tmp_path):
    """Settings of an exporter whose chunks and tables lie there."""
    return [
        *(f"{name}={value}" for name, value in keys(minio).items()),
        "catalog.type=sql",
        f"catalog.uri=sqlite:///{tmp_path}/catalog.db",
        f"catalog.warehouse=s3://{bucket}/warehouse",
        f"catalog.s3.endpoint={minio.endpoint}",
        f"catalog.s3.access-key-id={minio.access_key}",
        f"catalog.s3.secret-access-key={minio.secret_key}",
        "catalog.s3.region=us-east-1",
    ]


def test_chunks_and_tables_may_lie_in_s3(minio, tmp_path):
    bucket = minio.new_bucket()
    world = S3World(tmp_path / "store")
    world.endpoint = minio.endpoint
    world.create("orders", 2)
    for codec in range(5):
        world.commit("orders", {0: [some_records(40)], 1: [some_records(10)]}, codec=codec)
    upload(minio, bucket, world)
    sets = in_bucket(minio, bucket, tmp_path)
    with served(world) as address:
        job = make_job(address, tmp_path / "data", sets=sets)
        (topic,) = job.client.topics().topics
        assert export_topic(job, topic).rows == 250
        verdict = verify_topic(job, topic)
        assert (verdict.records, verdict.problems) == (250, ())
        job.catalog.engine.dispose()


class Bucket:
    """A topic whose chunks and table lie in a bucket; exports are runs of their own."""

    def __init__(self, minio, tmp_path, mode):
        self.minio = minio
        self.name = minio.new_bucket()
        self.world = S3World(tmp_path / "store")
        self.world.endpoint = minio.endpoint
        self.world.create("orders", 2)
        self.world.configs["orders"] = {"mode": mode, "partition.by": BY[mode]}
        self.folder = tmp_path
        self.address = ""
        self.jobs = []

    def job(self, hook=no_hook):
        sets = in_bucket(self.minio, self.name, self.folder)
        run_id = f"r{len(self.jobs)}"
        job = make_job(self.address, self.folder / "data", run_id, sets=sets)
        self.jobs.append(job)
        return job._replace(hook=hook)

    def export(self, hook=no_hook):
        count = self.world.chunk_number
        self.world.commit("orders", {p: [some_records(8, 3 * count)] for p in range(2)})
        upload(self.minio, self.name, self.world)
        job = self.job(hook)
        export_topic(job, *job.client.topics().topics)

    def table(self):
        return self.jobs[0].catalog.load_table(TABLE)

    def live(self):
        return {one.file.file_path for one in self.table().scan().plan_files()}

    def files(self):
        """All data files: when each was written, by the store's clock."""
        return {
            file.location: file.modified_ms
            for file in list_files(self.table())
            if "/data/" in file.location or "/shuffle/" in file.location
        }

    def check(self):
        job = self.job()
        (topic,) = job.client.topics().topics
        verify = verify_upsert if is_upsert(topic) else verify_topic
        assert verify(job, topic).problems == ()


@pytest.fixture(params=["append", "upsert"])
def place(request, minio, tmp_path):
    found = Bucket(minio, tmp_path, request.param)
    with served(found.world) as found.address:
        yield found
    for job in found.jobs:
        job.catalog.engine.dispose()


def test_upkeep_of_a_table_in_s3_takes_what_is_old_by_the_stores_clock(place, monkeypatch):
    """Files are joined, snapshots expire, and of files that nobody names go the old ones only:
    both times that decide are those that the store gives."""
    monkeypatch.setattr(maintain, "SNAPSHOTS_KEPT_MIN", 1)
    for _ in range(3):
        place.export()
    scatter(place.table())
    before = len(place.live())
    done = compact(place.job(), TABLE, FAR)
    assert done.files_before > before // 2
    assert done.files_after <= 2
    place.check()
    assert expire(place.job(), TABLE, FAR).snapshots_expired > 3
    place.check()
    old = place.files().keys() - place.live()
    assert len(old) > before
    while store_now_ms(place.job(), TABLE) <= max(place.files().values()) + APART_MS:
        time.sleep(0.2)
    with pytest.raises(Killed):
        place.export(hook=Once(Step.COMMIT_WRITTEN, Killed()))
    files = place.files()
    young = files.keys() - place.live() - old
    assert young
    began_ms = store_now_ms(place.job(), TABLE)
    deleted = delete_orphans(place.job(), TABLE, APART_MS).files_deleted
    ended_ms = store_now_ms(place.job(), TABLE)
    gone = files.keys() - place.files().keys()
    assert old <= gone <= old | young
    assert len(gone) <= deleted
    # However long it took: what went was old enough, and what stayed was not.
    assert all(files[one] < ended_ms - APART_MS for one in gone)
    assert all(files[one] >= began_ms - APART_MS for one in young - gone)
    place.check()
    place.export()
    place.check()


def test_no_file_of_a_live_run_in_s3_is_deleted(place):
    place.export()

    def upkeep(step):
        if step in {Step.TASKS_DONE, Step.COMMIT_WRITTEN}:
            before = place.files().keys()
            delete_orphans(place.job(), TABLE, -1)
            assert place.files().keys() == before

    place.export(hook=upkeep)
    place.check()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"store.secret.key": "wrong"}, "cannot read s3://"),
        ({"store.endpoint": "http://127.0.0.1:9"}, "cannot read s3://"),
        ({"store.ca": "/nowhere/ca.pem"}, "cannot read store.ca"),
    ],
)
def test_a_store_that_refuses_is_one_sentence(minio, monkeypatch, changes, sentence):
    monkeypatch.setattr("iceberg_export.records.read_chunks.RETRIES_MAX", 0)
    address = StoreAddress(f"s3://{minio.new_bucket()}/x", minio.endpoint, "us-east-1", True)
    with pytest.raises(StoreReadError, match=sentence) as caught:
        open_reader(address, {**keys(minio), **changes}).read("chunks/a/b", 0, 4)
    assert "\n" not in str(caught.value)


def test_a_chunk_that_is_gone_is_definite(minio):
    address = StoreAddress(f"s3://{minio.new_bucket()}/x", minio.endpoint, "us-east-1", True)
    with pytest.raises(StoreReadError) as caught:
        open_reader(address, keys(minio)).read("chunks/a/b", 0, 4)
    assert not caught.value.again
