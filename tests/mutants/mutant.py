"""One planted bug, as the catalogue holds it."""

from dataclasses import dataclass
from enum import Enum


class Concern(Enum):
    """What a mutant breaks of that for which the simulator is there."""

    ORDER = "order"
    LEASES = "leases"
    SNAPSHOTS = "snapshots"
    COLLECTION = "collection"
    TRANSACTIONS = "transactions"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    """What the product does wrong, in words with hyphens; unique."""
    promise: str
    """The promise that breaks first: "P1" to "P17"."""
    before: str
    """Text of the product that is there once: part of a line, or some lines, inside a function."""
    after: str
    """What is planted in its place."""
    tests: tuple[str, ...]
    """Names of test functions, with the parameters in brackets where only some can fail. One must fail."""
    why: str
    """What somebody would see if the product were like that."""
    concern: Concern | None = None
    """Of those for the simulator. None: there the tests alone must find it."""
    unseen: str = ""
    """Why no seed of the simulator can find it, if it has a concern and none does: a sentence."""
