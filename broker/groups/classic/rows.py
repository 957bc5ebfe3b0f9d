"""The bodies in a classic group's rows, of the group and its members; only the coordinator reads them.

The types of the fields are their layout (`coordinator.commands.layout`); `broker.groups.group.bodies`
says what is around them. Generation and member ids are in the rows. An empty body is that of a
group which has committed offsets and never had members.

Invariants: a body is refused when it is written, not when it is read: MEMBER_BYTES_MAX as it is
stored, so that it fits into an entry.
"""

from typing import Any, Final, NamedTuple

from broker.groups.classic.members import ClassicMember, Protocols
from broker.groups.group.bodies import BodyFormat
from coordinator.commands.encoding import CodecError
from coordinator.commands.layout import Int64, Layout, layout_of

FORMAT_VERSION: Final = 1
MEMBER_BYTES_MAX: Final = 60_000
UNPACKED_BYTES_MAX: Final = 1024 * 1024

_FORMAT: Final = BodyFormat(FORMAT_VERSION, UNPACKED_BYTES_MAX, pack_level=1)
"""Names of topics and ids of members shrink well at any level, and a loop waits for it."""


class GroupBody(NamedTuple):
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None


class MemberBody(NamedTuple):
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: Int64
    session_timeout_ms: Int64
    protocols: Protocols
    assignment: bytes


_GROUP: Final[Layout[GroupBody]] = layout_of(GroupBody)
_MEMBER: Final[Layout[Any]] = layout_of(MemberBody)


def encode_group(body: GroupBody) -> bytes:
    """Raises CodecError."""
    return _FORMAT.encode(_GROUP, body)


def decode_group(data: bytes) -> GroupBody:
    """Raises ValueError."""
    return _FORMAT.decode(_GROUP, data, of="a classic group") if data else GroupBody()


def encode_member(member: MemberBody | ClassicMember) -> bytes:
    """Raises CodecError when there is no room for it."""
    data = _FORMAT.encode(_MEMBER, member)
    if len(data) > MEMBER_BYTES_MAX:
        raise CodecError(f"a member of {len(data)} bytes, at most {MEMBER_BYTES_MAX}")
    return data


def decode_member(data: bytes) -> MemberBody:
    """Raises ValueError."""
    body: MemberBody = _FORMAT.decode(_MEMBER, data, of="a member of a classic group")
    return body
