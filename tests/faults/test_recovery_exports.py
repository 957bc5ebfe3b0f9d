"""An Iceberg export goes on over a recovered log, and stops for a topic whose table has what was lost."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from broker.reports.log_lines import place
from iceberg_export.errors import AheadError
from iceberg_export.runs.export import ExportReport, export_topic
from iceberg_export.runs.job import Job
from iceberg_export.upkeep.reset import reset_offsets
from iceberg_export.verify.proof import verify_topic
from tests.faults.disaster import (
    EAGER,
    PATIENCE_S,
    all_is_archived,
    assert_only_the_listed_is_lost,
    consumed,
    planned,
    position_now,
    produced,
    recover_when_sessions_are_over,
    settings_of,
)
from tests.iceberg_export.kit.world import make_job
from tests.parts.servers import EtcdServer, FrazilCluster, MinioServer, at_once
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration


class Exporter:
    """Runs over the topics of a cluster, into tables under a folder."""

    def __init__(self, cluster: FrazilCluster, minio: MinioServer, data: Path) -> None:
        keys = (f"store.access.key={minio.access_key}", f"store.secret.key={minio.secret_key}")
        self._make: Callable[[str], Job] = lambda run_id: make_job(
            f"http://127.0.0.1:{cluster.agents[0].http_port}", data, run_id, keys
        )
        self._runs = 0

    def run(self, topic: str) -> ExportReport:
        """Raises ExportError."""
        self._runs += 1
        job = self._make(f"r{self._runs}")
        try:
            return export_topic(job, _topic(job, topic))
        finally:
            job.catalog.engine.dispose()

    def verify(self, topic: str, wanted: int) -> None:
        """The table has as many records, and they are the log's."""
        job = self._make("verify")
        verdict = verify_topic(job, _topic(job, topic))
        job.catalog.engine.dispose()
        assert (verdict.records, verdict.problems) == (wanted, ())

    def reset(self, topic: str) -> None:
        """As `frazil export reset-offsets --to earliest`."""
        job = self._make("reset")
        reset_offsets(job, _topic(job, topic), None)
        job.catalog.engine.dispose()


def _topic(job: Job, name: str):
    (found,) = [one for one in job.client.topics().topics if one.name == name]
    return found


@pytest.mark.promise("P7")
def test_an_export_goes_on_over_a_recovered_log_and_stops_for_a_table_that_is_ahead(
    tmp_path: Path, parts: tuple[EtcdServer, MinioServer]
) -> None:
    etcd, minio = parts
    cluster = FrazilCluster(tmp_path / "cluster", etcd, minio, *EAGER, agents=2)
    exporter = Exporter(cluster, minio, tmp_path / "tables")
    with cluster:
        bootstrap, agent = cluster.bootstrap, cluster.agents[0]
        for topic in ("kept", "ahead"):
            create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic, 2)
        records = {topic: produced(bootstrap, topic, 100, 0) for topic in ("kept", "ahead")}
        assert exporter.run("kept").rows == 100
        payer = transaction(bootstrap, "ahead")
        records["ahead"] |= produced(bootstrap, "ahead", 10, 100)
        reached = position_now(agent)
        # From here on all is lost: the end of a transaction first, which the table has.
        payer.commit_transaction(PATIENCE_S)
        assert exporter.run("ahead").rows == 116
        late = produced(bootstrap, "kept", 50, 100)
        all_is_archived(tmp_path / "own-minio", *cluster.agents)
        at_once(lambda each: each.child.kill(), cluster.agents)
        etcd.stop()
        shutil.rmtree(etcd.data)
        etcd.start()
        to = ("--to-position", place(reached))
        told = planned(agent.child, *to, *settings_of(agent))
        recover_when_sessions_are_over(agent.child, *to, *settings_of(agent))
        cluster.start()
        for topic, all_ in (("kept", records["kept"] | late), ("ahead", records["ahead"])):
            found = consumed(bootstrap, topic)
            assert records[topic].items() <= found.items()
            assert_only_the_listed_is_lost(all_, found, told)
            assert not [value for value in found.values() if value.startswith(b"paid")]

        for grown in (0, 20):
            if grown:
                produced(bootstrap, "kept", grown, 900)
                produced(bootstrap, "ahead", grown, 900)
            assert exporter.run("kept").rows == grown
            exporter.verify("kept", 100 + grown)
            with pytest.raises(AheadError) as error:
                exporter.run("ahead")
            assert "only what is before 50 was recovered" in str(error.value)
            assert "`frazil export reset-offsets --topic ahead --to earliest`" in str(error.value)
        exporter.reset("ahead")
        assert exporter.run("ahead").rows == 130
        exporter.verify("ahead", 130)
        assert cluster.stop() == [0, 0]


def transaction(bootstrap: str, topic: str) -> Producer:
    """It has three records in each partition, and is open."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "payer", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for number in range(6):
        producer.produce(topic, f"paid-{number}", partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    return producer
