"""What others do to tables: programs that know Iceberg and nothing of exports."""

import uuid

import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from iceberg_export.files.target import Target
from iceberg_export.files.write import FileWriter


def scan_of(table: Table) -> ArrowScan:
    """All columns of files, as PyIceberg reads them."""
    return ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())


def _writer(table: Table) -> FileWriter:
    target = Target(table.metadata.model_dump_json(), dict(table.io.properties), 1 << 30)
    return FileWriter(target, f"stranger-{uuid.uuid4()}")


def scatter(table: Table) -> None:
    """Each row gets a file of its own, in one commit: no change of rows."""
    transaction = table.transaction()
    with transaction.update_snapshot().overwrite() as producer:
        for task in list(table.scan().plan_files()):
            producer.delete_data_file(task.file)
            rows = scan_of(table).to_table([task])
            for number in range(rows.num_rows):
                writer = _writer(table)
                writer.write(rows.slice(number, 1))
                for file in writer.close():
                    producer.append_data_file(file)
    transaction.commit_transaction()


def delete_key(table: Table, key: bytes) -> None:
    """Copy-on-write; PyIceberg's own asks for pyiceberg-core where tables have buckets."""
    transaction = table.transaction()
    with transaction.update_snapshot().overwrite() as producer:
        for task in list(table.scan().plan_files()):
            rows = scan_of(table).to_table([task])
            kept = rows.filter(pc.not_equal(rows.column("kafka_key"), key))
            if kept.num_rows == rows.num_rows:
                continue
            producer.delete_data_file(task.file)
            writer = _writer(table)
            writer.write(kept)
            for file in writer.close():
                producer.append_data_file(file)
    transaction.commit_transaction()


def delete_row(table: Table, partition: int, offset: int) -> None:
    """Of tables without partitions."""
    table.delete(f"kafka_partition = {partition} and kafka_offset = {offset}")


def expire(table: Table, *, kept: int = 0) -> None:
    """All snapshots but the head and the newest `kept`, without any care."""
    head = table.metadata.current_snapshot_id
    old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != head]
    if old := old[: max(0, len(old) - kept)]:
        table.maintenance.expire_snapshots().by_ids(old).commit()


def ancestors(table: Table) -> list[int]:
    """Ids of the head and of what came before it, the newest first."""
    at, found = table.current_snapshot(), []
    while at is not None:
        found.append(at.snapshot_id)
        at = table.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id else None
    return found
