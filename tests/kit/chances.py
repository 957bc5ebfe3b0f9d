"""Faults by name, each drawn from a stream of its own: leaving some out changes nothing else that is drawn.

A fault that may happen is asked for by a name that says what it would be: the twelfth append of an
agent, its answer lost. Seed and name alone say whether it happens, and how (`stream`). With `only`,
no other faults happen than those that are named there: a run that failed is tried again with some of
what it met, and what it would meet in their stead does not come.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Collection


class Chances:
    def __init__(
        self, seed: int, now_s: Callable[[], float], only: Collection[str] | None = None
    ) -> None:
        self._seed = seed.to_bytes(8, "big")
        self._now_s = now_s
        self._only = only
        self._counts: Counter[str] = Counter()
        self.happened: dict[str, float] = {}
        """By name, in order: when it did."""
        self.noted: Counter[str] = Counter()
        """What came of faults, how often."""

    def note(self, what: str) -> None:
        self.noted[what] += 1

    def numbered(self, what: str) -> str:
        """The name of the next one of these, from 1."""
        self._counts[what] += 1
        return f"{what}.{self._counts[what]}"

    def stream(self, name: str) -> random.Random:
        """The same for the same seed and name, whatever else is drawn."""
        return random.Random(self._number(name))

    def happens(self, name: str, probability: float) -> bool:
        """Whether this fault does; then it is in the account."""
        if probability <= 0.0 or self._number(name) >= probability * 2.0**64:
            return False
        return self.allows(name)

    def allows(self, name: str) -> bool:
        """Of a fault that is to happen now: whether it is not left out."""
        if self._only is not None and name not in self._only:
            return False
        self.happened[name] = self._now_s()
        return True

    def _number(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode(), digest_size=8, key=self._seed).digest()
        return int.from_bytes(digest, "big")
