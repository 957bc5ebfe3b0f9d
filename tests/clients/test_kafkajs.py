"""kafkajs writes (it reads only in groups), and librdkafka reads it back."""

import subprocess
from pathlib import Path

import pytest

from tests.clients.records import COUNT, FIRST_TIMESTAMP_MS, records
from tests.clients.test_confluent import consume
from tests.parts import install

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_kafkajs_wrote_is_read_back(bootstrap: str, codec: str) -> None:
    program = Path(__file__).parent / "js" / "produce.js"
    done = subprocess.run(
        [
            *(install.node(), str(program), bootstrap, f"kafkajs-{codec}", codec),
            *(str(COUNT), str(FIRST_TIMESTAMP_MS)),
        ],
        env={
            "NODE_PATH": str(install.kafkajs() / "node_modules"),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert consume(bootstrap, f"kafkajs-{codec}", COUNT) == records()
