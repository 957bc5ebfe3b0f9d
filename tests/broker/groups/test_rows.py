"""Bodies of groups and members in the log, of both protocols: read as they were, or refused."""

import contextlib
import random
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.classic import rows as classic
from broker.groups.consumer import rows as consumer
from broker.groups.consumer.members import (
    ClassicMember,
    Member,
    MemberState,
    Partitions,
    Subscription,
)
from coordinator.commands.encoding import CodecError
from protocol.types import TopicId

TOPIC, OTHER = TopicId(bytes(range(16))), TopicId(b"\xff" * 16)
texts = st.text(max_size=30)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
epochs = st.integers(-2, (1 << 31) - 1)
numbers = st.integers(-1, (1 << 31) - 1)
some_bytes = st.binary(max_size=300) | st.builds(bytes, st.integers(0, 5_000))
protocols = st.lists(st.tuples(texts, some_bytes), max_size=5).map(tuple)
partitions = st.dictionaries(
    st.binary(min_size=16, max_size=16).map(TopicId),
    st.frozensets(st.integers(0, 300) | st.integers(0, consumer.PARTITION_MAX), min_size=1),
    max_size=3,
)


@st.composite
def consumers(draw: st.DrawFn) -> Member:
    assigned = draw(partitions)
    return Member(
        "m",
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
        draw(st.none() | st.builds(ClassicMember, numbers, protocols)),
    )


class Format(NamedTuple):
    """How one protocol writes a group, or a member of it."""

    version: int
    bodies: st.SearchStrategy[Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    golden: tuple[Any, str]
    refusal: str
    """What is said of bytes that do not end where they should."""


CLASSIC_MEMBER = classic.MemberBody(
    instance_id="i",
    client_id="c",
    client_host="/10.0.0.1",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=10_000,
    protocols=(("range", b"r"), ("sticky", b"")),
    assignment=b"x",
)
CONSUMER_MEMBER = Member(
    "m",
    1,
    6,
    "instance",
    None,
    "client",
    "/10.0.0.1",
    60_000,
    Subscription(frozenset({"orders", "bills"}), "o.*"),
    "range",
    MemberState.UNREVOKED_PARTITIONS,
    {TOPIC: frozenset({0, 1, 2, 5}), OTHER: frozenset({1})},
    {TOPIC: frozenset({3})},
    {TOPIC: frozenset({0, 1}), OTHER: frozenset({1})},
    ClassicMember(45_000, (("range", b"\0\1"),)),
)
FORMATS = {
    "a classic group": Format(
        classic.FORMAT_VERSION,
        st.builds(classic.GroupBody, st.none() | texts, st.none() | texts, st.none() | texts),
        classic.encode_group,
        classic.decode_group,
        (
            classic.GroupBody("consumer", "range", None),
            "01000108636f6e73756d6572010572616e676500",
        ),
        "no body",
    ),
    "a classic member": Format(
        classic.FORMAT_VERSION,
        st.builds(
            classic.MemberBody, st.none() | texts, texts, texts, int32, int32, protocols, some_bytes
        ),
        classic.encode_member,
        classic.decode_member,
        (
            CLASSIC_MEMBER,
            (
                "0100 010169 0163 092f31302e302e302e31 c0a907 a09c01"
                "02 0572616e6765 0172 06737469636b79 00 0178"
            ),
        ),
        "no body",
    ),
    "a group of KIP-848": Format(
        consumer.FORMAT_VERSION,
        st.builds(consumer.GroupBody, st.integers(0, (1 << 31) - 1), st.binary(max_size=64)),
        consumer.encode_group,
        consumer.decode_group,
        (consumer.GroupBody(300, b"12345678"), "4100ac02083132333435363738"),
        "no body",
    ),
    "a member of KIP-848": Format(
        consumer.FORMAT_VERSION,
        consumers(),
        consumer.encode_member,
        lambda data: consumer.decode_member("m", 1, data),
        (
            CONSUMER_MEMBER,
            (
                "4100 0c 01 c0a907 06636c69656e74 092f31302e302e302e31 0108696e7374616e6365"
                "0000 010572616e6765 02 0562696c6c73 066f7264657273 036f2e2a"
                "02 000102030405060708090a0b0c0d0e0f 07 0200020200 010300 010001"
                "ffffffffffffffffffffffffffffffff 09 010100 01"
                "90bf05 01 0572616e6765 020001"
            ),
        ),
        "no body",
    ),
}
EVERY_FORMAT = pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS)


