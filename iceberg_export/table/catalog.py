"""Any PyIceberg catalog, opened from settings; SQLite when nothing is said.

The default keeps catalog and tables under the data folder (`warehouse/`), so that an embedded
agent has tables without any server. All else (REST, Glue, Hive, SQL on Postgres) is what
`catalog.*` settings say, handed to PyIceberg as they are; only what it wants as trees (`auth.*`,
`ssl.*` of REST catalogs) is made one.
"""

import contextlib
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CreateTableTransaction, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertCurrentSchemaId, AssertTableUUID
from requests import RequestException
from sqlalchemy.exc import SQLAlchemyError

from iceberg_export.errors import CatalogError
from iceberg_export.table.durable_io import NAME as DURABLE_IO
from iceberg_export.table.pyiceberg_internals import mend, requirements_of, updates_of
from iceberg_export.table.rest_catalog import adapt, nested
from iceberg_export.table.state import (
    OFFSETS,
    SnapshotView,
    State,
    TableView,
    has_state,
    read_state,
)

mend()
Identifier = tuple[str, str]
Result = TypeVar("Result")


_OF_EXTRAS = {
    "thrift.Thrift": "TException",
    "google.api_core.exceptions": "GoogleAPIError",
    "google.auth.exceptions": "GoogleAuthError",
}
"""What the clients of Hive and BigQuery raise, by module: no OSError, also where nobody answers."""


def _errors_of_extras() -> Iterator[type[Exception]]:
    """Yields those of clients that are installed."""
    for module, name in _OF_EXTRAS.items():
        with contextlib.suppress(ImportError):
            yield getattr(import_module(module), name)


CATALOG_ERRORS: tuple[type[Exception], ...] = (
    *_errors_of_extras(),
    BotoCoreError,
    ClientError,
    # What PyIceberg makes of 501.
    NotImplementedError,
    OSError,
    RequestException,
    SQLAlchemyError,
    exceptions.CommitStateUnknownException,
    exceptions.DynamoDbError,
    exceptions.NoSuchPropertyException,
    exceptions.NotInstalledError,
    exceptions.ResolveError,
    exceptions.RESTError,
    exceptions.SignError,
    exceptions.ValidationException,
)
"""What a catalog or its files raise when they are away, misconfigured or refuse. All of them
leave open whether a commit took place; only CommitFailedException says that it did not."""


_EXTRAS = {"boto3": "sigv4", "psycopg": "postgres", "thrift": "hive"}
"""Of Frazil, by the package that they bring."""

# ImportError: only some catalogs and ways to sign in need certain packages.
_REFUSALS: tuple[type[Exception], ...] = (*CATALOG_ERRORS, ImportError, ValueError, TypeError)
UNFORESEEN_ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    exceptions.ResolveError,
    exceptions.ValidationError,
    pa.ArrowException,
    struct.error,
)
"""What PyIceberg and Arrow raise over a table that others have changed in ways that nobody thought of: properties
that cannot be read, columns of another width."""


def first_line(error: BaseException) -> str:
    """Returns an exception's first line, as part of a sentence."""
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text else type(error).__name__


def guarded(doing: str, call: Callable[[], Result]) -> Result:
    """Returns `call()`. Its failures become one CatalogError that says what was being done."""
    try:
        return call()
    except _REFUSALS as error:
        raise CatalogError(f"cannot {doing}: {first_line(error)}") from error


def send_change(
    catalog: Catalog, identifier: Identifier, table: Table, transaction: Transaction
) -> Table:
    """Sends what a transaction says of the table's schema or partitioning, once; the table after it.

    Refused because somebody changed the table's schema, or without an answer: it is what it is, and the caller
    looks again. Raises CatalogError when it cannot be loaded.
    """
    ours = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertCurrentSchemaId.model_validate(
            {"current-schema-id": table.metadata.current_schema_id}
        ),
    )
    others = (one for one in requirements_of(transaction) if one not in ours)
    with contextlib.suppress(CommitFailedException, ValueError, *CATALOG_ERRORS):
        catalog.commit_table(table, (*ours, *others), updates_of(transaction))
    return guarded(f"load table {'.'.join(identifier)}", lambda: catalog.load_table(identifier))


def try_delete(io: FileIO, path: str) -> bool:
    """Deletes a file. Returns False where that fails: what nobody names is an orphan then."""
    try:
        io.delete(path)
    except CATALOG_ERRORS:
        return False
    return True


def missing_warehouse(properties: Mapping[str, str], data: Path) -> Path | None:
    """Returns the embedded warehouse if the settings mean it and nobody has made it yet."""
    warehouse = (data / "warehouse").absolute()
    return None if properties or (warehouse / "catalog.db").exists() else warehouse


