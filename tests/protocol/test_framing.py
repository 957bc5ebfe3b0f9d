"""Cutting a stream into frames, however it arrives, and headers."""

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import apis, framing
from protocol.errors import ProtocolError
from protocol.framing import FrameSplitter, parse_header

LIMIT = 300_000


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def body(length: int, seed: int = 0) -> bytes:
    return bytes((seed + i * 7) & 0xFF for i in range(length))


def feed(splitter: FrameSplitter, stream: bytes, sizes: list[int], *, in_place: bool):
    """Frames and whether the stream was refused, with the stream cut by `sizes` (cyclic)."""
    frames = []
    at = turn = 0
    try:
        while at < len(stream):
            size = max(1, sizes[turn % len(sizes)])
            turn += 1
            view = splitter.wanted() if in_place else None
            if view is not None:
                piece = stream[at : at + min(size, len(view))]
                view[: len(piece)] = piece
                view.release()
                frames += splitter.received(len(piece))
            else:
                scratch = bytearray(stream[at : at + size])
                piece = bytes(scratch)
                frames += splitter.receive(memoryview(scratch))
                scratch[:] = bytes(len(scratch))  # The scratch buffer is only borrowed.
            at += len(piece)
            if splitter.error is not None:
                return frames, True
    except ProtocolError:
        return frames, True
    return frames, False


FRAMES = st.lists(
    st.one_of(
        st.integers(8, 40),
        st.integers(framing.IN_PLACE_BYTES_MIN - 2, framing.IN_PLACE_BYTES_MIN + 2),
        st.integers(60_000, 200_000),
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(FRAMES, st.lists(st.integers(1, 100_000), min_size=1, max_size=6), st.booleans())
def test_the_same_frames_come_out_however_the_stream_is_cut(lengths, sizes, in_place):
    bodies = [body(length, seed) for seed, length in enumerate(lengths)]
    stream = b"".join(map(frame, bodies))
    frames, refused = feed(FrameSplitter(LIMIT), stream, sizes, in_place=in_place)
    assert [bytes(one) for one in frames] == bodies
    assert not refused


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_whole_input_equals_a_byte_at_a_time_for_any_bytes(stream, in_place):
    whole = feed(FrameSplitter(40), stream, [len(stream) or 1], in_place=in_place)
    bytewise = feed(FrameSplitter(40), stream, [1], in_place=in_place)
    assert ([bytes(f) for f in whole[0]], whole[1]) == (
        [bytes(f) for f in bytewise[0]],
        bytewise[1],
    )


def test_a_frame_a_byte_at_a_time():
    splitter = FrameSplitter()
    frames = []
    for byte in frame(b"x" * 20):
        frames += splitter.receive(memoryview(bytes([byte])))
    assert [bytes(one) for one in frames] == [b"x" * 20]


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 7, 101, (1 << 31) - 1])
def test_a_length_out_of_bounds_is_refused(length):
    with pytest.raises(ProtocolError, match=f"a frame of {length} bytes"):
        FrameSplitter(100).receive(struct.pack(">i", length) + b"rest")


