"""CPython before 3.13 forgets a connection that was accepted in the turn in which its server was closed (gh-109564).

The transport is half made when `Server._attach` raises, and nobody closes its socket: the client hears nothing,
and the collector warns of an "unclosed transport" in whatever test comes then. Agents run on uvloop, which
closes it; those in tests run on asyncio's own loop, and close while clients come back to them.
"""

import functools
from asyncio import selector_events
from typing import Any


def mend() -> None:
    """From now on such a connection is closed at once."""
    transport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
    init = transport.__init__

    @functools.wraps(init)
    def made(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            init(self, *arguments, **named)
        except AssertionError:
            sock, self._sock = self._sock, None
            sock.close()
            raise

    transport.__init__ = made
