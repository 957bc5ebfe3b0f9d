"""What REST catalogs need beside PyIceberg's client: settings as trees, an end to waiting, and what
older servers want to be told.

PyIceberg wants `auth` and `ssl` as trees, where our settings are flat; it would wait for ever for a
server that has stopped answering; and it leaves out `last-column-id`, which Iceberg's specification
has deprecated and without which Nessie 0.99 takes no schema (nessie 11341). Leaves out opening
catalogs (`catalog`).
"""

import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from typing_extensions import override

from iceberg_export.errors import SettingsError
from iceberg_export.table.pyiceberg_internals import session_of

CONNECT_MS_MAX = 10_000
ANSWER_MS_MAX = 300_000
_TREES = frozenset({"auth", "ssl"})
_NUMBERS = frozenset({"expires_in", "refresh_margin"})
"""Of `auth.*`: PyIceberg reckons with them."""


def nested(properties: Mapping[str, str]) -> dict[str, Any]:
    """`auth.basic.username=x` as `{"auth": {"basic": {"username": "x"}}}`, `ssl.*` likewise.

    Raises SettingsError for a name that is both a value and a tree.
    """
    found: dict[str, Any] = {}
    for name, value in properties.items():
        *path, last = name.split(".") if name.split(".")[0] in _TREES else [name]
        tree = found
        for part in path:
            tree = tree.setdefault(part, {})
            if not isinstance(tree, dict):
                raise SettingsError(f"catalog.{name}: {part} is a value, it cannot have parts")
        tree[last] = int(value) if path and last in _NUMBERS and value.isdigit() else value
    return found


def with_last_column_ids(body: bytes) -> bytes:
    """A commit whose new schemas come with their highest field id; any other body as it is."""
    if b'"add-schema"' not in body:
        return body
    commit = json.loads(body)
    # Else the word is only a name in it, of a column say.
    for update in commit.get("updates", ()):
        if update["action"] == "add-schema":
            schema = Schema.model_validate(update["schema"])
            update.setdefault("last-column-id", schema.highest_field_id)
    return json.dumps(commit, separators=(",", ":")).encode()


class _Adapter(HTTPAdapter):
    def __init__(self, connect_s: float, answer_s: float) -> None:
        super().__init__()
        self._seconds = (connect_s, answer_s)

    @override
    def send(self, request: PreparedRequest, *given: Any, **named: Any) -> Response:
        """Send, and wait no longer than that for each piece of the answer."""
        if isinstance(request.body, bytes):
            request.body = with_last_column_ids(request.body)
            request.headers["Content-Length"] = str(len(request.body))
        return super().send(request, *given, **{**named, "timeout": self._seconds})


def adapt(catalog: RestCatalog) -> None:
    """Complete its requests, and let those fail that wait too long: `rest.client.connection-timeout-ms` and
    `rest.client.socket-timeout-ms`, as Iceberg's own client has them. Raises ValueError.
    """
    properties = catalog.properties
    seconds = (
        int(properties.get("rest.client.connection-timeout-ms", CONNECT_MS_MAX)) / 1000,
        int(properties.get("rest.client.socket-timeout-ms", ANSWER_MS_MAX)) / 1000,
    )
    for scheme in ("http://", "https://"):
        session_of(catalog).mount(scheme, _Adapter(*seconds))
