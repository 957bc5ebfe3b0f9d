"""What a run of drawn faults leaves to be told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.faults.drawn.plan import Fault, Stage

Found = Mapping[tuple[int, int], bytes]
"""Values of a topic, by partition and offset."""


class Ack(NamedTuple):
    """One acknowledged record of the steady load."""

    at_s: float
    """Since the faults began."""
    latency_s: float


@dataclass(frozen=True)
class Settled:
    """Something that must come again in fine weather."""

    what: str
    within_s: float
    took_s: float | None
    """None: it did not come."""


@dataclass(frozen=True)
class Recorded:
    seed: int
    seconds: float
    """Of the plan."""
    stood_s: float
    """For so long it stood still."""
    stage: Stage
    faults: Sequence[Fault]
    """When they came."""
    acks: Sequence[Ack]
    settled: Sequence[Settled]
    counts: Mapping[str, int]
    anomalies: Sequence[str]
    """Of histories, audits, groups and processes."""

    @property
    def notes(self) -> list[str]:
        """What it could not do on this machine."""
        told = []
        if not self.stage.sets_clocks:
            told.append("Wall clocks are right: those of processes cannot be set here.")
        if not self.stage.fills_disks:
            told.append("Disks are never full: the store cannot be given one of its own here.")
        if not self.stage.can_run_out:
            told.append("etcd never reaches its quota: it has none here.")
        return told

    @property
    def over_s(self) -> float:
        """When the faults were over."""
        return self.seconds + self.stood_s

    @property
    def wrong(self) -> list[str]:
        """All that must not be; an empty list is what one wants."""
        late = [
            f"liveness: {each.what}: not within {each.within_s:g} s after the faults"
            for each in self.settled
            if each.took_s is None
        ]
        return [*self.anomalies, *late]

    @property
    def command(self) -> str:
        """That repeats it, as far as real processes can be had to."""
        if self.stage.members == Stage().members:
            return f"make faults SEED={self.seed} SECONDS={self.seconds:g}"
        told = f"--seed {self.seed} --seconds {self.seconds:g} --etcd {self.stage.members}"
        return f"python -m tests.faults.drawn {told}"
