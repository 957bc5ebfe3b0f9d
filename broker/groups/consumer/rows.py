"""Codec of the bodies in a KIP-848 group's rows, of the group and its members; only the coordinator reads them.

    body: version: 1 byte · packing: 1 byte (0: as it is, 1: zlib) · fields

    group    assignment epoch · fingerprint of the topics
    member   previous epoch · state · rebalance timeout · client id and host · instance id, rack id,
             server assignor (each may be missing) · names · regex · topics · classic or not
    topic    id · which of assigned, revoking, target there is · the partitions of each, as runs

Ids and epochs of members are in their rows. A run is the gap from the one before and a length, so
a topic costs about 20 bytes however many partitions of it the member has. Names are sorted.

Invariants: decoding gives back what was encoded; a body of an unknown version, or no body at all,
raises ValueError and nothing else. A state unknown here is read as UNKNOWN.
"""

import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.groups.consumer.members import (
    ClassicMember,
    Member,
    MemberState,
    Partitions,
    Subscription,
)
from coordinator.commands.encoding import (
    CodecError,
    put_string,
    put_topic_id,
    put_varint,
    put_zigzag,
    read_string,
    read_topic_id,
    read_varint,
    read_zigzag,
    take_bytes,
)
from protocol.types import TopicId

FORMAT_VERSION: Final = 0x41
"""Not among the numbers of classic bodies, so that one is never read as the other."""
UNPACKED_BYTES_MAX: Final = 16 * 1024 * 1024
"""What a packed body may become; far beyond what fits into an entry and is not made to burst."""
PARTITION_MAX: Final = (1 << 16) - 1
"""Above what a topic can have (10 000); a few bytes are not made a set of two billion."""

_PLAIN: Final = 0
_ZLIB: Final = 1
_PACK_FROM_BYTES: Final = 256

# Flags of a topic.
_ASSIGNED: Final = 1
_REVOKING: Final = 2
_TARGET: Final = 4
_TARGET_IS_ASSIGNED: Final = 8

_FINGERPRINT_BYTES_MAX: Final = 64
_STATES: Final = {state.value: state for state in MemberState}
_NONE: Final[frozenset[int]] = frozenset()


class GroupBody(NamedTuple):
    assignment_epoch: int
    """The group epoch for which the members' targets were computed."""
    fingerprint: bytes
    """Of the topics that they were computed from."""


def encode_group(body: GroupBody) -> bytes:
    out = bytearray()
    put_varint(out, body.assignment_epoch)
    put_varint(out, len(body.fingerprint))
    out += body.fingerprint
    return _packed(out)


def decode_group(data: bytes) -> GroupBody:
    """Raises ValueError."""
    try:
        fields = _unpacked(data)
        epoch, at = read_varint(fields, 0)
        length, at = read_varint(fields, at)
        if length > _FINGERPRINT_BYTES_MAX:
            raise CodecError(f"a fingerprint of {length} bytes")
        fingerprint = take_bytes(fields, at, length)
        _at_end(fields, at + length)
    except (CodecError, IndexError, zlib.error) as error:
        raise ValueError(f"this is no body of a group: {error}") from error
    return GroupBody(epoch, fingerprint)


def encode_member(member: Member) -> bytes:
    """Raises CodecError for a string longer than Kafka's, or a partition that cannot be."""
    out = bytearray()
    put_zigzag(out, member.previous_epoch)
    out.append(member.state)
    put_zigzag(out, member.rebalance_timeout_ms)
    put_string(out, member.client_id)
    put_string(out, member.client_host)
    for text in (member.instance_id, member.rack_id, member.server_assignor):
        out.append(text is not None)
        put_string(out, text or "")
    put_varint(out, len(member.subscription.names))
    for name in sorted(member.subscription.names):
        put_string(out, name)
    put_string(out, member.subscription.regex)
    _put_topics(out, member)
    _put_classic(out, member.classic)
    return _packed(out)


def decode_member(member_id: str, epoch: int, data: bytes) -> Member:
    """Raises ValueError."""
    try:
        return _read_member(member_id, epoch, _unpacked(data))
    except (CodecError, IndexError, UnicodeDecodeError, zlib.error) as error:
        raise ValueError(f"this is no body of member '{member_id}': {error}") from error


def _read_member(member_id: str, epoch: int, data: bytes) -> Member:
    previous_epoch, at = read_zigzag(data, 0)
    state = _STATES.get(data[at], MemberState.UNKNOWN)
    rebalance_timeout_ms, at = read_zigzag(data, at + 1)
    client_id, at = read_string(data, at)
    client_host, at = read_string(data, at)
    texts: list[str | None] = []
    for _ in range(3):
        there = data[at] != 0
        text, at = read_string(data, at + 1)
        texts.append(text if there else None)
    instance_id, rack_id, server_assignor = texts
    count, at = read_varint(data, at)
    names: list[str] = []
    while len(names) < count:
        name, at = read_string(data, at)
        names.append(name)
    regex, at = read_string(data, at)
    assigned, revoking, target, at = _read_topics(data, at)
    classic, at = _read_classic(data, at)
    _at_end(data, at)
    return Member(
        member_id,
        epoch,
        previous_epoch,
        instance_id,
        rack_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        Subscription(frozenset(names), regex),
        server_assignor,
        state,
        assigned,
        revoking,
        target,
        classic,
    )


