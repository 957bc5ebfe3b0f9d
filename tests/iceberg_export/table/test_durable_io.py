"""Files of a local warehouse are on the disk before anything refers to them."""

import os
from pathlib import Path

import pytest

from iceberg_export.table.catalog import open_catalog
from iceberg_export.table.durable_io import DurableFileIO


@pytest.fixture
def synced(monkeypatch):
    """Paths that were synced, in order."""
    paths = []
    real = os.fsync

    def fsync(descriptor):
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def test_a_new_file_and_all_its_folders_are_synced(tmp_path, synced):
    with DurableFileIO().new_output(f"file://{tmp_path}/a/b/c.parquet").create() as stream:
        stream.write(b"12345")
    assert (tmp_path / "a/b/c.parquet").read_bytes() == b"12345"
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a/b/c.parquet", tmp_path / "a/b"]


def test_a_file_that_exists_is_not_replaced(tmp_path):
    (tmp_path / "c").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        DurableFileIO().new_output(str(tmp_path / "c")).create()
    with DurableFileIO().new_output(str(tmp_path / "c")).create(overwrite=True) as stream:
        stream.write(b"new")
    assert (tmp_path / "c").read_bytes() == b"new"


def test_the_embedded_warehouse_is_written_durably(tmp_path):
    catalog = open_catalog({}, tmp_path)
    assert catalog.properties["py-io-impl"] == "iceberg_export.table.durable_io.DurableFileIO"
    catalog.engine.dispose()
