"""How an era began, as an object of the store."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.fault_codes import FaultCode
from protocol.types import Position
from storage.formats.era_marker import EraMarker, EraMarkerError, decode_era, encode_era, era_key

MARKER = EraMarker(
    "ours", 2, "0123456789abcdef", "fedcba9876543210", Position(7), "ab" * 16, 1_700_000_000_000
)


def test_what_is_written_is_read() -> None:
    assert decode_era("eras/0002", encode_era(MARKER)) == MARKER
    assert MARKER.begun == (2 << 48) + 1


def test_keys_sort_as_eras_do() -> None:
    eras = [2, 9, 10, 16, 255, 4095, 32767]
    assert sorted(map(era_key, eras)) == [*map(era_key, eras)]


@given(st.binary(max_size=200))
def test_whatever_is_there_is_refused_with_its_key(data: bytes) -> None:
    with pytest.raises(EraMarkerError, match="eras/0002"):
        decode_era("eras/0002", data)


@pytest.mark.parametrize("key", ["eras/0003", "eras/2", "cluster.json"])
def test_a_marker_under_another_key_is_refused(key: str) -> None:
    with pytest.raises(EraMarkerError):
        decode_era(key, encode_era(MARKER))


def test_a_marker_that_was_edited_is_refused() -> None:
    fields = json.loads(encode_era(MARKER)) | {"life": "fedcba9876543210"}
    with pytest.raises(EraMarkerError, match="checksum"):
        decode_era("eras/0002", json.dumps(fields).encode())


def test_a_newer_format_is_refused_as_such() -> None:
    fields = json.loads(encode_era(MARKER)) | {"format_version": 2, "more": 1}
    with pytest.raises(EraMarkerError, match="newer release") as refused:
        decode_era("eras/0002", json.dumps(fields).encode())
    assert refused.value.fault is FaultCode.VERSION_MISMATCH
