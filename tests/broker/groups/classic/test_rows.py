"""Bodies of classic groups in the log: they come back as they were, and bad ones are refused."""

import contextlib
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.classic.rows import (
    FORMAT_VERSION,
    MEMBER_BYTES_MAX,
    UNPACKED_BYTES_MAX,
    GroupBody,
    MemberBody,
    decode_group,
    decode_member,
    encode_group,
    encode_member,
)
from coordinator.commands.encoding import CodecError

TEXT = st.text(max_size=300)
OPTIONAL = st.none() | TEXT
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
BYTES = st.binary(max_size=300) | st.builds(bytes, st.integers(0, 5_000))
MEMBERS = st.builds(
    MemberBody,
    instance_id=OPTIONAL,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=INT32,
    session_timeout_ms=INT32,
    protocols=st.lists(st.tuples(TEXT, BYTES), max_size=5).map(tuple),
    assignment=BYTES,
)
MEMBER = MemberBody(
    instance_id="i",
    client_id="c",
    client_host="/10.0.0.1",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=10_000,
    protocols=(("range", b"r"), ("sticky", b"")),
    assignment=b"x",
)


@given(st.builds(GroupBody, OPTIONAL, OPTIONAL, OPTIONAL))
def test_a_groups_body_comes_back_as_it_was(body: GroupBody):
    assert decode_group(encode_group(body)) == body


@given(MEMBERS)
def test_a_members_body_comes_back_as_it_was(body: MemberBody):
    assert decode_member(encode_member(body)) == body


def test_the_bytes_of_bodies_stay_what_they_are():
    group = GroupBody("consumer", "range", None)
    assert encode_group(group).hex() == "01000108636f6e73756d6572010572616e676500"
    assert encode_member(MEMBER).hex() == (
        "0100" "010169" "0163" "092f31302e302e302e31" "c0a907" "a09c01"
        "02" "0572616e6765" "0172" "06737469636b79" "00" "0178"
    )  # fmt: skip


def test_no_body_is_that_of_a_group_of_commits_alone():
    assert decode_group(b"") == GroupBody(None, None, None)
    with pytest.raises(ValueError, match="member"):
        decode_member(b"")


@pytest.mark.parametrize("version", [0, 2, 0x41, 255])
def test_a_body_of_another_version_is_refused(version: int):
    assert version != FORMAT_VERSION
    for data, decode in (
        (encode_group(GroupBody()), decode_group),
        (encode_member(MEMBER), decode_member),
    ):
        with pytest.raises(ValueError, match=f"format version {version}"):
            decode(bytes([version]) + data[1:])


@given(st.binary(max_size=200), st.booleans(), st.data())
def test_any_bytes_are_a_body_or_a_value_error(data: bytes, packed: bool, more: st.DataObject):
    if packed:
        data = bytes([FORMAT_VERSION, 1]) + zlib.compress(data)
        if more.draw(st.booleans()):
            data = data[: more.draw(st.integers(0, len(data)))]
    else:
        data = bytes([FORMAT_VERSION, 0]) + data
    for decode in (decode_group, decode_member):
        with contextlib.suppress(ValueError):
            decode(data)


@pytest.mark.parametrize("end", [b"", b"\0"], ids=["too short", "too long"])
@pytest.mark.parametrize("size", [0, 1_000], ids=["plain", "packed"])
def test_a_body_that_does_not_end_where_it_should_is_refused(size: int, end: bytes):
    data = encode_member(MEMBER._replace(assignment=bytes(size)))
    cut = data + end if end else data[:-1]
    with pytest.raises(ValueError, match="classic group"):
        decode_member(cut)


def test_what_shrinks_is_packed_and_what_does_not_is_left():
    shrinks = encode_member(MEMBER._replace(assignment=bytes(10_000)))
    assert len(shrinks) < 200
    noise = random.Random(1).randbytes(10_000)
    stays = encode_member(MEMBER._replace(assignment=noise))
    assert len(stays) < 10_100
    assert noise in stays


def test_a_member_that_fits_into_no_entry_cannot_be_encoded():
    rest = len(encode_member(MEMBER._replace(assignment=b""))) + 2
    noise = random.Random(1).randbytes(MEMBER_BYTES_MAX)
    encode_member(MEMBER._replace(assignment=noise[rest:]))
    with pytest.raises(CodecError, match=f"{MEMBER_BYTES_MAX + 1} bytes"):
        encode_member(MEMBER._replace(assignment=noise[rest - 1 :]))


def test_a_body_that_would_burst_is_neither_written_nor_read():
    encode_member(MEMBER._replace(assignment=bytes(UNPACKED_BYTES_MAX - 100)))
    with pytest.raises(CodecError, match="a body of"):
        encode_member(MEMBER._replace(assignment=bytes(UNPACKED_BYTES_MAX)))
    bomb = bytes([FORMAT_VERSION, 1]) + zlib.compress(bytes(UNPACKED_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="do not end"):
        decode_member(bomb)
