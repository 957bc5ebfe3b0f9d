"""Subscriptions and assignments of consumers, held against kio's schemas, and against garbage."""

import importlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.consumer_protocol import (
    PARTITIONS_MAX,
    TOPICS_MAX,
    VERSION_MAX,
    Subscription,
    read_assignment,
    read_assignment_user_data,
    read_subscription,
    write_assignment,
    write_subscription,
)
from protocol.errors import ProtocolError
from tests.protocol.kio_oracle import decode, encode, ints, messages

VERSIONS = range(VERSION_MAX + 1)
GARBAGE = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda version, rest: struct.pack(">h", version) + rest, ints(3), st.binary()),
)


def kio_class(name: str, version: int) -> type:
    folder = {"Subscription": "consumer_protocol_subscription"}.get(
        name, "consumer_protocol_assignment"
    )
    module = importlib.import_module(f"kio.schema.{folder}.v{version}.data")
    return getattr(module, f"ConsumerProtocol{name}")


def by_topic(array: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in array:
        found.setdefault(row.topic, []).extend(row.partitions)
    return found


def prefixed(version: int, data: bytes) -> bytes:
    return struct.pack(">h", version) + data


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_a_subscription_is_read_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(kio_class("Subscription", version)))
    found = read_subscription(prefixed(version, encode(message)))
    assert found == Subscription(
        topics=list(message.topics),
        user_data=message.user_data,
        owned=by_topic(getattr(message, "owned_partitions", ())),
        generation_id=getattr(message, "generation_id", -1),
        rack_id=getattr(message, "rack_id", None),
        version=version,
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_a_subscription_is_written_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    cls = kio_class("Subscription", version)
    subscription = read_subscription(prefixed(version, encode(data.draw(messages(cls)))))
    written = write_subscription(subscription)
    again = encode(decode(cls, written[2:]))
    assert written == prefixed(version, again)
    assert read_subscription(written) == subscription


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_an_assignment_is_read_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(kio_class("Assignment", version)))
    expected = by_topic(message.assigned_partitions)
    data = prefixed(version, encode(message))
    assert read_assignment(data) == expected
    assert read_assignment_user_data(data) == (message.user_data or b"")


@pytest.mark.parametrize("version", VERSIONS)
@given(
    assigned=st.dictionaries(st.text("abc", max_size=3), st.lists(ints(32), max_size=4)),
    user_data=st.one_of(st.none(), st.binary(max_size=9)),
)
def test_an_assignment_is_written_as_kio_reads_it(
    version: int, assigned: dict[str, list[int]], user_data: bytes | None
) -> None:
    written = write_assignment(assigned, user_data=user_data, version=version)
    message = decode(kio_class("Assignment", version), written[2:])
    assert written[:2] == struct.pack(">h", version)
    assert [(row.topic, list(row.partitions)) for row in message.assigned_partitions] == list(
        assigned.items()
    )
    assert message.user_data == user_data


def test_a_version_above_the_newest_is_read_as_the_newest() -> None:
    newest = Subscription(["a"], b"u", {"a": [0, 2]}, 7, "zone-1")
    later = prefixed(VERSION_MAX + 1, write_subscription(newest)[2:] + b"fields of tomorrow")
    assert read_subscription(later) == newest
    assignment = prefixed(900, write_assignment({"a": [1]})[2:] + b"fields of tomorrow")
    assert read_assignment(assignment) == {"a": [1]}


def test_a_version_below_zero_is_refused() -> None:
    data = write_subscription(Subscription(["a"], None, {}))
    with pytest.raises(ProtocolError, match="version -1"):
        read_subscription(prefixed(-1, data[2:]))
    with pytest.raises(ProtocolError, match="version -1"):
        read_assignment(prefixed(-1, write_assignment({})[2:]))


def test_a_topic_that_is_named_twice_has_the_partitions_of_both() -> None:
    once = write_assignment({"a": [1]})[6:-4]
    twice = prefixed(1, struct.pack(">i", 2) + once + once + struct.pack(">i", -1))
    assert read_assignment(twice) == {"a": [1, 1]}


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_is_cut_off_is_missed(version: int) -> None:
    subscription = write_subscription(
        Subscription(["a", "b"], b"user", {"a": [0, 1]}, 7, "zone", version)
    )
    for size in range(len(subscription)):
        with pytest.raises(ProtocolError):
            read_subscription(subscription[:size])
    assignment = write_assignment({"a": [0, 1]}, user_data=b"user", version=version)
    for size in range(len(assignment)):
        with pytest.raises(ProtocolError):
            read_assignment(assignment[:size])


@pytest.mark.parametrize("count", [-2, -1, 3, 1 << 28, (1 << 31) - 1])
def test_a_count_that_lies_is_refused_before_anything_is_allocated(count: int) -> None:
    lie = struct.pack(">i", count)
    with pytest.raises(ProtocolError):
        read_assignment(prefixed(0, lie + b"\0\1a"))
    with pytest.raises(ProtocolError):
        read_assignment(prefixed(0, struct.pack(">i", 1) + b"\0\1a" + lie + bytes(8)))
    with pytest.raises(ProtocolError):
        read_subscription(prefixed(0, lie + b"\0\1a"))


def test_topics_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        read_subscription(prefixed(0, struct.pack(">i", 1) + b"\0\1\xff" + struct.pack(">i", -1)))


@pytest.mark.parametrize(
    ("read", "write"),
    [(read_subscription, write_subscription), (read_assignment, write_assignment)],
    ids=["subscription", "assignment"],
)
@given(data=GARBAGE)
def test_garbage_is_read_or_refused_and_nothing_else(read: Any, write: Any, data: bytes) -> None:
    try:
        found = read(data)
    except ProtocolError:
        return
    assert read(write(found)) == found


@pytest.mark.promise("P15")
def test_more_topics_or_partitions_than_a_cluster_can_have_are_not_read() -> None:
    """Two bytes each: eight megabytes would be four million."""
    head = struct.pack(">h", 0)
    names = struct.pack(">i", TOPICS_MAX + 1) + bytes(2 * (TOPICS_MAX + 1))
    with pytest.raises(ProtocolError, match=f"at most {TOPICS_MAX}"):
        read_subscription(head + names + struct.pack(">i", -1))
    topic = struct.pack(">hi", 0, PARTITIONS_MAX // 2) + bytes(4 * (PARTITIONS_MAX // 2))
    for count, is_read in ((2, True), (3, False)):
        data = head + struct.pack(">i", count) + topic * count + struct.pack(">i", -1)
        if is_read:
            assert len(read_assignment(data)[""]) == PARTITIONS_MAX
        else:
            with pytest.raises(ProtocolError, match=f"more than {PARTITIONS_MAX}"):
                read_assignment(data)
