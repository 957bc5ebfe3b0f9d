"""A chunk of a real agent is deleted by hand: `frazil check` names what is lost, and consumers go on behind it."""

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

RECORDS = 5


def _check(agent: FrazilDev, *flags: str) -> subprocess.CompletedProcess[str]:
    data = Path(agent.child.argv[agent.child.argv.index("--data") + 1])
    http = f"http://127.0.0.1:{agent.http_port}"
    return subprocess.run(
        [agent.child.argv[0], "check", "--data", str(data), "--agent", http, *flags],
        env=agent.child.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _fill(agent: FrazilDev) -> None:
    """Records in chunks of their own, in two topics."""
    client = AdminClient({"bootstrap.servers": agent.bootstrap})
    for name in ("lost", "whole"):
        create_topic(client, name, 1)
    producer = Producer({"bootstrap.servers": agent.bootstrap})
    for number in range(RECORDS):
        for topic in ("lost", "whole"):
            producer.produce(topic, b"%d" % number)
            assert producer.flush(30) == 0


def _read(agent: FrazilDev, topic: str, offset: int, count: int) -> list[bytes]:
    """So many records from there on."""
    settings = {"bootstrap.servers": agent.bootstrap, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[bytes] = []
    try:
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None, found
            assert message.error() is None, message.error()
            found.append(message.value())
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("running", [True, False], ids=["beside the agent", "without it"])
def test_a_consumer_goes_on_behind_a_chunk_that_was_deleted(tmp_path: Path, running: bool) -> None:
    agent = FrazilDev(tmp_path, "--set", "jobs.enabled=false")
    agent.start()
    _fill(agent)
    whole = _check(agent)
    assert (whole.returncode, whole.stderr) == (0, "")
    agent.stop()

    where = _check(agent, "--json")
    assert where.returncode == 0, where.stderr
    chunks = sorted((tmp_path / "data" / "objects" / "chunks").rglob("*"))
    files = [file for file in chunks if file.is_file()]
    assert len(files) == 2 * RECORDS
    files[4].unlink()  # The third record of the first topic.

    if running:
        agent.start()
    found = _check(agent, "--json")
    assert found.returncode == 1
    (lost,) = json.loads(found.stdout)["ranges"]
    assert (lost["topic"], lost["partition"], lost["base_offset"], lost["next_offset"]) == (
        "lost",
        0,
        2,
        3,
    )
    if not running:
        alone = _check(agent, "--repair", "--yes")
        assert alone.returncode == 1
        assert "no agent answers" in alone.stderr
        agent.start()
    assert _read(agent, "whole", 0, RECORDS) == [b"0", b"1", b"2", b"3", b"4"]
    repaired = _check(agent, "--repair", "--yes")
    assert repaired.returncode == 0, repaired.stderr
    assert "lost-0, offsets 2 to 2: declared lost" in repaired.stdout
    assert _read(agent, "lost", 0, RECORDS - 1) == [b"0", b"1", b"3", b"4"]
    assert _read(agent, "lost", 2, 2) == [b"3", b"4"]
    assert _check(agent, "--deep").returncode == 0
    agent.stop()
