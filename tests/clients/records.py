"""The records that every client writes and reads: keys, headers, timestamps, nulls, sizes."""

import time
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 10_000
FIRST_TIMESTAMP_MS = int(time.time() * 1000) - 24 * 60 * 60 * 1000
"""Yesterday: what is older than a week is deleted (retention.ms) when an agent gets round to it."""


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def record(index: int) -> Sent:
    """Record number `index`: some have no key, some are tombstones, some repeat a header."""
    value = None if index % 97 == 0 else f"value {index} ".encode() * (1 + index % 7)
    headers = (("n", str(index).encode()), ("n", b"again")) if index % 3 == 0 else ()
    key = None if value is not None and index % 5 == 0 else f"key {index % 100}".encode()
    return Sent(key, value, headers, FIRST_TIMESTAMP_MS + index)


def records(count: int = COUNT) -> list[Sent]:
    return [record(index) for index in range(count)]


def in_order(read: list[Sent]) -> list[Sent]:
    """By timestamp, which numbers the records."""
    return sorted(read, key=lambda sent: sent.timestamp_ms)
