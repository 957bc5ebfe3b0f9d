"""Bodies of KIP-848 groups and members in the log."""

import contextlib
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.groups.classic import rows
from broker.groups.consumer.members import (
    ClassicMember,
    Member,
    MemberState,
    Partitions,
    Subscription,
)
from broker.groups.consumer.rows import (
    FORMAT_VERSION,
    PARTITION_MAX,
    GroupBody,
    decode_group,
    decode_member,
    encode_group,
    encode_member,
)
from coordinator.commands.encoding import CodecError
from protocol.types import TopicId

texts = st.text(max_size=20)
epochs = st.integers(-2, (1 << 31) - 1)
numbers = st.integers(-1, (1 << 31) - 1)
partitions = st.dictionaries(
    st.binary(min_size=16, max_size=16).map(TopicId),
    st.frozensets(st.integers(0, 300) | st.integers(0, PARTITION_MAX), min_size=1),
    max_size=3,
)
classics = st.builds(
    ClassicMember,
    numbers,
    st.lists(st.tuples(texts, st.binary(max_size=300)), max_size=3).map(tuple),
)


@st.composite
def members(draw: st.DrawFn) -> Member:
    assigned = draw(partitions)
    return Member(
        draw(texts),
        draw(epochs),
        draw(epochs),
        draw(st.none() | texts),
        draw(st.none() | texts),
        draw(texts),
        draw(texts),
        draw(numbers),
        Subscription(draw(st.frozensets(texts, max_size=5)), draw(texts)),
        draw(st.none() | texts),
        draw(st.sampled_from(MemberState)),
        assigned,
        draw(partitions),
        draw(st.just(assigned) | partitions),
        draw(st.none() | classics),
    )


@settings(deadline=None)
@given(members())
def test_a_member_comes_back_as_it_was(member: Member):
    assert decode_member(member.member_id, member.epoch, encode_member(member)) == member


@settings(deadline=None)
@given(st.integers(0, (1 << 31) - 1), st.binary(max_size=64))
@example(0, b"")
def test_a_group_comes_back_as_it_was(epoch: int, fingerprint: bytes):
    body = GroupBody(epoch, fingerprint)
    assert decode_group(encode_group(body)) == body


@settings(deadline=None)
@given(members(), st.data())
def test_bytes_that_are_no_body_are_refused_with_a_value_error(member: Member, data: st.DataObject):
    body = encode_member(member)
    cut = data.draw(st.integers(0, len(body) - 1))
    for broken in (body[:cut], body + b"\0", b""):
        with pytest.raises(ValueError, match="no body"):
            decode_member("m", 1, broken)
    place = data.draw(st.integers(0, len(body) - 1))
    changed = body[:place] + data.draw(st.binary(min_size=1, max_size=1)) + body[place + 1 :]
    for bytes_ in (changed, data.draw(st.binary(max_size=40))):
        for decode in (lambda it: decode_member("m", 1, it), decode_group):
            with contextlib.suppress(ValueError):  # And nothing else, whatever the bytes.
                decode(bytes_)


@pytest.mark.parametrize("version", [0, 1, FORMAT_VERSION - 1, FORMAT_VERSION + 1, 255])
def test_another_version_is_refused(version: int):
    with pytest.raises(ValueError, match=f"format version {version};"):
        decode_member("m", 1, bytes((version,)) + encode_member(Member("m"))[1:])
    with pytest.raises(ValueError, match=f"format version {version};"):
        decode_group(bytes((version,)) + encode_group(GroupBody(1, b""))[1:])


def test_bodies_of_the_other_protocol_have_other_versions():
    assert rows.FORMAT_VERSION != FORMAT_VERSION


def test_a_state_of_tomorrow_is_unknown():
    body = bytearray(encode_member(Member("m", previous_epoch=0)))
    assert body[3] == MemberState.STABLE
    body[3] = 9
    assert decode_member("m", 1, bytes(body)).state is MemberState.UNKNOWN


def test_what_is_written_today_is_read_for_ever():
    """Golden: a change of these bytes is another FORMAT_VERSION."""
    topic = TopicId(bytes(range(16)))
    other = TopicId(b"\xff" * 16)
    member = Member(
        "m-1",
        7,
        6,
        "instance",
        None,
        "client",
        "/10.0.0.1",
        60_000,
        Subscription(frozenset({"orders", "bills"}), "o.*"),
        "range",
        MemberState.UNREVOKED_PARTITIONS,
        {topic: frozenset({0, 1, 2, 5}), other: frozenset({1})},
        {topic: frozenset({3})},
        {topic: frozenset({0, 1}), other: frozenset({1})},
        ClassicMember(45_000, (("range", b"\0\1"),)),
    )
    golden = (
        "4100"
        "0c"
        "01"
        "c0a907"
        "06636c69656e74"
        "092f31302e302e302e31"
        "0108696e7374616e6365"
        "0000"
        "010572616e6765"
        "02"
        "0562696c6c73"
        "066f7264657273"
        "036f2e2a"
        "02"
        "000102030405060708090a0b0c0d0e0f"
        "07"
        "0200020200"
        "010300"
        "010001"
        "ffffffffffffffffffffffffffffffff"
        "09"
        "010100"
        "01"
        "90bf05"
        "01"
        "0572616e6765"
        "020001"
    )
    assert encode_member(member).hex() == golden
    assert decode_member("m-1", 7, bytes.fromhex(golden)) == member
    group = GroupBody(300, b"12345678")
    assert encode_group(group).hex() == "4100ac02083132333435363738"


def test_runs_cost_little_and_what_is_long_is_packed():
    topics = {TopicId(n.to_bytes(16, "big")): frozenset(range(100)) for n in range(100)}
    names = frozenset(f"a-topic-with-a-long-name-{n}" for n in range(100))
    member = Member("m", subscription=Subscription(names), assigned=topics, target=topics)
    assert len(encode_member(member)) < 1_500
    scattered: Partitions = {TopicId(bytes(16)): frozenset(range(0, 10_000, 2))}
    assert len(encode_member(Member("m", assigned=scattered))) < 200


def test_a_packed_body_does_not_burst():
    bomb = bytes((FORMAT_VERSION, 1)) + zlib.compress(bytes(17 * 1024 * 1024), 9)
    with pytest.raises(ValueError, match="does not end"):
        decode_member("m", 1, bomb)
    cut = bytes((FORMAT_VERSION, 1)) + zlib.compress(bytes(1000))[:-6]
    with pytest.raises(ValueError, match="does not end"):
        decode_group(cut)


@pytest.mark.parametrize("partition", [-1, PARTITION_MAX + 1])
def test_a_partition_that_cannot_be_is_not_written(partition: int):
    with pytest.raises(CodecError, match="partition"):
        encode_member(Member("m", assigned={TopicId(bytes(16)): frozenset({partition})}))


def test_a_partition_that_cannot_be_is_not_read():
    body = encode_member(Member("m", assigned={TopicId(bytes(16)): frozenset({3})}))
    assert body.endswith(bytes.fromhex("01 01 03 00 00"))
    huge = body[:-3] + bytes.fromhex("ffffffff7f 00 00")
    with pytest.raises(ValueError, match="partition"):
        decode_member("m", 1, huge)
