"""Rows of deleted topics go in slices, proposed by one agent, resumed by whoever is next.

DeleteTopic only takes the name and stops reads and writes; the machine says what is left
(`Machine.next_purge`), so nothing needs to be remembered here. The agent whose incarnation is the
oldest live one proposes; if it dies, the next one goes on. Nothing happens while there is
nothing to do but a look every few seconds.
"""

import asyncio
import logging
from typing import Final

from coordinator.commands.entries import Rejected
from coordinator.log.metadata_log import LogError
from coordinator.log_client import LogClient
from coordinator.proposer import NotDoneError

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0


async def run(log_client: LogClient) -> None:
    """Propose what is to be purged, for ever."""
    while True:
        await purge(log_client)
        await asyncio.sleep(LOOK_SECONDS)


async def purge(log_client: LogClient) -> None:
    """Purge until nothing is left, or it is somebody else's turn, or the log is away."""
    machine = log_client.machine
    while (command := machine.next_purge()) is not None:
        incarnation = log_client.incarnation()
        oldest = next(iter(machine.incarnations), None)
        if incarnation is None or oldest is None or oldest.incarnation != incarnation:
            return
        try:
            outcome = await asyncio.shield(log_client.propose(command, incarnation))
        except (NotDoneError, LogError) as error:
            logger.info("purging a deleted topic waits: %s", error)
            return
        if isinstance(outcome, Rejected):
            return
