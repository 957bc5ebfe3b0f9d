"""Fetches that were woken, until they are looked at again: clients take turns.

One record may wake thousands of fetches, or all connections of one client, each with hundreds of
partitions. As many as fit into a slice of the loop are looked at in the call, the others in slices
with pauses between (`broker.calls.slices`), round robin by client.

Invariant: who was woken is looked at once, in a few slices' time.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from broker.calls.line import Line
from broker.calls.slices import PAUSE_S
from broker.fetch.fetches import Fetch

AT_ONCE: Final = 1_000
"""Partitions in one slice, about."""
FETCH_COST: Final = 20
"""A fetch costs as much as so many partitions, beside its own."""
COUNTED_MAX: Final = 500
"""Of one with more partitions none is looked at here."""


class WokenFetches:
    """`look` is what is done with each."""

    def __init__(self, look: Callable[[Fetch], None]) -> None:
        self._look = look
        self._line: Line[Fetch] = Line()
        self._is_due = False

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._line)

    def look_at(self, fetches: Iterable[Fetch]) -> None:
        left = AT_ONCE
        for fetch in fetches:
            left -= _cost_of(fetch)
            if left >= 0:
                self._look(fetch)
            else:
                self._line.put(fetch.owner, fetch.call.connection.number, fetch)
        self._look_soon()

    def _look_soon(self) -> None:
        if self._line and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(PAUSE_S, self._look_at_some)

    def _look_at_some(self) -> None:
        self._is_due = False
        left = AT_ONCE
        while self._line and left > 0:
            fetch = self._line.take()
            left -= _cost_of(fetch)
            self._look(fetch)
        self._look_soon()


def _cost_of(fetch: Fetch) -> int:
    return FETCH_COST + min(len(fetch.fetched.places), COUNTED_MAX)
