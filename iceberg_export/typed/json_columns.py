"""JSON payloads to columns by Arrow's reader, which is given one line per record.

A compiled loop (`records.json_line`) writes the lines and sees to what Arrow's reader would not: that a
line is one object of JSON, UTF-8, without line breaks. Of a value that is more than its columns
(`JsonType.is_part`) the line has only their fields. Where the reader
refuses (one bad record is enough, and it does not say which) the lines are halved until few are
left; those are odd and left to the reference. So are schemas with maps, with JSON text columns, and
whose values are no objects, since Arrow's reader has no such columns.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from iceberg_export.records.cells import Cells
from iceberg_export.records.decode import Bytes, Ints, compiled
from iceberg_export.records.json_line import DEPTH_MAX, copy_object, names_of
from iceberg_export.typed import arrays, types
from iceberg_export.typed.arrays import Bools
from iceberg_export.typed.json_schema import JsonType

ROWS_FEW = 16
"""So few lines are not halved again."""

LINES_BYTES_MAX = 1 << 30
"""Arrow's reader wants all lines in one block of 32 bits."""

_OPEN, _CLOSE, _LINE_FEED = ord("{"), ord("}"), ord("\n")

_SEPARATES = np.isin(np.arange(256), list(b"Tt "))
"""What may stand between date and time."""


def is_fast(shape: JsonType) -> bool:
    """Arrow's reader has such columns."""
    return shape.kind == "object" and not shape.has("map", "json")


def json_columns(
    shape: JsonType, data: Bytes, starts: Ints, lengths: Ints, cells: Cells
) -> tuple[list[pa.Array], Bools]:
    """(columns, which rows are odd). Raises TooManyCellsError."""
    odd = np.zeros(len(starts), np.bool_)
    lines = np.empty(int(lengths.sum()) + 3 * len(starts), np.uint8)
    ends = np.zeros(len(starts) + 1, np.int64)
    wanted = [name for name, _ in shape.fields] if shape.is_part else []
    met = np.zeros(len(wanted), np.bool_)
    names = (names_of(wanted), met)
    listed = _write_lines(data, (starts, lengths), lines, (ends[1:], odd), names)
    if not wanted:
        return columns_of_lines(shape, (lines, ends), (odd, int(listed)), cells), odd
    # Arrow's reader fills a column without values at the price of one with values.
    there = tuple(field for field, is_met in zip(shape.fields, met, strict=True) if is_met)
    found: list[pa.Array] = []
    if there:
        there_shape = shape._replace(fields=there)
        found = columns_of_lines(there_shape, (lines, ends), (odd, int(listed)), cells)
    by_name = dict(zip([name for name, _ in there], found, strict=True))
    return [
        by_name[name] if name in by_name else pa.nulls(len(odd), one.arrow)
        for name, one in shape.fields
    ], odd


def columns_of_lines(
    shape: JsonType,
    text: tuple[Bytes, Ints],
    counted: tuple[Bools, int],
    cells: Cells,
    *,
    only: bool = False,
) -> list[pa.Array]:
    """Returns the columns of lines and their ends; `counted` has which rows are odd, to which this adds, and
    how many objects and nulls are elements of lists. `only`: lines with other fields are odd. Raises
    TooManyCellsError."""
    lines, ends = text
    odd, listed = counted
    # Other elements take more bytes than cells.
    cells.take(listed * _nodes_listed(shape))
    pieces: list[list[pa.Array]] = []
    spans = [(0, len(odd))] if len(odd) else []
    while spans:
        first, last = spans.pop()
        span = pa.py_buffer(lines[ends[first] : ends[last]])
        fits = span.size < LINES_BYTES_MAX
        found = _parse(shape, span, last - first, only=only) if fits else None
        if found is not None:
            pieces.append(found)
        elif last - first <= ROWS_FEW:
            odd[first:last] = True
            pieces.append([pa.nulls(last - first, one.arrow) for _, one in shape.fields])
        else:
            middle = (first + last) // 2
            spans += [(middle, last), (first, middle)]
    if not pieces:
        return [pa.nulls(0, one.arrow) for _, one in shape.fields]
    return [pa.concat_arrays(column) for column in zip(*pieces, strict=True)]


def _parse(shape: JsonType, lines: pa.Buffer, count: int, *, only: bool) -> list[pa.Array] | None:
    """The columns of these lines; None when one of them is not what the schema says."""
    try:
        table = arrow_json.read_json(
            pa.BufferReader(lines),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema([(name, _wanted(one)) for name, one in shape.fields]),
                unexpected_field_behavior="error" if only else "ignore",
            ),
        ).combine_chunks()
    except pa.ArrowInvalid:
        return None
    if table.num_rows != count:
        return None
    columns = []
    for (_, one), column in zip(shape.fields, table.columns, strict=True):
        found = _finish(one, column.chunk(0))
        if found is None:
            return None
        columns.append(found)
    return columns


def _nodes_listed(shape: JsonType) -> int:
    """Types that an element of some list is made of, at most."""
    inside = [_nodes_listed(inner) for _, inner in shape.fields]
    return max([*inside, shape.fields[0][1].nodes if shape.kind == "array" else 0], default=0)


def _wanted(shape: JsonType) -> pa.DataType:
    """What Arrow's reader is asked for; it has no large strings in lists."""
    match shape.kind:
        case "object":
            return pa.struct([(name, _wanted(one)) for name, one in shape.fields])
        case "array":
            return pa.list_(pa.field("element", _wanted(shape.fields[0][1])))
        case "string" | "date" | "date-time":
            return pa.string()
        case _:
            return shape.arrow


