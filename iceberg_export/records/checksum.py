"""A checksum of records that does not depend on their order: who has the same records, once each,
has the same sums.

Every record is hashed whole (partition, offset, timestamp and its type, key, headers, value; null
differs from empty; of typed tables their columns) to 64 bits, and per block of 65,536 offsets
three numbers are added up: the count, the hashes, and the hashes mixed once more. A missing,
doubled or changed record shows in at least one, and the block says where. Compiled, since it sees
every byte. Pure.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_export import names
from iceberg_export.records.decode import Bytes, Ints, compiled

BLOCK_BITS = 16
Hashes = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1


class Block(NamedTuple):
    """Offsets [number << 16, number + 1 << 16) of one partition."""

    partition: int
    number: int


class Sums(NamedTuple):
    """Of the records of one block, modulo 2**64."""

    records: int
    hashes: int
    mixed: int

    def plus(self, other: "Sums") -> "Sums":
        return Sums(
            self.records + other.records,
            (self.hashes + other.hashes) & _MASK,
            (self.mixed + other.mixed) & _MASK,
        )


NOTHING = Sums(0, 0, 0)
_EVERY_TABLES = {
    names.PARTITION,
    names.OFFSET,
    names.TIMESTAMP,
    names.TIMESTAMP_TYPE,
    names.TIMESTAMP_RAW,
    names.HEADERS,
}
"""Columns that are hashed by themselves."""


@compiled
def _mix(value: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64: every bit of the input moves every bit of the output."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def _add_ints(hashes: Hashes, values: Ints) -> None:
    for row in range(len(hashes)):
        hashes[row] = _mix(hashes[row] * np.uint64(0x100000001B3) + np.uint64(values[row]))


@compiled
def _add_bytes(hashes: Hashes, data: Bytes, places: Ints, null: Bytes) -> None:
    for row in range(len(hashes)):
        if null[row]:
            hashes[row] = _mix(hashes[row] + np.uint64(0x9E3779B97F4A7C15))
            continue
        start = places[row]
        end = places[row + 1]
        # The length keeps neighbouring fields apart.
        value = np.uint64(0xCBF29CE484222325) ^ np.uint64(end - start)
        at = start
        while at + 8 <= end:
            word = np.uint64(0)
            for byte in range(8):
                word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
            value = _mix(value ^ word)
            at += 8
        while at < end:
            value = (value ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
            at += 1
        hashes[row] = _mix(hashes[row] * np.uint64(0x100000001B3) + value)


@compiled
def _add_lists(hashes: Hashes, elements: Hashes, places: Ints) -> None:
    first = places[0]
    for row in range(len(hashes)):
        value = np.uint64(places[row + 1] - places[row])
        for at in range(places[row], places[row + 1]):
            value = _mix(value * np.uint64(0x100000001B3) + elements[at - first])
        hashes[row] = _mix(hashes[row] * np.uint64(0x100000001B3) + value)


@compiled
def _add_nullable(hashes: Hashes, values: Ints, null: Bytes) -> None:
    for row in range(len(hashes)):
        value = np.uint64(values[row])
        if null[row]:
            hashes[row] = _mix(hashes[row] + np.uint64(0x9E3779B97F4A7C15))
        else:
            hashes[row] = _mix(hashes[row] * np.uint64(0x100000001B3) + value)


@compiled
def _add_bags(hashes: Hashes, elements: Hashes, places: Ints) -> None:
    """As lists, but the order of elements does not matter."""
    for row in range(len(hashes)):
        value = np.uint64(places[row + 1] - places[row])
        for at in range(places[row], places[row + 1]):
            value += _mix(elements[at])
        hashes[row] = _mix(hashes[row] * np.uint64(0x100000001B3) + value)


@compiled
def _mix_all(hashes: Hashes, out: Hashes) -> None:
    for row in range(len(hashes)):
        out[row] = _mix(hashes[row] ^ np.uint64(0x9E3779B97F4A7C15))


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _binary(hashes: Hashes, array: pa.Array) -> None:
    _validity, places, data = array.buffers()
    _add_bytes(
        hashes,
        np.frombuffer(data or b"", np.uint8),
        np.frombuffer(places, np.int64)[array.offset : array.offset + len(array) + 1],
        np.asarray(array.is_null()).astype(np.uint8),
    )


def timestamps_ms(rows: pa.Table) -> Ints:
    """Kafka's timestamps, from the two columns that hold them; -1 where there is none."""
    micros = _one(rows.column(names.TIMESTAMP)).cast(pa.int64())
    raw = _one(rows.column(names.TIMESTAMP_RAW))
    values = np.asarray(micros.fill_null(-1000)) // 1000
    return np.where(np.asarray(raw.is_valid()), np.asarray(raw.fill_null(0)), values)


