"""Delegation tokens that have ended are removed, by the oldest live agent, now and then.

Every `delegation.token.expiry.check.interval.ms`. What has ended is judged by the machine's time, which
is no agent's alone, and the wall clock, by which a token was issued (the machine's time stays ahead where the only clock
once was); and again by `apply`: a token that was renewed meanwhile stays. A sweep that ends
early leaves the rest to the next one.
"""

import asyncio
import logging

from broker.node import Node
from coordinator.commands.token_commands import TOKENS_PER_COMMAND_MAX, RemoveDelegationTokens
from coordinator.log.metadata_log import LogError
from coordinator.proposer import NotDoneError

logger = logging.getLogger(__name__)


async def run(node: Node) -> None:
    """Sweep now and then, for ever."""
    while True:
        await asyncio.sleep(node.kafka.delegation_token_expiry_check_interval_ms / 1000)
        await sweep(node)


async def sweep(node: Node) -> None:
    """Remove what has ended, if it is this agent's turn."""
    log_client = node.log_client
    machine = log_client.machine
    incarnation = log_client.incarnation()
    oldest = next(iter(machine.incarnations), None)
    if incarnation is None or oldest is None or oldest.incarnation != incarnation:
        return
    time_ms = min(machine.time_ms, node.now_ms())
    ended = [token.token_id for token in machine.delegation_tokens if token.has_ended(time_ms)]
    for first in range(0, len(ended), TOKENS_PER_COMMAND_MAX):
        some = tuple(ended[first : first + TOKENS_PER_COMMAND_MAX])
        try:
            await asyncio.shield(
                log_client.propose(RemoveDelegationTokens(some, time_ms), incarnation)
            )
        except (NotDoneError, LogError) as error:
            logger.info("removing delegation tokens waits: %s", error)
            return
