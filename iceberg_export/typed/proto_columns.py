"""Protobuf payloads to columns by compiled code, one level of messages after another.

One compiled loop over all messages of a level notes where each field's value lies, counting what is
repeated; a second one, where anything is, notes the elements. Each field then becomes a column of
its own, and fields that are messages are the next level's messages.

Whatever needs a second thought makes the record odd, and the reference reads it: a message that
comes in two pieces, two fields of one oneof, a wire type that is not the field's, groups, strings
that are not UTF-8, unknown numbers of closed enums, missing required fields.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from iceberg_export.records.cells import Cells
from iceberg_export.records.decode import Bytes, Ints, compiled
from iceberg_export.typed import arrays
from iceberg_export.typed.arrays import NULL, Bools
from iceberg_export.typed.proto_schema import ProtoField, ProtoType
from iceberg_export.typed.reference import SECONDS_MAX, SECONDS_MIN

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRES = {
    "double": _FIXED64,
    "fixed64": _FIXED64,
    "sfixed64": _FIXED64,
    "float": _FIXED32,
    "fixed32": _FIXED32,
    "sfixed32": _FIXED32,
    "string": _BYTES,
    "bytes": _BYTES,
    "message": _BYTES,
    "timestamp": _BYTES,
    "wrapper": _BYTES,
    "map": _BYTES,
}
# Columns of the table of fields that the loop is given.
_NUMBER, _WIRE, _REPEATED, _MERGES, _ONEOF = range(5)
_MESSAGES = {"message", "timestamp", "wrapper"}


class _Messages(NamedTuple):
    """Messages of one type: where they lie, and of which records they are."""

    data: Bytes
    starts: Ints
    """Below 0 when there is none."""
    ends: Ints
    rows: Ints
    odd: Bools
    """Of records."""
    cells: Cells

    def mark(self, which: Bools) -> None:
        self.odd[self.rows[which]] = True


class _Noted(NamedTuple):
    """The values of one field: numbers, or where bytes begin and how many they are."""

    values: Ints
    lengths: Ints
    """NULL where there is none."""


def is_fast(shape: ProtoType) -> bool:
    return not shape.has("json")


def proto_columns(
    shape: ProtoType, data: Bytes, starts: Ints, lengths: Ints, cells: Cells
) -> tuple[list[pa.Array], Bools]:
    """(columns of the message, which rows are odd). Raises TooManyCellsError."""
    odd = np.zeros(len(starts), np.bool_)
    messages = _Messages(data, starts, starts + lengths, np.arange(len(starts)), odd, cells)
    return _fields(shape, messages), odd


def _fields(shape: ProtoType, messages: _Messages, *, in_map: bool = False) -> list[pa.Array]:
    """A column per field. Entries of maps have all fields, absent ones being empty."""
    fields = shape.fields
    oneofs = {name: number for number, name in enumerate({one.oneof for one in fields}, 1)}
    repeated = [one for one in fields if _is_repeated(one)]
    table = np.array(
        [
            [
                one.number,
                _WIRES.get(one.type.kind, _VARINT),
                repeated.index(one) if _is_repeated(one) else -1,
                one.type.kind in _MESSAGES,
                oneofs[one.oneof] if one.oneof else 0,
            ]
            for one in fields
        ],
        np.int64,
    ).reshape(len(fields), 5)  # Of none, too: what is no message is odd whatever its fields.
    count = len(messages.starts)
    single = (
        np.zeros((len(fields), count), np.int64),
        np.full((len(fields), count), NULL, np.int64),
    )
    counts = np.zeros((max(1, len(repeated)), count), np.int64)
    bad = np.zeros(count, np.bool_)
    spans = (messages.data, messages.starts, messages.ends)
    _scan(spans, table, (single, counts, bad))
    counts[:, bad] = 0
    messages.mark(bad)
    for one, elements_of in zip(repeated, counts, strict=False):
        messages.cells.take(int(elements_of.sum()) * one.type.nodes)
    totals = np.cumsum(counts, axis=None)
    places = (totals - counts.ravel()).reshape(counts.shape)
    elements = (np.zeros(int(totals[-1]) if count else 0, np.int64),) * 2
    if repeated and count:
        elements = (elements[0], elements[1].copy())
        _collect(spans, table, (elements, places.copy(), bad))
    columns = []
    for slot, field in enumerate(fields):
        if _is_repeated(field):
            index = repeated.index(field)
            first = int(places[index, 0]) if count else 0
            size = int(counts[index].sum())
            noted = _Noted(*(one[first : first + size] for one in elements))
            columns.append(_repeated(field, messages, counts[index], noted))
        else:
            noted = _Noted(single[0][slot], single[1][slot])
            columns.append(_single(field, messages, noted, in_map=in_map))
    return columns


def _is_repeated(field: ProtoField) -> bool:
    return field.is_list or field.type.kind == "map"


def _single(field: ProtoField, messages: _Messages, noted: _Noted, *, in_map: bool) -> pa.Array:
    values, lengths = noted
    absent = lengths == NULL
    if field.is_required:
        messages.mark(absent & (messages.starts >= 0))
    if field.type.kind in _MESSAGES:
        starts = np.where(absent, 0 if in_map else NULL, values)
        lengths = np.where(absent, 0, lengths)
        inner = messages._replace(starts=starts, ends=starts + lengths)
        return _message(field.type, inner)
    if not field.has_presence or in_map:
        lengths = np.where(absent, 0, lengths)
    return _scalar(field.type, messages, _Noted(values, lengths))


def _repeated(field: ProtoField, messages: _Messages, counts: Ints, noted: _Noted) -> pa.Array:
    values, lengths = noted
    rows = np.repeat(messages.rows, counts)
    inner = messages._replace(starts=values, ends=values + lengths, rows=rows)
    if field.type.kind == "map":
        keys, items = _fields(field.type, inner, in_map=True)
        return arrays.map_array(counts, keys, items, field.type.arrow)
    if field.type.kind in _MESSAGES:
        elements = _message(field.type, inner)
    else:
        elements = _scalar(field.type, inner, noted)
    return arrays.list_array(counts, elements, field.arrow)


def _message(shape: ProtoType, messages: _Messages) -> pa.Array:
    columns = _fields(shape, messages)
    valid = messages.starts >= 0
    if shape.kind == "message":
        return arrays.struct_array(columns, valid, shape.arrow)
    if shape.kind == "wrapper":
        # Its field has no presence: an absent wrapper is what makes the null.
        places = pa.array(np.arange(len(valid)), mask=~valid)
        return columns[0].take(places)
    seconds, nanos = (one.to_numpy(zero_copy_only=False).astype(np.int64) for one in columns)
    wrong = (seconds < SECONDS_MIN) | (seconds > SECONDS_MAX) | (nanos < 0) | (nanos >= 10**9)
    messages.mark(wrong & valid)
    micros = np.where(wrong, 0, seconds) * 1_000_000 + nanos // 1000
    return arrays.number_array(micros, valid, shape.arrow)


def _scalar(shape: ProtoType, messages: _Messages, noted: _Noted) -> pa.Array:
    values, lengths = noted
    valid = lengths != NULL
    match shape.kind:
        case "string" | "bytes":
            if shape.kind == "string":
                sizes = np.maximum(lengths, 0)
                messages.mark(~arrays.utf8_rows(messages.data, values, sizes))
            return arrays.bytes_array(messages.data, values, lengths, shape.arrow)
        case "uint64" | "fixed64":
            return arrays.unsigned_array(values, valid, shape.arrow)
        case "enum":
            return _enum(shape, messages, values.astype(np.int32).astype(np.int64), valid)
        case "sint32" | "sint64":
            bits = values & 0xFFFF_FFFF if shape.kind == "sint32" else values
            zigzag = (bits.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(bits & 1)
            return arrays.number_array(zigzag, valid, shape.arrow)
        case "uint32" | "fixed32":
            return arrays.number_array(values & 0xFFFF_FFFF, valid, shape.arrow)
        case _:
            return arrays.number_array(values, valid, shape.arrow)


def _enum(shape: ProtoType, messages: _Messages, values: Ints, valid: Bools) -> pa.Array:
    """Names; digits for numbers without one, which only open enums may have."""
    numbers = np.array([number for number, _ in shape.symbols], np.int64)
    places = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
    unknown = (numbers[places] != values) & valid
    names = [name for _, name in shape.symbols]
    if bool(unknown.any()):
        if shape.is_closed:
            messages.mark(unknown)
        others, found = np.unique(values[unknown], return_inverse=True)
        places[unknown] = len(names) + found
        names += [str(number) for number in others.tolist()]
    return pa.array(names, shape.arrow).take(pa.array(places, mask=~valid))


@compiled
def _varint(data: Bytes, at: int, end: int) -> tuple[Any, int]:
    """A number of 64 bits and the place after it, -1 when it is none."""
    if at < end and data[at] < 0x80:
        return np.int64(data[at]), at + 1
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        part = np.uint64(data[at])
        at += 1
        if shift == np.uint64(63) and part > np.uint64(1):
            return np.int64(0), -1
        value |= (part & np.uint64(0x7F)) << shift
        if part < np.uint64(0x80):
            return np.int64(value), at
        shift += np.uint64(7)
    return np.int64(0), -1


@compiled
def _value(data: Bytes, at: int, end: int, wire: int) -> tuple[Any, int, int]:
    """(number or place of bytes, length of bytes, place after it); place -1 when it is none."""
    if wire == _VARINT:
        value, at = _varint(data, at, end)
        return value, 0, at
    if wire == _BYTES:
        length, at = _varint(data, at, end)
        if at < 0 or length < 0 or length > end - at:
            return np.int64(0), 0, -1
        return np.int64(at), length, at + length
    size = 8 if wire == _FIXED64 else 4
    if wire not in (_FIXED64, _FIXED32) or size > end - at:
        return np.int64(0), 0, -1
    bits = np.uint64(0)
    for byte in range(size):
        bits |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
    return np.int64(bits), 0, at + size


@compiled
def _slot(table: Ints, number: int, guess: int) -> int:
    """Which field has this number; -1: none. Fields mostly come in order."""
    count = len(table)
    for ahead in range(count):
        slot = guess + ahead
        if slot >= count:
            slot -= count
        if table[slot, _NUMBER] == number:
            return slot
    return -1


@compiled
def _packed_count(data: Bytes, at: int, end: int, wire: int) -> int:
    """How many elements lie packed there; -1 when they do not fill it."""
    if wire in (_FIXED64, _FIXED32):
        size = 8 if wire == _FIXED64 else 4
        return (end - at) // size if (end - at) % size == 0 else -1
    count = 0
    while at < end:
        _, at = _varint(data, at, end)
        if at < 0:
            return -1
        count += 1
    return count


@compiled
def _scan(spans: Any, table: Ints, out: Any) -> None:
    """Note the fields that are there once, count the elements of the others."""
    data, starts, ends = spans
    single, counts, bad = out
    for message in range(len(starts)):
        at = starts[message]
        if at < 0:
            continue
        guess = 0
        while 0 <= at < ends[message]:
            tag, at = _varint(data, at, ends[message])
            if at < 0 or not 8 <= tag <= 0xFFFF_FFFF:
                at = -1
                break
            wire = tag & 7
            slot = _slot(table, tag >> 3, guess)
            value, length, at = _value(data, at, ends[message], wire)
            if slot < 0 or at < 0:
                continue
            guess = slot
            fits = wire == table[slot, _WIRE]
            if table[slot, _REPEATED] < 0:
                fits = fits and _note(table, single, (slot, message), (value, length))
                elements = 0
            elif fits:
                elements = 1
                guess = slot - 1 if slot > 0 else 0
            else:
                elements = -1
                if wire == _BYTES:
                    elements = _packed_count(data, value, value + length, table[slot, _WIRE])
                fits = elements >= 0
            if not fits:
                at = -1
                break
            if table[slot, _REPEATED] >= 0:
                counts[table[slot, _REPEATED], message] += elements
        if at < 0:
            bad[message] = True


@compiled
def _note(table: Ints, single: Any, where: Any, what: Any) -> bool:
    """Note a field's value; False when that needs a second thought."""
    values, lengths = single
    slot, message = where
    if table[slot, _MERGES] and lengths[slot, message] >= 0:
        return False
    if table[slot, _ONEOF] > 0:
        for other in range(len(table)):
            is_rival = other != slot and table[other, _ONEOF] == table[slot, _ONEOF]
            if is_rival and lengths[other, message] >= 0:
                return False
    values[slot, message], lengths[slot, message] = what
    return True


@compiled
def _collect(spans: Any, table: Ints, out: Any) -> None:
    """Note the elements of repeated fields, each field's one after another."""
    data, starts, ends = spans
    (values, lengths), places, bad = out
    for message in range(len(starts)):
        at = starts[message]
        if bad[message]:
            continue
        guess = 0
        while 0 <= at < ends[message]:
            tag, at = _varint(data, at, ends[message])
            slot = _slot(table, tag >> 3, guess)
            value, length, at = _value(data, at, ends[message], tag & 7)
            if slot < 0 or table[slot, _REPEATED] < 0:
                continue
            guess = slot
            wire = table[slot, _WIRE]
            repeated = table[slot, _REPEATED]
            if tag & 7 == wire:
                place = places[repeated, message]
                values[place] = value
                lengths[place] = length
                places[repeated, message] = place + 1
                continue
            inner = value
            while inner < value + length:
                element, _, inner = _value(data, inner, value + length, wire)
                values[places[repeated, message]] = element
                places[repeated, message] += 1