def test_a_length_of_two_gigabytes_allocates_nothing():
    splitter = FrameSplitter()
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        splitter.receive(struct.pack(">i", (1 << 31) - 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000


def test_a_lying_length_costs_no_more_than_the_first_buffer():
    splitter = FrameSplitter()
    splitter.receive(struct.pack(">i", 100_000_000) + b"x")
    assert splitter.buffered_bytes == 64 * 1024


def test_memory_stays_within_a_multiple_of_what_arrived():
    splitter = FrameSplitter()
    splitter.receive(struct.pack(">i", 100_000_000))
    arrived = 0
    while arrived < 20_000_000:
        view = splitter.wanted()
        count = len(view)
        view.release()
        splitter.received(count)
        arrived += count
        assert splitter.buffered_bytes <= max(1_152 * 1024, 4 * arrived)


def test_frames_before_a_bad_length_are_handed_out_then_the_error_is_raised():
    splitter = FrameSplitter(100)
    good = frame(b"x" * 8)
    assert splitter.receive(good + struct.pack(">i", -1)) == [b"x" * 8]
    assert splitter.error is not None
    assert splitter.wanted() is None
    with pytest.raises(ProtocolError, match="a frame of -1 bytes"):
        splitter.receive(b"more")


def test_a_big_frame_is_wanted_in_place_and_a_small_one_is_not():
    splitter = FrameSplitter()
    assert splitter.wanted() is None
    splitter.receive(struct.pack(">i", 100) + b"x")
    assert splitter.wanted() is None
    splitter.receive(b"x" * 99 + struct.pack(">i", 20_000) + b"y")
    assert len(splitter.wanted()) == 19_999


def test_in_place_bytes_end_the_frame_and_the_next_one_begins_anew():
    splitter = FrameSplitter()
    splitter.receive(struct.pack(">i", 20_000))
    splitter.wanted()[:] = body(20_000)
    [one] = splitter.received(20_000)
    assert bytes(one) == body(20_000)
    assert splitter.wanted() is None
    assert splitter.receive(frame(b"z" * 9)) == [b"z" * 9]


def test_frames_are_read_only():
    splitter = FrameSplitter()
    splitter.receive(struct.pack(">i", 20_000))
    splitter.wanted()[:] = body(20_000)
    [one] = splitter.received(20_000)
    with pytest.raises(TypeError):
        one[0] = 1


# Headers


@given(
    st.sampled_from([(0, 3), (0, 9), (3, 0), (3, 12), (18, 0), (18, 3), (18, 99)]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
    st.binary(max_size=20),
)
def test_a_header_that_is_written_is_read_again(key_version, correlation_id, client_id, rest):
    key, version = key_version
    written = framing.request_frame(key, version, correlation_id, client_id, rest)
    [one] = FrameSplitter().receive(written) if len(written) >= 12 else [written[4:]]
    header = parse_header(one)
    assert header[:4] == (key, version, correlation_id, client_id)
    assert bytes(header.body) == rest


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_a_protocol_error(data):
    with contextlib.suppress(ProtocolError):
        parse_header(data)


@given(st.sampled_from([(3, 12), (18, 3)]), st.binary(max_size=40))
def test_any_bytes_behind_key_and_version_are_a_header_or_a_protocol_error(key_version, data):
    with contextlib.suppress(ProtocolError):
        parse_header(struct.pack(">hh", *key_version) + data)


@pytest.mark.parametrize("key_version", [(999, 0), (-1, 0), (0, 2), (0, 14), (3, -1), (18, -1)])
def test_a_key_or_version_that_is_not_served_is_refused(key_version):
    with pytest.raises(ProtocolError, match="is not served"):
        parse_header(struct.pack(">hhih", *key_version, 1, -1))


def test_an_unknown_version_of_api_versions_passes_kip_511():
    header = parse_header(struct.pack(">hhih", 18, 77, 5, -1) + b"\0whatever")
    assert (header.version, header.correlation_id) == (77, 5)


def test_tagged_fields_of_a_header_are_read_over():
    header = parse_header(struct.pack(">hhih", 3, 12, 5, -1) + b"\x01\x07\x02abBODY")
    assert bytes(header.body) == b"BODY"


def test_a_client_id_that_is_not_utf8_does_not_close_the_connection():
    header = parse_header(struct.pack(">hhih", 3, 0, 5, 2) + b"a\xff")
    assert header.client_id == "a\ufffd"


def test_a_client_id_longer_than_the_frame_is_refused():
    with pytest.raises(ProtocolError, match="client id"):
        parse_header(struct.pack(">hhih", 3, 0, 5, 100) + b"a")


def test_an_answers_head_counts_header_and_body():
    assert framing.response_head(apis.METADATA, 8, 7, 100) == struct.pack(">ii", 104, 7)
    assert framing.response_head(apis.METADATA, 9, 7, 100) == struct.pack(">iib", 105, 7, 0)
    assert framing.response_head(apis.API_VERSIONS, 4, 7, 100) == struct.pack(">ii", 104, 7)


@pytest.mark.parametrize("version", [8, 9])
def test_an_answers_header_is_read_again(version):
    head = framing.response_head(apis.METADATA, version, 42, 4)
    assert framing.parse_response_header(apis.METADATA, version, head[4:] + b"BODY") == (
        42,
        b"BODY",
    )


def test_an_answer_too_short_for_a_header_is_refused():
    with pytest.raises(ProtocolError):
        framing.parse_response_header(apis.METADATA, 8, b"abc")
    with pytest.raises(ProtocolError):
        framing.parse_response_header(apis.METADATA, 9, b"abcd")
