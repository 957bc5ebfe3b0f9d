"""Kafka's message schemas: which fields a message has in which version, in which order and of which type.

They are kio's, kept as `schemas.json` by `python -m tests.protocol.generate_shapes`, and a test holds the
two against each other. kio has a module of classes for each message and version: to load them took 1.0 s of
the 2.4 s of CPU that an agent's start did.

A field has Kafka's name in snake case, with "_ms" where kio has a duration or a time. The codec lays
messages out by these.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple


class Field(NamedTuple):
    name: str
    kafka_type: str | None
    """None for structs."""
    fields: "tuple[Field, ...] | None"
    """Of a struct."""
    is_array: bool
    is_nullable: bool
    tag: int | None


def fields_of(api_name: str, version: int, kind: str) -> tuple[Field, ...]:
    """The fields of a message in the order of the wire; `kind` is "Request" or "Response".

    Raises KeyError for a version that is not served.
    """
    for versions, fields in _schemas()[api_name][kind].items():
        first, _, last = versions.partition("-")
        if int(first) <= version <= int(last or first):
            return _fields(fields)
    raise KeyError(f"{api_name}{kind} v{version}")


@functools.cache
def _schemas() -> Mapping[str, Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]]:
    """By name of the API, kind, and versions ("0", "1-3")."""
    text = resources.files(__package__).joinpath("schemas.json").read_text("utf-8")
    found: Mapping[str, Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]] = json.loads(text)
    return found


def _fields(rows: Sequence[Mapping[str, Any]]) -> tuple[Field, ...]:
    return tuple(
        Field(
            name=row["name"],
            kafka_type=row.get("type"),
            fields=_fields(row["fields"]) if "fields" in row else None,
            is_array=row.get("array", False),
            is_nullable=row.get("nullable", False),
            tag=row.get("tag"),
        )
        for row in rows
    )
