"""Avro payloads to columns by compiled code, one column after another.

Avro has no way to find a field but to read those before it. So every record has a place up to which
it has been read, and a column is made by one compiled loop over all records, which moves their
places on; that is faster than a walk through each record, since a loop knows the one type it reads.
A union is a loop that reads branches and then one per branch, which passes over the records of the
others. Arrays and maps take a round of loops per element; records whose arrays are longer than
`ROUNDS_MAX` are left aside.

A record that is not what the schema says, down to the last byte, is odd: it gets the place ODD, no
loop reads on, and all that is said of it is that it is.
"""

from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_export.records.cells import Cells
from iceberg_export.records.decode import Bytes, Ints, compiled
from iceberg_export.typed import arrays
from iceberg_export.typed.arrays import NULL
from iceberg_export.typed.avro_schema import AvroType

Bools = npt.NDArray[np.bool_]

ODD = -1
ROUNDS_MAX = 1000

# What else must hold of a number, by logical type.
_TIMESTAMP_MILLIS, _TIME_MILLIS, _TIME_MICROS = 1, 2, 3
_CHECKS = {
    "timestamp-millis": _TIMESTAMP_MILLIS,
    "local-timestamp-millis": _TIMESTAMP_MILLIS,
    "time-millis": _TIME_MILLIS,
    "time-micros": _TIME_MICROS,
}
_MILLIS_MAX = ((1 << 63) - 1) // 1000
_DAY_MICROS = 86_400_000_000
_BITS_SIZES = {"boolean": 1, "float": 4, "double": 8}
# How to pass over a value: so many bytes, a number, bytes behind their length, a branch's steps.
_FIXED, _NUMBER, _SIZED, _JUMP, _BRANCH = range(5)


class _Cursor(NamedTuple):
    """How far each value has been read."""

    data: Bytes
    places: Ints
    """ODD when it cannot be read; moved on in place."""
    ends: Ints

    def some(self, rows: Ints) -> "_Cursor":
        return _Cursor(self.data, self.places[rows], self.ends[rows])


def avro_column(
    shape: AvroType, data: Bytes, starts: Ints, lengths: Ints, cells: Cells
) -> tuple[pa.Array, Bools]:
    """(the values, which rows are odd). Raises TooManyCellsError."""
    cursor = _Cursor(data, starts.copy(), starts + lengths)
    column = _read(shape, cursor, np.ones(len(starts), np.bool_), cells)
    return column, cursor.places != cursor.ends


def _read(shape: AvroType, cursor: _Cursor, active: Bools, cells: Cells) -> pa.Array:
    """The next value of this type of all active rows; null for the others."""
    match shape.kind:
        case "null":
            return pa.nulls(len(active))
        case "record":
            children = []
            for is_passed_over, fields in groupby(shape.fields, _is_passed_over):
                if is_passed_over:
                    _pass_over([one for _, one in fields], cursor, active)
                else:
                    children += [_read(one, cursor, active, cells) for _, one in fields]
            return arrays.struct_array(children, active, shape.arrow)
        case "union":
            return _read_union(shape, cursor, active, cells)
        case "array" | "map":
            return _read_repeated(shape, cursor, active, cells)
        case _:
            return _read_scalar(shape, cursor, active)


def _read_union(shape: AvroType, cursor: _Cursor, active: Bools, cells: Cells) -> pa.Array:
    branches, _ = _numbers(cursor, active, 32, (0, len(shape.fields)))
    read = []
    is_null = ~active
    for number, (_, branch) in enumerate(shape.fields):
        chosen = active & (branches == number)
        if branch.kind == "null":
            is_null |= chosen
        elif not chosen.any():
            # Often in lists, whose rounds are of few rows.
            read.append(pa.nulls(len(active), branch.arrow))
        else:
            read.append(_read(branch, cursor, chosen, cells))
    if not read:
        return pa.nulls(len(active))
    return read[0] if len(read) == 1 else arrays.struct_array(read, ~is_null, shape.arrow)


def _is_passed_over(field: tuple[str, AvroType]) -> bool:
    return bool(field[1].arrow == pa.null())


def _pass_over(shapes: list[AvroType], cursor: _Cursor, active: Bools) -> None:
    """Moves all active rows past values of these types, one after the other, none of them repeated."""
    program: list[tuple[int, int]] = []
    for shape in shapes:
        _add_steps(shape, program)
    if program:
        _pass(cursor, active, np.array(program, np.int64))


