"""What is shipped: the wheel's contents, and that nobody else owns our short package names."""

import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"broker", "coordinator", "iceberg_export", "protocol", "storage", "txn"}


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT],
        check=True,
    )
    (wheel,) = folder.glob("frazil-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.integration
def test_the_wheel_holds_the_six_packages_and_nothing_else(wheel_names: list[str]) -> None:
    top = {name.partition("/")[0] for name in wheel_names}
    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES


@pytest.mark.integration
def test_every_source_and_data_file_of_the_packages_is_in_the_wheel(
    wheel_names: list[str],
) -> None:
    wanted = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert wanted <= set(wheel_names)


def test_no_other_distribution_owns_one_of_our_package_names() -> None:
    # Installed next to each other, the later one silently wins.
    owners = {name: set(packages_distributions().get(name, ())) for name in PACKAGES}
    assert all(found <= {"frazil"} for found in owners.values()), owners
