"""What Kafka's perf tools print, and what benchmarks read there; the floor as librdkafka sees it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.clients import consumed, produced
from tests.bench.sides import FloorSide

PRODUCED = """\
20001 records sent, 4000.2 records/sec (3.91 MB/sec), 7.1 ms avg latency, 205.0 ms max latency.
100000 records sent, 50000.0 records/sec (48.83 MB/sec), 9.52 ms avg latency, 205.00 ms max latency, \
8 ms 50th, 21 ms 95th, 33 ms 99th, 60 ms 99.9th.
"""
CONSUMED = (
    "2026-11-26 05:00:00:000, 2026-11-26 05:00:05:000, 183.1055, 36.6, 187500, 37500.0,"
    " 3100, 1900, 96.4, 98684.2\n"
)


def test_the_last_summary_of_the_producer_tool_counts() -> None:
    seen = produced(PRODUCED)
    assert seen["bytes"] == 100_000 * 1024
    assert (seen["seconds"], seen["p50_ms"], seen["p99_ms"]) == (2.0, 8.0, 33.0)


def test_joining_the_group_is_no_time_of_the_consumer_tool() -> None:
    assert consumed(CONSUMED) == {"bytes": 187_500 * 1024, "records": 187_500, "seconds": 1.9}


@pytest.mark.integration
def test_librdkafka_reads_from_the_floor_what_it_wrote(tmp_path: Path) -> None:
    floor = FloorSide(tmp_path)
    floor.start()
    try:
        for work, records in (("produce", 2000), ("consume", 2000)):
            client = [sys.executable, "-m", "tests.bench.rdkafka", work, "--topic", "any"]
            where = ["--port", str(floor.port), "--partitions", "8", "--records", str(records)]
            told = subprocess.run(
                [*client, *where], capture_output=True, text=True, check=True, timeout=60
            )
            assert json.loads(told.stdout.splitlines()[-1])["records"] == 2000
    finally:
        floor.stop()
