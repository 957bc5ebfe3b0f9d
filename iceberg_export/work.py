"""What one task does: read the spans of a split, decode them, write files, account for offsets.

Runs in a Spark executor, or in-process in tests; knows nothing of either. The result names the
files and, for each partition, what became of every offset, so that the driver can prove before
the commit that none is missing or double.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pyiceberg.manifest import DataFile

from iceberg_export.decode import Tally
from iceberg_export.errors import PlanError
from iceberg_export.plan import Split, StoreAddress, Work
from iceberg_export.read_chunks import open_reader, span_bytes
from iceberg_export.rows import span_rows
from iceberg_export.write_files import FileWriter, Target


class TaskSetup(NamedTuple):
    """What all tasks of a run share."""

    run_id: str
    store: StoreAddress
    store_options: dict[str, str]
    target: Target


class SplitResult(NamedTuple):
    number: int
    files: list[DataFile]
    tallies: dict[int, Tally]
    """By partition."""


def export_split(setup: TaskSetup, split: Split, attempt: int) -> SplitResult:
    """Write the rows of a split. Raises ExportError; then none of its files are left."""
    reader = open_reader(setup.store, setup.store_options)
    writer = FileWriter(setup.target, f"{setup.run_id}-{split.number:05d}-{attempt}")
    tallies: dict[int, Tally] = {}
    finished = False
    try:
        for span, data in span_bytes(reader, split.spans):
            for rows, tally in span_rows(span, data):
                writer.write(rows)
                tallies[span.partition] = tallies.get(span.partition, Tally()).plus(tally)
        result = SplitResult(split.number, writer.close(), tallies)
        finished = True
        return result
    finally:
        if not finished:
            writer.discard()


def check_complete(work: Work, results: Mapping[int, SplitResult], split_count: int) -> int:
    """Prove that the results cover `work` exactly; the rows written.

    Raises PlanError when an offset is unaccounted for or double: then nothing may be committed.
    """
    if sorted(results) != list(range(split_count)):
        raise PlanError(f"{split_count - len(results)} tasks gave no result; nothing was exported")
    covered: dict[int, int] = {}
    rows = 0
    for result in results.values():
        if sum(file.record_count for file in result.files) != sum(
            tally.rows for tally in result.tallies.values()
        ):
            raise PlanError("a task's files hold another number of rows than it decoded")
        for partition, tally in result.tallies.items():
            covered[partition] = covered.get(partition, 0) + tally.offsets
            rows += tally.rows
    for partition, end in work.ends.items():
        # What lies outside the wanted offsets was read with a span's edge: it is not ours.
        edge = sum(
            span.records - (span.offset_to - span.offset_from)
            for span in work.spans
            if span.partition == partition
        )
        read = covered.get(partition, 0) - edge
        wanted = end - work.starts[partition] - work.markers.get(partition, 0)
        if read != wanted:
            raise PlanError(
                f"partition {partition}: {read} offsets were read of {wanted}; nothing was exported"
            )
    return rows