@EVERY_FORMAT
@settings(deadline=None)
@given(data=st.data())
def test_a_body_comes_back_as_it_was(format_: Format, data: st.DataObject):
    body = data.draw(format_.bodies)
    read = format_.decode(format_.encode(body))
    assert read == (body._replace(epoch=1) if isinstance(body, Member) else body)


@EVERY_FORMAT
def test_what_is_written_today_is_read_for_ever(format_: Format):
    """Golden: a change of these bytes is another FORMAT_VERSION."""
    body, golden = format_.golden
    assert format_.encode(body) == bytes.fromhex(golden)
    assert format_.decode(bytes.fromhex(golden)) == body


NO_TOPIC = TopicId(bytes(16))
STORED = {
    "a group without a protocol": (
        "a classic group",
        classic.GroupBody(None, None, "m"),
        "0100000001016d",
    ),
    "a classic member of nothing": (
        "a classic member",
        classic.MemberBody(None, "", "/h", -1, 0, (), b""),
        "01000000022f6801000000",
    ),
    "a classic member, packed": (
        "a classic member",
        classic.MemberBody("i", "c", "/h", 300_000, 45_000, (("range", bytes(300)),), b"x"),
        "010178016364cc644c66d2cf38705e65c27e5646d6a2c4bcf4d4354c0ca380e81060ac0000ca3e07aa",
    ),
    "a new member of KIP-848": (
        "a member of KIP-848",
        Member("m"),
        "4100000001000000000000000000000000",
    ),
    "a member of KIP-848 that revokes": (
        "a member of KIP-848",
        Member(
            "m",
            previous_epoch=-2,
            rack_id="",
            state=MemberState.UNKNOWN,
            revoking={NO_TOPIC: frozenset({0, 65_535})},
            target={NO_TOPIC: frozenset({9})},
        ),
        "4100037f0100000000010000000000010000000000000000000000000000000006020000feff030001090000",
    ),
    "a member of KIP-848, packed": (
        "a member of KIP-848",
        Member("m", client_id="c" * 300),
        "4101789c6360605cc3943c0a88060c0800000c0e74b4",
    ),
}


@pytest.mark.parametrize(("name", "body", "golden"), STORED.values(), ids=STORED)
def test_stored_bodies_are_read_for_ever_and_written_as_ever(name: str, body: Any, golden: str):
    stored = bytes.fromhex(golden)
    read = FORMATS[name].decode(stored)
    assert read == (body._replace(epoch=1) if isinstance(body, Member) else body)
    written = FORMATS[name].encode(body)
    assert written[:2] == stored[:2]
    # How well zlib packs is its own affair.
    assert unpacked(written) == unpacked(stored)


def unpacked(body: bytes) -> bytes:
    return zlib.decompress(body[2:]) if body[1] else body[2:]


def test_bodies_of_the_other_protocol_have_other_versions():
    assert classic.FORMAT_VERSION != consumer.FORMAT_VERSION


@EVERY_FORMAT
def test_a_body_of_another_version_is_refused(format_: Format):
    body = format_.encode(format_.golden[0])
    for version in {0, 1, 2, 0x40, 0x41, 0x42, 255} - {format_.version}:
        with pytest.raises(ValueError, match=f"format version {version}\\b"):
            format_.decode(bytes((version,)) + body[1:])


@EVERY_FORMAT
@settings(deadline=None)
@given(data=st.data())
def test_a_body_that_does_not_end_where_it_should_is_refused(format_: Format, data: st.DataObject):
    body = format_.encode(data.draw(format_.bodies))
    cut = data.draw(st.integers(1, len(body) - 1))
    for broken in (body[:cut], body + b"\0"):
        with pytest.raises(ValueError, match=format_.refusal):
            format_.decode(broken)


