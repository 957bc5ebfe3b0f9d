"""JSON values held to their JSON Schema: of draft 7, unless `$schema` says another. Pure.

Nothing is fetched: a `$ref` leads into the schema or its references. `format` is not looked at.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import jsonschema_rs

from protocol.schemas import SchemaError
from protocol.schemas.json_schema import load

_BASE: Final = "http://schema.invalid/"
"""Where a schema without `$id` lies, and its references beside it."""


def json_check(text: str, references: Mapping[str, str]) -> Callable[[Any], str]:
    """Returns what says of a JSON value why it is not valid, a sentence; "": it is. `references`: texts by name.
    Raises SchemaError."""
    validator = _validator(load(text), {name: load(other) for name, other in references.items()})

    def why_not(value: Any) -> str:
        if validator.is_valid(value):
            return ""
        wrong = next(validator.iter_errors(value))
        at = "/".join(map(str, wrong.instance_path))
        return f"{at}: {wrong.message}" if at else str(wrong.message)

    return why_not


def _validator(schema: Any, references: Mapping[str, Any]) -> Any:
    """Raises SchemaError."""
    kind: Any = jsonschema_rs.Draft7Validator
    base = _BASE
    if isinstance(schema, dict):
        base = _beside(_BASE, str(schema.get("$id", schema.get("id", "")) or ""))
        if "$schema" in schema:
            kind = jsonschema_rs.validator_cls_for(schema)
    resources = {}
    for name, other in references.items():
        resources[_beside(base, name)] = resources[_beside(_BASE, name)] = other
        if isinstance(other, dict) and isinstance(found := other.get("$id"), str):
            resources[found.partition("#")[0]] = other
    try:
        registry = jsonschema_rs.Registry(
            list(resources.items()), draft=jsonschema_rs.Draft7, retriever=_fetch_nothing
        )
        return kind(schema, base_uri=base, registry=registry, retriever=_fetch_nothing)
    except ValueError as error:
        raise SchemaError(str(error).partition("\n")[0]) from error


def _beside(base: str, name: str) -> str:
    """The URI that a name means in the document of another."""
    return name if "://" in name else f"{base.rpartition('/')[0]}/{name}"


def _fetch_nothing(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not among the references")
