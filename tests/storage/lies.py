"""Batches whose headers say another newest timestamp than their records have, under a right CRC."""

import struct

from crc32c import crc32c

FAR_MS = 10 * 365 * 86_400_000
"""Ten years."""


def saying(batch: bytes, newest: int, *, base: int | None = None) -> bytes:
    """The batch with another newest timestamp in its header; `base` moves all of its records."""
    changed = bytearray(batch)
    if base is not None:
        struct.pack_into(">q", changed, 27, base)
    struct.pack_into(">q", changed, 35, newest)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)
