"""What a host tells its worker beside the log: when rounds may begin, and to archive all that there is.

An agent that leaves asks once for the log's last archive, and waits for it no longer than it has time. Whoever
runs the worker passes the question on (`broker.jobs.worker_process`), and the worker answers it.
"""

import asyncio
from dataclasses import dataclass, field

from protocol.types import POSITION_ZERO, Position


class LastArchive:
    """Asked for once, and made once; both may be waited for."""

    def __init__(self) -> None:
        self.through = POSITION_ZERO
        """All up to here is to be archived."""
        self._asked = asyncio.Event()
        self._made = asyncio.Event()

    def ask(self, through: Position) -> None:
        """Have all up to `through` archived at once."""
        self.through = through
        self._asked.set()

    async def asked(self) -> Position:
        """Wait until it is asked for; up to where."""
        await self._asked.wait()
        return self.through

    def made(self) -> None:
        """It is in the store."""
        self._made.set()

    async def until_made(self) -> None:
        """Wait until it is in the store; for ever when the worker has ended before."""
        await self._made.wait()


@dataclass(frozen=True, slots=True)
class Orders:
    """Of one worker."""

    rounds_in_ms: int = 0
    """Rounds begin this long after the worker has loaded, unless one is asked for; what is archived does not wait."""
    last_archive: LastArchive = field(default_factory=LastArchive)
