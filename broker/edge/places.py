"""Which connections there are room for: how many, how many of an address, how fast. Pure.

What holds:

* An address has no more connections than `max.connections.per.ip`, or its override, allows.
* Below the bound of all together everybody is let in, whatever its address holds.
* At the bound a new connection takes the place of another one, or is refused:
  1. of one that has not shown itself (no request of it was answered) for `NEW_MS`, the oldest;
  2. else, when an address holds at least two more than the new one's: of the one of these that
     has not shown itself, else of the one that was idle for longest (of its oldest `LOOKED_AT`).
  So an address that holds more than its share gives way to others, and to nobody of its own.
* While more than three quarters are taken, who has not shown itself in time and asks nothing is
  closed (`silent`).
* Connections beyond `max.connection.creation.rate` are let in later, as in Kafka. They are accepted
  meanwhile, and not read from: no event loop here can leave them in the listener's queue.

Left out: closing (`broker.edge.server`); descriptors, of which the bound is made (`broker.edge.limits`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, Protocol

NEW_MS: Final = 1_000
LOOKED_AT: Final = 64


class Guest(Protocol):
    """A connection, as far as its place goes."""

    number: int
    address: str
    opened_ms: int

    @property
    def active_ms(self) -> int: ...

    @property
    def asks(self) -> bool: ...


class Admission(NamedTuple):
    """Whether a connection is let in."""

    refused: str = ""
    """Why not, a word or two."""
    instead_of: Guest | None = None


@dataclass(slots=True)
class _Address:
    """The connections of one address by number, the oldest first."""

    new: dict[int, Guest] = field(default_factory=dict)
    shown: dict[int, Guest] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.new) + len(self.shown)


_NOBODY: Final = _Address()


class Places:
    """Who is there, by address."""

    def __init__(
        self, connections_max: int, per_address_max: int, overrides: Mapping[str, int]
    ) -> None:
        """`overrides`: by address, instead of `per_address_max`."""
        self.set_bounds(connections_max, per_address_max, overrides)
        self._count = 0
        self._addresses: dict[str, _Address] = {}
        self._new: dict[int, Guest] = {}
        """Those that have not shown themselves, the oldest first."""

    def set_bounds(
        self, connections_max: int, per_address_max: int, overrides: Mapping[str, int]
    ) -> None:
        """Other bounds from now on; whoever is there stays."""
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._overrides = overrides

    def admission(self, address: str, now_ms: int) -> Admission:
        """Whether one more of this address is let in, and instead of whom."""
        mine = self._addresses.get(address, _NOBODY)
        if len(mine) >= self._overrides.get(address, self._per_address_max):
            return Admission("address")
        if self._count < self._connections_max:
            return Admission()
        for guest in islice(self._new.values(), 1):
            if now_ms - guest.opened_ms >= NEW_MS:
                return Admission(instead_of=guest)
        most = max(self._addresses.values(), key=len, default=_NOBODY)
        if len(most) < len(mine) + 2:
            return Admission("full")
        oldest = islice((most.new or most.shown).values(), LOOKED_AT)
        return Admission(instead_of=min(oldest, key=lambda guest: guest.active_ms))

    def add(self, guest: Guest) -> None:
        """It is let in."""
        self._count += 1
        self._addresses.setdefault(guest.address, _Address()).new[guest.number] = guest
        self._new[guest.number] = guest

    def show(self, guest: Guest) -> None:
        """A request of it was answered."""
        place = self._addresses.get(guest.address, _NOBODY)
        if guest.number not in place.new:
            return
        del place.new[guest.number], self._new[guest.number]
        place.shown[guest.number] = guest

    def remove(self, guest: Guest) -> None:
        """It is gone. Nothing happens when it had gone before."""
        place = self._addresses.get(guest.address, _NOBODY)
        if place.new.pop(guest.number, None) or place.shown.pop(guest.number, None):
            self._count -= 1
            self._new.pop(guest.number, None)
            if not len(place):
                del self._addresses[guest.address]

    @property
    def scarce(self) -> bool:
        """More than three quarters are taken."""
        return self._count > self._connections_max * 3 // 4

    def silent(self, now_ms: int, silent_ms_max: int) -> list[Guest]:
        """Those that were opened so long ago, have not shown themselves and ask nothing."""
        return [
            guest
            for guest in self._new.values()
            if now_ms - guest.opened_ms >= silent_ms_max and not guest.asks
        ]


class Pace:
    """`rate` connections a second, of which a second's worth may come at once."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._due_us = 0
        """Until when all that were let in take, one after the other."""

    def delay_ms(self, now_ms: int) -> int:
        """One more has come: in how many ms it is let in."""
        now_us = now_ms * 1_000
        self._due_us = max(self._due_us, now_us) + 1_000_000 // self.rate
        return max(0, self._due_us - now_us - 1_000_000 + 999) // 1_000
