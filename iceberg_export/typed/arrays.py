"""Arrow arrays from compiled decoders' numbers, and arrays into the types of a table."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_export.decode import Bytes, Ints, compiled, gather

NULL = -1
"""The length of a null."""


def conform(array: pa.Array, want: pa.DataType) -> pa.Array:
    """The same values in a type that `types.misfit` allows."""
    have = array.type
    if have == want:
        return array
    if pa.types.is_struct(want):
        valid = array.is_valid()
        children = [
            conform(array.field(field.name), field.type)
            if have.get_field_index(field.name) >= 0
            else pa.nulls(len(array), field.type)
            for field in want
        ]
        fields = [pa.field(field.name, field.type) for field in want]
        return pa.StructArray.from_arrays(children, fields=fields, mask=_not(valid)).cast(want)
    if pa.types.is_large_list(want):
        inner = conform(array.values, want.value_type)
        plain = pa.large_list(pa.field(want.value_field.name, inner.type))
        return pa.LargeListArray.from_arrays(
            array.offsets, inner, type=plain, mask=_mask(array)
        ).cast(want)
    if pa.types.is_map(want):
        keys = conform(array.keys, want.key_type)
        items = conform(array.items, want.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=want, mask=_mask(array))
    return array.cast(want)


def _not(valid: pa.Array) -> pa.Array:
    return pa.array(~valid.to_numpy(zero_copy_only=False))


def _mask(array: pa.Array) -> pa.Array | None:
    return _not(array.is_valid()) if array.null_count else None


def bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's bits; None when all are set."""
    return None if bool(valid.all()) else pa.py_buffer(np.packbits(valid, bitorder="little"))


def bytes_array(data: Bytes, starts: Ints, lengths: Ints, kind: pa.DataType) -> pa.Array:
    """Large strings or binaries that lie in `data`; NULL lengths are nulls."""
    offsets, gathered = gather(data, starts, lengths)
    buffers = [bitmap(lengths >= 0), pa.py_buffer(offsets), pa.py_buffer(gathered)]
    return pa.Array.from_buffers(kind, len(starts), buffers)


def text_array(data: Bytes, starts: Ints, lengths: Ints) -> pa.Array:
    """Large strings; whoever calls has seen that they are UTF-8."""
    return bytes_array(data, starts, lengths, pa.large_string())


@compiled
def _lead(byte: int) -> tuple[int, int, int]:
    """(how many bytes follow, bounds of the first of them) of a byte from 0x80 on; -1: none may."""
    if 0xC2 <= byte <= 0xDF:
        return 1, 0x80, 0xBF
    if 0xE0 <= byte <= 0xEF:
        return 2, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF
    if 0xF0 <= byte <= 0xF4:
        return 3, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF
    return -1, 0, 0


@compiled
def is_utf8(data: Bytes, at: int, end: int) -> bool:
    """No overlong forms, no surrogates, nothing beyond U+10FFFF (Unicode, table 3-7)."""
    while at < end:
        byte = np.int64(data[at])
        at += 1
        if byte < 0x80:
            continue
        more, low, high = _lead(byte)
        if more < 0 or more > end - at:
            return False
        for place in range(at, at + more):
            if not low <= data[place] <= high:
                return False
            low, high = 0x80, 0xBF
        at += more
    return True


def utf8_rows(data: Bytes, starts: Ints, lengths: Ints) -> npt.NDArray[np.bool_]:
    """Which of these pieces of data are UTF-8."""
    out = np.empty(len(starts), np.bool_)
    _utf8_rows(data, starts, lengths, out)
    return out


@compiled
def _utf8_rows(data: Bytes, starts: Ints, lengths: Ints, out: Any) -> None:
    for row in range(len(starts)):
        out[row] = is_utf8(data, starts[row], starts[row] + lengths[row])
