"""The data folder of `frazil dev`."""

import os
from pathlib import Path

import pytest

from broker.cli import dev


@pytest.fixture(autouse=True)
def _mask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_files_of_frazil_dev_are_its_users_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    dev.prepare(data)
    (data / "log.db").write_bytes(b"")
    assert [path.stat().st_mode & 0o777 for path in (data, data / "objects", data / "log.db")] == [
        0o700,
        0o700,
        0o600,
    ]


def test_a_folder_that_was_opened_to_others_stays_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    dev.prepare(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755
