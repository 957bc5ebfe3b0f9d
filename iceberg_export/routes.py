"""Routes: which of a topic's records are in which of its tables, by `frazil.iceberg.route.by` and `route.tables`.

A record has one route, and its bytes alone decide which: no schema, no registry and no table is asked. So each
table of a topic is exported by itself, from its own offsets, with its own dead letters, and at any time each
record is one table's. What has none of the values (a field that is missing, a number where text is listed, a value
that is no JSON) is of the topic's own table. A table keeps its route in a property: whoever writes, proves or reads
it goes by that. Pure; `records.routed_rows` finds the rows.
"""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from iceberg_export.errors import SettingsError, StateError
from iceberg_export.names import HEADERS, KEY

ROUTE = "frazil.route"
"""Property of a table: JSON, {"by": path, "values": [text], "others": whether it takes what has none of them}."""
TABLES_MAX = 16
"""Tables of a topic beside its own: each reads the topic's records for itself."""
VALUES_MAX = 1000
_BY_CHARS_MAX = 255
_TERM = re.compile(
    r'(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s",:]+))\s*:\s*(?P<table>[\w-]+(?:\.[\w-]+)*)\s*(?:,|$)\s*'
)
_HEADER = f"{HEADERS}."

RouteTables = tuple[tuple[str, str], ...]
"""Values, and the tables that records with them go to."""


class Route(NamedTuple):
    """The records of one table."""

    by: str
    """Where a record has the value: the path of a field of its JSON value, `kafka_headers.NAME`, or `kafka_key`."""
    values: tuple[str, ...]
    """In order. A number of JSON is as it is written, true and false are text."""
    takes_others: bool = False
    """It has the records with none of the values, else those with one of them."""

    @property
    def header(self) -> str | None:
        """Name of the header that has the value, if one does."""
        return self.by.removeprefix(_HEADER) if self.by.startswith(_HEADER) else None

    @property
    def path(self) -> tuple[str, ...]:
        """Of the field of the record's value that has it; () when none does."""
        return () if self.by == KEY or self.header is not None else tuple(self.by.split("."))


def parse_by(text: str) -> str:
    """Reads `type`, `payload.kind`, `kafka_headers.type`, `kafka_key`. Raises SettingsError."""
    parts = text.split(".")
    if text and (
        len(text) > _BY_CHARS_MAX
        or re.search(r'[\s(),:"\\]', text) is not None
        or not all(parts)
        or text == HEADERS
        or (parts[0] == KEY and text != KEY)
    ):
        raise SettingsError(
            f"route.by {text!r} must be a field of JSON values (type, payload.kind), a header"
            f" ({_HEADER}NAME) or {KEY}"
        )
    return text


def parse_tables(text: str) -> RouteTables:
    """Reads `order:orders, "a b":shop.others`. Raises SettingsError."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        one = _TERM.match(text, at)
        if one is None:
            raise SettingsError(
                f"route.tables {text!r} cannot be read at {text[at:]!r}; it is a list like"
                ' order:orders,"late order":shop.late'
            )
        value = one["plain"] if one["quoted"] is None else one["quoted"]
        if value in found:
            raise SettingsError(f"route.tables {text!r} names {value} twice")
        found[value] = one["table"]
        at = one.end()
    if text.endswith(","):
        raise SettingsError(f"route.tables {text!r} ends with a comma")
    if len(found) > VALUES_MAX or len(set(found.values())) > TABLES_MAX:
        raise SettingsError(
            f"route.tables has at most {VALUES_MAX} values and {TABLES_MAX} tables, each of which reads the"
            " whole topic"
        )
    return tuple(found.items())


def route_of(by: str, tables: RouteTables, table: str) -> Route | None:
    """Returns the route of a table that `tables` names; "": of the topic's own. None: it takes everything."""
    if not tables:
        return None
    values = sorted(value for value, its_table in tables if table in ("", its_table))
    return Route(by, tuple(values), takes_others=not table)


def route_text(route: Route | None) -> str:
    """Returns the route as a table's property has it; "" for none."""
    if route is None:
        return ""
    plain = {"by": route.by, "values": list(route.values), "others": route.takes_others}
    return json.dumps(plain, separators=(",", ":"))


def read_route(table: str, properties: Mapping[str, str]) -> Route | None:
    """Returns the route that a table was made for. Raises StateError when it cannot be read."""
    text = properties.get(ROUTE, "")
    if not text:
        return None
    try:
        found = json.loads(text)
        return Route(
            str(found["by"]), tuple(map(str, found["values"])), takes_others=bool(found["others"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"the property {ROUTE} of table {table} cannot be read: {text}") from error
