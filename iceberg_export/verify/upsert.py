"""The proof for tables of mode upsert: every row is the newest record of its key, whole, and every
key that should have a row has one.

The log is read again from its start and brought into buckets as an export does it; then each bucket
of the table is compared, key by key, with the newest records that the log has. What the log no
longer has (retention, compaction) is counted, not compared; neither are keys that lie in several
partitions, where the order of exports decides. Writes files for the tasks that follow beside the
table, under a run's mark as an export does, and deletes them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.table import FileScanTask, Table

from iceberg_export import names
from iceberg_export.errors import SettingsError
from iceberg_export.files.partition_values import PartitionColumn
from iceberg_export.files.read import scan_files
from iceberg_export.files.target import Target, target_of
from iceberg_export.plan.agent_client import Topic
from iceberg_export.records.checksum import Sums, sum_rows
from iceberg_export.runs.job import Job, load_topic_types, timestamp_limits
from iceberg_export.table import topic_settings
from iceberg_export.table.run_marks import RunMark
from iceberg_export.tasks.export_split import BadRecords, TaskSetup, export_task
from iceberg_export.tasks.run_splits import run_splits
from iceberg_export.typed.decode_values import Message
from iceberg_export.typed.typed_rows import RowTyping
from iceberg_export.upsert.buckets import (
    Bucket,
    ShuffleFile,
    bucket_columns,
    bucket_of,
    in_order,
    read_row_group,
    row_groups_of,
    rows_before,
    shuffle_schema,
)
from iceberg_export.upsert.newest_records import (
    KEY_BYTES,
    TOMBSTONE,
    Places,
    key_codes,
    last_in_partition,
)
from iceberg_export.verify.exported import ComparedRange, Exported, find_exported
from iceberg_export.verify.proof import Verdict, added_again, sum_of

Mask = npt.NDArray[np.bool_]


class BucketCheck(NamedTuple):
    target: Target
    files: tuple[FileScanTask, ...]
    groups: tuple[tuple[str, int], ...]
    ranges: Mapping[int, ComparedRange]
    not_compared: frozenset[str]
    """Columns."""


class BucketDifferences(NamedTuple):
    same: int = 0
    """Rows that are the newest records of their keys, by their place in the log."""
    changed: int = 0
    """Of those in blocks of offsets whose contents differ."""
    missing: int = 0
    surplus: int = 0
    doubled: int = 0
    older: int = 0
    several: int = 0
    """Keys in more than one partition."""
    sums: Sums = Sums(0, 0, 0)


def check_bucket(task: BucketCheck, _attempt: int) -> BucketDifferences:
    """Compares one bucket. Raises ExportError."""
    metadata, io = task.target.open()
    schema = shuffle_schema(metadata)
    rows = rows_before(task.files, metadata, io, schema)
    pieces = [read_row_group(io, path, group, schema) for path, group in task.groups]
    log = last_in_partition(pa.concat_tables([schema.empty_table(), *pieces]))
    rows, log = (_without_columns(one, task.not_compared) for one in (rows, log))
    return compare_bucket(rows, log, task.ranges)


def _without_columns(rows: pa.Table, names_of: Collection[str]) -> pa.Table:
    return rows.drop_columns([name for name in rows.column_names if name in names_of])


def compare_bucket(
    rows: pa.Table, log: pa.Table, ranges: Mapping[int, ComparedRange]
) -> BucketDifferences:
    """Compares rows of the table with the last record of each of their keys in each partition."""
    keys = [names.KEY, KEY_BYTES]
    codes = key_codes(pa.concat_tables([rows.select(keys), log.select(keys)]))
    row_codes, log_codes = codes[: rows.num_rows], codes[rows.num_rows :]
    count = int(codes.max(initial=-1)) + 1
    several = _in_several(codes, _ints(rows, names.PARTITION), _ints(log, names.PARTITION), count)
    rows, row_codes = _without(rows, row_codes, several)
    log, log_codes = _without(log, log_codes, several)
    # Without keys of several partitions each key has one record in `log`.
    logged = np.full(count, -1, np.int64)
    logged[log_codes] = np.arange(log.num_rows)
    at = logged[row_codes]
    there = at >= 0
    log_offsets, offsets = _ints(log, names.OFFSET), _ints(rows, names.OFFSET)
    gone = np.asarray(log.column(TOMBSTONE), dtype=np.bool_)
    same = there.copy()
    same[there] = (log_offsets[at[there]] == offsets[there]) & ~gone[at[there]]
    lost = ~same & _no_longer_in_log(rows, offsets, log_offsets, at, ranges)
    covered = np.zeros(log.num_rows, np.bool_)
    covered[at[there & (same | lost)]] = True
    doubled = rows.num_rows - len(np.unique(row_codes))
    mine = rows.filter(pa.array(same))
    theirs = log.take(pa.array(at[same]))
    table_sums = sum_rows(mine.drop_columns([KEY_BYTES, TOMBSTONE]))
    log_sums = sum_rows(theirs.drop_columns([KEY_BYTES, TOMBSTONE]))
    return BucketDifferences(
        same=int(same.sum()),
        changed=sum(one.records for block, one in table_sums.items() if log_sums.get(block) != one),
        missing=int((~covered & ~gone).sum()),
        surplus=int((~same & ~lost).sum()),
        doubled=doubled,
        older=int(lost.sum()),
        several=int(several.sum()),
        sums=sum_of(table_sums),
    )


def _ints(rows: pa.Table, name: str) -> Places:
    return np.asarray(rows.column(name), dtype=np.int64)


def _in_several(codes: Places, row_partitions: Places, log_partitions: Places, count: int) -> Mask:
    """Returns which keys lie in more than one partition."""
    partitions = np.concatenate([row_partitions, log_partitions])
    least = np.full(count, np.iinfo(np.int64).max)
    most = np.full(count, -1, np.int64)
    np.minimum.at(least, codes, partitions)
    np.maximum.at(most, codes, partitions)
    found: Mask = most > least
    return found


def _without(rows: pa.Table, codes: Places, several: Mask) -> tuple[pa.Table, Places]:
    kept = ~several[codes]
    return rows.filter(pa.array(kept)), codes[kept]


def _no_longer_in_log(
    rows: pa.Table,
    offsets: Places,
    log_offsets: Places,
    at: Places,
    ranges: Mapping[int, ComparedRange],
) -> Mask:
    """Returns which rows' records retention or compaction has taken from the log.

    Retention takes a key's last record only after all before it; compaction, a record of which a
    newer one is not exported yet.
    """
    found = np.zeros(rows.num_rows, np.bool_)
    partitions = _ints(rows, names.PARTITION)
    unknown = at < 0
    newer = np.zeros(rows.num_rows, np.bool_)
    newer[~unknown] = offsets[~unknown] > log_offsets[at[~unknown]]
    for partition, one in ranges.items():
        mine = (partitions == partition) & (offsets < one.end)
        found |= mine & unknown & (offsets < one.start)
        if one.compacted:
            found |= mine & (unknown | newer)
    return found


def verify_upsert(job: Job, topic: Topic) -> Verdict:
    """Compares a table of mode upsert with the log. Raises ExportError."""
    exported = find_exported(job, topic)
    table = exported.table
    columns = bucket_columns(table.metadata)
    with RunMark(table, job.run_id):
        shuffled = _shuffle(job, topic, exported)
        try:
            found = _check(job, table, shuffled, exported.ranges, columns)
        finally:
            for file in shuffled:
                table.io.delete(file.path)
    verdict = _verdict(topic.name, exported.name, found)
    return verdict._replace(
        gone=exported.gone,
        passed_over=exported.passed_over,
        lost=exported.state.lost,
        not_compared=tuple(sorted(added_again(table))),
    )


def _shuffle(job: Job, topic: Topic, exported: Exported) -> list[ShuffleFile]:
    """Returns the log's records by bucket. Asks for schemas that only records name."""
    types = load_topic_types(job, topic)
    if types is not None and types.repinned(exported.table.metadata.properties):
        raise SettingsError(
            f"table of topic {topic.name}: a proof would need the schemas that were the newest when "
            "records were exported (value.schema or key.schema is latest, or inline and has changed, "
            "and mode upsert)"
        )
    runner = job.runner()
    splits = job.splits(exported.spans)

    def setup() -> TaskSetup:
        return TaskSetup(
            run_id=f"{job.run_id}-verify",
            store=exported.plan.store,
            store_options=job.settings.store_options,
            target=target_of(exported.table),
            typing=types.typing(exported.table) if types is not None else RowTyping(),
            # Dead letters are no rows; whether they are all there is not compared.
            bad=BadRecords(topic.name, "drop"),
            timestamps=timestamp_limits(job),
            upsert=True,
        )

    def fetch_schemas(unknown: Mapping[str, set[Message]], _seen: Mapping[str, str]) -> None:
        assert types is not None
        types.fetch_schemas(unknown)

    title = f"{topic.name}: reading chunks"
    results = run_splits(
        runner, splits, task=export_task, setup=setup, fetch_schemas=fetch_schemas, title=title
    )
    return [file for one in results for file in one.shuffled]


