"""What is asked of a recovery, and what it made of it: values, and the errors. Pure."""

from dataclasses import dataclass, field

from coordinator.commands.entries import Entry
from coordinator.machine.machine import Machine
from coordinator.snapshot.manifest import StoredSnapshot
from protocol.fault_codes import FaultError
from protocol.types import POSITION_ZERO, Position


class RecoveryError(FaultError):
    """The cluster cannot be recovered like that; the sentence says why and what to do."""


class ContradictionError(RecoveryError):
    """What is in the store tells of more than one log, and nothing says which is the cluster's."""

    def __init__(self, text: str, reached: Position) -> None:
        super().__init__(text)
        self.reached = reached
        """To here all that was applied agrees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """How far: to the end of what is there, unless one of these says less."""

    position: Position | None = None
    """Entries behind it are left out."""
    time_ms: int | None = None
    """The first entry that its writer's clock dates later is left out, and all behind it."""

    def takes_snapshot(self, snapshot: StoredSnapshot) -> bool:
        at_ms = 0 if snapshot.manifest is None else snapshot.manifest.time_ms
        return (self.position is None or snapshot.position <= self.position) and (
            self.time_ms is None or at_ms <= self.time_ms
        )

    def takes_entry(self, position: Position, entry: Entry | None) -> bool:
        if self.position is not None and position > self.position:
            return False
        return self.time_ms is None or entry is None or entry.clock_ms <= self.time_ms


@dataclass(slots=True)
class Rebuilt:
    """What was made."""

    _machine: Machine | None
    begun: Position
    """Of the snapshot that it began with; POSITION_ZERO: with nothing, as the log did."""
    entries: int = 0
    """Applied after it."""
    clock_ms: int = 0
    """Of the newest of them, by its writer; 0: there is none."""
    stopped: bool = False
    """There is more than was asked for."""
    known: Position = POSITION_ZERO
    """The log had got as far, by the keys of what there is, whether or not it can be used."""
    troubles: list[str] = field(default_factory=list)
    """What could not be used, and archives that lie behind a hole."""

    @property
    def machine(self) -> Machine:
        """Until it is taken."""
        assert self._machine is not None
        return self._machine

    def take(self) -> Machine:
        """The machine, which is the caller's from then on: nothing here keeps it, since it may have gigabytes."""
        taken, self._machine = self.machine, None
        return taken

    @property
    def is_all(self) -> bool:
        """There is nothing of the log behind the machine."""
        return not self.stopped and self.known <= self.machine.position
