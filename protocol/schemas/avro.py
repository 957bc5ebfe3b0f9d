"""Avro schemas (specification 1.12): text to types. Pure.

A type holds all that was written: docs, defaults, aliases and custom attributes, among which are
logical types. How much is checked beyond what the bytes of values follow from, the caller says
(`Check`): whoever only reads values takes every schema that some registry has taken.

Left out: values, and the meaning of logical types.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from protocol.schemas import SchemaError

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEPTH_MAX: Final = 100
"""Of types within types: beyond it recursion would be an attack."""
DEFAULT_PAIRS_MAX: Final = 50_000
"""Values compared with types for one default: unions within unions multiply."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = {
    "record": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "enum": ("type", "name", "namespace", "doc", "symbols", "default", "aliases"),
    "fixed": ("type", "name", "namespace", "doc", "size", "aliases"),
    "array": ("type", "items"),
    "map": ("type", "values"),
    "field": ("name", "type", "doc", "default", "order", "aliases"),
}
MISSING: Final = object()
"""There is no default; None would be null."""


@dataclass(slots=True, eq=False)
class Primitive:
    name: str
    props: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Array:
    items: "AvroType"
    props: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Map:
    values: "AvroType"
    props: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Union:
    branches: "list[AvroType]"


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: "AvroType"
    doc: str | None
    default: Any
    order: str | None
    aliases: tuple[str, ...]
    props: dict[str, Any]


@dataclass(slots=True, eq=False)
class Named:
    """What records, enums and fixed have in common. Recursive types hold themselves."""

    kind: str
    """record, error, enum or fixed."""
    name: str
    namespace: str
    doc: str | None
    aliases: tuple[str, ...]
    """Full names."""
    props: dict[str, Any]
    fields: list[Field] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    symbol_set: frozenset[str] = frozenset()
    default: Any = MISSING
    size: int = 0

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def is_record(self) -> bool:
        return self.kind in ("record", "error")


AvroType = Primitive | Array | Map | Union | Named


class Check(IntEnum):
    """What is checked of a text; each level includes those before it."""

    SHAPE = 0
    """All that values need. Java takes any namespace, for example, and some registries any name."""
    NAMES = 1
    """Names are Avro's, symbols are there once, and so on: all but the defaults of fields."""
    DEFAULTS = 2
    """Defaults of fields are values of their types."""


class AvroSchema(NamedTuple):
    root: AvroType
    referred: tuple[str, ...]
    """Full names that the references define: they are not spelled out."""


def type_name(avro: AvroType) -> str:
    """As messages call it: INT, RECORD, UNION."""
    match avro:
        case Primitive():
            return avro.name.upper()
        case Named():
            return "RECORD" if avro.is_record else avro.kind.upper()
        case _:
            return type(avro).__name__.upper()


def parse_avro(
    text: str, references: Sequence[str] = (), *, check: Check = Check.NAMES
) -> AvroSchema:
    """Returns the schema of a text. `references` are texts, each after those that it needs itself.

    Raises SchemaError.
    """
    parser = _Parser(check)
    for reference in references:
        parser.parse(_json(reference), "", 0)
    referred = tuple(parser.names)
    return AvroSchema(parser.parse(_json(text), "", 0), referred)


def _json(text: str) -> Any:
    """A JSON value; a bare name stands for itself, as in Avro's own parsers."""
    stripped = text.strip()
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", stripped) and stripped not in ("true", "false"):
        return stripped
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"not JSON: {error}") from error


