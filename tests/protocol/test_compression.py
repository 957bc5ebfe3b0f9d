"""Codecs against other libraries' output, and bounds on what comes out."""

import gzip
import struct

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import compression
from protocol.compression import (
    DECOMPRESSED_BYTES_MAX,
    NO_ROOM,
    RATIO_MAX,
    Codec,
    InflatesTooFarError,
    _zstd_size,
    compress,
    decompress,
    decompress_into,
    inflated_max,
)
from protocol.errors import ProtocolError

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(Codec), st.binary(min_size=1, max_size=500), st.integers(1, 500))
def test_what_is_compressed_comes_out_again(codec, data, times):
    assert bytes(decompress(codec, compress(codec, data * times))) == data * times


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(COMPRESSING), st.binary(max_size=100))
def test_any_bytes_inflate_or_are_a_protocol_error(codec, data):
    try:
        decompress(codec, data, bytes_max=10_000)
    except ProtocolError:
        return


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(COMPRESSING), st.data())
def test_damaged_data_inflates_or_is_a_protocol_error(codec, data):
    damaged = bytearray(compress(codec, b"some data, some data, some more data" * 5))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decompress(codec, damaged, bytes_max=10_000)
    except ProtocolError:
        return


@pytest.mark.parametrize("codec", COMPRESSING)
def test_data_that_inflates_to_the_bound_passes_and_beyond_it_is_refused(codec):
    compressed = compress(codec, bytes(100_000))
    assert len(decompress(codec, compressed, bytes_max=100_000)) == 100_000
    with pytest.raises(ProtocolError, match="more than 99999 bytes"):
        decompress(codec, compressed, bytes_max=99_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_data_cut_short_is_refused(codec):
    compressed = compress(codec, bytes(range(256)) * 10)
    with pytest.raises(ProtocolError):
        decompress(codec, compressed[:-5])


@pytest.mark.parametrize("codec", COMPRESSING)
def test_compressed_data_of_no_bytes_is_refused(codec):
    with pytest.raises(ProtocolError):
        decompress(codec, b"")


def test_an_unknown_codec_is_refused():
    with pytest.raises(ProtocolError, match="codec 5"):
        decompress(5, b"data")
    with pytest.raises(ValueError, match="5"):
        compress(5, b"data")


@pytest.mark.parametrize("codec", [Codec.NONE, *COMPRESSING])
def test_views_are_taken_as_well_as_bytes(codec):
    data = memoryview(bytearray(b"data" * 100))
    compressed = memoryview(compress(codec, data))
    assert bytes(decompress(codec, compressed)) == bytes(data)


def test_uncompressed_data_is_not_copied():
    data = memoryview(b"data")
    assert decompress(Codec.NONE, data) is data


def test_snappy_is_written_in_javas_framing():
    compressed = compress(Codec.SNAPPY, bytes(70_000))
    assert compressed.startswith(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))


def test_snappy_without_framing_is_read():
    raw = bytes(cramjam.snappy.compress_raw(b"data" * 100))
    assert bytes(decompress(Codec.SNAPPY, raw)) == b"data" * 100


def test_snappy_with_a_block_that_lies_about_its_size_is_refused():
    lie = b"\xff\xff\xff\xff\x0f" + b"x" * 10
    with pytest.raises(ProtocolError, match="more than"):
        decompress(Codec.SNAPPY, lie)


@pytest.mark.parametrize("length", [0, -1, 1000])
def test_snappy_with_a_bad_length_of_a_block_is_refused(length):
    data = compress(Codec.SNAPPY, b"data")
    broken = data[:16] + struct.pack(">i", length) + data[20:]
    with pytest.raises(ProtocolError, match="a snappy block"):
        decompress(Codec.SNAPPY, broken)


def test_an_empty_snappy_stream_is_no_bytes():
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"")) == b""


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("content", [b"", b"a", bytes(range(256)) * 40])
def test_decompressing_into_a_buffer_says_how_far_it_is_filled_or_that_there_is_no_room(
    codec, content
):
    data = compress(codec, content)
    output = bytearray(b"~" * (len(content) + 9))
    assert decompress_into(codec, data, memoryview(output)) == len(content)
    assert output[: len(content)] == content
    exact = memoryview(bytearray(len(content)))
    assert decompress_into(codec, data, exact) == len(content)
    if content:
        assert decompress_into(codec, data, exact[1:]) == NO_ROOM


@pytest.mark.parametrize("codec", [*list(Codec)[1:], 7])
def test_what_is_broken_is_not_decompressed_into_a_buffer(codec):
    for data in (b"", b"\xff" * 40):
        with pytest.raises(ProtocolError):
            decompress_into(codec, data, memoryview(bytearray(1 << 16)))


def test_lz4_is_written_with_independent_blocks_kip_57():
    flags = compress(Codec.LZ4, bytes(300_000))[4]
    assert flags & 0b0010_0000
    assert not flags & 0b0000_0100


@pytest.mark.parametrize("linked", [False, True])
def test_lz4_frames_of_other_writers_are_read(linked):
    data = bytes(range(256)) * 2000
    frame = lz4.frame.compress(data, block_linked=linked, content_checksum=True)
    assert bytes(decompress(Codec.LZ4, frame)) == data


def test_zstd_frames_without_their_size_are_read():
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    data = bytes(range(256)) * 2000
    assert bytes(decompress(Codec.ZSTD, compressor.compress(data))) == data


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=50), st.integers(1, 2000))
def test_a_zstd_frame_says_how_much_room_it_needs(data, times):
    content = data * times
    frame = zstandard.ZstdCompressor(write_content_size=True).compress(content)
    assert _zstd_size(frame) == (len(content) if len(frame) >= 18 else 0)


