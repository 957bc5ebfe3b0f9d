"""What is left out of a run: of its faults, its time, its agents and its clients.

What is left is the same as in the whole run, as far as it is drawn: every fault, every life of an
agent and every client has a stream of its own, by its name.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    only: frozenset[str] | None = None
    """The faults that may happen; None: all that are drawn."""
    faults_s: float | None = None
    """When faults end; None: as its kind of world has it."""
    agents: int | None = None
    """How many at most; None: as drawn."""
    without: frozenset[str] = frozenset()
    """Clients that are not there."""

    def agents_of(self, drawn: int) -> int:
        return drawn if self.agents is None else min(drawn, self.agents)

    def arguments(self) -> Iterator[str]:
        """Of `python -m tests.sim`."""
        if self.only is not None:
            yield f"--only '{','.join(sorted(self.only))}'"
        if self.faults_s is not None:
            yield f"--until {self.faults_s:g}"
        if self.agents is not None:
            yield f"--agents {self.agents}"
        if self.without:
            yield f"--without '{','.join(sorted(self.without))}'"


WHOLE = Cut()
