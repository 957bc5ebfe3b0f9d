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
    scratch = memoryview(bytearray(100_000))
    frames = []
    at = turn = 0
    try:
        while at < len(stream):
            size = max(1, sizes[turn % len(sizes)])
            turn += 1
            view = splitter.wanted(scratch) if in_place else scratch
            piece = stream[at : at + min(size, len(view))]
            view[: len(piece)] = piece
            if in_place and splitter.in_place:
                view.release()
                frames += splitter.received(len(piece))
            else:
                frames += splitter.receive(view[: len(piece)])
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


SCRATCH = memoryview(bytearray(1 << 20))


@pytest.mark.parametrize("length", [16_000, 20_000, 100_000_000])
def test_a_length_of_which_nothing_comes_costs_nothing(length):
    splitter = FrameSplitter()
    splitter.receive(struct.pack(">i", length))
    assert len(splitter.wanted(SCRATCH)) > 0
    assert splitter.buffered_bytes == 0
    splitter.receive(b"x")
    assert splitter.buffered_bytes <= 1024


def test_a_frame_that_drips_takes_a_small_multiple_of_what_has_arrived():
    splitter = FrameSplitter()
    splitter.receive(struct.pack(">i", 100_000_000))
    for arrived in range(1, framing.IN_PLACE_BYTES_MIN):
        splitter.receive(b"x")
        assert splitter.buffered_bytes <= 1024 + 4 * arrived


def test_memory_stays_within_a_multiple_of_what_arrived():
    splitter = FrameSplitter()
    splitter.receive(struct.pack(">i", 100_000_000))
    splitter.receive(bytes(64 * 1024))
    arrived = 64 * 1024
    while arrived < 20_000_000:
        view = splitter.wanted(SCRATCH)
        count = len(view)
        view.release()
        splitter.received(count)
        arrived += count
        assert splitter.buffered_bytes <= max(1_152 * 1024, 4 * arrived)


def test_where_memory_is_scarce_it_stays_within_twice_what_arrived():
    growth = framing.BufferGrowth()
    growth.in_one_step = False
    splitter = FrameSplitter(framing.FRAME_BYTES_MAX_DEFAULT, growth)
    splitter.receive(struct.pack(">i", 10_000_000) + bytes(70_000))
    assert splitter.buffered_bytes == 140_000
    splitter.received(len(splitter.wanted(SCRATCH)))
    splitter.wanted(SCRATCH)
    assert splitter.buffered_bytes <= 280_002


def test_a_big_frame_that_comes_in_large_reads_is_copied_no_more_than_once():
    """What came first is copied; the rest is received where it stays."""
    splitter = FrameSplitter()
    splitter.receive(struct.pack(">i", 1_000_000) + bytes(100_000))
    view = splitter.wanted(SCRATCH)
    assert splitter.in_place
    assert len(view) == 900_000


def test_frames_before_a_bad_length_are_handed_out_then_the_error_is_raised():
    splitter = FrameSplitter(100)
    good = frame(b"x" * 8)
    assert splitter.receive(good + struct.pack(">i", -1)) == [b"x" * 8]
    assert splitter.error is not None
    assert not splitter.in_place
    with pytest.raises(ProtocolError, match="a frame of -1 bytes"):
        splitter.receive(b"more")


def test_a_big_frame_is_wanted_in_place_when_48_kib_are_there_and_a_small_one_is_not():
    splitter = FrameSplitter()
    assert splitter.wanted(SCRATCH) is SCRATCH
    splitter.receive(struct.pack(">i", 100) + b"x")
    assert splitter.wanted(SCRATCH) is SCRATCH
    splitter.receive(b"x" * 99 + struct.pack(">i", 70_000) + b"y")
    assert len(splitter.wanted(SCRATCH)) == 64 * 1024 - 1
    assert not splitter.in_place
    splitter.receive(bytes(48 * 1024 - 2))
    assert not splitter.in_place
    splitter.receive(b"z")
    assert splitter.in_place
    assert len(splitter.wanted(SCRATCH)) == 16 * 1024, "what is left of its buffer"


def begun(length: int) -> FrameSplitter:
    """A frame of zeros of which 64 KiB have arrived."""
    splitter = FrameSplitter()
    splitter.receive(struct.pack(">i", length) + bytes(64 * 1024))
    return splitter


def test_in_place_bytes_end_the_frame_and_the_next_one_begins_anew():
    splitter = begun(80_000)
    rest = body(80_000 - 64 * 1024)
    splitter.wanted(SCRATCH)[:] = rest
    [one] = splitter.received(len(rest))
    assert bytes(one) == bytes(64 * 1024) + rest
    assert not splitter.in_place
    assert splitter.receive(frame(b"z" * 9)) == [b"z" * 9]


def test_behind_a_big_frame_no_more_is_received_than_is_copied_of_another_one():
    splitter = begun(80_000)
    splitter.received(len(splitter.wanted(SCRATCH)))
    assert len(splitter.wanted(SCRATCH)) == 64 * 1024
    splitter.receive(frame(b"z" * 9) + struct.pack(">i", 100) + b"x")
    assert splitter.wanted(SCRATCH) is SCRATCH, "the frame before was small"


def test_frames_are_read_only():
    splitter = begun(80_000)
    [one] = splitter.received(len(splitter.wanted(SCRATCH)))
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
