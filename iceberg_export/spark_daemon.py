"""The daemon that Spark forks Python workers from (`spark.python.daemon.module`).

Workers inherit what is imported here. Before 4.2 PySpark also calls `importlib.invalidate_caches`
for every task, which makes the next import read the directories of its archives again: 0.4 s of
CPU per task. Nothing is installed while a job runs, so that call does nothing here.
"""

import importlib
import sys


def _nothing() -> None:
    """Stands in for `importlib.invalidate_caches`."""


importlib.invalidate_caches = _nothing

from pyspark.daemon import manager  # noqa: E402

# Spark has a daemon for each kind of worker, and names it. Those that only plan the reads of a
# Python data source need nothing of this.
if sys.argv[1:2] in ([], ["pyspark.worker"]):
    import iceberg_export.source.reading
    import iceberg_export.verify
    import iceberg_export.work  # noqa: F401

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
