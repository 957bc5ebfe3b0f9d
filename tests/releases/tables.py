"""The kept tables where they were made, and exports in this process that go on with them."""

import fcntl
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from iceberg_export.runs.job import Job
from iceberg_export.table.catalog import view_of
from iceberg_export.table.state import read_state
from tests.iceberg_export.kit.world import make_job
from tests.releases import WAREHOUSES, Release
from tests.releases.agents import KeptAgent


@contextmanager
def warehouse(release: Release) -> Iterator[Path]:
    """Put back where its metadata say that it is; one test at a time has it."""
    WAREHOUSES.mkdir(exist_ok=True)
    with (WAREHOUSES / f"{release.version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(release.warehouse, ignore_errors=True)
        yield release.unpack("tables", release.warehouse)
        shutil.rmtree(release.warehouse)


def job_over(agent: KeptAgent, folder: Path, run_id: str) -> Job:
    """An export without Spark."""
    registry = f"schema.registry.url={agent.registry}"
    return make_job(agent.admin, folder, run_id, [registry])


def offsets(job: Job, table: str) -> list[tuple[int, int]]:
    """Partition and offset of all rows."""
    rows = job.catalog.load_table(("frazil", table)).scan().to_arrow()
    return sorted(
        zip(rows["kafka_partition"].to_pylist(), rows["kafka_offset"].to_pylist(), strict=True)
    )


def exported_to(job: Job, table: str) -> Mapping[int, int]:
    """By partition: before which offset all is in the table, as the table says."""
    state = read_state(view_of(job.catalog.load_table(("frazil", table))))
    assert state is not None
    return state.offsets