@EVERY_FORMAT
@settings(deadline=None)
@given(data=st.data())
def test_any_bytes_are_a_body_or_a_value_error(format_: Format, data: st.DataObject):
    body = format_.encode(data.draw(format_.bodies))
    place = data.draw(st.integers(0, len(body) - 1))
    changed = body[:place] + data.draw(st.binary(min_size=1, max_size=1)) + body[place + 1 :]
    noise = data.draw(st.binary(max_size=200))
    packed = zlib.compress(noise)[: data.draw(st.integers(0, 300))]
    for bytes_ in (
        changed,
        noise,
        bytes((format_.version, 0)) + noise,
        bytes((format_.version, 1)) + packed,
    ):
        with contextlib.suppress(ValueError):  # And nothing else, whatever the bytes.
            format_.decode(bytes_)


@EVERY_FORMAT
def test_a_packed_body_does_not_burst_and_is_whole(format_: Format):
    head = bytes((format_.version, 1))
    for packed in (zlib.compress(bytes(17 * 1024 * 1024), 9), zlib.compress(bytes(1000))[:-6]):
        with pytest.raises(ValueError, match="not end"):
            format_.decode(head + packed)


def test_no_body_is_that_of_a_group_of_commits_alone():
    assert classic.decode_group(b"") == classic.GroupBody(None, None, None)
    with pytest.raises(ValueError, match="member"):
        classic.decode_member(b"")
    with pytest.raises(ValueError, match="no body"):
        consumer.decode_member("m", 1, b"")


# Of one protocol alone.


def test_what_shrinks_is_packed_and_what_does_not_is_left():
    shrinks = classic.encode_member(CLASSIC_MEMBER._replace(assignment=bytes(10_000)))
    assert len(shrinks) < 200
    noise = random.Random(1).randbytes(10_000)
    stays = classic.encode_member(CLASSIC_MEMBER._replace(assignment=noise))
    assert len(stays) < 10_100
    assert noise in stays


def test_a_classic_member_that_fits_into_no_entry_cannot_be_encoded():
    most = classic.MEMBER_BYTES_MAX
    rest = len(classic.encode_member(CLASSIC_MEMBER._replace(assignment=b""))) + 2
    noise = random.Random(1).randbytes(most)
    classic.encode_member(CLASSIC_MEMBER._replace(assignment=noise[rest:]))
    with pytest.raises(CodecError, match=f"{most + 1} bytes"):
        classic.encode_member(CLASSIC_MEMBER._replace(assignment=noise[rest - 1 :]))


def test_a_classic_body_that_would_burst_is_neither_written_nor_read():
    most = classic.UNPACKED_BYTES_MAX
    classic.encode_member(CLASSIC_MEMBER._replace(assignment=bytes(most - 100)))
    with pytest.raises(CodecError, match="a body of"):
        classic.encode_member(CLASSIC_MEMBER._replace(assignment=bytes(most)))
    bomb = bytes([classic.FORMAT_VERSION, 1]) + zlib.compress(bytes(most + 1))
    with pytest.raises(ValueError, match="does not end"):
        classic.decode_member(bomb)


def test_a_state_of_tomorrow_is_unknown():
    body = bytearray(consumer.encode_member(Member("m", previous_epoch=0)))
    assert body[3] == MemberState.STABLE
    body[3] = 9
    assert consumer.decode_member("m", 1, bytes(body)).state is MemberState.UNKNOWN


def test_runs_of_partitions_cost_little_and_what_is_long_is_packed():
    topics = {TopicId(n.to_bytes(16, "big")): frozenset(range(100)) for n in range(100)}
    names = frozenset(f"a-topic-with-a-long-name-{n}" for n in range(100))
    member = Member("m", subscription=Subscription(names), assigned=topics, target=topics)
    assert len(consumer.encode_member(member)) < 1_500
    scattered: Partitions = {TopicId(bytes(16)): frozenset(range(0, 10_000, 2))}
    assert len(consumer.encode_member(Member("m", assigned=scattered))) < 200


@pytest.mark.parametrize("partition", [-1, consumer.PARTITION_MAX + 1])
def test_a_partition_that_cannot_be_is_not_written(partition: int):
    with pytest.raises(CodecError, match="partition"):
        consumer.encode_member(Member("m", assigned={OTHER: frozenset({partition})}))


def test_a_partition_that_cannot_be_is_not_read():
    body = consumer.encode_member(Member("m", assigned={OTHER: frozenset({3})}))
    assert body.endswith(bytes.fromhex("01 01 03 00 00"))
    huge = body[:-3] + bytes.fromhex("ffffffff7f 00 00")
    with pytest.raises(ValueError, match="partition"):
        consumer.decode_member("m", 1, huge)
