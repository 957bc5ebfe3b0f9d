"""The job that writes the machine down: begun in the log, read back, published in the log.

The state is taken in the step in which the worker's replica applies the BeginSnapshot, so it is
that of a position at which every replica has the same digest (P13). Before it is written it is
compared with what log and store say once more. A round that ends early leaves objects under
`snapshots/` that the collection takes. What keeps the snapshot for longer is set before it is begun.
"""

from typing import Final

from broker.jobs.kinds import snapshot_pins
from broker.jobs.worker.context import JobContext
from coordinator.commands.entries import Rejected
from coordinator.commands.job_commands import BeginSnapshot, PublishSnapshot
from coordinator.replay import prove
from coordinator.replica import Applied
from coordinator.snapshot.keeping import SnapshotPin
from coordinator.snapshot.keeping import snapshot_pins as pins_of
from coordinator.snapshot.snapshot import dump
from coordinator.snapshot.store import SnapshotStore

NOTE: Final = "snapshot"


class _Taken:
    """The newest state that was begun while we looked."""

    def __init__(self, context: JobContext) -> None:
        self._machine = context.machine
        self.parts: list[bytes] = []
        self.pins: list[SnapshotPin] = []

    def applied(self, applied: Applied) -> None:
        begun = self._machine.snapshots.begun
        if begun is not None and begun.position == applied.position:
            self.parts = dump(self._machine)
            self.pins = pins_of(self._machine.pins, self._machine.time_ms)


async def run(context: JobContext) -> None:
    await snapshot_pins.keep_next(context)
    context.memory.dump()
    taken = _Taken(context)
    take_off = context.on_applied(taken.applied)
    try:
        outcome = await context.propose(BeginSnapshot())
    finally:
        take_off()
    begun = context.machine.snapshots.begun
    if isinstance(outcome, Rejected) or begun is None:
        return
    context.report(0, 1, NOTE)
    snapshots = SnapshotStore(
        context.store, context.cluster, pace=context.pace, admit=context.memory.read
    )
    unproven = await prove(taken.parts, log=context.log, source=snapshots)
    key = await snapshots.write(taken.parts, taken.pins)
    await context.propose(PublishSnapshot(begun.position, begun.digest, key))
    context.report(1, 1, NOTE if unproven is None else unproven)
