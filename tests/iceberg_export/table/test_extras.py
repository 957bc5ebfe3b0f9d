"""Catalogs whose packages are missing: the error names the extra of Frazil that brings them."""

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
