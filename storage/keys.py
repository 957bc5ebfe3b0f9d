"""Which object keys are allowed, the same in every adapter.

Narrower than any store's own rules, so that a key good on one store is good on all: MinIO and
file systems take segments of at most 255 bytes, folders cannot be called "..", and names that
begin with a dot stay free for the disk adapter's temporary files. Pure.
"""

import re
from typing import Final

KEY_LENGTH_MAX: Final = 700
"""Characters; S3 allows 1,024 bytes together with the store's prefix."""

_KEY = re.compile(r"(?:[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,199}/)*[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,199}")


def check_key(key: str) -> None:
    """Raise ValueError unless `key` may name an object: a slip of the caller, never of a user."""
    if len(key) > KEY_LENGTH_MAX or not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} cannot be the key of an object")


def check_prefix(prefix: str) -> None:
    """Raise ValueError unless `prefix` is the beginning of keys ("" begins all)."""
    if prefix:
        check_key(prefix.removesuffix("/"))