def _add_column(hashes: Hashes, array: pa.Array) -> None:
    """Any column of a typed table. Null differs from empty at every depth."""
    kind = array.type
    null = np.asarray(array.is_null()).astype(np.uint8)
    if pa.types.is_struct(kind):
        _add_nullable(hashes, np.zeros(len(array), np.int64), null)
        for child in array.flatten():
            _add_column(hashes, child)
    elif pa.types.is_map(kind) or pa.types.is_large_list(kind) or pa.types.is_list(kind):
        _add_nullable(hashes, np.zeros(len(array), np.int64), null)
        _add_elements(hashes, array)
    elif pa.types.is_floating(kind):
        numbers = np.asarray(array.cast(pa.float64()).fill_null(0.0)).copy()
        numbers[np.isnan(numbers)] = np.nan  # There are many bit patterns of it.
        _add_nullable(hashes, numbers.view(np.int64), null)
    elif pa.types.is_decimal(kind):
        _binary(hashes, array.cast(pa.large_string()).view(pa.large_binary()))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        _add_nullable(hashes, np.asarray(array.cast(pa.int64()).fill_null(0)), null)
    elif pa.types.is_temporal(kind):
        whole = array.cast(pa.int32()) if pa.types.is_date32(kind) else array
        _add_nullable(hashes, np.asarray(whole.cast(pa.int64()).fill_null(0)), null)
    else:
        _binary(hashes, array.cast(pa.large_binary()))


def _add_elements(hashes: Hashes, array: pa.Array) -> None:
    """Of lists, in order, and of maps, in any."""
    # A copy has nothing before its slice and nothing under its nulls.
    array = array.take(pa.array(np.arange(len(array))))
    is_map = pa.types.is_map(array.type)
    elements = [array.keys, array.items] if is_map else [array.values]
    places = np.asarray(array.offsets).astype(np.int64)
    inner = np.zeros(len(elements[0]), np.uint64)
    for one in elements:
        _add_column(inner, one)
    (_add_bags if is_map else _add_lists)(hashes, inner, places)


def row_hashes(rows: pa.Table) -> Hashes:
    """One hash per record. `rows` has the columns and types of `rows.ROW_SCHEMA`, or others in the
    place of key and value, which are hashed in the order of their names."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    if rows.num_rows == 0:
        return hashes
    _add_ints(hashes, np.asarray(_one(rows.column(names.PARTITION)).cast(pa.int64())))
    _add_ints(hashes, np.asarray(_one(rows.column(names.OFFSET))))
    _add_ints(hashes, timestamps_ms(rows))
    _add_ints(hashes, np.asarray(_one(rows.column(names.TIMESTAMP_TYPE)).cast(pa.int64())))
    for name in sorted(set(rows.column_names) - _EVERY_TABLES):
        _add_column(hashes, _one(rows.column(name)))
    headers = _one(rows.column(names.HEADERS))
    elements = headers.flatten()
    inner = np.zeros(len(elements), np.uint64)
    _binary(inner, elements.field("key").cast(pa.large_binary()))
    _binary(inner, elements.field("value"))
    _add_lists(hashes, inner, np.asarray(headers.offsets))
    return hashes


def sum_rows(rows: pa.Table) -> dict[Block, Sums]:
    """The sums of these records, by block."""
    hashes = row_hashes(rows)
    if rows.num_rows == 0:
        return {}
    mixed = np.empty_like(hashes)
    _mix_all(hashes, mixed)
    partitions = np.asarray(_one(rows.column(names.PARTITION)))
    numbers = np.asarray(_one(rows.column(names.OFFSET))) >> BLOCK_BITS
    # Records come in order mostly: add up runs of one block, then the runs.
    changes = (np.diff(partitions) != 0) | (np.diff(numbers) != 0)
    starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changes) + 1])
    ends = np.append(starts[1:], len(hashes))
    found: dict[Block, Sums] = {}
    runs = zip(
        partitions[starts].tolist(),
        numbers[starts].tolist(),
        (ends - starts).tolist(),
        np.add.reduceat(hashes, starts).tolist(),
        np.add.reduceat(mixed, starts).tolist(),
        strict=True,
    )
    for partition, number, *sums in runs:
        block = Block(partition, number)
        found[block] = found.get(block, NOTHING).plus(Sums(*sums))
    return found


def add_sums(into: dict[Block, Sums], more: dict[Block, Sums]) -> None:
    """Add `more` to `into`, in place."""
    for block, sums in more.items():
        into[block] = into.get(block, NOTHING).plus(sums)
