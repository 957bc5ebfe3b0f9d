"""The daemon that Spark forks Python workers from (`spark.python.daemon.module`).

Workers inherit what is imported here. Before 4.2 PySpark also calls `importlib.invalidate_caches`
for every task, which makes the next import read the directories of its archives again: 0.4 s of
CPU per task. Nothing is installed while a job runs, so that call does nothing here.
"""

import importlib


def _nothing() -> None:
    """Stands in for `importlib.invalidate_caches`."""


importlib.invalidate_caches = _nothing

import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

import iceberg_export.verify  # noqa: E402
import iceberg_export.work  # noqa: E402, F401

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
