"""Schemas as texts: Avro, JSON Schema, Protobuf, from small grammars with odd values in them."""

import json
import random
from typing import Any

AVRO, JSON, PROTOBUF = range(3)
NAMES = ["a", "b", "R", "S", "ns.R", "string", "", "é", "a-b", "1", "x" * 600, "a.b.c.D"]
ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e308, 10**30, "", "x", [], {}, [[]], {"": {}}, "null", "\ud800"),
    *(float("inf"), float("nan"), [None], {"type": None}),
]
PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = ["decimal", "date", "uuid", "timestamp-millis", "duration", "none"]
PATTERNS = ["^a+$", "(a+)+$", "[", "a{99}", "a{999999}", "\\p{L}", "(" * 60, "(?=a)", "\\"]
JSON_TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


def text(rng: random.Random, kind: int) -> str:
    hostility = rng.choice((0.0, 0.03, 0.03, 0.15))
    maker = _Maker(rng, hostility)
    if kind == PROTOBUF:
        return maker.protobuf()
    value = maker.avro(0) if kind == AVRO else maker.json(0)
    said = json.dumps(value)
    if rng.random() < hostility:
        odd = rng.choice(("1" * 6000, "1e999", "-0", '"\\u0000"', "[" * 3000, "NaN", "{" * 50))
        said = said.replace(rng.choice(("1", "0", '"a"')), odd, 1)
    return said


def deeper(rng: random.Random, said: str) -> str:
    """The text with a part of itself in the place of another."""
    pieces = said.split("{")
    if len(pieces) < 2:
        return said + said
    at = rng.randrange(1, len(pieces))
    return "{".join([*pieces[:at], *pieces[rng.randrange(len(pieces)) :]])


