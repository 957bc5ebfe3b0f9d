"""Voided entries as bytes, and what every adapter refuses alike. Pure."""

import json
from hashlib import blake2b
from typing import Final

from coordinator.log.metadata_log import VOIDS_MAX, LogEntry, LogRefusedError, VoidedEntry
from protocol.types import Position

VERSION: Final = 1
DIGEST_BYTES: Final = 16


def payload_digest(payload: bytes) -> bytes:
    """What tells a payload from any other that could have been in its place."""
    return blake2b(payload, digest_size=DIGEST_BYTES).digest()


def encode_void(entry: VoidedEntry) -> bytes:
    """JSON, for people too."""
    fields = {**entry._asdict(), "digest": entry.digest.hex()}
    return json.dumps({"version": VERSION, **fields}, sort_keys=True).encode()


def decode_void(data: bytes) -> VoidedEntry:
    """The inverse. Raises LogRefusedError for what a newer version, or nobody, has written."""
    try:
        fields = json.loads(data)
        if fields["version"] != VERSION:
            raise LogRefusedError(
                f"what the log says of a voided entry has format {fields['version']}, written by a"
                f" newer version; this one reads {VERSION}"
            )
        return VoidedEntry(
            position=Position(int(fields["position"])),
            session=int(fields["session"]),
            n=int(fields["n"]),
            digest=bytes.fromhex(fields["digest"]),
            voided_ms=int(fields["voided_ms"]),
            reason=str(fields["reason"]),
        )
    except (ValueError, LookupError, TypeError) as error:
        raise LogRefusedError(
            f"what the log says of a voided entry cannot be read: {error!r}"
        ) from error


def check(entry: VoidedEntry, found: LogEntry | None, *, voids: int) -> None:
    """Raises LogRefusedError unless `found` is what is to be voided, beside so many others."""
    if found is None or (found.position, found.session, found.n) != entry[:3]:
        raise LogRefusedError(
            f"there is no entry {entry.n} of session {entry.session:x} at position {entry.position}"
        )
    if payload_digest(found.payload) != entry.digest:
        raise LogRefusedError(
            f"the entry at position {entry.position} is not the one that was looked at"
        )
    if voids >= VOIDS_MAX:
        raise LogRefusedError(f"{VOIDS_MAX} entries are voided, and no more can be until a cut")


def other_snapshots() -> LogRefusedError:
    """Something else is published than what was looked at."""
    return LogRefusedError("another snapshot was published meanwhile: look again")
