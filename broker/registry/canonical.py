"""Schemas as the text that is kept, compared and given out. Pure.

Avro's is what Confluent keeps: attributes in Avro's order, names qualified only where they must be,
no white space; docs, defaults, aliases and custom attributes stay, because they are part of what
was registered. JSON's is the value without white space. Protobuf's is the tokens of the text in a
fixed layout, so that nothing is lost but comments.

`normalize` sorts what has no order: custom attributes of Avro, all attributes of JSON.
"""

import json
import re
from typing import Any

from protocol.schemas import SchemaError, json_schema
from protocol.schemas.avro import (
    MISSING,
    Array,
    AvroSchema,
    AvroType,
    Field,
    Map,
    Named,
    Primitive,
    Union,
)

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<word>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'
        |0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[A-Za-z0-9_.]+|.)""",
    re.VERBOSE | re.DOTALL,
)


def canonical_avro(schema: AvroSchema, *, normalize: bool = False) -> str:
    """Raises SchemaError."""
    writer = _Writer(seen=set(schema.referred), sort_props=normalize)
    return _json(writer.write(schema.root, ""), sort_keys=False)


def canonical_json(text: str, *, normalize: bool = False) -> str:
    """Raises SchemaError."""
    value = json_schema.load(text)
    return _json(value, sort_keys=normalize)


def _json(value: Any, *, sort_keys: bool) -> str:
    try:
        return json.dumps(
            value,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
            sort_keys=sort_keys,
        )
    except ValueError as error:
        raise SchemaError("a number that JSON does not have: NaN, or without end") from error


def canonical_protobuf(text: str) -> str:
    """A statement a line."""
    lines: list[str] = []
    line, depth, brackets = "", 0, 0
    for match in _TOKEN.finditer(text):
        word = match["word"]
        if word is None:
            continue
        if word == "}" and not brackets:
            depth = max(0, depth - 1)
        if line and word not in ";,)>]" and line[-1] not in "(<[-" and word not in "<.":
            line += " "
        line += word
        brackets += (word in "[(<") - (word in "])>")
        if word in ";{}" and brackets <= 0:
            closing = word == "}"
            if closing and line.strip() != "}":
                lines.append("  " * (depth + 1) + line[:-1].strip())
                line = "}"
            lines.append("  " * depth + line)
            line, brackets = "", 0
            depth += word == "{"
    if line:
        lines.append(line)
    return "\n".join(lines) + "\n"


class _Writer:
    """Types back into JSON values; a named type is spelled out where it is met first."""

    def __init__(self, *, seen: set[str], sort_props: bool) -> None:
        self._seen = seen
        self._sort = sort_props

    def write(self, avro: AvroType, namespace: str) -> Any:
        match avro:
            case Primitive():
                props = self._props(avro.props)
                return {"type": avro.name} | props if props else avro.name
            case Array():
                items = self.write(avro.items, namespace)
                return {"type": "array", "items": items} | self._props(avro.props)
            case Map():
                values = self.write(avro.values, namespace)
                return {"type": "map", "values": values} | self._props(avro.props)
            case Union():
                return [self.write(branch, namespace) for branch in avro.branches]
            case Named():
                return self._named(avro, namespace)

    def _named(self, avro: Named, namespace: str) -> Any:
        if avro.full_name in self._seen:
            return avro.name if avro.namespace == namespace else avro.full_name
        self._seen.add(avro.full_name)
        value: dict[str, Any] = {"type": avro.kind, "name": avro.name}
        if avro.namespace != namespace:
            value["namespace"] = avro.namespace
        if avro.doc is not None:
            value["doc"] = avro.doc
        if avro.is_record:
            value["fields"] = [self._field(each, avro.namespace) for each in avro.fields]
        elif avro.kind == "enum":
            value["symbols"] = list(avro.symbols)
            if avro.default is not MISSING:
                value["default"] = avro.default
        else:
            value["size"] = avro.size
        value |= self._props(avro.props)
        if avro.aliases:
            prefix = f"{avro.namespace}."
            value["aliases"] = [
                alias.removeprefix(prefix) if "." not in alias.removeprefix(prefix) else alias
                for alias in avro.aliases
            ]
        return value

    def _field(self, each: Field, namespace: str) -> dict[str, Any]:
        value: dict[str, Any] = {"name": each.name, "type": self.write(each.type, namespace)}
        if each.doc is not None:
            value["doc"] = each.doc
        if each.default is not MISSING:
            value["default"] = each.default
        if each.order not in (None, "ascending"):
            value["order"] = each.order
        if each.aliases:
            value["aliases"] = list(each.aliases)
        return value | self._props(each.props)

    def _props(self, props: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(props.items())) if self._sort else props
