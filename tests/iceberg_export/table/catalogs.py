"""Catalogs as tests meet them: what settings open each, and what they show of a table's past."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from moto import mock_aws
from moto.core.exceptions import JsonRESTError
from moto.glue.responses import GlueResponse

from iceberg_export.table.catalog import open_catalog
from tests.iceberg_export.kit.place import ON_DISK, Place
from tests.parts.servers import NessieServer, PostgresServer


class CatalogKind(NamedTuple):
    """A catalog, as settings tell it, and how tables go back there to what they were."""

    name: str
    told: dict[str, str]
    point: Callable[[Place], Any]
    """What `go_back` takes to bring the table back to how it is now."""
    go_back: Callable[[Place, Any], None]
    shows_history: bool = True
    """All snapshots, not the newest alone."""


def _snapshot(here: Place) -> int:
    return here.table().metadata.current_snapshot_id


def _roll_back(here: Place, snapshot_id: int) -> None:
    here.table().manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def sqlite(folder: Path) -> CatalogKind:
    told = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}",
        "py-io-impl": ON_DISK,
    }
    return CatalogKind("sqlite", told, _snapshot, _roll_back)


def postgres(server: PostgresServer, folder: Path) -> CatalogKind:
    told = {
        "type": "sql",
        "uri": server.uri,
        "warehouse": f"file://{folder}",
        "py-io-impl": ON_DISK,
    }
    return CatalogKind("postgres", told, _snapshot, _roll_back)


def rest(url: str) -> CatalogKind:
    told = {"type": "rest", "uri": url, "py-io-impl": ON_DISK}
    return CatalogKind("rest", told, _snapshot, _roll_back)


def glue(folder: Path) -> CatalogKind:
    """Within `glue_in_memory`."""
    told = {
        "type": "glue",
        "glue.region": "eu-central-1",
        "glue.access-key-id": "key",
        "glue.secret-access-key": "secret",
        "warehouse": f"file://{folder}",
        "py-io-impl": ON_DISK,
    }
    return CatalogKind("glue", told, _snapshot, _roll_back)


@contextmanager
def glue_in_memory() -> Iterator[None]:
    """moto's Glue, which answers requests of boto3 in this process; and what it lacks: an UpdateTable for
    another version than the newest is refused, as AWS's reference says, one at a time."""
    update_table, one_at_a_time = GlueResponse.update_table, threading.Lock()

    def compare_and_update(response: GlueResponse) -> Any:
        asked = response.parameters
        with one_at_a_time:
            table = response.glue_backend.get_table(
                asked["DatabaseName"], asked["TableInput"]["Name"]
            )
            newest = table.as_dict()["VersionId"]
            if asked.get("VersionId", newest) != newest:
                raise JsonRESTError("ConcurrentModificationException", f"version {newest} is there")
            return update_table(response)

    with mock_aws(), patch.object(GlueResponse, "update_table", compare_and_update):
        yield


def nessie(server: NessieServer) -> CatalogKind:
    """There the branch goes back, with all tables; the tests change one at a time."""
    told = {
        "type": "rest",
        "uri": server.url,
        "py-io-impl": ON_DISK,
        "s3.access-key-id": server.store.access_key,
        "s3.secret-access-key": server.store.secret_key,
    }
    return CatalogKind(
        "nessie",
        told,
        lambda _here: server.head(),
        lambda _here, commit: server.go_back(commit),
        shows_history=False,
    )


@contextmanager
def connections(kind: CatalogKind, folder: Path) -> Iterator[Callable[[], Any]]:
    """Yields what opens one more connection to the catalog; all are closed in the end."""
    opened: list[Any] = []

    def open_one() -> Any:
        opened.append(open_catalog(kind.told, folder))
        return opened[-1]

    yield open_one
    for catalog in opened:
        if hasattr(catalog, "engine"):
            catalog.engine.dispose()
        else:
            catalog.close()
