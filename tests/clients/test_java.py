"""Kafka's own Java client 4.3: what it writes it reads back, in every codec."""

import subprocess
from pathlib import Path

import pytest

from tests.clients.records import CODECS, COUNT
from tests.parts import install

pytestmark = pytest.mark.integration


def test_the_java_client_reads_back_what_it_wrote(bootstrap: str) -> None:
    program = Path(__file__).parent / "java" / "RoundTrip.java"
    done = subprocess.run(
        [
            *install.java_program(program, install.kafka_jars()),
            *(bootstrap, str(COUNT), *CODECS),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert [line for line in done.stdout.splitlines() if " equal " in line] == [
        f"{codec} equal {COUNT}" for codec in CODECS
    ]
