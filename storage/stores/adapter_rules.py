"""What all adapters of the object store have in common: the rules for keys, ranges and pages; and
which of them are paid for.

The rules for keys are narrower than any store's own, so that a key good on one store is good on
all: MinIO and file systems take segments of at most 255 bytes, folders cannot be called "..",
and names that begin with a dot stay free for the disk adapter's temporary files. Pure.
"""

import re
from collections.abc import Sequence
from typing import Final

from protocol.types import Buffer
from storage.stores.object_store import StoreRefusedError

KEY_LENGTH_MAX: Final = 700
"""Characters; S3 allows 1,024 bytes together with the store's prefix."""
PAGE_OBJECTS_MAX: Final = 1000
"""Objects that one listing or one deletion names at most (S3's limit)."""

_PAID: Final = ("s3://",)

_SEGMENT = r"[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,199}"
_KEY: Final = re.compile(rf"(?:{_SEGMENT}/)*{_SEGMENT}")


def charges_for_puts(url: str) -> bool:
    """Whether each PUT into the store at `url` costs money. In a folder it costs an fsync."""
    return url.startswith(_PAID)


def check_key(key: str) -> None:
    """Raise ValueError unless `key` may name an object: a slip of the caller, never of a user."""
    if len(key) > KEY_LENGTH_MAX or not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} cannot be the key of an object")


def check_prefix(prefix: str) -> None:
    """Raise ValueError unless `prefix` is the beginning of keys ("" begins all)."""
    if prefix:
        check_key(prefix.removesuffix("/"))


def check_range(key: str, start: int, length: int) -> None:
    """Raise ValueError unless `key` may name an object and the range is not empty."""
    check_key(key)
    if start < 0 or length <= 0:
        raise ValueError(f"{length} bytes from byte {start} on are not a range")


def range_refused(key: str, start: int, length: int, *, found: int) -> StoreRefusedError:
    """The error for an object that has only `found` of the bytes asked for."""
    return StoreRefusedError(
        f"{key} is too short: of {length} bytes from byte {start} on it has {max(0, found)}"
    )


def same_bytes(present: Buffer, parts: Sequence[Buffer]) -> bool:
    """Whether an object has just the bytes of the joined parts, without joining them."""
    view = memoryview(present)
    at = 0
    for part in parts:
        end = at + len(part)
        if view[at:end] != part:
            return False
        at = end
    return at == len(view)
