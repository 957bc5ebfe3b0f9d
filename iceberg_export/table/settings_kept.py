"""Settings that a table with records keeps as they were when it was made: its mode, its envelope, and its route.

Every record behind the newest of each key would be neither; rows of change events beside rows of whole values would
be two tables in one, and no reader could tell them apart; rows of one route beside those of another would leave out
records that no other table has. Only a table that has no record yet follows its topic's setting.
"""

from typing import NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from iceberg_export.errors import CatalogError, StateError
from iceberg_export.routes import ROUTE, Route, route_text
from iceberg_export.table.catalog import Identifier, send_change
from iceberg_export.table.commit import Pause

MODE = "frazil.mode"
"""Property of a table: the mode that it was made for. Not in tables of before there was one."""
ENVELOPE = "frazil.envelope"
"""Property of a table: the setting that it was made with; without it none."""
ATTEMPTS_MAX = 5


class KeptSetting(NamedTuple):
    """A setting as a table keeps it."""

    key: str
    """The table's property."""
    value: str
    default: str
    """Of tables without the property."""
    name: str
    """The topic's setting."""
    way_out: str
    """What to do about a table that was made with another value."""


def mode_setting(mode: str) -> KeptSetting:
    """Returns what `frazil.iceberg.mode` says. A table that tells no mode is taken for what the topic says."""
    way_out = (
        "name another table (frazil.iceberg.table), or let this one be made anew"
        " (frazil export reset-offsets --to earliest)"
    )
    return KeptSetting(MODE, mode, mode, "frazil.iceberg.mode", way_out)


def envelope_setting(envelope: str) -> KeptSetting:
    """Returns what `frazil.iceberg.envelope` says (`TopicTable.envelope_form`)."""
    way_out = "name another table (frazil.iceberg.table)"
    return KeptSetting(ENVELOPE, envelope, "none", "frazil.iceberg.envelope", way_out)


def route_setting(route: Route | None) -> KeptSetting:
    """Returns what `frazil.iceberg.route.*` says of one table."""
    way_out = (
        "name another table (frazil.iceberg.table, or in route.tables), or let each table of the topic be made"
        " anew (frazil export reset-offsets --to earliest --table NAME)"
    )
    return KeptSetting(ROUTE, route_text(route), "", "frazil.iceberg.route.*", way_out)


def keep_setting(
    catalog: Catalog,
    identifier: Identifier,
    table: Table,
    setting: KeptSetting,
    *,
    has_data: bool,
    pause: Pause,
) -> Table:
    """Sees to it that the table is made with this setting. Raises StateError for one that `has_data` of
    another, and CatalogError."""
    name = ".".join(identifier)
    for _ in pause.attempts(ATTEMPTS_MAX):
        made_with = table.metadata.properties.get(setting.key, setting.default)
        if made_with == setting.value:
            return table
        if has_data:
            raise StateError(
                f"{setting.name} is {setting.value or 'none'}, and table {name} has records that were exported "
                f"with {made_with or 'none'}; set it back, or {setting.way_out}"
            )
        transaction = table.transaction()
        transaction.set_properties({setting.key: setting.value})
        table = send_change(catalog, identifier, table, transaction)
    raise CatalogError(
        f"the property {setting.key} of table {name} cannot be set to {setting.value}"
    )
