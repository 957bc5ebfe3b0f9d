"""The view `<table>_latest` in the catalog itself, for all engines that read Iceberg views.

Of PyIceberg's catalogs (0.12) REST alone takes views; others get the statement of `latest_view`,
to be run in an engine. One view has a text for each dialect. Spark's names the table without its
catalog, and Spark looks for it where it found the view, as the view spec says; Trino (476) does not, so
there is a text for it only when it is known what Trino calls the catalog. PyIceberg can create and drop views but not
replace one, so a view whose columns are no longer the table's is dropped and made again; queries
in between fail. Never touches a view that was not made here.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchViewError, ViewAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.view import View
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from iceberg_export.errors import CatalogError, StateError
from iceberg_export.table.catalog import Identifier, guarded
from iceberg_export.table.latest_view import SUFFIX, latest_query

MADE_FROM = "frazil.latest-of"
"""Property of views that were made here: the name of their table."""

Result = TypeVar("Result")


def create_latest_view(
    catalog: Catalog, identifier: Identifier, table: Table, now_ms: int, *, in_trino: str = ""
) -> str:
    """Creates the table's view, with the columns of the table, and returns its name.

    `in_trino`: what Trino calls the catalog; without it Trino cannot read the view.

    Raises CatalogError (the catalog takes no views), StateError (somebody else's has that name).
    """
    name = (identifier[0], identifier[1] + SUFFIX)
    view_name = ".".join(name)
    columns = [field.name for field in table.schema().fields]
    texts = {"spark": latest_query(identifier, columns, "spark")}
    if in_trino:
        texts["trino"] = latest_query((in_trino, *identifier), columns, "trino")
    version = _version(identifier, texts, now_ms)
    existing = _view_call(f"load view {view_name}", lambda: _find(catalog, name))
    if existing is not None:
        if existing.properties.get(MADE_FROM) != ".".join(identifier):
            raise StateError(
                f"view {view_name} exists and was not made by the exporter; drop it first"
            )
        if existing.current_version().representations == version.representations:
            return view_name
        _view_call(f"drop view {view_name}", lambda: catalog.drop_view(name))
    properties = {MADE_FROM: ".".join(identifier)}
    _view_call(
        f"create view {view_name}",
        lambda: catalog.create_view(name, table.schema(), version, properties=properties),
    )
    return view_name


def _version(identifier: Identifier, texts: Mapping[str, str], now_ms: int) -> ViewVersion:
    representations = [
        ViewRepresentation(SQLViewRepresentation(type="sql", sql=text, dialect=dialect))
        for dialect, text in texts.items()
    ]
    return ViewVersion.model_validate(
        {
            "version-id": 1,
            "schema-id": 0,
            "timestamp-ms": now_ms,
            "summary": {"engine-name": "frazil"},
            "representations": representations,
            "default-namespace": identifier[:1],
        }
    )


def _find(catalog: Catalog, name: tuple[str, str]) -> View | None:
    try:
        return catalog.load_view(name)
    except NoSuchViewError:
        return None


def _view_call(doing: str, call: Callable[[], Result]) -> Result:
    """Returns `call()`. Its failures become one CatalogError."""
    try:
        return guarded(doing, call)
    except CatalogError as error:
        if not isinstance(error.__cause__, NotImplementedError):
            raise
        raise CatalogError(
            "this catalog takes no views from PyIceberg, a REST catalog might; run the statement "
            "that `frazil export view` prints in an engine"
        ) from error
    except ViewAlreadyExistsError as error:
        raise CatalogError(f"cannot {doing}: somebody else just made it; run again") from error
