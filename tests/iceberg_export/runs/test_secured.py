"""A whole export of what a producer wrote by SASL_SSL, from an agent whose HTTP listener speaks TLS too."""

import io
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from iceberg_export.errors import AgentError
from iceberg_export.progress import Progress
from iceberg_export.runs.export import export_topic
from iceberg_export.runs.session import Session
from iceberg_export.settings import parse
from iceberg_export.tasks.run_splits import TaskRunner
from iceberg_export.verify.proof import verify_topic
from tests.parts.secured import GUARDED, SecuredDev, Security, librdkafka
from tests.parts.topics import create_topic

OPERATOR, EXPORTER = "the-token-of-an-operator", "the-token-of-an-exporter"
COUNT = 500


def agent_of(folder: Path, security: Security) -> SecuredDev:
    agent = SecuredDev(folder)
    for name, token in (("operator", OPERATOR), ("exporter", EXPORTER)):
        (folder / name).write_text(token)
    settings = [
        *(*security.frazil, *GUARDED, "puts.per.second=1000"),
        f"listeners=SASL_SSL://127.0.0.1:{agent.port}",
        f"http=https://127.0.0.1:{agent.http_port}",
        f"http.token.file={folder / 'operator'}",
        f"http.tokens=exporter:{folder / 'exporter'}",
        "http.roles.exporter=User:exporter",
    ]
    agent.child.argv += [word for setting in settings for word in ("--set", setting)]
    return agent


def test_what_was_written_over_tls_is_exported_over_tls_with_the_exporters_token(
    tasks: TaskRunner, tmp_path: Path
) -> None:
    security = Security(tmp_path / "security")
    with agent_of(tmp_path / "dev", security) as agent:
        config = {"bootstrap.servers": agent.bootstrap, **librdkafka(security.who())}
        create_topic(AdminClient(config), "orders", 2)
        producer = Producer(config)
        for number in range(COUNT):
            producer.produce("orders", key=str(number), value=b"a" * (number % 50))
        assert producer.flush(60) == 0

        def session(*sets: str) -> Session:
            given = [
                f"agent=https://localhost:{agent.http_port}",
                f"agent.token.file={tmp_path / 'dev' / 'exporter'}",
                *sets,
            ]
            told = parse(data=tmp_path / "data", config=None, assignments=given)
            return Session(told, Progress(io.StringIO(), time.perf_counter))

        with pytest.raises(AgentError, match=r"is agent\.ca right"):
            session().client.topics()
        exporting = session(f"agent.ca={security.authority}")
        topics = exporting.client.topics()
        job = exporting.job(topics.cluster_id)._replace(runner=lambda: tasks)
        (topic,) = topics.topics
        assert export_topic(job, topic).rows == COUNT
        verdict = verify_topic(job, topic)
        assert (verdict.records, verdict.problems) == (COUNT, ())
        rows = job.catalog.load_table(("frazil", "orders")).scan().to_arrow()
        assert sorted(rows["kafka_key"].to_pylist(), key=int) == [
            str(number).encode() for number in range(COUNT)
        ]
        job.catalog.engine.dispose()
        assert agent.stop() == 0
    log = (tmp_path / "dev" / "frazil.log").read_text()
    assert EXPORTER not in log
