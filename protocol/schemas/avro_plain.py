"""Avro values as plain JSON: which JSON stands for a value of which type. Pure.

    null, boolean, int, long, array, map, record   what JSON has for it
    float, double    a number; "NaN", "Infinity", "-Infinity"
    string, enum     a string
    bytes, fixed     a string with a character for each byte, U+0000 to U+00FF, as in Avro's own JSON
    decimal          a string of digits: "12.50"; uuid in 16 bytes is the text of a UUID
    dates and times  the numbers that Avro has for them
    union            the value alone where JSON tells the branches apart. Where two branches look alike, each
                     value but null names its branch, as in Avro's own JSON: {"shop.Order": {…}}

So a value's text says all of it, and has the same shape whatever the value is. `avro_read` makes the JSON of bytes,
`avro_write` the bytes of JSON.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from protocol.schemas.avro import Array, AvroType, Map, Named, Primitive, Union

NULL: Final = "null"
UUID_BYTES: Final = 16
NO_NUMBERS: Final[Mapping[str, float]] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
"""What floats have and JSON has not."""

_KINDS: Final[Mapping[str, frozenset[str]]] = {
    NULL: frozenset({NULL}),
    "boolean": frozenset({"boolean"}),
    "int": frozenset({"number"}),
    "long": frozenset({"number"}),
    "float": frozenset({"number", "string"}),
    "double": frozenset({"number", "string"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"string"}),
}
_OF_PYTHON: Final[Mapping[type, str]] = {
    type(None): NULL,
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class Decimals(NamedTuple):
    """The logical type decimal."""

    precision: int
    scale: int


def decimals_of(avro: AvroType) -> Decimals | None:
    """Returns what a type says about decimals; None: it is none, or none that is valid, which Avro reads as if
    nothing were said."""
    if not isinstance(avro, Primitive | Named) or avro.props.get("logicalType") != "decimal":
        return None
    if not (avro.name == "bytes" or (isinstance(avro, Named) and avro.kind == "fixed")):
        return None
    precision, scale = avro.props.get("precision"), avro.props.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
        return None
    return Decimals(precision, scale) if precision > 0 else None


def is_uuid(named: Named) -> bool:
    """Tells whether a fixed type is a UUID."""
    return named.props.get("logicalType") == "uuid" and named.size == UUID_BYTES


def branch_name(avro: AvroType) -> str:
    """Returns what a branch of a union is called in Avro's JSON."""
    if isinstance(avro, Named):
        return avro.full_name
    return avro.name if isinstance(avro, Primitive) else type(avro).__name__.lower()


def kinds_of(avro: AvroType) -> frozenset[str]:
    """Returns the kinds of JSON that values of a type can be."""
    match avro:
        case Primitive():
            return _KINDS[avro.name]
        case Array():
            return frozenset({"array"})
        case Named(kind="enum" | "fixed"):
            return frozenset({"string"})
        case Map() | Named():
            return frozenset({"object"})
        case Union():
            raise AssertionError("a union holds no union")


def names_branches(union: Union) -> bool:
    """Tells whether values of a union name their branch: two branches look alike in JSON."""
    kinds = [kind for branch in union.branches for kind in kinds_of(branch)]
    return len(kinds) > len(set(kinds))


def kind_of_json(value: Any) -> str:
    """Returns the kind of a JSON value that Python's json has read."""
    return _OF_PYTHON[type(value)]
