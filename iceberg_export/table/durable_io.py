"""Files of a warehouse on local disks that are on the disk when they are closed.

The catalog's database is synced by every commit. If the files that it names were not, a power cut
could leave a table that claims records whose file is empty, and the exporter would never
write them again. So data files, manifests and metadata are synced first, and their folders too.
Object stores need none of this.
"""

import io
import os
from pathlib import Path
from typing import Any, BinaryIO, cast

from pyarrow.fs import LocalFileSystem
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from typing_extensions import override

from iceberg_export.table.pyiceberg_internals import where_it_lies


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    """Create the folder and those above it, each durable in the one above."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


class _SyncedFile(io.FileIO):
    """A new file that is on the disk, and in its folder, once it is closed."""

    @override
    def close(self) -> None:
        if not self.closed:
            os.fsync(self.fileno())
            super().close()
            _sync_folder(Path(str(self.name)).parent)


class DurableFile(PyArrowFile):
    """As PyIceberg's, but for how local files are created."""

    @override
    def create(self, overwrite: bool = False) -> Any:
        """A stream to write the file. Raises FileExistsError unless `overwrite`."""
        location, filesystem, _ = where_it_lies(self)
        if not isinstance(filesystem, LocalFileSystem):
            return super().create(overwrite)
        path = Path(location)
        _make_folder(path.parent)
        raw = _SyncedFile(path, "w" if overwrite else "x")
        return cast("BinaryIO", io.BufferedWriter(raw, 1 << 20))


class DurableFileIO(PyArrowFileIO):
    """PyIceberg's file access with `DurableFile` (its setting `py-io-impl`)."""

    @override
    def new_output(self, location: str) -> DurableFile:
        found = super().new_output(location)
        return DurableFile(found.location, *where_it_lies(found))


NAME = f"{DurableFileIO.__module__}.{DurableFileIO.__qualname__}"
