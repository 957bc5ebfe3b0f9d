"""`make readers`: Trino reads what the exporter wrote, as the others do in `test_readers`.

Not a part of `make test`, for its server is a download of 821 MB.
"""

from pathlib import Path

import pytest

from tests.iceberg_export.cdc.test_debezium import Copied, check_copy, copied
from tests.iceberg_export.readers import TRINO, Engine, Rows
from tests.iceberg_export.test_readers import (
    HISTORIES,
    by_value,
    check_history,
    nested,
    newest,
    typed,
    written,
)
from tests.parts.trino import TrinoServer

pytestmark = pytest.mark.integration

__all__ = ["by_value", "copied", "nested", "newest", "typed", "written"]


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


@pytest.mark.parametrize("history", HISTORIES)
def test_trino_reads_what_was_written(trino, history, request):
    check_history(trino, history, request)


def test_trino_finds_the_rows_of_a_database_that_debezium_copied(
    copied: Copied, trino: Engine
) -> None:
    check_copy(copied, trino)
