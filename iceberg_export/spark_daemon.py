"""The daemon that Spark forks Python workers from (`spark.python.daemon.module`).

Workers inherit what is imported here. Before 4.2 PySpark also calls `importlib.invalidate_caches`
for every task, which makes the next import read the directories of its archives again: 0.4 s of
CPU per task. Nothing is installed while a job runs, so that call does nothing here.

Code that came as an archive (`--py-files`) is unpacked beside it: Numba keeps what it compiled
(7 s of CPU) only for files, and would compile in every worker.
"""

import importlib
import sys
import tempfile
import zipfile
from pathlib import Path


def _nothing() -> None:
    """Stands in for `importlib.invalidate_caches`."""


def unpacked(archive: Path) -> Path:
    """The folder with the archive's files, made unless it is there; the archive itself where
    nothing can be written."""
    folder = archive.with_name(f"{archive.name}.files")
    if folder.is_dir():
        return folder
    try:
        with (
            tempfile.TemporaryDirectory(dir=archive.parent, ignore_cleanup_errors=True) as scratch,
            zipfile.ZipFile(archive) as packed,
        ):
            packed.extractall(scratch)
            # One name change makes all files appear; it fails when another daemon was first.
            Path(scratch).rename(folder)
    except OSError:
        return folder if folder.is_dir() else archive
    return folder


importlib.invalidate_caches = _nothing
home = Path(__file__).parents[1]
if home.is_file() and (files := unpacked(home)) != home:
    sys.path.insert(0, str(files))
    del sys.modules["iceberg_export"]

from pyspark.daemon import manager  # noqa: E402

# Spark has a daemon for each kind of worker, and names it. Those that only plan the reads of a
# Python data source need nothing of this.
if sys.argv[1:2] in ([], ["pyspark.worker"]):
    import iceberg_export.source.reading
    import iceberg_export.tasks.export_split
    import iceberg_export.verify.proof  # noqa: F401

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
