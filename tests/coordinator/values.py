"""Any command and any entry of the metadata log, by the types of a command's fields.

What is declared is drawn, and held against its bounds, without a line here. Named here is only what
types do not say: bounds of the ints in rows whose layout is written by hand, and which values mean
something together.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from enum import IntEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from coordinator.commands.declaration import DECLARATIONS
from coordinator.commands.encoding import STRING_BYTES_MAX
from coordinator.commands.entries import Command, Entry
from coordinator.commands.group_commands import GROUP_SHARDS
from coordinator.commands.job_commands import NewPage, Replacement
from coordinator.commands.layout import (
    Int16,
    Int32,
    Int64,
    UInt16,
    UInt31,
    UInt32,
    UInt63,
    field_names,
)
from protocol.types import Incarnation, Position, TopicId, position
from storage.formats.spans import Item
from txn.transactions import OF_EPOCH

TOPIC: Final = TopicId(bytes(range(16)))
OTHER: Final = TopicId(bytes(range(16, 32)))
INCARNATION: Final = Incarnation(position(1, 9))
DIGEST: Final = bytes(range(100, 116))

Any_ = st.SearchStrategy[Any]
Bounds = tuple[int, int]
"""The least, and the most."""

I16: Final = (-(2**15), 2**15 - 1)
I32: Final = (-(2**31), 2**31 - 1)
I64: Final = (-(2**63), 2**63 - 1)
U16, U31, U32, U63 = (0, 2**16 - 1), (0, 2**31 - 1), (0, 2**32 - 1), (0, 2**63 - 1)
BOUNDS: Final[Mapping[Any, Bounds]] = {
    UInt16: U16,
    UInt31: U31,
    UInt32: U32,
    UInt63: U63,
    Int16: I16,
    Int32: I32,
    Int64: I64,
    Position: U63,
    Incarnation: U63,
}
"""By type."""
BOUNDS_BY_NAME: Final[Mapping[str, Bounds]] = {
    "base_offset": U63,
    "clean_to": (-1, 2**63 - 2),
    "first_sequence": I32,
    "instance": (OF_EPOCH, 2**63 - 1),
    "leader_epoch": I32,
    "length": (1, 2**32 - 1),
    "next_offset": U63,
    "node_id": (-1, 2**31 - 2),
    "number": U32,
    "offset": I64,
    "partition": U31,
    "partitions": U31,
    "producer_epoch": I16,
    "producer_id": (-1, 2**63 - 1),
    "producer_ids": U63,
    "records": (1, 2**63 - 1),
    "rows": U32,
    "shards": (0, GROUP_SHARDS - 1),
    "skip": U32,
    "start": U32,
    "timestamp_max": I64,
}
"""By field, where the type is `int`."""
LENGTHS: Final = {"digest": 16, "fingerprint": 32}
"""Of bytes, by field."""
ASCENDING: Final = {"shards", "jobs"}
"""Tuples of values that are all different."""


def is_int(bare: Any) -> bool:
    return bare in {int, Position, Incarnation}


def bounds_of(hint: Any, name: str) -> Bounds:
    return BOUNDS.get(hint) or BOUNDS_BY_NAME[name]


def bare_of(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def fields_of(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in field_names(kind)}


# Values within their bounds.


@cache
def any_of(hint: Any, name: str = "") -> Any_:
    """Any value of a type, in a field of that name."""
    bare = bare_of(hint)
    parts = get_args(bare)
    if is_int(bare):
        least, most = bounds_of(hint, name)
        return st.integers(max(least, OF_EPOCH), min(most, 5)) | st.integers(least, most)
    if bare is bytes:
        length = LENGTHS.get(name)
        return st.binary(min_size=length or 0, max_size=length or 30)
    if bare in SIMPLE:
        return SIMPLE[bare]
    if get_origin(bare) in {Union, UnionType}:
        return st.none() | any_of(parts[0], name)
    if get_origin(bare) is tuple:
        return _any_tuple(parts, name)
    if issubclass(bare, IntEnum):
        return st.sampled_from(bare)
    fields = {field: any_of(each, field) for field, each in fields_of(bare).items()}
    return REFINED.get(bare, lambda rows: rows)(st.builds(bare, **fields))


SIMPLE: Final[Mapping[Any, Any_]] = {
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=20),
    TopicId: st.sampled_from([TOPIC, OTHER, TopicId(bytes(16))])
    | st.binary(min_size=16, max_size=16).map(TopicId),
}


def _any_tuple(parts: tuple[Any, ...], name: str) -> Any_:
    if parts[-1] is not ...:
        return st.tuples(*[any_of(part, name) for part in parts])
    if name in ASCENDING:
        return st.sets(any_of(parts[0], name)).map(lambda values: tuple(sorted(values)))
    if parts[0] is Item:
        items = st.tuples(any_of(Item), st.sampled_from(("anew", "on", "on in another")))
        return st.lists(items, min_size=1, max_size=6).map(_sent)
    return st.lists(any_of(parts[0], name), max_size=5).map(tuple)


def _sent(items: list[tuple[Item, str]]) -> tuple[Item, ...]:
    """Items, some of which go on with the sequence of the one before, in its transaction or not."""
    found = [items[0][0]]
    for item, goes in items[1:]:
        before = found[-1]
        if goes == "anew" or before.producer_id < 0:
            found.append(item)
        else:
            sequence = (before.first_sequence + before.records) & 2**31 - 1
            instance = before.instance if goes == "on" else item.instance
            following = Item(*item[:4], *before[4:6], sequence, instance)
            found.append(_of_a_producer(following))
    return tuple(found)


def _of_a_producer(item: Item) -> Item:
    """What is not written without a producer is as it is read."""
    if item.producer_id < 0:
        return Item(*item[:4])
    return item._replace(records=min(item.records, 2**31 - 1))


def _some_offsets(rows: Any_) -> Any_:
    def ascending(row: Any) -> Any:
        first, last = sorted((row.base_offset, row.next_offset))
        return row._replace(base_offset=first, next_offset=last)

    return rows.filter(lambda row: row.base_offset != row.next_offset).map(ascending)


REFINED: Final[Mapping[type, Callable[[Any_], Any_]]] = {
    Item: lambda items: items.map(_of_a_producer),
    Replacement: _some_offsets,
    NewPage: _some_offsets,
}


def any_command(*kinds: Any) -> st.SearchStrategy[Command]:
    """Of these kinds, or of any that is declared."""
    return st.one_of(*[any_of(kind) for kind in kinds or DECLARATIONS])


any_entry = st.builds(
    Entry,
    incarnation=any_of(Incarnation),
    n=any_of(UInt63),
    clock_ms=any_of(Int64),
    commands=st.lists(any_command(), max_size=4).map(tuple),
)


# And out of them.


def beyond(hint: Any, value: Any, name: str = "") -> Iterator[Any]:
    """The value with one thing in it just out of its bounds: with each thing, one after the other.

    Without the items of a chunk: their bounds depend on each other.
    """
    bare = bare_of(hint)
    if is_int(bare):
        least, most = bounds_of(hint, name)
        yield from (least - 1, most + 1)
    elif bare is float:
        yield from (math.inf, math.nan)
    elif bare is str:
        yield from ("x" * (STRING_BYTES_MAX + 1), "\ud800")
    elif bare is TopicId or name in LENGTHS:
        yield from (value[1:], value + b"x")
    elif get_origin(bare) in {Union, UnionType}:
        yield from beyond(get_args(bare)[0], value, name) if value is not None else ()
    elif get_origin(bare) is tuple:
        yield from _beyond_tuple(hint, value, name)
    elif issubclass(bare, IntEnum):
        yield 99
    elif bare not in {bool, bytes, Item}:
        for field, each in fields_of(bare).items():
            for wrong in beyond(each, getattr(value, field), field):
                yield copy_with(value, field, wrong)


def _beyond_tuple(hint: Any, value: tuple[Any, ...], name: str) -> Iterator[Any]:
    parts = get_args(bare_of(hint))
    hints = parts[:1] * len(value) if parts[-1] is ... else parts
    for at, each in enumerate(value):
        for wrong in beyond(hints[at], each, name):
            yield (*value[:at], wrong, *value[at + 1 :])
    for mark in getattr(hint, "__metadata__", ()):
        if value and (most := getattr(mark, "most", None)) is not None:
            yield value[:1] * (most + 1)


def copy_with(value: Any, field: str, changed: Any) -> Any:
    change = {field: changed}
    return replace(value, **change) if is_dataclass(value) else value._replace(**change)