@pytest.mark.parametrize("said", [0, 1, 99_999, 100_001, 200_000, 1 << 62, (1 << 64) - 1])
def test_zstd_that_lies_about_its_size_inflates_to_the_bound_or_is_refused(said):
    content = bytes(range(256)) * 390 + bytes(160)
    blocks = zstandard.ZstdCompressor(write_content_size=False).compress(content)
    # No content size, window descriptor: the same blocks behind a header with 8 bytes of size.
    assert blocks[4] >> 5 == 0
    lying = blocks[:4] + bytes([blocks[4] | 0xC0]) + blocks[5:6] + said.to_bytes(8, "little")
    try:
        found = bytes(decompress(Codec.ZSTD, lying + blocks[6:], bytes_max=100_000))
    except ProtocolError:
        return
    assert found == content


def test_gzip_of_other_writers_is_read():
    assert bytes(decompress(Codec.GZIP, gzip.compress(b"data" * 10))) == b"data" * 10


MiB = 1 << 20


def _zstd_that_says(size: int) -> bytes:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(8 * MiB))
    return (
        frame[:4] + bytes([frame[4] | 0xC0]) + frame[5:6] + size.to_bytes(8, "little") + frame[6:]
    )


BOMBS = {
    "gzip": (Codec.GZIP, compress(Codec.GZIP, bytes(8 * MiB))),
    "gzip of many members": (Codec.GZIP, compress(Codec.GZIP, bytes(MiB // 2)) * 16),
    "zstd": (Codec.ZSTD, compress(Codec.ZSTD, bytes(8 * MiB))),
    "zstd without its size": (
        Codec.ZSTD,
        zstandard.ZstdCompressor(write_content_size=False).compress(bytes(8 * MiB)),
    ),
    "zstd that says little": (Codec.ZSTD, _zstd_that_says(100)),
    "zstd that says much": (Codec.ZSTD, _zstd_that_says(1 << 40)),
    "zstd of many frames": (Codec.ZSTD, compress(Codec.ZSTD, bytes(MiB // 2)) * 16),
    "lz4": (Codec.LZ4, compress(Codec.LZ4, bytes(8 * MiB))),
    "lz4 of linked blocks": (Codec.LZ4, lz4.frame.compress(bytes(8 * MiB), block_linked=True)),
    "snappy": (Codec.SNAPPY, compress(Codec.SNAPPY, bytes(8 * MiB))),
    "snappy without framing": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(8 * MiB)))),
}


@pytest.mark.promise("P15")
@pytest.mark.parametrize("name", BOMBS)
def test_no_bomb_is_given_more_room_than_the_bound(name, monkeypatch):
    codec, data = BOMBS[name]
    asked = []
    make = compression._room
    monkeypatch.setattr(compression, "_room", lambda size: asked.append(size) or make(size))
    with pytest.raises(ProtocolError):
        decompress(codec, data, bytes_max=MiB + 1)
    assert max(asked, default=0) <= MiB + 1


@pytest.mark.parametrize("name", [name for name in BOMBS if "says" not in name])
def test_what_inflates_too_far_is_told_apart_from_what_is_broken(name):
    with pytest.raises(InflatesTooFarError):
        decompress(*BOMBS[name], bytes_max=MiB // 4)
    with pytest.raises(ProtocolError) as broken:
        decompress(BOMBS[name][0], b"\xff" * 40)
    assert not isinstance(broken.value, InflatesTooFarError)


@pytest.mark.parametrize("codec", Codec)
def test_no_codec_makes_more_of_a_byte_than_is_said(codec):
    level = None if codec in {Codec.NONE, Codec.SNAPPY} else {1: 9, 3: 17, 4: 22}[codec]
    packed = compress(codec, bytes(16 * MiB), level)
    assert 0.9 * RATIO_MAX[codec] < 16 * MiB / len(packed) <= RATIO_MAX[codec]


def test_a_batch_may_inflate_to_a_multiple_of_the_largest_as_sent_within_what_readers_read():
    assert [inflated_max(bytes_max) // MiB for bytes_max in (0, 1000, MiB // 2, MiB)] == [
        16,
        16,
        32,
        64,
    ]
    assert inflated_max(100 * MiB) == DECOMPRESSED_BYTES_MAX


def _in_blocks(*blocks: bytes) -> bytes:
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    lengths = [struct.pack(">i", len(block)) for block in packed]
    return (
        b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(map(bytes.__add__, lengths, packed))
    )


def test_snappy_of_many_small_blocks_is_refused_and_of_few_is_not():
    """Each costs as much as a large one."""
    few = [b"ab"] * 1000
    assert bytes(decompress(Codec.SNAPPY, _in_blocks(*few))) == b"ab" * 1000
    with pytest.raises(ProtocolError, match="blocks of only"):
        decompress(Codec.SNAPPY, _in_blocks(*few, *few))
    assert len(decompress(Codec.SNAPPY, _in_blocks(*[bytes(1024)] * 3000))) == 3000 * 1024


def test_lz4_is_written_in_slices_and_reads_back() -> None:
    data = bytes(range(256)) * 2000
    work = compression.compress_in_slices(Codec.LZ4, memoryview(data))
    assert sum(1 for _ in work) == 8
    assert bytes(decompress(Codec.LZ4, compress(Codec.LZ4, data))) == data
