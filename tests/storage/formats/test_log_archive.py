"""Archives of the log: their keys and bytes, pinned, and refused when damaged."""

import contextlib
import struct
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from protocol.types import POSITION_ZERO, Position, position
from storage.formats.log_archive import (
    FRAME_BYTES,
    ArchivedEntry,
    ArchiveFormatError,
    LogArchive,
    archive_key,
    decode_archive,
    encode_archive,
    range_of,
)
from tests.storage.rows import UNHURRIED

KEY = "archive/000100000000000a-0001000000000384"

ARCHIVE = LogArchive(
    "ours",
    position(1, 10),
    position(1, 900),
    bytes(range(16)),
    (
        ArchivedEntry(position(1, 12), 0x7B, 0, False, b"open"),
        ArchivedEntry(position(1, 899), 0x7B, 1, True, b""),
        ArchivedEntry(position(1, 900), -2, 1 << 33, False, b"chunk"),
    ),
)

GOLDEN = bytes.fromhex(
    "004652415a494c6100010000000000006f757273" + "00" * 60 + "000100000000000a0001000000000384"
    "000102030405060708090a0b0c0d0e0f00000003"
    "000100000000000c000000000000007b00000000000000000000000004" + b"open".hex() + ""
    "0001000000000383000000000000007b00000000000000010100000000"
    "0001000000000384fffffffffffffffe00000002000000000000000005" + b"chunk".hex() + "eab3dbd3"
)


def sealed(data: bytes) -> bytes:
    """With a right checksum, whatever else was done to it."""
    return data[:-4] + struct.pack(">I", crc32c(data[:-4]))


def archive_from(
    cluster_id: str,
    after: int,
    digest: bytes,
    entries: list[tuple[int, int, int, bool, bytes]],
) -> LogArchive:
    made, at = [], after
    for step, session, n, voided, payload in entries:
        at += step
        made.append(ArchivedEntry(Position(at), session, n, voided, payload))
    return LogArchive(cluster_id, Position(after), Position(at), digest, tuple(made))


ENTRIES = st.tuples(
    st.integers(1, 1 << 40),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 64) - 1),
    st.booleans(),
    st.binary(max_size=40),
)
ARCHIVES = st.builds(
    archive_from,
    st.from_regex(r"\A[a-zA-Z0-9_-]{1,64}\Z"),
    st.integers(0, 1 << 62),
    st.binary(min_size=16, max_size=16),
    st.lists(ENTRIES, min_size=1, max_size=12),
)


def test_archive_of_version_1_is_written_and_read_as_ever() -> None:
    assert encode_archive(ARCHIVE).hex() == GOLDEN.hex()
    assert decode_archive(GOLDEN) == ARCHIVE


def test_key_tells_the_range() -> None:
    assert archive_key(ARCHIVE.after, ARCHIVE.last) == KEY
    assert range_of(KEY) == (ARCHIVE.after, ARCHIVE.last)
    assert range_of(archive_key(POSITION_ZERO, Position(1))) == (0, 1)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "archive/",
        "x" + KEY,
        KEY[:-1],
        KEY + "0",
        KEY.replace("-", "_"),
        KEY.replace("a-", "A-"),
        KEY.replace("-0", "-+"),
        KEY.replace("/0", "/-", 1),
        "archive/0001000000000384-000100000000000a",
        "archive/000100000000000a-000100000000000a",
        "checkpoints/000100000000000a/0001000000000384",
    ],
)
def test_other_keys_are_those_of_no_archive(key: str) -> None:
    with pytest.raises(ValueError, match="not the key of an archive"):
        range_of(key)


@UNHURRIED
@given(ARCHIVES)
def test_an_archive_that_was_encoded_is_decoded_again(archive: LogArchive) -> None:
    assert decode_archive(encode_archive(archive)) == archive
    assert range_of(archive_key(archive.after, archive.last)) == (archive.after, archive.last)


@UNHURRIED
@given(st.binary(max_size=300))
def test_other_bytes_are_refused(data: bytes) -> None:
    for some in (data, GOLDEN[:16] + data, sealed(GOLDEN[:16] + data + b"0000")):
        with pytest.raises(ArchiveFormatError):
            decode_archive(some)


@UNHURRIED
@given(ARCHIVES, st.data())
def test_bytes_that_were_changed_are_an_archive_or_refused_even_under_a_right_checksum(
    archive: LogArchive, data: st.DataObject
) -> None:
    changed = bytearray(encode_archive(archive))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    resealed = sealed(bytes(changed))
    with contextlib.suppress(ArchiveFormatError):
        decode_archive(resealed)


def test_any_damaged_byte_is_noticed() -> None:
    for at in range(len(GOLDEN)):
        damaged = bytearray(GOLDEN)
        damaged[at] ^= 0x10
        with pytest.raises(ArchiveFormatError):
            decode_archive(damaged)


def test_an_archive_cut_off_anywhere_is_refused_even_under_a_right_checksum() -> None:
    for length in range(len(GOLDEN)):
        with pytest.raises(ArchiveFormatError):
            decode_archive(GOLDEN[:length])
        with pytest.raises(ArchiveFormatError):
            decode_archive(sealed(GOLDEN[:length]))


def test_newer_version_is_refused_with_its_number() -> None:
    newer = bytearray(GOLDEN)
    newer[9] = 2
    with pytest.raises(ArchiveFormatError, match="archive format 2 is not known"):
        decode_archive(sealed(bytes(newer)))


def test_more_entries_than_there_are_is_refused_before_they_are_made() -> None:
    many = bytearray(GOLDEN)
    many[FRAME_BYTES - 8 : FRAME_BYTES - 4] = b"\xff" * 4
    with pytest.raises(ArchiveFormatError, match="ends in the middle of a"):
        decode_archive(sealed(bytes(many)))


def test_entries_that_are_not_in_the_range_or_not_in_order_are_refused() -> None:
    for other, said in (
        (replace(ARCHIVE, after=position(1, 12)), "behind position"),
        (replace(ARCHIVE, last=position(1, 901)), "entries end at"),
        (replace(ARCHIVE, last=position(1, 899)), "entries end at"),
        (replace(ARCHIVE, entries=()), "entries end at"),
        (replace(ARCHIVE, entries=ARCHIVE.entries[::-1]), "behind position"),
    ):
        with pytest.raises(ArchiveFormatError, match=said):
            encode_archive(other)


def test_range_in_an_object_that_its_entries_do_not_fill_is_refused() -> None:
    longer = bytearray(GOLDEN)
    struct.pack_into(">Q", longer, 16 + 64 + 8, position(1, 901))
    with pytest.raises(ArchiveFormatError, match="entries end at"):
        decode_archive(sealed(bytes(longer)))


def test_archive_of_no_cluster_is_refused() -> None:
    nameless = GOLDEN[:16] + bytes(64) + GOLDEN[80:]
    with pytest.raises(ArchiveFormatError, match="no cluster"):
        decode_archive(sealed(nameless))
