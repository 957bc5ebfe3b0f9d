"""Catalogs that need packages more: a missing one is told with the extra of Frazil that brings it, and what
their clients raise is a catalog's error."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from iceberg_export.errors import CatalogError
from iceberg_export.table.catalog import open_catalog

EXTRAS = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize(
    ("told", "missing", "extra"),
    [
        ({"type": "glue"}, "boto3", "glue"),
        ({"type": "hive", "uri": "thrift://127.0.0.1:9"}, "thrift", "hive"),
        ({"type": "dynamodb"}, "boto3", "dynamodb"),
        ({"type": "bigquery"}, "google.cloud.bigquery", "bigquery"),
        (
            {"type": "rest", "uri": "http://127.0.0.1:9", "rest.sigv4-enabled": "true"},
            "boto3",
            "sigv4",
        ),
        (
            {
                "type": "sql",
                "uri": "postgresql+psycopg://a@127.0.0.1:9/a",
                "warehouse": "file:///x",
            },
            "psycopg",
            "postgres",
        ),
    ],
)
def test_a_missing_package_is_told_with_its_extra(told, missing, extra, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, missing, None)
    for name in list(sys.modules):
        if (
            name.startswith((f"{missing}.", f"pyiceberg.catalog.{told['type']}"))
            and name != "pyiceberg.catalog.rest"
        ):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        CatalogError, match=rf"needs a package more: .*pip install 'frazil\[{extra}\]'"
    ):
        open_catalog(told, tmp_path)
    assert extra in EXTRAS


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("thrift.Thrift", "TException"),
        ("google.api_core.exceptions", "GoogleAPIError"),
        ("google.auth.exceptions", "GoogleAuthError"),
    ],
)
def test_what_the_client_of_another_catalog_raises_is_a_catalogs_error(module, name, tmp_path):
    """Stands in for the client, whose errors are made of nothing but Exception."""
    *packages, last = module.split(".")
    folder = tmp_path.joinpath(*packages)
    folder.mkdir(parents=True)
    for depth in range(1, len(packages) + 1):
        tmp_path.joinpath(*packages[:depth], "__init__.py").touch()
    (folder / f"{last}.py").write_text(f"class {name}(Exception): pass\nclass Away({name}): pass\n")
    program = f"""
from {module} import Away
from iceberg_export.errors import CatalogError
from iceberg_export.table.catalog import guarded

def call():
    raise Away("nobody answers")

try:
    guarded("load table a.b", call)
except CatalogError as error:
    print(error)
"""
    path = os.pathsep.join([str(tmp_path), str(Path.cwd())])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "cannot load table a.b: nobody answers\n", done.stderr
