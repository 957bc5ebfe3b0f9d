"""Evolution of a table's columns when records of new schemas come: they grow, they never shrink.

Columns that a schema has and the table has not are added, optional; a column becomes wider where
Iceberg reads old files under the wider type (int to long, float to double, a decimal more digits),
also inside of structs, lists and maps. All else (text where there were numbers) refuses the
whole schema, in one sentence that names the column; its records are dead letters then. So does a
name that differs from another one of its struct only in case: Spark takes the two for the same and
reads nothing of the table any more; and one with a dot that reads like the path of another column.

A *portable* table has no types that some engine cannot read: a time of day becomes text. One that
has them keeps them.

What people dropped stays away and hinders nobody, and no name of another column is taken (`edits`).

Schemas are taken in the order of their keys (ids, and messages in them), each whole or not at
all, so that every exporter comes to the same columns. Applying the same schemas again changes
nothing. Pure, in Arrow's types; `schema.grow` makes it a commit of the table.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa

from iceberg_export.table.edits import NONE, Edits, as_in_table, width, without_dropped

Key = TypeVar("Key", int, tuple[int, tuple[int, ...]])
"""What names a schema: its id, or its id and a message in it."""
DIGITS_MAX = 38
"""Of Iceberg's decimal."""
COLUMNS_MAX = 10_000
"""To which a table grows, nested ones counted: whoever registers schemas could make its metadata
longer than any catalog takes."""


class IncompatibleColumnError(Exception):
    """A schema is not compatible with the table. The message says which column, and why."""


class _Growth(NamedTuple):
    """What may become of a table."""

    may_grow: bool
    portable: bool


class Evolution(NamedTuple, Generic[Key]):
    """The columns after the schemas."""

    columns: pa.Schema
    """Those of the table and those to be added, in types of `canonical_type`."""
    changed: bool
    refused: dict[Key, str]
    """By schema: why its records cannot be in this table."""


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type in one form: Arrow has several for text, bytes and lists."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, canonical_type(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(canonical_type(kind.key_type), canonical_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(pa.field("element", canonical_type(kind.value_type)))
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    return kind


def evolve(
    table: pa.Schema,
    wanted: Mapping[Key, Iterable[pa.Field]],
    *,
    may_grow: bool,
    portable: bool = True,
    edits: Edits = NONE,
) -> Evolution[Key]:
    """Returns columns that hold the table's and those of every schema that is compatible.

    `wanted` are the columns by schema; without `may_grow` a schema that needs anything
    that the table has not is refused. `portable`: what is added is of types that all engines read.
    `edits`: what people did to the table, whose columns are given by the exporter's names.
    """
    growth = _Growth(may_grow, portable)
    before = pa.schema([pa.field(one.name, canonical_type(one.type)) for one in table])
    columns = {one.name: one.type for one in before}
    refused: dict[Key, str] = {}
    for key in sorted(wanted):
        try:
            grown = _with_fields(columns, wanted[key], growth, edits)
            _check_count(columns, grown)
            _check_paths(columns, grown)
        except IncompatibleColumnError as error:
            refused[key] = str(error)
        else:
            columns = grown
    after = pa.schema([pa.field(name, kind) for name, kind in columns.items()])
    return Evolution(after, not after.equals(before), refused)


def _check_count(before: Mapping[str, pa.DataType], after: Mapping[str, pa.DataType]) -> None:
    """Raises IncompatibleColumnError when there are too many, and more than there were."""
    if after == before:
        return
    count = sum(map(width, after.values()))
    if count > COLUMNS_MAX and count > sum(map(width, before.values())):
        raise IncompatibleColumnError(
            f"the table would have {count} columns, nested ones counted, at most {COLUMNS_MAX}"
        )


def _check_paths(before: Mapping[str, pa.DataType], after: Mapping[str, pa.DataType]) -> None:
    """Raises IncompatibleColumnError where a name with a dot reads like a column in another one, and did
    not before: Iceberg knows columns by such paths, and has no schema with two of a path."""
    if after == before:
        return
    if twice := _twice(after) - _twice(before):
        raise IncompatibleColumnError(
            f"column {min(twice)} would be there twice, as a field with a dot in its name and as one within"
            " another; give the field another name"
        )


def _twice(columns: Mapping[str, pa.DataType]) -> set[str]:
    counts = Counter(path.casefold() for path in _paths(columns.items(), ""))
    return {path for path, count in counts.items() if count > 1}


def _paths(columns: Iterable[tuple[str, pa.DataType]], above: str) -> Iterator[str]:
    """All columns as Iceberg calls them."""
    for name, kind in columns:
        path = f"{above}{name}"
        yield path
        if pa.types.is_struct(kind):
            yield from _paths([(one.name, one.type) for one in kind], f"{path}.")
        elif pa.types.is_map(kind):
            yield from _paths([("key", kind.key_type), ("value", kind.item_type)], f"{path}.")
        elif pa.types.is_large_list(kind):
            yield from _paths([("element", kind.value_type)], f"{path}.")