# Topics and their partitions.


def _put_topics(out: bytearray, member: Member) -> None:
    topics = sorted({*member.assigned, *member.revoking, *member.target})
    put_varint(out, len(topics))
    for topic in topics:
        assigned = member.assigned.get(topic, _NONE)
        revoking = member.revoking.get(topic, _NONE)
        target = member.target.get(topic, _NONE)
        flags = (_ASSIGNED if assigned else 0) | (_REVOKING if revoking else 0)
        if target:
            flags |= _TARGET_IS_ASSIGNED if target == assigned else _TARGET
        put_topic_id(out, topic)
        out.append(flags)
        if flags & _ASSIGNED:
            _put_runs(out, assigned)
        if flags & _REVOKING:
            _put_runs(out, revoking)
        if flags & _TARGET:
            _put_runs(out, target)


def _read_topics(data: bytes, at: int) -> tuple[Partitions, Partitions, Partitions, int]:
    assigned: dict[TopicId, frozenset[int]] = {}
    revoking: dict[TopicId, frozenset[int]] = {}
    target: dict[TopicId, frozenset[int]] = {}
    count, at = read_varint(data, at)
    while count > 0:
        topic, at = read_topic_id(data, at)
        flags = data[at]
        at += 1
        if flags & _ASSIGNED:
            assigned[topic], at = _read_runs(data, at)
        if flags & _REVOKING:
            revoking[topic], at = _read_runs(data, at)
        if flags & _TARGET:
            target[topic], at = _read_runs(data, at)
        elif flags & _TARGET_IS_ASSIGNED:
            target[topic] = assigned.get(topic, _NONE)
        count -= 1
    return assigned, revoking, target, at


def _put_runs(out: bytearray, partitions: Iterable[int]) -> None:
    """Count of runs; each as the partitions left out before it and those in it, less one."""
    runs: list[tuple[int, int]] = []
    first = end = 0
    for number in sorted(partitions):
        if not 0 <= number <= PARTITION_MAX:
            raise CodecError(f"partition {number}")
        if runs and number == end:
            end += 1
            runs[-1] = (first, end)
        else:
            first, end = number, number + 1
            runs.append((first, end))
    put_varint(out, len(runs))
    before = 0
    for first, end in runs:
        put_varint(out, first - before)
        put_varint(out, end - first - 1)
        before = end


def _read_runs(data: bytes, at: int) -> tuple[frozenset[int], int]:
    count, at = read_varint(data, at)
    partitions: list[int] = []
    end = 0
    while count > 0:
        gap, at = read_varint(data, at)
        length, at = read_varint(data, at)
        first = end + gap
        end = first + length + 1
        if end > PARTITION_MAX + 1:
            raise CodecError(f"partition {end - 1}")
        partitions.extend(range(first, end))
        count -= 1
    return frozenset(partitions), at


# Members that speak the classic protocol.


def _put_classic(out: bytearray, classic: ClassicMember | None) -> None:
    out.append(classic is not None)
    if classic is None:
        return
    put_zigzag(out, classic.session_timeout_ms)
    put_varint(out, len(classic.protocols))
    for name, metadata in classic.protocols:
        put_string(out, name)
        put_varint(out, len(metadata))
        out += metadata


def _read_classic(data: bytes, at: int) -> tuple[ClassicMember | None, int]:
    there = data[at] != 0
    at += 1
    if not there:
        return None, at
    session_timeout_ms, at = read_zigzag(data, at)
    count, at = read_varint(data, at)
    protocols: list[tuple[str, bytes]] = []
    while len(protocols) < count:
        name, at = read_string(data, at)
        length, at = read_varint(data, at)
        protocols.append((name, take_bytes(data, at, length)))
        at += length
    return ClassicMember(session_timeout_ms, tuple(protocols)), at


# Packing.


def _packed(fields: bytearray) -> bytes:
    if len(fields) >= _PACK_FROM_BYTES:
        packed = zlib.compress(fields, 6)
        if len(packed) < len(fields):
            return bytes((FORMAT_VERSION, _ZLIB)) + packed
    return bytes((FORMAT_VERSION, _PLAIN)) + bytes(fields)


def _unpacked(data: bytes) -> bytes:
    version, packing = data[0], data[1]
    if version != FORMAT_VERSION:
        raise CodecError(f"format version {version}; known is {FORMAT_VERSION}")
    match packing:
        case 0:
            return data[2:]
        case 1:
            inflater = zlib.decompressobj()
            fields = inflater.decompress(data[2:], UNPACKED_BYTES_MAX)
            if not inflater.eof or inflater.unused_data:
                raise CodecError("a packed body that does not end where it should")
            return fields
        case _:
            raise CodecError(f"packing {packing}")


def _at_end(data: bytes, at: int) -> None:
    if at != len(data):
        raise CodecError(f"{len(data) - at} bytes behind the end")
