"""A bucket that refuses to delete some objects: they stay, and everything goes on around them."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import botocore.session
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.bench import endurance
from tests.parts.servers import Frazil, MinioServer, get_json, get_text
from tests.parts.topics import NotNowError, create_topic, patiently, told

pytestmark = pytest.mark.integration

CHUNKS = 20
PATIENCE_S = 60.0
NUMBERS = itertools.count()


def until(met: Callable[[], bool], agent: Frazil, what: str) -> None:
    """Time passes for the jobs by the log's entries, and an idle agent writes one a minute: topics are made
    meanwhile, which no chunk is put for."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    deadline = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < deadline, f"{what}:\n{agent.child.tail()}"
        create_topic(admin, f"clock-{next(NUMBERS)}", 1)
        time.sleep(0.2)


def listed(minio: MinioServer, bucket: str, prefix: str) -> list[str]:
    client = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=minio.endpoint,
        region_name=minio.region,
        aws_access_key_id=minio.access_key,
        aws_secret_access_key=minio.secret_key,
    )
    rows = client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    client.close()
    return [row["Key"] for row in rows]


def test_what_the_bucket_keeps_is_told_and_counted_and_everything_else_is_collected(
    tmp_path: Path, minio: MinioServer
) -> None:
    bucket = minio.new_bucket()
    # The first and the 17th chunk of each incarnation, and every measurement of the clock.
    held = minio.keeping(f"{bucket}/chunks/*0", f"{bucket}/clock/*")
    agent = Frazil(tmp_path, "serve", env=held)
    for setting in (
        f"store=s3://{bucket}",
        f"store.endpoint={minio.endpoint}",
        f"log=sqlite://{tmp_path}/log.db",
        f"listen=127.0.0.1:{agent.port}",
        f"http=127.0.0.1:{agent.http_port}",
        "jobs.start.delay.ms=0",
        "snapshot.interval.ms=1000",
        "collect.interval.ms=1000",
        "log.segment.delete.delay.ms=0",
        "merge.interval.ms=3600000",
    ):
        agent.child.argv += ["--set", setting]
    with agent:
        assert len(listed(minio, bucket, "clock/")) == 1
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        create_topic(admin, "t", 1)
        producer = Producer({"bootstrap.servers": agent.bootstrap})
        for number in range(CHUNKS):
            producer.produce("t", b"%d" % number)
            assert producer.flush(30) == 0
        chunks = listed(minio, bucket, "chunks/")
        assert len(chunks) >= CHUNKS
        patiently(lambda: told(admin.delete_topics(["t"])["t"]), NotNowError)
        kept = [key for key in chunks if key.endswith("0")]
        assert 0 < len(kept) < len(chunks)
        until(lambda: listed(minio, bucket, "chunks/") == kept, agent, "not collected")

        def refused() -> float:
            return endurance.metric(get_text(agent.http_port, "/metrics"), "frazil_objects_refused")

        until(lambda: refused() == len(kept), agent, "not counted")

        def note() -> str:
            (row,) = (
                each
                for each in get_json(agent.http_port, "/jobs")["jobs"]
                if each["job"] == "collect"
            )
            return str(row["note"])

        until(lambda: f"refused to delete {len(kept)} " in note(), agent, "not in the job's note")
    said = (tmp_path / "frazil.log").read_text()
    assert said.count("refuses to delete clock/") == 1
    assert said.count("refuses to delete chunks/") == 1
    assert "AccessDenied" in said
