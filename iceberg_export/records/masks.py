"""Masked columns: a hash, a beginning or nothing in the place of values. Pure, in Arrow's types.

A column keeps its type, so a mask may come to a table that exists. Nulls stay null, and the fields of a
struct are masked where it is in a list or a map as well.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export.errors import SettingsError
from iceberg_export.table.column_rules import Mask
from iceberg_export.table.evolve import canonical_type, iceberg_type

Masks = Mapping[str, Any]
"""By a column's name its Mask, or the same of its fields (`column_rules.masks_of`)."""


def check_masks(masks: Masks, columns: pa.Schema) -> None:
    """Raises SettingsError for a mask that cannot be put on its column, as far as there are such columns."""
    for name, mask in masks.items():
        if name in columns.names:
            _check(mask, columns.field(name).type, name)


def _check(mask: Any, kind: pa.DataType, path: str) -> None:
    kind = canonical_type(kind)
    if isinstance(mask, Mask):
        if mask.how != "null" and kind not in (pa.large_string(), pa.large_binary()):
            raise SettingsError(
                f"frazil.iceberg.columns.mask: {mask.how} is for text and bytes, and column {path} is"
                f" {iceberg_type(kind)}; null({path}) hides it"
            )
        return
    if pa.types.is_struct(kind):
        check_fields = pa.schema(list(kind))
        for name, inner in mask.items():
            if name in check_fields.names:
                _check(inner, check_fields.field(name).type, f"{path}.{name}")
    elif pa.types.is_large_list(kind):
        _check(mask, kind.value_type, path)
    elif pa.types.is_map(kind):
        _check(mask, kind.item_type, path)
    else:
        raise SettingsError(
            f"frazil.iceberg.columns.mask: column {path} is {iceberg_type(kind)} and has no fields"
        )


def masked(columns: Mapping[str, pa.Array], masks: Masks) -> dict[str, pa.Array]:
    """Returns the columns, masked; they pass `check_masks`."""
    return {
        name: _masked(array, masks[name]) if name in masks else array
        for name, array in columns.items()
    }


def _masked(array: pa.Array, mask: Any) -> pa.Array:
    if isinstance(mask, Mask):
        return _put_on(array, mask)
    kind = array.type
    if pa.types.is_struct(kind):
        fields = list(kind)
        inner = masked(dict(zip([one.name for one in fields], array.flatten(), strict=True)), mask)
        return pa.StructArray.from_arrays(list(inner.values()), fields=fields, mask=array.is_null())
    # Arrow takes no mask beside offsets that are a slice of others: these are not.
    offsets = pa.array(np.asarray(array.offsets))
    nulls = array.is_null() if array.null_count else None
    if pa.types.is_map(kind):
        items = _masked(array.items, mask)
        return pa.MapArray.from_arrays(offsets, array.keys, items, type=kind, mask=nulls)
    values = _masked(array.values, mask)
    return type(array).from_arrays(offsets, values, type=kind, mask=nulls)


def _put_on(array: pa.Array, mask: Mask) -> pa.Array:
    kind = array.type
    if mask.how == "null":
        return pa.nulls(len(array), kind)
    is_text = pa.types.is_large_string(kind) or pa.types.is_string(kind)
    if mask.how == "truncate":
        cut = pc.utf8_slice_codeunits if is_text else pc.binary_slice
        return cut(array, 0, mask.length)
    return pa.array([_hash(value, is_text=is_text) for value in array.to_pylist()], kind)


def _hash(value: Any, *, is_text: bool) -> str | bytes | None:
    """As Spark's and Trino's: `sha2(value, 256)`, `to_hex(sha256(to_utf8(value)))` in lower case."""
    if value is None:
        return None
    if is_text:
        return hashlib.sha256(value.encode()).hexdigest()
    return hashlib.sha256(value).digest()