class _Maker:
    def __init__(self, rng: random.Random, hostility: float) -> None:
        self.rng = rng
        self.hostility = hostility
        self.number = 0

    def odd(self, times: float = 1.0) -> bool:
        return self.rng.random() < self.hostility * times

    def name(self) -> str:
        if self.odd() or self.rng.random() < 0.1:
            return self.rng.choice(NAMES)
        self.number += 1
        return f"n{self.number}"

    def avro(self, depth: int) -> Any:
        rng = self.rng
        if self.odd(0.3):
            return rng.choice(ODD)
        kind = rng.choice(
            ("primitive", "record", "enum", "fixed", "array", "map", "union", "logical")
        )
        if depth > 4 or kind == "primitive":
            return rng.choice([*PRIMITIVES, "n1"])
        made: dict[str, Any]
        match kind:
            case "record":
                fields = [self._field(depth) for _ in range(rng.choice((0, 1, 2, 5)))]
                made = {"type": "record", "name": self.name(), "fields": fields}
            case "enum":
                symbols = [self.name() for _ in range(rng.choice((1, 3)))]
                made = {"type": "enum", "name": self.name(), "symbols": symbols}
                if rng.random() < 0.3:
                    made["default"] = rng.choice(symbols)
            case "fixed":
                made = {
                    "type": "fixed",
                    "name": self.name(),
                    "size": rng.choice((1, 16, 0, 1 << 40)),
                }
            case "array":
                made = {"type": "array", "items": self.avro(depth + 1)}
            case "map":
                made = {"type": "map", "values": self.avro(depth + 1)}
            case "union":
                return [self.avro(depth + 1) for _ in range(rng.choice((1, 2, 3)))]
            case _:
                made = {"type": rng.choice(("bytes", "int", "long", "string"))}
                made |= {
                    "logicalType": rng.choice(LOGICAL),
                    "precision": 4,
                    "scale": rng.choice((2, 9)),
                }
        return self._with_odd(made)

    def _field(self, depth: int) -> dict[str, Any]:
        made = {"name": self.name(), "type": self.avro(depth + 1)}
        if self.rng.random() < 0.3:
            made["default"] = self.rng.choice((None, 0, "", "a", [], {}, 1.5, True, {"n1": 1}))
        if self.rng.random() < 0.1:
            made["aliases"] = [self.name()]
        return self._with_odd(made)

    def _with_odd(self, made: dict[str, Any]) -> dict[str, Any]:
        if self.odd(0.5):
            made[self.rng.choice([*made, "namespace", "doc", "order", "aliases"])] = (
                self.rng.choice(ODD)
            )
        return made

    def json(self, depth: int) -> Any:
        rng = self.rng
        if self.odd(0.3):
            return rng.choice(ODD)
        if depth > 4 or rng.random() < 0.1:
            return rng.choice(
                (True, False, {}, {"type": "string"}, {"$ref": "#"}, {"$ref": "#/definitions/a"})
            )
        made: dict[str, Any] = {"type": rng.choice([*JSON_TYPES, ["null", "string"]])}
        for _ in range(rng.choice((0, 1, 2, 4))):
            keyword = rng.choice(_KEYWORDS)
            made[keyword] = self._keyword(keyword, depth)
        return self._with_odd(made)

    def _keyword(self, keyword: str, depth: int) -> Any:
        rng = self.rng
        some = rng.choice((1, 2, 3))
        match keyword:
            case "properties" | "definitions" | "$defs" | "dependentSchemas" | "dependencies":
                return {
                    rng.choice(("a", "b", self.name())): self.json(depth + 1) for _ in range(some)
                }
            case "patternProperties":
                return {rng.choice(PATTERNS): self.json(depth + 1)}
            case "allOf" | "anyOf" | "oneOf" | "prefixItems":
                return [self.json(depth + 1) for _ in range(some)]
            case "required" | "enum":
                return [rng.choice(("a", "b", "c")) for _ in range(some)]
            case "dependentRequired":
                return {"a": ["b"]}
            case "pattern":
                return rng.choice(PATTERNS)
            case "const" | "default":
                return rng.choice(ODD[:13])
            case "$ref":
                return rng.choice(
                    ("#", "#/definitions/a", "#/$defs/a", "other.json", "#/properties/a", "#a")
                )
            case (
                "additionalProperties"
                | "items"
                | "not"
                | "contains"
                | "propertyNames"
                | "if"
                | "then"
            ):
                return self.json(depth + 1)
            case _:
                return rng.choice((0, 1, 2.5, -1, 10**20, 1e300))

    def protobuf(self) -> str:
        rng = self.rng
        syntax = rng.choice(('syntax = "proto3";', 'syntax = "proto2";', "", 'edition = "2023";'))
        head = [syntax, rng.choice(("", "package p.q;", "package p;"))]
        if rng.random() < 0.3:
            imports = ("google/protobuf/timestamp.proto", "other.proto", "a/b.proto")
            head.append(f'import "{rng.choice(imports)}";')
        parts = [
            self._message(0) if rng.random() < 0.8 else self._enum()
            for _ in range(rng.choice((1, 2, 3)))
        ]
        said = "\n".join([*head, *parts])
        if self.odd(0.5):
            at = rng.randrange(len(said) + 1)
            odd = ("/*", "//", '"', "{" * 500, ";", "message", "\0", "extend X {}", "é", "9" * 5000)
            said = said[:at] + rng.choice(odd) + said[at:]
        return said

    def _message(self, depth: int) -> str:
        rng = self.rng
        parts = [self._proto_field() for _ in range(rng.choice((0, 1, 2, 4)))]
        if depth < 4 and rng.random() < 0.3:
            parts.append(self._message(depth + 1))
        if rng.random() < 0.2:
            parts.append(
                f"oneof {self.name()} {{ {self._proto_field('')} {self._proto_field('')} }}"
            )
        if rng.random() < 0.2:
            parts.append(
                rng.choice(
                    (
                        "reserved 5, 9 to 11;",
                        'reserved "z";',
                        "reserved 1 to max;",
                        "extensions 100 to 199;",
                    )
                )
            )
        if rng.random() < 0.1:
            parts.append(self._enum())
        return f"message {self.name()} {{ {' '.join(parts)} }}"

    def _enum(self) -> str:
        first, second = self.name(), self.name()
        number = self.rng.choice(("0", "1", "-1", "0x10")) if self.odd() else "0"
        return f"enum {self.name()} {{ {first} = {number}; {second} = 1; }}"

    def _proto_field(self, label: str | None = None) -> str:
        rng = self.rng
        if label is None:
            label = rng.choice(("", "", "repeated ", "optional ", "required "))
        kinds = (
            "int32",
            "string",
            "bytes",
            "sint64",
            "double",
            "n1",
            "p.q.n1",
            ".p.n1",
            "map<string, n1>",
        )
        self.number += 1
        number = (
            rng.choice(("0", "-1", "19000", str(1 << 29), "9" * 30))
            if self.odd()
            else str(self.number)
        )
        option = rng.choice(
            (" [default = 1]", ' [json_name = "a"]', " [(a.b) = {x: 1}]", " [packed = true]")
        )
        return f"{label}{rng.choice(kinds)} {self.name()} = {number}{option if rng.random() < 0.1 else ''};"


_KEYWORDS = [
    *(
        "properties",
        "definitions",
        "$defs",
        "patternProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "prefixItems",
    ),
    *(
        "required",
        "enum",
        "const",
        "default",
        "pattern",
        "$ref",
        "additionalProperties",
        "items",
        "not",
    ),
    *(
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "multipleOf",
        "minLength",
        "maxItems",
        "dependencies",
    ),
    *(
        "dependentRequired",
        "dependentSchemas",
        "contains",
        "propertyNames",
        "if",
        "then",
        "minProperties",
    ),
]
