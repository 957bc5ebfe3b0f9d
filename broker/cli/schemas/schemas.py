"""Schemas of a registry with all that they refer to, each asked for once. Raises ToolError, RefusedError."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from broker.cli.command_result import ToolError
from broker.cli.schemas.registry import (
    RefusedError,
    Registry,
    references_of,
    type_of,
    versions_path,
)

REFERENCES_DEEP_MAX: Final = 32


class Schema(NamedTuple):
    """A schema that the registry has under an id."""

    schema_id: int | None
    """None: it was asked for by its GUID, and the registry does not say."""
    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: Mapping[str, str]
    """Texts by the names that the schema uses, each after those that it needs itself."""


class Schemas:
    """Those of one registry; an id never means another schema."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._named: dict[int | str, Schema] = {}
        self._referred: dict[tuple[str, int], Mapping[str, Any]] = {}

    def named(self, name: int | str) -> Schema:
        """Returns the schema of an id, or of a GUID."""
        if name not in self._named:
            way = "ids" if isinstance(name, int) else "guids"
            path = f"/schemas/{way}/{quote(str(name), safe='')}"
            found = self._registry.object(path, "schema")
            self._named[name] = self._schema(found, name if isinstance(name, int) else None)
        return self._named[name]

    def latest(self, subject: str) -> Schema:
        """Returns the newest version of a subject."""
        found = self._registry.object(versions_path(subject, "latest"), "id", "schema")
        return self._schema(found, int(found["id"]))

    def registered(self, subject: str, body: Mapping[str, Any]) -> Schema:
        """Returns a schema once a subject has it; `body`: as the registry takes it."""
        path = versions_path(subject)
        found = self._registry.object(path, "id", method="POST", body=body)
        return self._schema(body, int(found["id"]))

    def _schema(self, found: Mapping[str, Any], schema_id: int | None) -> Schema:
        references: dict[str, str] = {}
        self._gather(found, references, deep=0)
        return Schema(schema_id, type_of(found), str(found["schema"]), references)

    def _gather(self, found: Mapping[str, Any], into: dict[str, str], *, deep: int) -> None:
        if deep > REFERENCES_DEEP_MAX:
            raise ToolError("a schema's references go round in circles")
        for one in references_of(found):
            name, subject, version = one["name"], one["subject"], one["version"]
            if name in into:
                continue
            if (subject, version) not in self._referred:
                # A version that was deleted after it was referred to is still meant.
                path = f"{versions_path(subject, version)}?deleted=true"
                try:
                    self._referred[subject, version] = self._registry.object(path, "schema")
                except RefusedError as error:
                    raise ToolError(
                        f"the registry has lost version {version} of subject {subject}, which a schema refers to as"
                        f" {name}"
                    ) from error
            referred = self._referred[subject, version]
            self._gather(referred, into, deep=deep + 1)
            into[name] = str(referred["schema"])
