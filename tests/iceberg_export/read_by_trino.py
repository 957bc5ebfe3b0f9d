"""`make readers`: Trino reads what the exporter wrote, as the others do in `test_readers`.

Not a part of `make test`, for its server is a download of 821 MB.
"""

from pathlib import Path

import pytest

from tests.iceberg_export.readers import TRINO, Engine, Rows
from tests.iceberg_export.test_readers import (
    check,
    check_all,
    check_typed,
    nested,
    newest,
    typed,
    written,
)
from tests.parts.trino import TrinoServer

pytestmark = pytest.mark.integration

__all__ = ["nested", "newest", "typed", "written"]


@pytest.fixture(scope="module")
def trino(tmp_path_factory):
    server = TrinoServer(tmp_path_factory.mktemp("trino"))
    server.start()
    names: dict[Path, str] = {}

    def ask(metadata: Path, query: str) -> Rows:
        if metadata not in names:
            names[metadata] = server.register(metadata)
        return server.query(query.replace("{table}", names[metadata]))

    yield Engine(TRINO, ask)
    server.stop()


def test_trino_reads_the_committed_records(trino, written):
    check(trino, written)


def test_trino_reads_columns_that_grew_and_widened(trino, typed):
    check_typed(trino, typed)


def test_trino_reads_nested_columns_and_dead_letters(trino, nested):
    check_all(trino, nested)


def test_trino_reads_the_newest_record_of_each_key(trino, newest):
    check_all(trino, newest)
