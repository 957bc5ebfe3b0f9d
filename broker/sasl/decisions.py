"""Decides what takes long of logins, in one thread beside the loop: signatures, and keys of tokens.

A connection has one undecided step at a time, so no more of them wait than there are connections;
they are decided in the order in which they come.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from broker.sasl.exchange import Step, Undecided
from broker.sasl.key_sets import KeySets
from broker.sasl.rules import SaslRules, key_places


class Decisions:
    """Of an agent."""

    def __init__(
        self, rules: Iterable[SaslRules] = (), *, boot_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """`rules`: of its listeners; `boot_ms`: a clock that nobody sets."""
        self.key_sets = KeySets(key_places(rules), boot_ms=boot_ms)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="frazil-sasl")

    async def decide(self, step: Undecided) -> Step:
        """What the step comes to."""
        loop = asyncio.get_running_loop()
        found: Step = step
        while isinstance(found, Undecided):
            if found.keys_at:
                await self.key_sets.fetched(found.keys_at)
            found = await loop.run_in_executor(self._thread, found.decide)
        return found
