"""Voided entries as bytes: pinned, and refused when they are of a newer version or broken."""

import pytest

from coordinator.log.metadata_log import LogRefusedError, VoidedEntry
from coordinator.log.voided import decode_void, encode_void, payload_digest
from protocol.types import position

ENTRY = VoidedEntry(position(1, 42), 7587, 3, payload_digest(b"x"), 1_700_000_000_123, "Fehler ü")
BYTES = (
    b'{"digest": "442a44457137672b3218c1007dc8f76a", "n": 3, "position": 281474976710698,'
    b' "reason": "Fehler \\u00fc", "session": 7587, "version": 1, "voided_ms": 1700000000123}'
)


def test_a_voided_entry_has_these_bytes_for_ever() -> None:
    assert encode_void(ENTRY) == BYTES
    assert decode_void(BYTES) == ENTRY


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (BYTES.replace(b'"version": 1', b'"version": 2'), "format 2, written by a newer version"),
        (BYTES.replace(b'"n": 3', b'"n": "three"'), "cannot be read"),
        (BYTES.replace(b'"n": 3, ', b""), "cannot be read"),
        (BYTES[:-1], "cannot be read"),
        (b"[]", "cannot be read"),
    ],
)
def test_what_this_version_does_not_write_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(LogRefusedError, match=sentence):
        decode_void(data)
