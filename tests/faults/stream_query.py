"""A query of Spark Structured Streaming, whose driver is a process that may be killed: `StreamQuery`.

It writes what it reads of a topic as Parquet, and its sink is Spark's own: a file is a part of the output once the
batch that wrote it has its line in the sink's log, whatever else lies in the folder. As a program this module is the
driver: `python -m tests.faults.stream_query FOLDER OPTIONS`.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from tests.parts.process import Child

COLUMNS = ("kafka_partition", "kafka_offset", "value")
PATIENCE_S = 300.0


class Row(NamedTuple):
    partition: int
    offset: int
    value: bytes


class StreamQuery:
    """The query of a folder: its checkpoint and what it wrote outlive its drivers."""

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        """`options`: of the data source."""
        self._folder = folder
        self.child = Child(
            [sys.executable, "-m", __name__, str(folder), json.dumps(dict(options))],
            log=folder / "spark.log",
            env={"PYSPARK_PYTHON": sys.executable},
        )

    def start(self) -> None:
        """Start a driver; it has come up once it has ended a batch."""
        done = self.batches()
        self.child.start(lambda: self.batches() > done, seconds=PATIENCE_S)

    def kill(self) -> None:
        """The driver, its JVM and its workers at once."""
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.running:
            self.kill()

    def batches(self) -> int:
        """How many batches have ended."""
        return len(_numbered(self._folder / "checkpoint" / "commits"))

    def until_under_way(self) -> None:
        """Wait until there is a batch that has begun and not ended."""
        begun = self._folder / "checkpoint" / "offsets"
        self._until(lambda: len(_numbered(begun)) > self.batches())

    def until_at(self, ends: Mapping[int, int]) -> None:
        """Wait until batches that have ended reach these offsets, by partition."""

        def is_there() -> bool:
            at = self._offsets()
            return all(at.get(partition, -1) >= end for partition, end in ends.items())

        self._until(is_there)

    def _until(self, is_so) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert self.child.running, f"the query has ended:\n{self.child.tail()}"
            assert time.monotonic() < deadline, f"at {self._offsets()}:\n{self.child.tail()}"
            time.sleep(0.02)

    def _offsets(self) -> dict[int, int]:
        """Where the newest batch that has ended ends."""
        ended = _numbered(self._folder / "checkpoint" / "commits")
        if not ended:
            return {}
        *_, source = (
            (self._folder / "checkpoint" / "offsets" / str(ended[-1])).read_text().split("\n")
        )
        return {int(number): at for number, at in json.loads(source)["offsets"].items()}

    def rows(self) -> list[Row]:
        """What the sink has, in no order; what no batch has ended with is none of it."""
        log = self._folder / "out" / "_spark_metadata"
        lines = [line for path in log.glob("[0-9]*") for line in path.read_text().split("\n")[1:]]
        files = {Path(unquote(urlsplit(json.loads(line)["path"]).path)) for line in lines}
        return [
            Row(*row.values())
            for path in sorted(files)
            for row in pq.read_table(path, columns=list(COLUMNS)).to_pylist()
        ]


def _numbered(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit())


def main(folder: Path, options: Mapping[str, str]) -> None:
    from pyspark.sql import SparkSession

    from iceberg_export.source.data_source import register

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.daemon.module", "iceberg_export.spark_daemon")
        .config("spark.local.dir", str(folder / "scratch"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    register(spark)
    read = spark.readStream.format("frazil").options(**options).load().select(*COLUMNS)
    written = read.writeStream.format("parquet").option("path", str(folder / "out"))
    written.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
