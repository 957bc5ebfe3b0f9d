"""What others do to tables: programs that know Iceberg and nothing of exports."""

import uuid

import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan

from iceberg_export.files.write import FileWriter, Target


def scan_of(table):
    """All columns of files, as PyIceberg reads them."""
    return ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())


def _writer(table):
    target = Target(table.metadata.model_dump_json(), dict(table.io.properties), 1 << 30)
    return FileWriter(target, f"stranger-{uuid.uuid4()}")


def scatter(table):
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


def delete_key(table, key):
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