def _with_fields(
    columns: Mapping[str, pa.DataType],
    fields: Iterable[pa.Field],
    growth: _Growth,
    edits: Edits,
    above: str = "",
) -> dict[str, pa.DataType]:
    found = dict(columns)
    without_case: dict[str, str] = {}
    for field in fields:
        path = f"{above}{field.name}"
        if field.name in edits.dropped:
            continue
        if field.name in found:
            below = edits.below(field.name)
            found[field.name] = _merge(found[field.name], field.type, path, growth, below)
            continue
        if not growth.may_grow:
            raise IncompatibleColumnError(f"the table has no column {path}, and may not grow")
        without_case = without_case or {name.casefold(): name for name in found}
        other = without_case.setdefault(field.name.casefold(), field.name)
        if other != field.name:
            raise IncompatibleColumnError(_differs_in_case(path, f"{above}{other}"))
        if (owner := edits.taken.get(field.name.casefold())) is not None:
            raise IncompatibleColumnError(_is_taken(path, owner))
        kind = canonical_type(without_dropped(field.type, edits.below(field.name)))
        found[field.name] = _portable(kind) if growth.portable else kind
        _check_storable(as_in_table(found[field.name], edits.below(field.name)), path)
    return found


def _differs_in_case(path: str, other: str) -> str:
    return (
        f"column {path} differs from {other} only in case, and engines read names without it;"
        " give the field another name"
    )


def _is_taken(path: str, owner: str) -> str:
    whose = f"the one that schemas call {owner}, which was renamed" if owner else "somebody else's"
    return f"column {path} of the table is {whose}; give one of the two another name"


def _portable(kind: pa.DataType) -> pa.DataType:
    """The type that all engines can read in its place; Spark knows no time of day."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _portable(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_portable(kind.key_type), _portable(kind.item_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(pa.field("element", _portable(kind.value_type)))
    return pa.large_string() if pa.types.is_time(kind) else kind


def _merge(
    ours: pa.DataType, wanted: pa.DataType, path: str, growth: _Growth, edits: Edits
) -> pa.DataType:
    """Returns the type that holds both. Raises IncompatibleColumnError."""
    wanted = canonical_type(wanted)
    if ours.equals(wanted) or _is_wider(ours, wanted):
        return ours
    if pa.types.is_struct(ours) and pa.types.is_struct(wanted):
        inside = {one.name: one.type for one in ours}
        grown = _with_fields(inside, list(wanted), growth, edits, f"{path}.")
        return pa.struct([pa.field(name, kind) for name, kind in grown.items()])
    if pa.types.is_large_list(ours) and pa.types.is_large_list(wanted):
        kind = _merge(ours.value_type, wanted.value_type, f"{path}.element", growth, edits)
        return pa.large_list(pa.field("element", kind))
    if pa.types.is_map(ours) and pa.types.is_map(wanted):
        # Iceberg knows no other keys of a map than those that it was made with.
        if ours.key_type.equals(wanted.key_type):
            kind = _merge(ours.item_type, wanted.item_type, f"{path}.value", growth, edits)
            return pa.map_(ours.key_type, kind)
    elif growth.may_grow and _is_wider(wanted, ours):
        return wanted
    raise IncompatibleColumnError(
        f"column {path} of the table is {iceberg_type(ours)}, the schema has {iceberg_type(wanted)}"
    )


_NAMES = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.large_string(): "string",
    pa.large_binary(): "binary",
    pa.uuid(): "uuid",
}


def iceberg_type(kind: pa.DataType) -> str:
    """Returns Iceberg's name of a type."""
    kind = canonical_type(kind)
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{one.name}: {iceberg_type(one.type)}' for one in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{iceberg_type(kind.key_type)}, {iceberg_type(kind.item_type)}>"
    if pa.types.is_large_list(kind):
        return f"list<{iceberg_type(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    return "time" if pa.types.is_time(kind) else _NAMES.get(kind, str(kind))


def _is_wider(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Tells whether `wide` holds every value of `narrow`: by Iceberg's rules of promotion, or as the
    text of a time of day (`_portable`)."""
    if wide == pa.large_string():
        return bool(pa.types.is_time(narrow))
    if pa.types.is_decimal(wide) and pa.types.is_decimal(narrow):
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return (narrow, wide) in {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


def _check_storable(kind: pa.DataType, path: str) -> None:
    """Raises IncompatibleColumnError for a type that no table can have."""
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            raise IncompatibleColumnError(f"column {path} would be a struct without fields")
        names: dict[str, str] = {}
        for one in kind:
            other = names.get(one.name.casefold())
            names[one.name.casefold()] = one.name
            if other == one.name:
                raise IncompatibleColumnError(_is_taken(f"{path}.{one.name}", "otherwise"))
            if other is not None:
                raise IncompatibleColumnError(
                    _differs_in_case(f"{path}.{one.name}", f"{path}.{other}")
                )
            _check_storable(one.type, f"{path}.{one.name}")
    elif pa.types.is_map(kind):
        _check_storable(kind.key_type, f"{path}.key")
        _check_storable(kind.item_type, f"{path}.value")
    elif pa.types.is_large_list(kind):
        _check_storable(kind.value_type, f"{path}.element")
    elif pa.types.is_decimal(kind) and kind.precision > DIGITS_MAX:
        raise IncompatibleColumnError(
            f"column {path} would need {kind.precision} digits, at most {DIGITS_MAX}"
        )
