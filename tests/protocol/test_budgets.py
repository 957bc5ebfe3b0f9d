"""Budgets of elements: refused before they are made, passed by whatever honest clients send."""

import struct
import tracemalloc

import pytest

from protocol import apis, fetch, messages, produce
from protocol.errors import ProtocolError
from protocol.messages import codec
from protocol.messages.budgets import AT_ONCE_BYTES_MAX, ELEMENTS_MAX, OverBudgetError
from protocol.messages.codec import decode_slices, encode_slices, refusable, request_layout
from protocol.messages.layouts import SLICE_BYTES, SLICE_ELEMENTS, Meter
from protocol.primitives import TAGGED_FIELDS_MAX, read_tagged_fields, uvarint

MiB = 1 << 20
MEMORY_PER_ELEMENT_MAX = 200
"""Bytes of Python objects, beside four for each byte of a string."""


def in_slices(work):
    """What a generator returns, and how often it paused."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def topics_of_two_bytes(count: int) -> bytes:
    """A Metadata request (v9) for so many topics without a name."""
    return uvarint(count + 1) + b"\1\0" * count + b"\0\0\0\0"


@pytest.fixture(autouse=True)
def layouts() -> None:
    """They are made once, and count for nobody."""
    for key, version in ((apis.METADATA, 9), (apis.OFFSET_FETCH, 8)):
        request_layout(key, version)


def memory_of(work) -> int:
    """Bytes that it takes at most while it runs."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.promise("P15")
def test_a_request_over_its_budget_is_refused_before_its_elements_are_made():
    body = topics_of_two_bytes(ELEMENTS_MAX[apis.METADATA] + 1)

    def decode() -> None:
        with pytest.raises(OverBudgetError):
            messages.decode_request(apis.METADATA, 9, body)

    assert memory_of(decode) < 100_000


def test_elements_of_all_arrays_count_together():
    """Half a million partitions in one array would be refused; so they are in a thousand."""
    topic = messages.OffsetFetchRequestTopic(name="t", partition_indexes=list(range(500)))
    group = messages.OffsetFetchRequestGroup(group_id="g", topics=[topic] * 1_000)
    request = messages.OffsetFetchRequest(groups=[group])
    body = messages.encode_request(apis.OFFSET_FETCH, 8, request)

    def decode() -> None:
        with pytest.raises(OverBudgetError):
            messages.decode_request(apis.OFFSET_FETCH, 8, body)

    assert memory_of(decode) < 500_000 * 40
    group.topics = [topic] * 400
    body = messages.encode_request(apis.OFFSET_FETCH, 8, request)
    assert messages.decode_request(apis.OFFSET_FETCH, 8, body) == request


def test_integers_over_the_budget_are_refused_before_they_are_unpacked():
    topic = messages.OffsetFetchRequestTopic(name="t", partition_indexes=[7] * 2_000_000)
    group = messages.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    body = messages.encode_request(
        apis.OFFSET_FETCH, 8, messages.OffsetFetchRequest(groups=[group])
    )

    def decode() -> None:
        with pytest.raises(OverBudgetError):
            messages.decode_request(apis.OFFSET_FETCH, 8, body)

    assert memory_of(decode) < 100_000


@pytest.mark.parametrize("length", [1, 2, 20])
def test_an_array_longer_than_its_bytes_can_hold_is_refused_at_its_length(length):
    """Three bytes are no three topics of two bytes each."""
    body = uvarint(length + 1) + b"\1\0" * (length - 1) + b"\1"
    with pytest.raises(ProtocolError, match="bytes left"):
        messages.decode_request(apis.METADATA, 9, body)


def test_a_long_request_is_decoded_in_slices_to_the_same():
    request = messages.MetadataRequest(
        topics=[messages.MetadataRequestTopic(name=f"topic-{n}") for n in range(10_000)]
    )
    body = messages.encode_request(apis.METADATA, 9, request)
    meter = Meter(apis.METADATA)
    decoded, pauses = in_slices(decode_slices(apis.METADATA, 9, body, meter))
    assert decoded == request
    assert pauses >= 10_000 // SLICE_ELEMENTS - 1
    assert meter.elements == 10_000


def test_long_strings_make_slices_shorter():
    names = [messages.MetadataRequestTopic(name="n" * 30_000) for _ in range(100)]
    body = messages.encode_request(apis.METADATA, 9, messages.MetadataRequest(topics=names))
    _, pauses = in_slices(decode_slices(apis.METADATA, 9, body, Meter(apis.METADATA)))
    assert pauses >= 90


def test_a_long_answer_is_encoded_in_slices_to_the_same():
    rows = [messages.OffsetFetchResponsePartition(partition_index=n) for n in range(5_000)]
    topics = [messages.OffsetFetchResponseTopic(name=f"t{n}", partitions=rows) for n in range(4)]
    group = messages.OffsetFetchResponseGroup(group_id="g", topics=topics)
    response = messages.OffsetFetchResponse(groups=[group])
    encoded, pauses = in_slices(encode_slices(apis.OFFSET_FETCH, 8, response))
    assert encoded == messages.encode_response(apis.OFFSET_FETCH, 8, response)
    assert pauses >= 20_000 // SLICE_ELEMENTS - 1