class _Parser:
    def __init__(self, check: Check) -> None:
        self.names: dict[str, Named] = {}
        self._check = check

    def parse(self, value: Any, namespace: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise SchemaError(f"types are nested deeper than {DEPTH_MAX}")
        match value:
            case str():
                return self._reference(value, namespace)
            case list():
                return self._union(value, namespace, depth)
            case {"type": str(kind)}:
                return self._object(kind, value, namespace, depth)
            case {"type": dict() | list() as inner}:
                return self.parse(inner, namespace, depth + 1)
            case dict():
                raise SchemaError(f"no type: {_short(value)}")
            case _:
                raise SchemaError(f"not a schema: {_short(value)}")

    def _reference(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise SchemaError(f'"{full}" is not a defined name')
        return found

    def _union(self, branches: list[Any], namespace: str, depth: int) -> Union:
        parsed: list[AvroType] = []
        seen: set[str] = set()
        for branch in branches:
            avro = self.parse(branch, namespace, depth + 1)
            if isinstance(avro, Union):
                raise SchemaError("a union must not hold another union directly")
            name = avro.full_name if isinstance(avro, Named) else type_name(avro).lower()
            if name in seen:
                raise SchemaError(f"{name} is twice in a union")
            seen.add(name)
            parsed.append(avro)
        return Union(parsed)

    def _object(self, kind: str, value: dict[str, Any], namespace: str, depth: int) -> AvroType:
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(kind, value, namespace, depth)
        if kind in ("array", "map"):
            content = "items" if kind == "array" else "values"
            if content not in value:
                raise SchemaError(f"{kind} without {content}: {_short(value)}")
            inner = self.parse(value[content], namespace, depth + 1)
            props = _props(value, kind)
            return Array(inner, props) if kind == "array" else Map(inner, props)
        if kind in PRIMITIVES:
            return Primitive(kind, {k: v for k, v in value.items() if k != "type"})
        return self._reference(kind, namespace)

    def _named(self, kind: str, value: dict[str, Any], namespace: str, depth: int) -> Named:
        name, space = self._full_name(value.get("name"), value.get("namespace"), namespace)
        doc = value.get("doc")
        named = Named(
            kind=kind,
            name=name,
            namespace=space,
            doc=doc if isinstance(doc, str) else None,
            aliases=tuple(
                alias if "." in alias or not space else f"{space}.{alias}"
                for alias in self._aliases(value, "aliases")
            ),
            props=_props(value, "record" if kind == "error" else kind),
        )
        is_primitive = name in PRIMITIVES and self._check >= Check.NAMES
        if named.full_name in self.names or is_primitive:
            raise SchemaError(f"can't redefine: {named.full_name}")
        self.names[named.full_name] = named
        if kind == "enum":
            self._fill_enum(named, value)
        elif kind == "fixed":
            size = value.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise SchemaError(f"{named.full_name}: the size of a fixed is a number")
            named.size = size
        else:
            self._fill_record(named, value, depth)
        return named

    def _fill_enum(self, named: Named, value: dict[str, Any]) -> None:
        named.symbols = tuple(_strings(value.get("symbols"), f"{named.full_name}: symbols"))
        named.symbol_set = frozenset(named.symbols)
        named.default = value.get("default", MISSING)
        if self._check < Check.NAMES:
            return
        for symbol in named.symbols:
            self._check_name(symbol)
        if len(named.symbol_set) < len(named.symbols):
            raise SchemaError(f"{named.full_name}: a symbol is there twice")
        if named.default is not MISSING and named.default not in named.symbols:
            raise SchemaError(
                f'{named.full_name}: the default "{named.default}" is none of its symbols'
            )

    def _fill_record(self, named: Named, value: dict[str, Any], depth: int) -> None:
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise SchemaError(f"{named.full_name}: a record has a list of fields")
        seen: set[str] = set()
        for item in fields:
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                raise SchemaError(f"{named.full_name}: no field name: {_short(item)}")
            name = item["name"]
            self._check_name(name)
            if name in seen:
                raise SchemaError(f"{named.full_name}: the field {name} is there twice")
            seen.add(name)
            if "type" not in item:
                raise SchemaError(f"{named.full_name}: the field {name} has no type")
            named.fields.append(self._field(named, item, depth))

    def _field(self, named: Named, item: dict[str, Any], depth: int) -> Field:
        avro = self.parse(item["type"], named.namespace, depth + 1)
        default = item.get("default", MISSING)
        where = f"{named.full_name}.{item['name']}"
        has_default = default is not MISSING and self._check >= Check.DEFAULTS
        if has_default and not _Default().fits(avro, default):
            raise SchemaError(
                f"{where}: the default {_short(default)} is no value of {type_name(avro)}"
            )
        order = item.get("order")
        is_order = order in (None, "ascending", "descending", "ignore")
        if not is_order and self._check >= Check.NAMES:
            raise SchemaError(f"{where}: order is ascending, descending or ignore")
        doc = item.get("doc")
        return Field(
            name=item["name"],
            type=avro,
            doc=doc if isinstance(doc, str) else None,
            default=default,
            order=order,
            aliases=self._aliases(item, f"{where}: aliases"),
            props=_props(item, "field"),
        )

    def _full_name(self, name: Any, namespace: Any, outer: str) -> tuple[str, str]:
        """Name and namespace, which may be part of the name or that of what surrounds it."""
        if not isinstance(name, str) or not name:
            raise SchemaError("no name in schema")
        space, dot, simple = name.rpartition(".")
        if not dot:
            simple, space = name, namespace if isinstance(namespace, str) else outer
        for part in (simple, *(space.split(".") if space else ())):
            self._check_name(part)
        return simple, space

    def _aliases(self, value: Mapping[str, Any], what: str) -> tuple[str, ...]:
        if self._check < Check.NAMES:
            return ()
        return tuple(_strings(value.get("aliases", []), what))

    def _check_name(self, name: str) -> None:
        if self._check >= Check.NAMES and not _NAME.fullmatch(name):
            raise SchemaError(f'illegal name "{name}": letters, digits and _, not a digit first')


def _strings(value: Any, what: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise SchemaError(f"{what}: a list of texts")
    return value


def _props(value: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in _RESERVED[kind]}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


class _Default:
    """Whether one JSON value is a default of a type."""

    def __init__(self) -> None:
        self._looks = 0

    def fits(self, avro: AvroType, value: Any) -> bool:
        """Of a union: of any branch."""
        self._looks += 1
        if self._looks > DEFAULT_PAIRS_MAX:
            raise SchemaError("a default is too involved")
        match avro:
            case Primitive():
                return _fits_primitive(avro.name, value)
            case Array():
                return isinstance(value, list) and all(
                    self.fits(avro.items, each) for each in value
                )
            case Map():
                return isinstance(value, dict) and all(
                    self.fits(avro.values, each) for each in value.values()
                )
            case Union():
                return any(self.fits(branch, value) for branch in avro.branches)
            case Named(kind="fixed"):
                return isinstance(value, str)
            case Named(kind="enum"):
                return isinstance(value, str) and value in avro.symbol_set
            case Named():
                return isinstance(value, dict) and all(
                    self.fits(each.type, value.get(each.name, each.default)) for each in avro.fields
                )


def _fits_primitive(name: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return _is_whole(value) and -(1 << 31) <= value < 1 << 31
        case "long":
            return _is_whole(value) and -(1 << 63) <= value < 1 << 63
        case "float" | "double":
            return number or value in ("NaN", "Infinity", "-Infinity")
        case _:
            return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    """A number without a fraction; NaN and Infinity are none."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)
