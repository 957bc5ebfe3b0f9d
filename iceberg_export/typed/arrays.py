"""Arrow arrays from compiled decoders' numbers, and arrays into the types of a table."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export.records.decode import Bytes, Ints, compiled, gather

Bools = npt.NDArray[np.bool_]

NULL = -1
"""The length of a null."""


def conform(array: pa.Array, want: pa.DataType) -> pa.Array:
    """The same values in a type that `types.type_mismatch` allows."""
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


def bitmap(valid: Bools) -> pa.Buffer | None:
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
        byte: Any = np.int64(data[at])
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


def utf8_rows(data: Bytes, starts: Ints, lengths: Ints) -> Bools:
    """Which of these pieces of data are UTF-8."""
    out = np.empty(len(starts), np.bool_)
    _utf8_rows(data, starts, lengths, out)
    return out


@compiled
def _utf8_rows(data: Bytes, starts: Ints, lengths: Ints, out: Any) -> None:
    for row in range(len(starts)):
        out[row] = is_utf8(data, starts[row], starts[row] + lengths[row])


def number_array(values: Ints, valid: Bools, kind: pa.DataType) -> pa.Array:
    """Numbers of up to 64 bits; floats as their bits."""
    if pa.types.is_boolean(kind):
        return pa.array(values != 0, mask=~valid)
    plain: npt.NDArray[Any] = values
    if kind in {pa.int32(), pa.date32()}:
        plain = values.astype(np.int32)
    elif kind == pa.float32():
        plain = values.astype(np.uint32)
    return pa.Array.from_buffers(
        kind, len(values), [bitmap(valid), pa.py_buffer(np.ascontiguousarray(plain))]
    )


def struct_array(children: list[pa.Array], valid: Bools, kind: pa.DataType) -> pa.Array:
    """A struct, or the boolean that one without fields is."""
    if pa.types.is_boolean(kind):
        return pa.array(valid, mask=~valid)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(~valid))


def list_array(counts: Ints, inner: pa.Array, kind: pa.DataType) -> pa.Array:
    """Lists of so many elements each; a negative count is a null."""
    return pa.Array.from_buffers(
        kind, len(counts), [bitmap(counts >= 0), pa.py_buffer(_ends(counts))], children=[inner]
    )


def _ends(counts: Ints) -> Ints:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(np.maximum(counts, 0), out=offsets[1:])
    return offsets


def map_array(counts: Ints, keys: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """Maps with their entries in order of keys; the last of equal keys counts."""
    parents = np.repeat(np.arange(len(counts)), np.maximum(counts, 0))
    ranks = _ranks(keys)
    rises = (np.diff(parents) > 0) | (np.diff(ranks) > 0)
    if not bool(rises.all()):
        order = np.lexsort((ranks, parents))
        parents, ranks = parents[order], ranks[order]
        last = np.append((np.diff(parents) > 0) | (np.diff(ranks) > 0), True)
        kept = pa.array(order[last])
        keys, items = keys.take(kept), items.take(kept)
        sizes = np.bincount(parents[last], minlength=len(counts))
        counts = np.where(counts < 0, counts, sizes)
    ends = _ends(counts)
    if ends[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowCapacityError("over 2**31 entries of maps in one unit of records")
    mask = pa.array(counts < 0) if bool((counts < 0).any()) else None
    offsets = pa.array(ends.astype(np.int32))
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)


def _ranks(keys: pa.Array) -> Ints:
    """Numbers in the order of the keys, equal for equal ones."""
    found = keys.dictionary_encode()
    order = pc.sort_indices(found.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    places: Ints = ranks[found.indices.to_numpy(zero_copy_only=False)]
    return places


_POWERS = np.array([divmod(10**digits, 1 << 64) for digits in range(39)], np.uint64)


@compiled
def big_endian(data: Bytes, start: int, length: int) -> tuple[Any, Any, bool]:
    """(upper, lower) 64 bits of a two's complement number; False when it has over 128 bits."""
    fill = np.uint64(0)
    if length > 0 and data[start] >= 0x80:
        fill = ~np.uint64(0)
    high, low = fill, fill
    for place in range(start, start + length):
        if high >> np.uint64(56) != fill & np.uint64(0xFF):
            return high, low, False
        high = high << np.uint64(8) | low >> np.uint64(56)
        low = low << np.uint64(8) | np.uint64(data[place])
    # The sign may not have come in with what was shifted.
    if high >> np.uint64(63) != fill >> np.uint64(63):
        return high, low, False
    return high, low, True


@compiled
def has_digits(data: Bytes, start: int, length: int, digits: int) -> bool:
    """The number has at most so many decimal digits."""
    high, low, fits = big_endian(data, start, length)
    if not fits:
        return False
    if high >> np.uint64(63):
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(1 if low == np.uint64(0) else 0)
    limit_high, limit_low = _POWERS[digits, 0], _POWERS[digits, 1]
    return bool(high < limit_high or (high == limit_high and low < limit_low))


def decimal_array(data: Bytes, starts: Ints, lengths: Ints, kind: pa.DataType) -> pa.Array:
    """Big-endian two's complement numbers that lie in `data`."""
    out = np.zeros((len(starts), 2), np.uint64)
    _decimals(data, starts, lengths, out)
    return pa.Array.from_buffers(kind, len(starts), [bitmap(lengths >= 0), pa.py_buffer(out)])


def unsigned_array(values: Ints, valid: Bools, kind: pa.DataType) -> pa.Array:
    """Unsigned 64 bits as decimals."""
    out = np.zeros((len(values), 2), np.int64)
    out[:, 0] = values
    return pa.Array.from_buffers(kind, len(values), [bitmap(valid), pa.py_buffer(out)])


@compiled
def _decimals(data: Bytes, starts: Ints, lengths: Ints, out: Any) -> None:
    for row in range(len(starts)):
        if lengths[row] >= 0:
            high, low, _ = big_endian(data, starts[row], lengths[row])
            out[row, 0] = low
            out[row, 1] = high


_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
_DASH = ord("-")


def uuid_array(data: Bytes, starts: Ints, lengths: Ints) -> pa.Array:
    """UUIDs of 16 bytes as text."""
    valid = lengths >= 0
    _, raw = gather(data, starts, lengths)
    digits = _HEX[raw.reshape(-1, 16)].reshape(-1, 32)
    dashed = np.insert(digits, [8, 12, 16, 20], _DASH, axis=1)
    offsets = _ends(np.where(valid, 36, -1))
    buffers = [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(dashed))]
    return pa.Array.from_buffers(pa.large_string(), len(starts), buffers)
