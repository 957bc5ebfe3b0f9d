"""Tables that a release before has made are gone on with: what is new comes, once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from iceberg_export.runs.export import ExportReport, export_topic
from iceberg_export.runs.session import topic_named
from iceberg_export.verify.proof import verify_topic
from iceberg_export.verify.upsert import is_upsert, verify_upsert
from tests.clients.raw import Connection
from tests.clients.raw_txn import Producer as RawProducer
from tests.releases import KEPT, Release, agents, story, tables
from tests.releases.agents import KeptAgent
from tests.releases.keep import started
from tests.releases.seen import Seen, read

pytestmark = pytest.mark.integration

NEW = {"plain": 15, "compacted": 8, "typed": 4, "layered": 0, "configured": 0, "empty": 0}
"""How many records came after the tables were made."""


class Tables(NamedTuple):
    agent: KeptAgent
    folder: Path
    transactions: Seen
    """As they were left."""

    def export(self, topic: str, run_id: str) -> ExportReport:
        """Up to now; what is in the table then is compared with the log."""
        job = tables.job_over(self.agent, self.folder, run_id)
        found = topic_named(job.client.topics(), topic)
        report = export_topic(job, found)
        verify = verify_upsert if is_upsert(found) else verify_topic
        assert verify(job, found).problems == ()
        return report

    def offsets(self, table: str) -> list[tuple[int, int]]:
        return tables.offsets(tables.job_over(self.agent, self.folder, "reads"), table)

    def exported_to(self, table: str) -> dict[int, int]:
        return dict(tables.exported_to(tables.job_over(self.agent, self.folder, "reads"), table))

    def committed(self, topic: str) -> list[tuple[int, int]]:
        partitions = range(story.TOPICS[topic][0])
        return [
            (partition, row["offset"])
            for partition in partitions
            for row in read(self.agent.bootstrap, topic, partition)
        ]


@pytest.fixture(scope="module", params=[pytest.param(each, id=each.version) for each in KEPT])
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tables]:
    """An agent of this release over the log that the tables were made from; topics are for one test."""
    release: Release = request.param
    folder = tmp_path_factory.mktemp("export")
    left = json.loads((release.folder / "data.json").read_text())
    data = release.unpack("data", folder / "data")
    with (
        tables.warehouse(release) as where,
        started(agents.embedded(folder / "dev", data)) as agent,
    ):
        yield Tables(agent, where, left["transactions"])


@pytest.mark.parametrize("topic", NEW)
def test_what_came_since_is_added_and_nothing_else(kept: Tables, topic: str) -> None:
    before, exported = kept.offsets(topic), kept.exported_to(topic)
    report = kept.export(topic, f"new-{topic}")
    new = [(at, offset) for at, offset in kept.committed(topic) if offset >= exported.get(at, 0)]
    after = kept.offsets(topic)
    assert report.rows + report.dead == len(new) == NEW[topic]
    letters = kept.offsets(f"{topic}__dlq")[-report.dead :] if report.dead else []
    assert sorted([*after, *letters]) == sorted([*before, *new])
    assert kept.export(topic, f"none-{topic}").commits == 0


def test_newer_values_take_the_place_of_older_ones(kept: Tables) -> None:
    before = kept.offsets("upserted")
    assert len(before) == 3
    story.write_keys(kept.agent.bootstrap, "upserted", rounds=2)
    assert kept.export("upserted", "new-upserted").rows == 8
    after = kept.offsets("upserted")
    assert len(after) == 3
    assert min(after) > max(before)


def test_transactions_that_were_open_come_with_their_end(kept: Tables) -> None:
    kept.export("transactional", "new-open")
    before = kept.offsets("transactional")
    for name, dialect in story.OPEN.items():
        producer = RawProducer(name, dialect, *kept.transactions[name]["producer"])
        with Connection(kept.agent.bootstrap) as connection:
            assert producer.end(connection, commit=name == "open-new")[-1] == 0
    # Those of one transaction, and what was behind both.
    assert kept.export("transactional", "new-ended").rows == 3
    after = kept.offsets("transactional")
    assert after == sorted(kept.committed("transactional"))
    assert len(after) == len(before) + 3
