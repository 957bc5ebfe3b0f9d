"""Sets the pins by which snapshots are kept (`coordinator.snapshot.keeping`): the shell of that rule.

A pin that cannot be set (the log is over its budget, there are too many) costs a snapshot its keeping, and is no
reason to make none: the log cannot be cut without snapshots.
"""

import logging

from broker.jobs.worker.context import JobContext, JobStoppedError
from coordinator.commands.entries import Pin, Rejected
from coordinator.snapshot import keeping

logger = logging.getLogger(__name__)


async def keep_next(context: JobContext) -> None:
    """Keep the snapshot that is begun next, if it is one of those that are kept."""
    machine = context.machine
    pin = keeping.next_pin(
        machine.pins, machine.time_ms, retention_ms=context.settings.snapshot_retention_ms
    )
    if pin is not None and (reason := await _refusal(context, pin)):
        logger.warning("the next snapshot will not be kept (snapshot.retention.ms): %s", reason)


async def renew(context: JobContext) -> None:
    """Renew what is wanted for longer; with a retention of 0 nothing is any more."""
    machine = context.machine
    if context.settings.snapshot_retention_ms == 0:
        return
    for pin in [*keeping.renewals(machine.pins, machine.time_ms)]:
        if reason := await _refusal(context, pin):
            logger.warning("the pin %s of a snapshot was not renewed: %s", pin.name, reason)


async def _refusal(context: JobContext, pin: Pin) -> str:
    """Why the pin was not set; "": it was."""
    try:
        outcome = await context.propose(pin)
    except JobStoppedError as stopped:
        # A job that is over is told so again, by what it proposes next.
        return str(stopped)
    return outcome.message if isinstance(outcome, Rejected) else ""
