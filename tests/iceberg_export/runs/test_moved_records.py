"""A real agent's jobs move the records that tables end with: exports know the log again."""

import time
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from iceberg_export.plan.agent_client import Topic
from iceberg_export.plan.splits import SEGMENTS
from iceberg_export.records import last_records
from iceberg_export.runs.export import export_topic
from iceberg_export.runs.job import Job
from iceberg_export.table.catalog import view_of
from iceberg_export.table.state import read_state
from iceberg_export.verify.proof import verify_topic
from tests.iceberg_export.kit.world import make_job
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

OFTEN = ("--set", "merge.age.ms=1000", "--set", "merge.interval.ms=1000")
PATIENCE_S = 60


def produce(bootstrap: str, topic: str, tag: str, codec: str) -> None:
    """Two transactions that are committed, and one between that is not."""
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "transactional.id": tag}
    producer = Producer(settings)
    producer.init_transactions(PATIENCE_S)
    for end in (
        producer.commit_transaction,
        producer.abort_transaction,
        producer.commit_transaction,
    ):
        producer.begin_transaction()
        for number in range(6):
            headers = [("h", None), ("h", b"1")]
            producer.produce(topic, tag * number, f"k{number}", number % 2, headers=headers)
        end(PATIENCE_S)


def until_moved(agent: FrazilDev, job: Job, topic: Topic) -> None:
    """Until the last records of both partitions lie in segments."""
    state = read_state(view_of(job.catalog.load_table(("frazil", "orders"))))
    deadline = time.monotonic() + PATIENCE_S
    while (
        len(
            moved_records := last_records.moved_records(
                job.client.plan(topic, {}), state.last_records
            )
        )
        < 2
    ):
        assert time.monotonic() < deadline, moved_records
        merge = f"http://127.0.0.1:{agent.http_port}/jobs/merge/run"
        urlopen(Request(merge, method="POST")).close()
        time.sleep(0.5)
    assert all(one.key.startswith(SEGMENTS) for one in moved_records)


@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
def test_last_records_that_were_merged_are_the_same(tmp_path, stamp):
    with FrazilDev(tmp_path, *OFTEN) as agent:
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        create_topic(admin, "orders", 2, {"message.timestamp.type": stamp})
        first = make_job(f"http://127.0.0.1:{agent.http_port}", tmp_path / "tables")
        (topic,) = (one for one in first.client.topics().topics if one.name == "orders")
        for number, codec in enumerate(["none", "zstd", "gzip"]):
            job = first._replace(run_id=f"r{number}")
            if number:
                until_moved(agent, job, topic)
            produce(agent.bootstrap, "orders", f"t{number}", codec)
            assert export_topic(job, topic).rows == 12
            assert verify_topic(job, topic).problems == ()
        first.catalog.engine.dispose()
        assert agent.stop() == 0
