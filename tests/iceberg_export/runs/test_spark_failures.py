"""What becomes of a run when Spark fails while it is waited for."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from iceberg_export.errors import SparkError
from iceberg_export.tasks import spark
from iceberg_export.tasks.spark import Tasks


class Frame:
    """Its result is a failure, after a while."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def collect(self) -> list[bytes]:
        time.sleep(0.05)
        raise self._error


def collected(error: BaseException, show=lambda: None):
    return Tasks(None, None)._collect(Frame(error), show)


@pytest.mark.parametrize(
    "error", [MemoryError("a result too large"), KeyError("stage"), SystemExit(3)]
)
def test_whatever_ends_the_thread_that_waits_for_spark_ends_the_wait(error) -> None:
    with pytest.raises(type(error)):
        collected(error)


def test_a_jvm_that_is_gone_while_progress_is_shown_is_an_error_of_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark, "POLL_S", 0.001)
    asked = []

    def show() -> None:
        asked.append(1)
        raise Py4JNetworkError("Answer from Java side is empty")

    with pytest.raises(SparkError):
        collected(Py4JNetworkError("Answer from Java side is empty"), show)
    assert asked


JVM_DIES = """
import signal
import sys
import time

from iceberg_export.errors import SparkError
from iceberg_export.progress import Progress
from iceberg_export.tasks import spark

def starts():
    return spark.start({"spark.master": "local[1]"}, Progress(sys.stderr, time.monotonic))

tasks = starts()
process = tasks._session.sparkContext._gateway.proc
process.send_signal(signal.SIGKILL)
process.wait()
for ask in (lambda: tasks.parallelism, lambda: tasks.run(len, ["abc"], sizes=[1], title="")):
    try:
        ask()
    except SparkError as error:
        print(error)
tasks.close()
tasks = starts()
print(tasks.run(pow, [2], sizes=[1], title=""))
tasks.close()
"""


@pytest.mark.integration
def test_after_a_jvm_that_was_killed_while_nobody_asked_another_one_is_started() -> None:
    done = subprocess.run(
        [sys.executable, "-c", JVM_DIES],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["Spark does not answer"] * 2, (
        done.stderr
    )
    assert lines[2:] == ["[1]"], done.stderr