def _add_steps(shape: AvroType, program: list[tuple[int, int]]) -> None:
    match shape.kind:
        case "null":
            pass
        case "record":
            for _, one in shape.fields:
                _add_steps(one, program)
        case "union":
            program.append((_BRANCH, len(shape.fields)))
            first = len(program)
            program += [(_JUMP, 0)] * len(shape.fields)
            ends = []
            for place, (_, one) in enumerate(shape.fields, first):
                program[place] = (_JUMP, len(program))
                _add_steps(one, program)
                ends.append(len(program))
                program.append((_JUMP, 0))
            for place in ends:
                program[place] = (_JUMP, len(program))
        case "boolean" | "float" | "double":
            program.append((_FIXED, _BITS_SIZES[shape.kind]))
        case "fixed":
            program.append((_FIXED, shape.size))
        case _:
            program.append((_NUMBER if shape.kind == "long" else _SIZED, 0))


def _read_repeated(shape: AvroType, cursor: _Cursor, active: Bools, cells: Cells) -> pa.Array:
    counts = np.where(active, 0, NULL)
    left = np.zeros(len(active), np.int64)
    rows = np.flatnonzero(active)
    parents: list[Ints] = []
    keys: list[pa.Array] = []
    elements: list[pa.Array] = []
    inner = shape.fields[0][1]
    while True:
        count = _blocks(cursor.data, cursor.places, cursor.ends, rows, left)
        # All of a block at once, before a round of loops for each of its elements.
        cells.take(int(count) * inner.nodes)
        rows = rows[(left[rows] > 0) & (cursor.places[rows] >= 0)]
        if not len(rows):
            break
        if len(elements) == ROUNDS_MAX:
            cursor.places[rows] = ODD
            break
        some = cursor.some(rows)
        every = np.ones(len(rows), np.bool_)
        if shape.kind == "map":
            # Where a record turns odd at a key, the map still needs one.
            keys.append(_read_scalar(_KEY, some, every).fill_null(""))
        elements.append(_read(inner, some, every, cells))
        parents.append(rows)
        cursor.places[rows] = some.places
        left[rows] -= 1
        counts[rows] += 1
    if not elements:
        elements, keys = [pa.nulls(0, inner.arrow)], [pa.nulls(0, _KEY.arrow)]
    order = None
    if len(parents) > 1:
        # Rounds go across the rows; the elements of one row belong together.
        order = pa.array(np.argsort(np.concatenate(parents), kind="stable"))
    values = _in_order(elements, order)
    if shape.kind == "array":
        return arrays.list_array(counts, values, shape.arrow)
    return arrays.map_array(counts, _in_order(keys, order), values, shape.arrow)


_KEY = AvroType("string", pa.large_string())


def _in_order(pieces: list[pa.Array], order: pa.Array | None) -> pa.Array:
    whole = pa.concat_arrays(pieces)
    return whole if order is None else whole.take(order)


def _read_scalar(shape: AvroType, cursor: _Cursor, active: Bools) -> pa.Array:
    if shape.kind in {"int", "long"}:
        bits = 32 if shape.kind == "int" else 64
        check = _CHECKS.get(shape.logical, 0)
        values, valid = _numbers(cursor, active, bits, (check, 0))
        return arrays.number_array(values, valid, shape.arrow)
    if shape.kind == "enum":
        values, valid = _numbers(cursor, active, 32, (0, len(shape.symbols)))
        return pa.array(shape.symbols, shape.arrow).take(pa.array(values, mask=~valid))
    size = len(active)
    if shape.kind in _BITS_SIZES:
        values, valid = np.zeros(size, np.int64), np.zeros(size, np.bool_)
        _bits(cursor, active, _BITS_SIZES[shape.kind], (values, valid))
        return arrays.number_array(values, valid, shape.arrow)
    starts, lengths = np.zeros(size, np.int64), np.full(size, NULL, np.int64)
    digits = shape.arrow.precision if shape.logical == "decimal" else 0
    _pieces(cursor, active, (shape.size, shape.kind == "string", digits), (starts, lengths))
    if shape.logical == "decimal":
        return arrays.decimal_array(cursor.data, starts, lengths, shape.arrow)
    if shape.logical == "uuid":
        return arrays.uuid_array(cursor.data, starts, lengths)
    if shape.kind == "fixed":
        found = arrays.bytes_array(cursor.data, starts, lengths, pa.large_binary())
        return found.cast(shape.arrow)
    return arrays.bytes_array(cursor.data, starts, lengths, shape.arrow)


def _numbers(
    cursor: _Cursor, active: Bools, bits: int, bounds: tuple[int, int]
) -> tuple[Ints, Bools]:
    """(numbers, which there are); bounds are a check and, unless 0, what they must lie below."""
    values, valid = np.zeros(len(active), np.int64), np.zeros(len(active), np.bool_)
    _longs(cursor, active, (bits, *bounds), (values, valid))
    return values, valid


