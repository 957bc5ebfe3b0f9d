"""`make demo` ends with the same count from consumer, Spark SQL and DuckDB."""

import subprocess
import sys

import pytest


@pytest.mark.integration
def test_the_demo_counts_the_same_three_times_and_ends_clean() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert "lag 0 in 4 partitions" in done.stdout
    assert "consumer 100000 · Spark SQL 100000 · DuckDB 100000" in done.stdout
