"""Kafka's consumer protocol: subscriptions and assignments in JoinGroup and SyncGroup, versions 0-3.

In the classic protocol these bytes are between the members; a broker carries them. It reads them
only to know which topics a group subscribes to, who owns what, and to move a group to KIP-848
with its members inside. Each begins with its version; a version above ours is read as our
newest, and bytes behind the last field are not looked at, as in Kafka (ConsumerProtocol), so
clients of tomorrow are understood. Whatever the bytes, readers return or raise ProtocolError.

Leaves out: what an assignor other than the plain ones keeps in the user data.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from protocol.errors import ProtocolError
from protocol.primitives import (
    INT16,
    INT32,
    MALFORMED,
    array_count,
    malformed,
    nullable_string,
    read_array_count,
    read_count,
    read_nullable_string,
    read_string,
    string,
)

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members speak this."""
VERSION_MAX: Final = 3
NO_GENERATION: Final = -1
TOPICS_MAX: Final = 100_000
"""Of one subscription or assignment: all that a cluster can have."""
PARTITIONS_MAX: Final = 250_000
"""Likewise."""

_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3


class Subscription(NamedTuple):
    """What a consumer sends with JoinGroup."""

    topics: list[str]
    user_data: bytes | None
    owned: dict[str, list[int]]
    """Partitions by topic name, as the consumer believes (KIP-429); empty before version 1."""
    generation_id: int = NO_GENERATION
    """Of the generation in which it owned them (KIP-792)."""
    rack_id: str | None = None
    version: int = VERSION_MAX
    """The one it is laid out in; what answers it is best of the same."""


def read_subscription(data: bytes) -> Subscription:
    """The subscription in a member's metadata. Raises ProtocolError."""
    view = memoryview(data)
    try:
        version, at = _read_version(view)
        topics, at = _read_strings(view, at)
        user_data, at = _read_bytes(view, at)
        owned: dict[str, list[int]] = {}
        generation_id, rack_id = NO_GENERATION, None
        if version >= _OWNED_FROM:
            owned, at = _read_partitions(view, at)
        if version >= _GENERATION_FROM:
            generation_id, at = INT32.unpack_from(view, at)[0], at + 4
        if version >= _RACK_FROM:
            rack_id, at = read_nullable_string(view, at, flexible=False)
    except MALFORMED as error:
        raise malformed("a consumer's subscription", error) from error
    return Subscription(topics, user_data, owned, generation_id, rack_id, version)


def read_assignment(data: bytes) -> dict[str, list[int]]:
    """Partitions by topic name in what a leader gave to a member. Raises ProtocolError."""
    return _read_assignment(data)[0]


def read_assignment_user_data(data: bytes) -> bytes:
    """Reads the user data that an assignor added; the built-in ones add none. Raises ProtocolError."""
    return _read_assignment(data)[1] or b""


def write_subscription(subscription: Subscription) -> bytes:
    """The bytes of `subscription` in its version; what that version lacks is left out."""
    version = subscription.version
    assert 0 <= version <= VERSION_MAX
    out = bytearray(INT16.pack(version))
    out += array_count(len(subscription.topics), flexible=False)
    for topic in subscription.topics:
        out += string(topic, flexible=False)
    out += _bytes(subscription.user_data)
    if version >= _OWNED_FROM:
        out += _partitions(subscription.owned)
    if version >= _GENERATION_FROM:
        out += INT32.pack(subscription.generation_id)
    if version >= _RACK_FROM:
        out += nullable_string(subscription.rack_id, flexible=False)
    return bytes(out)


def write_assignment(
    assigned: Mapping[str, Sequence[int]],
    *,
    user_data: bytes | None = None,
    version: int = VERSION_MAX,
) -> bytes:
    """The bytes of an assignment, topics and partitions in the order given."""
    assert 0 <= version <= VERSION_MAX
    return INT16.pack(version) + _partitions(assigned) + _bytes(user_data)


def _read_assignment(data: bytes) -> tuple[dict[str, list[int]], bytes | None]:
    view = memoryview(data)
    try:
        _, at = _read_version(view)
        assigned, at = _read_partitions(view, at)
        user_data, at = _read_bytes(view, at)
    except MALFORMED as error:
        raise malformed("a consumer's assignment", error) from error
    return assigned, user_data


def _read_version(view: memoryview) -> tuple[int, int]:
    version: int = INT16.unpack_from(view)[0]
    if version < 0:
        raise ProtocolError(f"consumer protocol version {version}")
    return min(version, VERSION_MAX), 2


def _read_topic_count(view: memoryview, at: int) -> tuple[int, int]:
    count, at = read_array_count(view, at, flexible=False)
    if count > TOPICS_MAX:
        raise ProtocolError(f"{count} topics of one consumer, at most {TOPICS_MAX}")
    return count, at


def _read_strings(view: memoryview, at: int) -> tuple[list[str], int]:
    count, at = _read_topic_count(view, at)
    values = []
    for _ in range(count):
        value, at = read_string(view, at, flexible=False)
        values.append(value)
    return values, at


def _read_bytes(view: memoryview, at: int) -> tuple[bytes | None, int]:
    count, at = read_count(view, at, flexible=False)
    if count < 0:
        return None, at
    return bytes(view[at : at + count]), at + count


def _read_partitions(view: memoryview, at: int) -> tuple[dict[str, list[int]], int]:
    """An array of topics with partitions. A topic named twice has what is in both."""
    count, at = _read_topic_count(view, at)
    found: dict[str, list[int]] = {}
    left = PARTITIONS_MAX
    for _ in range(count):
        topic, at = read_string(view, at, flexible=False)
        partitions = found.setdefault(topic, [])
        size, at = read_array_count(view, at, flexible=False)
        end = at + INT32.size * size
        if end > len(view):
            raise ProtocolError(f"{size} partitions with {len(view) - at} bytes left")
        left -= size
        if left < 0:
            raise ProtocolError(f"more than {PARTITIONS_MAX} partitions of one consumer")
        partitions += [number for (number,) in INT32.iter_unpack(view[at:end])]
        at = end
    return found, at


def _bytes(value: bytes | None) -> bytes:
    return INT32.pack(-1) if value is None else INT32.pack(len(value)) + value


def _partitions(partitions: Mapping[str, Sequence[int]]) -> bytes:
    out = bytearray(array_count(len(partitions), flexible=False))
    for topic, numbers in partitions.items():
        out += string(topic, flexible=False)
        out += array_count(len(numbers), flexible=False)
        for number in numbers:
            out += INT32.pack(number)
    return bytes(out)
