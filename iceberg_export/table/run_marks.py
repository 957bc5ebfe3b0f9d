"""Runs at work, marked beside the table, so that maintenance leaves their files alone.

`<table>/runs/<run-id>` is written when a run begins to write files and again while it lasts. Its
age, by the store's own clock, says whether the run lives: no clock of ours is compared with
another's. A run that was stopped for so long that its mark is old is not alive; what it has
written may be gone, and `maintain` has moved the table on so that its commit is refused.
"""

import threading
from types import TracebackType
from typing import NamedTuple, Self

import pyarrow.fs as pafs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from iceberg_export.errors import CatalogError
from iceberg_export.table.catalog import CATALOG_ERRORS, first_line, try_delete

RENEW_S = 600.0
ALIVE_MS = 3_600_000
"""A mark that is older is of a run that has ended, or will be refused."""


class ListedFile(NamedTuple):
    """A file in the table's folder."""

    location: str
    """As metadata names it."""
    modified_ms: int
    byte_count: int


def _folder(table: Table) -> str:
    return f"{table.location().rstrip('/')}/runs"


class RunMark:
    """Marks a run for the time of a `with` block, from a thread of its own."""

    def __init__(self, table: Table, run_id: str, renew_s: float = RENEW_S) -> None:
        self._io = table.io
        self.location = f"{_folder(table)}/{run_id}"
        self._renew_s = renew_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="run-marker", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._write()
        except CATALOG_ERRORS as error:
            raise CatalogError(f"cannot write {self.location}: {first_line(error)}") from error
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        # One that stays grows old by itself; a finished run must not fail for it.
        try_delete(self._io, self.location)

    def _write(self) -> None:
        with self._io.new_output(self.location).create(overwrite=True) as stream:
            stream.write(b"at work")

    def _renew(self) -> None:
        while not self._ended.wait(self._renew_s):
            try:
                self._write()
            except CATALOG_ERRORS:
                # The next round tries again; several fit into the time that a mark is good for.
                continue


def list_files(table: Table) -> list[ListedFile]:
    """Lists all files in the table's folder. Raises CatalogError when they cannot be listed."""
    location = table.location().rstrip("/")
    if not isinstance(table.io, PyArrowFileIO):
        raise CatalogError(
            f"the files of {'.'.join(table.name())} cannot be listed through "
            f"{type(table.io).__name__}; set catalog.py-io-impl to PyArrow's"
        )
    scheme, netloc, path = PyArrowFileIO.parse_location(location, table.io.properties)
    try:
        system = table.io.fs_by_scheme(scheme, netloc)
        selector = pafs.FileSelector(path, recursive=True, allow_not_found=True)
        found = system.get_file_info(selector)
    except CATALOG_ERRORS as error:
        raise CatalogError(f"cannot list {location}: {first_line(error)}") from error
    root = path.rstrip("/")
    return [
        ListedFile(
            f"{location}{info.path.removeprefix(root)}",
            info.mtime_ns // 1_000_000,
            info.size,
        )
        for info in found
        if info.type == pafs.FileType.File
    ]


def marks_before(files: list[ListedFile], table: Table, before_ms: int) -> list[ListedFile]:
    """Returns marks that were last written before that time: of runs that were killed, or sleep."""
    folder = f"{_folder(table)}/"
    return [
        file for file in files if file.location.startswith(folder) and file.modified_ms < before_ms
    ]


def live_runs(files: list[ListedFile], table: Table, now_ms: int) -> set[str]:
    """Returns the ids of runs whose mark is young."""
    folder = f"{_folder(table)}/"
    return {
        file.location.removeprefix(folder)
        for file in files
        if file.location.startswith(folder) and now_ms - file.modified_ms <= ALIVE_MS
    }