def _check(
    job: Job,
    table: Table,
    shuffled: Sequence[ShuffleFile],
    ranges: Mapping[int, ComparedRange],
    columns: Sequence[PartitionColumn],
) -> list[BucketDifferences]:
    files: dict[Bucket, list[FileScanTask]] = {}
    for one in scan_files(table):
        files.setdefault(bucket_of(one.file, columns), []).append(one)
    groups = row_groups_of(shuffled)
    target, not_compared = target_of(table), added_again(table)
    buckets = in_order(files.keys() | groups.keys())
    found: list[BucketDifferences] = job.runner().run(
        check_bucket,
        [
            BucketCheck(
                target, tuple(files.get(one, ())), tuple(groups.get(one, ())), ranges, not_compared
            )
            for one in buckets
        ],
        sizes=[sum(task.file.file_size_in_bytes for task in files.get(one, ())) for one in buckets],
        title=f"{'.'.join(table.name())}: reading the table",
    )
    return found


def _verdict(topic: str, table: str, found: Sequence[BucketDifferences]) -> Verdict:
    total = Sums(0, 0, 0)
    for one in found:
        total = total.plus(one.sums)

    def count(name: str) -> int:
        return sum(getattr(one, name) for one in found)

    texts = {
        "changed": "rows lie among blocks of offsets whose contents differ from the log's",
        "missing": "keys have no row, or not that of their newest record",
        "surplus": "rows are not the newest records of their keys",
        "doubled": "rows are of keys that have another row",
    }
    problems = tuple(f"{count(name)} {what}" for name, what in texts.items() if count(name))
    return Verdict(
        topic,
        table,
        count("same"),
        f"{total.hashes:016x}{total.mixed:016x}",
        count("older"),
        problems,
        skipped=count("several"),
    )


def is_upsert(topic: Topic) -> bool:
    """Tells whether the topic's table holds the newest record of each key."""
    return topic_settings.parse(topic.configs, topic.name).mode == "upsert"
