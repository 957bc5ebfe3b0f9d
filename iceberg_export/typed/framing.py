"""Confluent's wire format: a zero byte, the schema's id in four bytes, for Protobuf the message.

Protobuf messages are named by their path in the schema's file: a count and so many indexes, each a
zig-zag varint, the common path [0] written as the single byte 0. Frames are told apart by compiled
code over a whole column; nothing is copied. A value that does not begin like a frame is `UNFRAMED`,
never an error: what that means is the caller's to say.

Newer serializers name the schema in a record's header instead: `schema_headers`.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_export.records.decode import Bytes, Ints, compiled

UNFRAMED = -1
NULL_VALUE = -2

HEADER_BYTES = 5
INDEXES_MAX = 16
"""Messages lie in each other at most this deep; a longer path is no frame."""

FIRST_MESSAGE: tuple[int, ...] = (0,)


class Frames(NamedTuple):
    """Where the payload of each value lies, in `data`."""

    data: Bytes
    schema_ids: npt.NDArray[np.int32]
    """UNFRAMED and NULL_VALUE are below 0."""
    starts: Ints
    """Of the payload; of the whole value when it is not framed."""
    lengths: Ints
    index_starts: Ints
    """Of the message indexes; they end where the payload starts. Only of Protobuf."""


def column_bytes(values: pa.Array) -> tuple[Bytes, Ints, Ints]:
    """(data, starts, lengths) of a large binary array, without a copy; nulls have length 0."""
    assert values.type == pa.large_binary()
    _, offset_buffer, data_buffer = values.buffers()
    if len(values) == 0 or offset_buffer is None:
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets = np.frombuffer(offset_buffer, np.int64)[values.offset :][: len(values) + 1]
    empty = data_buffer is None or data_buffer.size == 0
    data = np.zeros(0, np.uint8) if empty else np.frombuffer(data_buffer, np.uint8)
    return data, offsets[:-1], np.diff(offsets)


def is_valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def whole_values(values: pa.Array) -> Frames:
    """A column whose values are all payload: no value has a schema's id, and no message's path."""
    data, starts, lengths = column_bytes(values)
    ids = np.where(is_valid(values), UNFRAMED, NULL_VALUE).astype(np.int32)
    return Frames(data, ids, starts, lengths, starts)


def split_frames(values: pa.Array, *, indexes: bool) -> Frames:
    """Take the frames of a column apart; `indexes` when they name messages (Protobuf)."""
    data, starts, lengths = column_bytes(values)
    count = len(values)
    ids = np.empty(count, np.int32)
    out_starts = np.empty(count, np.int64)
    out_lengths = np.empty(count, np.int64)
    index_starts = np.empty(count, np.int64)
    out = (ids, out_starts, out_lengths, index_starts)
    _split(data, (starts, lengths, is_valid(values)), indexes, out)
    return Frames(data, *out)


@compiled
def _split(data: Bytes, values: Any, indexes: Any, out: Any) -> None:
    starts, lengths, valid = values
    ids, out_starts, out_lengths, index_starts = out
    for row in range(len(starts)):
        at = starts[row]
        end = at + lengths[row]
        out_starts[row] = at
        out_lengths[row] = lengths[row]
        index_starts[row] = at
        if not valid[row]:
            ids[row] = NULL_VALUE
            continue
        ids[row] = UNFRAMED
        if end - at < HEADER_BYTES or data[at] != 0:
            continue
        number: Any = np.int64(0)
        for place in range(at + 1, at + HEADER_BYTES):
            number = number << 8 | np.int64(data[place])
        # Ids are Java's ints: what looks negative is no id.
        if number > 0x7FFFFFFF:
            continue
        payload = at + HEADER_BYTES
        if indexes:
            payload = skip_indexes(data, payload, end)
            if payload < 0:
                continue
        ids[row] = number
        out_starts[row] = payload
        out_lengths[row] = end - payload
        index_starts[row] = at + HEADER_BYTES


@compiled
def skip_indexes(data: Bytes, at: int, end: int) -> int:
    """Where the message indexes that begin at `at` end; -1 when they are none."""
    left = -1
    while left != 0:
        value: Any = np.int64(0)
        shift = 0
        while True:
            if at >= end or shift > 28:
                return -1
            part = np.int64(data[at])
            at += 1
            value |= (part & 0x7F) << shift
            shift += 7
            if part < 0x80:
                break
        # Zig-zag: counts and indexes that are below zero are odd.
        if value & 1:
            return -1
        if left < 0:
            left = value >> 1
            if left > INDEXES_MAX:
                return -1
        else:
            left -= 1
    return at


def message_indexes(raw: bytes) -> tuple[int, ...]:
    """The path that checked index bytes say."""
    numbers = []
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value >> 1)
            value = shift = 0
    return tuple(numbers[1:]) or FIRST_MESSAGE


def frame(schema_id: int, payload: bytes, indexes: tuple[int, ...] | None = None) -> bytes:
    """A framed value, as Confluent's serializers write it."""
    head = b"\0" + schema_id.to_bytes(4, "big")
    if indexes is None:
        return head + payload
    if indexes == FIRST_MESSAGE:
        return head + b"\0" + payload
    return head + b"".join(_varint(2 * one) for one in (len(indexes), *indexes)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
