"""The newest record of each key: what a table of mode upsert holds. Pure.

Which of two records of a key is newer: in one partition the one with the greater offset; in
different ones (a topic that was given more partitions, or a producer that chooses them) the one
with the greater timestamp, and at equal ones that of the greater partition. So first the last
record of each key and partition is found, which may be done piece by piece in any order, and
then, with all of a key's records at hand, the newest of those. A key whose newest record has no
value has no row.

A key that moved to another partition, was deleted there, and whose older record is exported later
than that, comes back: tombstones are not kept. This takes a topic that was widened while its export
was behind. Leaves out reading, writing and which file holds which key (`buckets`).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export import names

KEY_BYTES = "frazil_key"
"""The record's key as the producer sent it, unless its fields are columns; not a column of the table."""
TOMBSTONE = "frazil_gone"
"""The record has no value; not a column of the table."""
BUCKETS_DEFAULT = 16
_NEVER = np.iinfo(np.int64).min
"""Before every timestamp: the record has none that a table can hold."""

Places = npt.NDArray[np.int64]


def key_codes(rows: pa.Table) -> Places:
    """Returns a number for each row's key, equal where keys are: as bytes, or, where they have become
    columns, by the values of these, whatever schemas they came by."""
    keys = rows.column(names.KEY)
    if not pa.types.is_struct(keys.type):
        return _codes(rows.column(KEY_BYTES))
    codes = np.zeros(rows.num_rows, np.int64)
    for leaf in _leaves(keys):
        ours = _codes(leaf)
        # Fewer than 2**31 of each, and never more combinations than rows after `unique`.
        _, codes = np.unique(codes * (ours.max(initial=0) + 1) + ours, return_inverse=True)
    return codes.astype(np.int64, copy=False)


def _leaves(column: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """Yields the columns that a column is made of; of lists and maps their text. A struct that is null is
    another value than one whose fields are."""
    if pa.types.is_struct(column.type):
        if column.null_count:
            yield pc.is_null(column)
        for child in column.flatten():
            yield from _leaves(child)
    elif pa.types.is_nested(column.type):
        yield pa.chunked_array([[repr(value) for value in column.to_pylist()]], pa.large_string())
    else:
        yield column


def _codes(column: pa.ChunkedArray) -> Places:
    encoded = column.combine_chunks().dictionary_encode("encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries()
        encoded = pa.concat_arrays(encoded.chunks) if encoded.num_chunks else encoded
    return np.asarray(encoded.indices, dtype=np.int64)


def _numbers(column: pa.ChunkedArray, absent: int) -> Places:
    found: Places = pc.fill_null(column.cast(pa.int64()), absent).to_numpy()
    return found


def _last_of(*groups: Places) -> npt.NDArray[np.bool_]:
    """Returns which rows are the last of their group; rows are in order of their groups."""
    last = np.zeros(len(groups[0]), np.bool_)
    if len(last):
        last[-1] = True
        for group in groups:
            last[:-1] |= group[:-1] != group[1:]
    return last


def last_in_partition(rows: pa.Table) -> pa.Table:
    """Returns the last record of each key in each partition, in order of partition and offset."""
    if rows.num_rows == 0:
        return rows
    return rows.take(pa.array(_last_in_partition(rows)))


def _last_in_partition(rows: pa.Table) -> Places:
    codes = key_codes(rows)
    partitions = _numbers(rows.column(names.PARTITION), 0)
    offsets = _numbers(rows.column(names.OFFSET), 0)
    order = np.lexsort((offsets, partitions, codes))
    kept = order[_last_of(codes[order], partitions[order])]
    return _sorted(kept, partitions, offsets)


def _sorted(places: Places, partitions: Places, offsets: Places) -> Places:
    found: Places = places[np.lexsort((offsets[places], partitions[places]))]
    return found


def newest_rows(rows: pa.Table) -> Places:
    """Returns places of the rows that the table should have, given all records of their keys.

    In order of partition and offset; keys whose newest record has no value have none.
    """
    if rows.num_rows == 0:
        return np.zeros(0, np.int64)
    found = _last_in_partition(rows)
    some = rows.take(pa.array(found))
    codes = key_codes(some)
    partitions = _numbers(some.column(names.PARTITION), 0)
    times = _numbers(some.column(names.TIMESTAMP), _NEVER)
    order = np.lexsort((partitions, times, codes))
    winners = order[_last_of(codes[order])]
    gone: Any = some.column(TOMBSTONE).to_numpy()
    winners = winners[~gone[winners]]
    return _sorted(found[winners], *_places(rows))


def _places(rows: pa.Table) -> tuple[Places, Places]:
    return _numbers(rows.column(names.PARTITION), 0), _numbers(rows.column(names.OFFSET), 0)
