"""A smaller input of which the same comes: pieces are left out, many at a time, then few."""

import time
from collections.abc import Callable, Sequence

from tests.fuzz.target import Target

SECONDS_MAX = 15.0
PIECES_MAX = 20_000


def minimised(target: Target, data: bytes, is_same: Callable[[bytes], bool]) -> bytes:
    """What is left when no stretch of it can be left out; `data` itself at worst."""
    until = time.monotonic() + SECONDS_MAX
    data = _fewer(target, data, target.pieces, is_same, until)
    return _fewer(target, data, _bytes_of, is_same, until)


def _bytes_of(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def _fewer(
    target: Target,
    data: bytes,
    pieces_of: Callable[[bytes], Sequence[bytes]],
    is_same: Callable[[bytes], bool],
    until: float,
) -> bytes:
    pieces = [*pieces_of(data)]
    size = len(pieces) // 2
    while size and len(pieces) <= PIECES_MAX:
        at, shrunk = 0, False
        while at < len(pieces):
            if time.monotonic() > until:
                return data
            joined = target.sealed(b"".join(pieces[:at] + pieces[at + size :]))
            if joined and len(joined) < len(data) and is_same(joined):
                data, shrunk = joined, True
                pieces = [*pieces_of(data)]
            else:
                at += size
        if not shrunk or size > 1:
            size //= 2
    return data