def _finish(shape: JsonType, array: pa.Array) -> pa.Array | None:
    """In the schema's type; None when a date is none or a number beyond a double."""
    match shape.kind:
        case "object":
            children = [_finish(one, array.field(name)) for name, one in shape.fields]
            if any(child is None for child in children):
                return None
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            return arrays.struct_array(children, valid, shape.arrow)
        case "array":
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            counts = np.where(valid, np.diff(array.offsets.to_numpy()), arrays.NULL)
            # Not `values`: nulls may have elements, which `flatten` leaves out.
            inner = _finish(shape.fields[0][1], array.flatten())
            return None if inner is None else arrays.list_array(counts, inner, shape.arrow)
        case "date" | "date-time":
            return _moments(array.cast(pa.large_binary()), shape)
        case "string":
            return array.cast(types.TEXT)
        case "number":
            if bool(pc.any(pc.is_inf(array)).as_py()):
                return None
            # JSON has one zero.
            return pc.add(array, 0.0)
        case _:
            return array


def _moments(texts: pa.Array, shape: JsonType) -> pa.Array | None:
    count = len(texts)
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    data_buffer = texts.buffers()[2]
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: count + 1]
    out = np.zeros(count, np.int64)
    if not _parse_moments(data, offsets, valid, (shape.kind == "date", out)):
        return None
    return arrays.number_array(out, valid, shape.arrow)


@compiled
def _write_lines(data: Bytes, values: Any, lines: Bytes, out: Any, wanted: Any) -> int:
    """Each value as a line, `{}` for those that are no object on their own (`copy_object`). Returns how
    many objects and nulls are elements of lists."""
    starts, lengths = values
    ends, odd = out
    place = 0
    listed = 0
    above = np.zeros(DEPTH_MAX + 2, np.uint8)
    for row in range(len(starts)):
        at = starts[row]
        end = at + lengths[row]
        after, objects, is_ascii = copy_object(data, (at, end), (lines, place), above, wanted)
        if after >= 0 and (is_ascii or arrays.is_utf8(data, at, end)):
            place = after
            listed += objects
        else:
            odd[row] = True
            lines[place] = _OPEN
            lines[place + 1] = _CLOSE
            place += 2
        lines[place] = _LINE_FEED
        place += 1
        ends[row] = place
    return listed


@compiled
def _parse_moments(data: Bytes, offsets: Ints, valid: Bools, out: Any) -> bool:
    """Days, or microseconds, since 1970; False when one is none (RFC 3339)."""
    is_date, micros = out
    for row in range(len(valid)):
        if not valid[row]:
            continue
        at, end = offsets[row], offsets[row + 1]
        fits, days = _day(data, at, end)
        if not fits or (is_date and end - at != 10):
            return False
        micros[row] = days
        if not is_date:
            fits, time = _time(data, at + 10, end)
            if not fits:
                return False
            micros[row] = days * 86_400_000_000 + time
    return True


@compiled
def _digits(data: Bytes, at: int, count: int) -> int:
    """The number that so many digits say; -1 when they are none."""
    value: Any = np.int64(0)
    for place in range(at, at + count):
        digit = np.int64(data[place]) - 48
        if not 0 <= digit <= 9:
            return -1
        value = value * 10 + digit
    return int(value)


@compiled
def _day(data: Bytes, at: int, end: int) -> tuple[bool, int]:
    """(whether it is, days since 1970) of YYYY-MM-DD."""
    if end - at < 10 or data[at + 4] != 45 or data[at + 7] != 45:
        return False, 0
    year, month, day = _digits(data, at, 4), _digits(data, at + 5, 2), _digits(data, at + 8, 2)
    if year < 1 or not 1 <= month <= 12 or day < 1:
        return False, 0
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    longest = 30 + (month + month // 8) % 2
    if month == 2:
        longest = 29 if leap else 28
    if day > longest:
        return False, 0
    # Years are counted from March, so that the odd day comes last (Hinnant, days_from_civil).
    years = year - 1 if month <= 2 else year
    months = month + 9 if month <= 2 else month - 3
    days = years * 365 + years // 4 - years // 100 + years // 400
    return True, days + (153 * months + 2) // 5 + day - 1 - 719_468


@compiled
def _time(data: Bytes, at: int, end: int) -> tuple[bool, int]:
    """(whether it is, microseconds in UTC) of THH:MM:SS, a fraction and a zone."""
    if end - at < 10 or not _SEPARATES[data[at]] or data[at + 3] != 58 or data[at + 6] != 58:
        return False, 0
    hour, minute, second = (
        _digits(data, at + 1, 2),
        _digits(data, at + 4, 2),
        _digits(data, at + 7, 2),
    )
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59):
        return False, 0
    at += 9
    micros = 0
    if data[at] == 46:
        count = 0
        while at + 1 + count < end and 48 <= data[at + 1 + count] <= 57:
            count += 1
        if not 1 <= count <= 9:
            return False, 0
        micros = _digits(data, at + 1, count) * 10 ** (9 - count) // 1000
        at += 1 + count
    fits, offset = _zone(data, at, end)
    seconds = hour * 3600 + minute * 60 + second - offset * 60
    return fits, seconds * 1_000_000 + micros


@compiled
def _zone(data: Bytes, at: int, end: int) -> tuple[bool, int]:
    """(whether it is, minutes east of UTC) of Z or ±HH:MM."""
    if end - at == 1:
        return bool(data[at] | 32 == 122), 0
    if end - at != 6 or (data[at] != 43 and data[at] != 45) or data[at + 3] != 58:
        return False, 0
    hour, minute = _digits(data, at + 1, 2), _digits(data, at + 4, 2)
    minutes = hour * 60 + minute
    fits = 0 <= hour <= 23 and 0 <= minute <= 59
    return fits, -minutes if data[at] == 45 else minutes