def open_catalog(properties: Mapping[str, str], data: Path) -> Catalog:
    """Opens the catalog of the settings `catalog.*` (without that prefix).

    Raises CatalogError, SettingsError. Nothing said but perhaps the name: SQLite under `data`.
    """
    given = dict(properties)
    name = given.pop("name", "")
    if not given and not name:
        warehouse = (data / "warehouse").absolute()
        try:
            warehouse.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CatalogError(
                f"cannot create the warehouse folder {warehouse}: {error.strerror or error}"
            ) from error
        name = "frazil"
        given = {
            "type": "sql",
            "uri": f"sqlite:///{warehouse / 'catalog.db'}",
            "warehouse": f"file://{warehouse}",
        }
    if given.get("warehouse", "").startswith("file:"):
        given.setdefault("py-io-impl", DURABLE_IO)

    def load() -> Catalog:
        try:
            catalog = load_catalog(name or "frazil", **nested(given))
        except (exceptions.NotInstalledError, ModuleNotFoundError) as error:
            raise CatalogError(
                f"the Iceberg catalog {name or 'frazil'} needs a package more: {_cure(error)}"
            ) from error
        if isinstance(catalog, RestCatalog):
            adapt(catalog)
        return catalog

    return guarded(f"open the Iceberg catalog {name or 'frazil'}", load)


def _cure(error: Exception) -> str:
    """Returns which of Frazil's extras brings what a catalog misses."""
    if isinstance(error, ModuleNotFoundError):
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        return f"{error}" + (f": pip install 'frazil[{extra}]'" if extra else "")
    return (
        first_line(error)
        .replace("pyiceberg[sql-postgres]", "frazil[postgres]")
        .replace("pyiceberg[", "frazil[")
    )


def io_properties(table: Table) -> dict[str, str]:
    """Returns what tasks need to reach the table's files, as plain values.

    Among them PyIceberg leaves what it signs in with at REST catalogs: connections and locks.
    """
    return {name: value for name, value in table.io.properties.items() if isinstance(value, str)}


def keeps_branches(catalog: Catalog) -> bool:
    """Tells whether the catalog names files that a table's own metadata does not. Nessie does: in its
    branches, tags and history, of which a table shows one snapshot, and goes back as a whole."""
    return bool(catalog.properties.get("nessie.is-nessie-catalog") == "true")


def table_name(topic: str) -> str:
    """Returns a table name that no engine needs quotes for."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return name if not name[0].isdigit() else f"t_{name}"


def find_table(catalog: Catalog, identifier: Identifier) -> Table | None:
    """Returns the table, or None when there is none of that name."""

    def load() -> Table | None:
        try:
            return catalog.load_table(identifier)
        except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
            return None

    return guarded(f"load table {'.'.join(identifier)}", load)


def existing_table(catalog: Catalog, identifier: Identifier) -> Table:
    """Returns the table of a topic that is exported. Raises CatalogError when it is gone."""
    table = find_table(catalog, identifier)
    if table is None:
        raise CatalogError(f"table {'.'.join(identifier)} was dropped while it was exported to")
    return table


def stage_table(
    catalog: Catalog, identifier: Identifier, **arguments: Any
) -> CreateTableTransaction:
    """Begins a commit that creates the table; creates its namespace now.

    Raises CatalogError, and TableAlreadyExistsError where a catalog tells that already.
    """

    def stage() -> CreateTableTransaction:
        if not catalog.namespace_exists(identifier[:1]):
            with contextlib.suppress(exceptions.NamespaceAlreadyExistsError):
                catalog.create_namespace(identifier[:1])
        return catalog.create_table_transaction(identifier, **arguments)

    return guarded(f"create table {'.'.join(identifier)}", stage)


def view_of(table: Table) -> TableView:
    """Returns what the rules of `iceberg_export.table.state` need to know of a table.

    Raises CatalogError when the state has expired and earlier metadata files cannot be read.
    """
    head = table.metadata.snapshot_by_name("main")
    view = TableView(
        ".".join(table.name()),
        head.snapshot_id if head else None,
        [_view_of(snapshot) for snapshot in table.metadata.snapshots],
        table.metadata.properties,
        keeps_metadata=bool(table.metadata.metadata_log) and not keeps_branches(table.catalog),
    )
    if head is None or OFFSETS not in view.properties or has_state(view):
        return view
    return _with_expired(table, view)


def state_of(table: Table | None) -> State | None:
    """Returns where the export of the table stands; None without a table or a state.

    Raises StateError, CatalogError.
    """
    return read_state(view_of(table)) if table is not None else None


def _view_of(snapshot: Snapshot) -> SnapshotView:
    return SnapshotView(
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number or 0,
        snapshot.summary.additional_properties if snapshot.summary else {},
    )


def _with_expired(table: Table, view: TableView) -> TableView:
    """Adds snapshots of earlier metadata files, until one of the head's ancestors has a state."""
    name = ".".join(table.name())

    def read(location: str) -> TableMetadata | None:
        source = table.io.new_input(location)
        return FromInputFile.table_metadata(source) if source.exists() else None

    for entry in reversed(table.metadata.metadata_log):
        doing = f"read earlier metadata of {name}"
        earlier = guarded(doing, partial(read, entry.metadata_file))
        if earlier is None:
            return view
        known = {one.snapshot_id: one for one in view.snapshots}
        for one in map(_view_of, earlier.snapshots):
            ours = known.get(one.snapshot_id, one)
            # PyIceberg forgets whose child a snapshot is when its parent expires.
            parent_id = one.parent_id if ours.parent_id is None else ours.parent_id
            known[one.snapshot_id] = ours._replace(parent_id=parent_id)
        view = view._replace(snapshots=list(known.values()))
        if has_state(view):
            return view
    return view
