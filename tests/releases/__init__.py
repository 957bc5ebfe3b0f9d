"""Releases before this one: what they wrote is read and gone on with, and they run beside this one.

A release is kept as its wheel and a folder of the same version:

    frazil-<version>-py3-none-any.whl   as it was built; only ever unpacked, never installed
    <version>/data.tar.xz               the data folder of `frazil dev`: a log in SQLite, objects
    <version>/etcd.tar.xz               the log of two agents as it was in etcd, and their objects
    <version>/tables.tar.xz             the warehouse that was exported from the data folder
    <version>/data.json, etcd.json      what clients see of each (`seen`), as that release showed it

`python -m tests.releases WHEEL` keeps one more (see `__main__`). What is kept is never changed.
"""

import tarfile
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
WAREHOUSES = Path("/tmp/frazil-release")
"""Metadata of Iceberg name their files by absolute paths, also within Avro files that are
compressed: a warehouse can only be put back where it was. So it is made where it can be on any
machine; who uses it holds a lock (`tables.warehouse`)."""


class Release(NamedTuple):
    version: str

    @property
    def wheel(self) -> Path:
        return FOLDER / f"frazil-{self.version}-py3-none-any.whl"

    @property
    def folder(self) -> Path:
        return FOLDER / self.version

    @property
    def warehouse(self) -> Path:
        """Where its tables lie, and lay when they were made."""
        return WAREHOUSES / self.version

    def unpack(self, archive: str, into: Path) -> Path:
        """The folder with what is in the archive."""
        with tarfile.open(self.folder / f"{archive}.tar.xz") as tar:
            tar.extractall(into, filter="data")
        return into


def version_of(wheel: Path) -> str:
    return wheel.name.removeprefix("frazil-").removesuffix("-py3-none-any.whl")


KEPT = [Release(version_of(wheel)) for wheel in sorted(FOLDER.glob("frazil-*-py3-none-any.whl"))]