def test_more_tagged_fields_than_any_message_has_are_refused_before_they_are_read():
    count = 1_000_000
    data = memoryview(uvarint(count) + b"\5\0" * count)

    def read() -> None:
        with pytest.raises(ProtocolError, match="tagged fields"):
            read_tagged_fields(data, 0)

    assert memory_of(read) < 10_000
    some = memoryview(uvarint(TAGGED_FIELDS_MAX) + b"\5\0" * TAGGED_FIELDS_MAX)
    assert read_tagged_fields(some, 0)[1] == len(some)


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        pytest.param(apis.METADATA, 9, topics_of_two_bytes(100_000), id="topics without a name"),
        pytest.param(
            apis.METADATA,
            9,
            uvarint(50_001) + (uvarint(9) + b"\xf0\x9f\x98\x80aaaa" + b"\0") * 50_000 + b"\0" * 4,
            id="names of four bytes a character",
        ),
        pytest.param(
            apis.DESCRIBE_GROUPS,
            5,
            uvarint(100_001) + b"\1" * 100_000 + b"\0\0",
            id="groups without a name",
        ),
        pytest.param(
            apis.OFFSET_FETCH,
            8,
            uvarint(100_001) + b"\1\0\0" * 100_000 + b"\0\0",
            id="groups that ask for all",
        ),
        pytest.param(
            apis.OFFSET_FETCH,
            8,
            b"\2\2g" + uvarint(100_001) + b"\1\1\0" * 100_000 + b"\0\0\0",
            id="topics without partitions",
        ),
        pytest.param(
            apis.CREATE_TOPICS,
            7,
            uvarint(50_001) + (b"\1" + bytes(6) + b"\1\1\0") * 50_000 + b"\0\0\0\0\0\0",
            id="topics to be created",
        ),
    ],
)
def test_the_memory_of_a_decoded_request_is_bounded_by_its_elements(key, version, body):
    counted = Meter(key)
    in_slices(decode_slices(key, version, body, counted))
    used = memory_of(lambda: messages.decode_request(key, version, body))
    assert used <= MEMORY_PER_ELEMENT_MAX * counted.elements + 4 * len(body)


@pytest.mark.parametrize("key", list(apis.APIS))
def test_what_fits_into_a_short_request_is_within_every_budget(key):
    """So those need not be counted."""
    assert ELEMENTS_MAX[key] >= AT_ONCE_BYTES_MAX


def test_answers_with_an_error_code_of_their_own_can_refuse_the_whole():
    assert refusable(apis.FETCH, 7)
    assert not refusable(apis.FETCH, 6)
    assert refusable(apis.METADATA, 13)
    assert not refusable(apis.METADATA, 12)
    assert not refusable(apis.OFFSET_FETCH, 8)


@pytest.mark.promise("P15")
def test_tagged_fields_of_a_produce_count_as_elements():
    """A thousand in each place would be twenty million."""
    tagged = uvarint(900) + b"\5\0" * 900
    body = b"\0\xff\xff" + bytes(4) + b"\2\2t" + uvarint(101) + (bytes(5) + tagged) * 100 + b"\0\0"
    with pytest.raises(OverBudgetError):
        produce.parse_request(9, body)
    few = b"\0\xff\xff" + bytes(4) + b"\2\2t" + uvarint(3) + (bytes(5) + tagged) * 2 + b"\0\0"
    assert len(produce.parse_request(9, few).topics[0][2]) == 2


@pytest.mark.promise("P15")
def test_tagged_fields_of_a_fetch_are_read_with_pauses():
    tagged = uvarint(900) + b"\5\0" * 900
    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 100) + tagged
    head = bytes(4) + bytes(13) + bytes(4) + b"\xff\xff\xff\xff" + b"\2\2t"
    body = head + uvarint(1001) + partition * 1000 + b"\0\1\1\0"
    request, pauses = in_slices(fetch.parse_slices(12, body))
    assert len(request.topics[0][2]) == 1000
    assert pauses >= len(body) // (SLICE_BYTES + len(partition)) - 1


@pytest.mark.promise("P15")
def test_an_answer_that_no_client_would_take_is_not_made(monkeypatch):
    monkeypatch.setattr(codec, "RESPONSE_BYTES_MAX", 100_000)
    rows = [messages.OffsetFetchResponsePartition(metadata="m" * 1_000)] * 1_000
    topic = messages.OffsetFetchResponseTopic(name="t", partitions=rows)
    response = messages.OffsetFetchResponse(topics=[topic])
    with pytest.raises(ProtocolError, match="ask for less"):
        in_slices(encode_slices(apis.OFFSET_FETCH, 5, response))
