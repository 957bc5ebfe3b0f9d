"""What one client may hold of the little that the admin listener has to give. Pure.

A share per client address binds only where the whole is nearly used up. Nobody who has something
loses it: a pin is a promise to its reader, and ends by itself in at most a week.
"""

from collections import Counter
from collections.abc import Set as AbstractSet
from typing import Final

PINS_RESERVED: Final = 250
"""Of all pins: while no more are left, an address gets few more."""
PINS_OF_ADDRESS: Final = 5


class PinShares:
    """Which address set which pin through this agent."""

    def __init__(self) -> None:
        self._address: dict[str, str] = {}

    def objection(
        self, name: str, address: str, living: AbstractSet[str], *, most: int
    ) -> str | None:
        """`living`: all pins of the cluster. Why this address may not have one more pin; None: it may, or has it already."""
        self._address = {pin: whose for pin, whose in self._address.items() if pin in living}
        if name in living or len(living) < most - PINS_RESERVED:
            return None
        held = sum(1 for whose in self._address.values() if whose == address)
        if held < PINS_OF_ADDRESS:
            return None
        return (
            f"{len(living)} of {most} pins are taken and {address} holds {held} of them:"
            " take some away, or wait until they expire"
        )

    def note(self, name: str, address: str) -> None:
        """The pin was set."""
        self._address.setdefault(name, address)


class Places:
    """Places for what lasts, by address: the last one is for an address that has none."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """Whether there was one; it is given back by `give`."""
        left = self.most - self._taken.total()
        if left <= 0 or (left == 1 and address in self._taken):
            return False
        self._taken[address] += 1
        return True

    def give(self, address: str) -> None:
        self._taken[address] -= 1
        if not self._taken[address]:
            del self._taken[address]