@compiled
def long(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """A zig-zag number of 64 bits and the place after it, ODD when it is none."""
    if at < end and data[at] < 0x80:
        byte: Any = np.int64(data[at])
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        part = np.uint64(data[at])
        at += 1
        if shift == np.uint64(63) and part > np.uint64(1):
            return 0, ODD
        value |= (part & np.uint64(0x7F)) << shift
        if part < np.uint64(0x80):
            half: Any = np.int64(value >> np.uint64(1))
            return half ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return 0, ODD


@compiled
def _longs(cursor: Any, active: Bools, rules: Any, out: Any) -> None:
    """Numbers, in microseconds where they are moments."""
    data, places, ends = cursor
    bits, check, below = rules
    values, valid = out
    for row in range(len(places)):
        at = places[row]
        if at < 0 or not active[row]:
            continue
        value, at = long(data, at, ends[row])
        if bits == 32 and not -(1 << 31) <= value < 1 << 31:
            at = ODD
        if below > 0 and not 0 <= value < below:
            at = ODD
        if check != 0:
            fits, value = _moment(check, value)
            if not fits:
                at = ODD
        places[row] = at
        if at >= 0:
            values[row] = value
            valid[row] = True


@compiled
def _moment(check: int, value: int) -> tuple[bool, int]:
    """Whether there is such a moment, and its microseconds. Checked before a product can wrap."""
    if check == _TIMESTAMP_MILLIS:
        return -_MILLIS_MAX <= value <= _MILLIS_MAX, value * 1000
    if check == _TIME_MILLIS:
        return 0 <= value < _DAY_MICROS // 1000, value * 1000
    return 0 <= value < _DAY_MICROS, value


@compiled
def _bits(cursor: Any, active: Bools, size: int, out: Any) -> None:
    """Little-endian bits of so many bytes; one byte is a boolean."""
    data, places, ends = cursor
    values, valid = out
    for row in range(len(places)):
        at = places[row]
        if at < 0 or not active[row]:
            continue
        bits = np.uint64(0)
        if size <= ends[row] - at:
            for byte in range(size):
                bits |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
            places[row] = at + size
        else:
            places[row] = ODD
        if size == 1 and bits > np.uint64(1):
            places[row] = ODD
        values[row] = np.int64(bits)
        valid[row] = places[row] >= 0


@compiled
def _pieces(cursor: Any, active: Bools, rules: Any, out: Any) -> None:
    """Where bytes lie, of a fixed size or with their length before them."""
    data, places, ends = cursor
    fixed, is_text, digits = rules
    starts, lengths = out
    for row in range(len(places)):
        at = places[row]
        if at < 0 or not active[row]:
            continue
        length: Any = np.int64(fixed)
        if fixed == 0:
            length, at = long(data, at, ends[row])
        if at < 0 or length < 0 or length > ends[row] - at:
            places[row] = ODD
            continue
        if is_text and not arrays.is_utf8(data, at, at + length):
            places[row] = ODD
            continue
        if digits > 0 and not arrays.has_digits(data, at, length, digits):
            places[row] = ODD
            continue
        starts[row] = at
        lengths[row] = length
        places[row] = at + length


@compiled
def _pass(cursor: Any, active: Bools, program: Any) -> None:
    data, places, ends = cursor
    for row in range(len(places)):
        at = places[row]
        if at < 0 or not active[row]:
            continue
        end = ends[row]
        step = 0
        while step < len(program) and at >= 0:
            what, number = program[step, 0], program[step, 1]
            step += 1
            if what == _FIXED:
                at = at + number if number <= end - at else ODD
            elif what == _NUMBER:
                at = _after_long(data, at, end)
            elif what == _SIZED:
                length, at = long(data, at, end)
                at = at + length if at >= 0 and 0 <= length <= end - at else ODD
            elif what == _JUMP:
                step = number
            else:
                branch, at = long(data, at, end)
                step += branch
                if not 0 <= branch < number:
                    at = ODD
        places[row] = at


@compiled
def _after_long(data: Bytes, at: int, end: int) -> int:
    """The place after a zig-zag number of 64 bits, ODD when it is none."""
    last = min(end, at + 10)
    for place in range(at, last):
        if data[place] < 0x80:
            return place + 1 if place < at + 9 or data[place] <= 1 else ODD
    return ODD


@compiled
def _blocks(data: Bytes, places: Ints, ends: Ints, rows: Ints, left: Ints) -> int:
    """Where no element of a block is left, read the head of the next block; 0 ends the array.
    Returns how many elements these blocks have."""
    total = 0
    for row in rows:
        at = places[row]
        if at < 0 or left[row] > 0:
            continue
        count, at = long(data, at, ends[row])
        if at >= 0 and count < 0:
            count = -count
            _, at = long(data, at, ends[row])
        # Each element takes a byte at least. The least number has no counterpart above 0.
        if at >= 0 and (count < 0 or count > ends[row] - at):
            at = ODD
        places[row] = at
        left[row] = 0 if at < 0 else count
        total += left[row]
    return total
