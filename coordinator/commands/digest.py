"""A digest that rolls over outcomes: replicas at the same position have the same (P13)."""

from hashlib import blake2b
from struct import Struct
from typing import Final

from coordinator.commands.declaration import DIGESTED
from coordinator.commands.entries import Outcome
from protocol.types import Position

DIGEST_BYTES = 16
DIGEST_ZERO: Final = bytes(DIGEST_BYTES)

_HEAD = Struct("<QI")


def roll(digest: bytes, position: Position, outcomes: tuple[Outcome, ...]) -> bytes:
    """The digest after an entry: of the one before, the position and the outcomes."""
    rolling = blake2b(digest, digest_size=DIGEST_BYTES)
    rolling.update(_HEAD.pack(position, len(outcomes)))
    for outcome in outcomes:
        rolling.update(DIGESTED[type(outcome)](outcome))
    return rolling.digest()
