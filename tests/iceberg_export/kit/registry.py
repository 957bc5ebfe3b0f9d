"""A schema registry for tests of the exporter: what Confluent's answers for ids and subjects.

Enough of it for readers of schemas; whoever writes through real serializers needs the agents' own.
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import fastavro

from tests.iceberg_export.kit.http import Asked

ORDER_1: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": "string"}],
}
ORDER_2: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string"},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}
ORDER_3: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": {"type": "record", "name": "Who", "fields": [
            {"name": "name", "type": "string"}]}},
    ],
}  # fmt: skip
"""Versions of one schema: with a column more and a wider one, then with a struct."""


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro_bytes(schema: Any, value: Any) -> bytes:
    """The value alone, without a frame."""
    out = io.BytesIO()
    parsed = fastavro.parse_schema(dict(schema) if isinstance(schema, Mapping) else schema)
    fastavro.schemaless_writer(out, parsed, value)
    return out.getvalue()


def avro(schema_id: int, schema: Any, value: Any) -> bytes:
    """The value as Confluent's serializer writes it."""
    return framed(schema_id, avro_bytes(schema, value))


class FakeRegistry:
    """Schemas by id, and subjects as lists of ids."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.refuse: Callable[[str], tuple[int, Any] | None] = lambda _path: None
        """A (status, body) to answer instead."""
        self.requests: list[str] = []
        self.authorization: list[str | None] = []

    def register(
        self,
        subject: str,
        schema: Any,
        kind: str = "AVRO",
        references: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        schema_id = len(self.schemas) + 1
        self.schemas[schema_id] = {"schema": text, "references": list(references)}
        self.schemas[schema_id]["guid"] = str(UUID(int=0xABC << 100 | schema_id))
        if kind != "AVRO":
            self.schemas[schema_id]["schemaType"] = kind
        self.subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def by_guid(self, schema_id: int, found: dict[str, Any]) -> dict[str, Any]:
        """As the agents' registry has it; Confluent's does not tell the id there."""
        return found | {"id": schema_id}

    def respond(self, asked: Asked) -> tuple[int, Any]:
        self.requests.append(asked.path)
        self.authorization.append(asked.headers.get("Authorization"))
        return self.refuse(asked.path) or self.answer(asked.path)

    def answer(self, path: str) -> tuple[int, object]:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
            return (200, found) if found else (404, {"error_code": 40403, "message": "no schema"})
        if parts[:2] == ["schemas", "guids"]:
            for number, one in self.schemas.items():
                if one["guid"] == parts[2]:
                    known = [{"context": ".other", "id": 7}, {"context": ".", "id": number}]
                    return 200, known if parts[3:] == ["ids"] else self.by_guid(number, one)
            return 404, {"error_code": 40403, "message": "no schema"}
        assert parts[0] == "subjects"
        assert parts[2] == "versions"
        ids = self.subjects.get(parts[1])
        if ids is None:
            return 404, {"error_code": 40401, "message": "no subject"}
        if len(parts) == 3:
            return 200, list(range(1, len(ids) + 1))
        number = len(ids) if parts[3] == "latest" else int(parts[3])
        if not 1 <= number <= len(ids):
            return 404, {"error_code": 40402, "message": "no version"}
        schema_id = ids[number - 1]
        said: dict[str, Any] = {"subject": parts[1], "version": number, "id": schema_id}
        return 200, said | self.schemas[schema_id]
