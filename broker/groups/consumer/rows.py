"""The bodies in a KIP-848 group's rows, of the group and its members; only the coordinator reads them.

Ids and epochs of members are in their rows; `broker.groups.group.bodies` says what is around the
fields. Partitions of a member are by topic, ascending: the id, which of assigned, revoking, target
there is, and the partitions of each as runs. A run is the gap from the one before and how many
more than one it has, so a topic costs about 20 bytes however many partitions of it the member has.

A state unknown here is read as UNKNOWN.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker.groups.consumer.members import (
    ClassicMember,
    Member,
    MemberState,
    Partitions,
    Subscription,
)
from broker.groups.group.bodies import BodyFormat
from coordinator.commands.encoding import (
    CodecError,
    put_string,
    put_topic_id,
    read_string,
    read_topic_id,
)
from coordinator.commands.layout import (
    Int64,
    Layout,
    UInt63,
    converted,
    fields_of,
    layout_of,
    list_of,
    put_flag,
    read_flag,
    tuple_of,
)
from protocol.types import TopicId

FORMAT_VERSION: Final = 0x41
"""Not among the numbers of classic bodies, so that one is never read as the other."""
UNPACKED_BYTES_MAX: Final = 16 * 1024 * 1024
"""What a packed body may become; far beyond what fits into an entry and is not made to burst."""
PARTITION_MAX: Final = (1 << 16) - 1
"""Above what a topic can have (10 000); a few bytes are not made a set of two billion."""

_FORMAT: Final = BodyFormat(FORMAT_VERSION, UNPACKED_BYTES_MAX, pack_level=6)

_SHARES: Final = {"assigned": 1, "revoking": 2, "target": 4}
"""Flags of a topic: what there is of it."""
_TARGET_IS_ASSIGNED: Final = 8

_Topic = tuple[TopicId, Mapping[str, frozenset[int]]]
"""Its partitions by the names in `_SHARES`."""

_STATES: Final = {state.value: state for state in MemberState}
_NONE: Final[frozenset[int]] = frozenset()


class GroupBody(NamedTuple):
    assignment_epoch: UInt63
    """The group epoch for which the members' targets were computed."""
    fingerprint: bytes
    """Of the topics that they were computed from."""


def encode_group(body: GroupBody) -> bytes:
    return _FORMAT.encode(_GROUP, body)


def decode_group(data: bytes) -> GroupBody:
    """Raises ValueError."""
    return _FORMAT.decode(_GROUP, data, of="a group")


def encode_member(member: Member) -> bytes:
    """Raises CodecError for a string longer than Kafka's, or a partition that cannot be."""
    return _FORMAT.encode(_MEMBER, member)


def decode_member(member_id: str, epoch: int, data: bytes) -> Member:
    """Raises ValueError."""
    *values, shares, classic = _FORMAT.decode(_MEMBER, data, of=f"member '{member_id}'")
    fields = dict(zip(_FIELDS, values, strict=True))
    return Member(member_id, epoch, classic=classic, **fields, **shares)


# Partitions.


def _runs_of(partitions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    end = 0
    for number in sorted(partitions):
        if not 0 <= number <= PARTITION_MAX:
            raise CodecError(f"partition {number}")
        if runs and number == end:
            gap, more = runs[-1]
            runs[-1] = gap, more + 1
        else:
            runs.append((number - end, 0))
        end = number + 1
    return tuple(runs)


def _partitions_of(runs: Iterable[tuple[int, int]]) -> frozenset[int]:
    partitions: list[int] = []
    end = 0
    for gap, more in runs:
        first = end + gap
        end = first + more + 1
        if end > PARTITION_MAX + 1:
            raise CodecError(f"partition {end - 1}")
        partitions.extend(range(first, end))
    return frozenset(partitions)


_RUNS: Final = converted(
    list_of(layout_of(tuple[UInt63, UInt63])), laid=_runs_of, made=_partitions_of
)


def _put_topic(out: bytearray, topic: _Topic) -> None:
    topic_id, shares = topic
    flags = sum([flag for name, flag in _SHARES.items() if shares[name]])
    if shares["target"] and shares["target"] == shares["assigned"]:
        flags += _TARGET_IS_ASSIGNED - _SHARES["target"]
    put_topic_id(out, topic_id)
    out.append(flags)
    for name, flag in _SHARES.items():
        if flags & flag:
            _RUNS.put(out, shares[name])


def _read_topic(data: bytes, at: int) -> tuple[_Topic, int]:
    topic_id, at = read_topic_id(data, at)
    flags = data[at]
    at += 1
    shares = dict.fromkeys(_SHARES, _NONE)
    for name, flag in _SHARES.items():
        if flags & flag:
            shares[name], at = _RUNS.read(data, at)
    if flags & _TARGET_IS_ASSIGNED:
        shares["target"] = shares["assigned"]
    return (topic_id, shares), at


def _topics_of(member: Member) -> tuple[_Topic, ...]:
    parts: dict[str, Partitions] = {name: getattr(member, name) for name in _SHARES}
    topic_ids = sorted({topic_id for part in parts.values() for topic_id in part})
    return tuple(
        [
            (topic_id, {name: part.get(topic_id, _NONE) for name, part in parts.items()})
            for topic_id in topic_ids
        ]
    )


def _shares_of(topics: Iterable[_Topic]) -> dict[str, Partitions]:
    """By the names of a member's fields."""
    return {
        name: {topic_id: shares[name] for topic_id, shares in topics if shares[name]}
        for name in _SHARES
    }


# Fields.


def _put_text(out: bytearray, text: str | None) -> None:
    put_flag(out, text is not None)
    put_string(out, text or "")


def _read_text(data: bytes, at: int) -> tuple[str | None, int]:
    there, at = read_flag(data, at)
    text, at = read_string(data, at)
    return (text if there else None), at


_TEXT: Final = Layout(_put_text, _read_text)
"""One that is missing is written all the same, as an empty one."""


def _read_state(data: bytes, at: int) -> tuple[MemberState, int]:
    return _STATES.get(data[at], MemberState.UNKNOWN), at + 1


_INT: Final[Layout[int]] = layout_of(Int64)
_STRING: Final[Layout[str]] = layout_of(str)
_FIELDS: Final[dict[str, Layout[Any]]] = {
    "previous_epoch": _INT,
    "state": Layout(bytearray.append, _read_state),
    "rebalance_timeout_ms": _INT,
    "client_id": _STRING,
    "client_host": _STRING,
    "instance_id": _TEXT,
    "rack_id": _TEXT,
    "server_assignor": _TEXT,
    "subscription": fields_of(
        Subscription,
        names=converted(layout_of(tuple[str, ...]), laid=sorted, made=frozenset),
        regex=_STRING,
    ),
}
_TOPICS: Final[Layout[Any]] = converted(
    list_of(Layout(_put_topic, _read_topic)), laid=_topics_of, made=_shares_of
)
_MEMBER: Final[Layout[Any]] = tuple_of(
    {
        **{f".{name}": layout for name, layout in _FIELDS.items()},
        "": _TOPICS,
        ".classic": layout_of(ClassicMember | None),
    }
)
_GROUP: Final[Layout[GroupBody]] = layout_of(GroupBody)
