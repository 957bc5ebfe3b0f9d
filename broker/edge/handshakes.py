"""Which TLS handshakes are under way: how many of all, how many of an address. Pure.

A handshake costs an agent far more than the client who asks for it, so:

* `under_way_max` are under way at once, and `per_address_max` of an address. Others wait in line:
  addresses have turns, and of an address the oldest is next.
* Where somebody waits and all places are taken, whoever has been under way for `PATIENCE_MS` gives
  way, the oldest first: who is slow keeps nobody else waiting for longer than that.

Left out: the deadline of a single one, and closing (`broker.edge.tls_transport`).
"""

from typing import Final, NamedTuple, Protocol

UNDER_WAY_MAX: Final = 128
PER_ADDRESS_MAX: Final = 32
PATIENCE_MS: Final = 1_000


class Guest(Protocol):
    """A connection that wants to be one of TLS."""

    @property
    def address(self) -> str: ...


class Turns(NamedTuple):
    """What is due now."""

    begin: list[Guest]
    give_way: list[Guest]
    """These are under way no longer."""


class Handshakes:
    """Those under way and those that wait."""

    def __init__(
        self, under_way_max: int = UNDER_WAY_MAX, per_address_max: int = PER_ADDRESS_MAX
    ) -> None:
        self._under_way_max = under_way_max
        self._per_address_max = per_address_max
        self._under_way: dict[Guest, int] = {}
        """When each began, the oldest first."""
        self._counts: dict[str, int] = {}
        """Of those, by address."""
        self._waiting: dict[str, dict[Guest, None]] = {}
        """By address, the next one first."""

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def ask(self, guest: Guest) -> None:
        """It waits from now on."""
        self._waiting.setdefault(guest.address, {})[guest] = None

    def end(self, guest: Guest) -> None:
        """It is through, or gone; nothing happens when it was neither waiting nor under way."""
        line = self._waiting.get(guest.address)
        if line is not None and guest in line:
            del line[guest]
            if not line:
                del self._waiting[guest.address]
        if self._under_way.pop(guest, None) is not None:
            self._counts[guest.address] -= 1
            if not self._counts[guest.address]:
                del self._counts[guest.address]

    def due(self, now_ms: int) -> Turns:
        """Who begins now, and who gives way to them."""
        turns = Turns([], [])
        while (guest := self._next()) is not None:
            if len(self._under_way) >= self._under_way_max:
                oldest = next(iter(self._under_way))
                if now_ms - self._under_way[oldest] < PATIENCE_MS:
                    break
                self.end(oldest)
                turns.give_way.append(oldest)
            self._begin(guest, now_ms)
            turns.begin.append(guest)
        return turns

    def _next(self) -> Guest | None:
        for address, line in self._waiting.items():
            if self._counts.get(address, 0) < self._per_address_max:
                return next(iter(line))
        return None

    def _begin(self, guest: Guest, now_ms: int) -> None:
        address = guest.address
        line = self._waiting.pop(address)
        del line[guest]
        if line:
            self._waiting[address] = line  # Behind the others.
        self._under_way[guest] = now_ms
        self._counts[address] = self._counts.get(address, 0) + 1
