"""What must hold in every run, whatever befell it.

The account is kept while the run goes on (acknowledgements, definite refusals, every record that
any reader saw), and `verdict` holds it against what is there at the end. An empty list is a pass.
"""

from collections import Counter
from dataclasses import dataclass, field

Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Account:
    """Everything that clients were told and shown."""

    acknowledged: dict[bytes, Place] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    """Values whose last word was an error that says "it did not happen and will not" (P4)."""
    exactly_once: set[bytes] = field(default_factory=set)
    """Values of idempotent producers."""
    seen: dict[Place, bytes] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    digests: dict[int, tuple[bytes, str]] = field(default_factory=dict)
    acks: int = 0

    def acknowledge(self, value: bytes, place: Place) -> None:
        if place[1] < 0:
            self.violations.append(f"{value!r} acknowledged at offset {place[1]}")
        known = self.acknowledged.setdefault(value, place)
        if known != place:
            self.violations.append(f"{value!r} acknowledged at {known} and at {place}")
        self.acks += 1

    def saw(self, reader: str, place: Place, value: bytes) -> None:
        known = self.seen.setdefault(place, value)
        if known != value:
            self.violations.append(f"{reader} read {value!r} at {place}, others read {known!r}")

    def digest(self, agent: str, position: int, digest: bytes) -> None:
        """Replicas at the same position are equal (P13)."""
        known, other = self.digests.setdefault(position, (digest, agent))
        if known != digest:
            self.violations.append(f"digests of {other} and {agent} differ at {position:#x}")


def verdict(account: Account, final: dict[str, dict[Place, bytes]]) -> list[str]:
    """All violations. `final` is what each agent showed a reader from beginning to end."""
    found = list(account.violations)
    logs = list(final.values())
    if not logs:
        return found
    for agent, log in final.items():
        if log != logs[0]:
            found.append(f"{agent} shows another log than {next(iter(final))}")
    log = logs[0]
    found += [
        f"acknowledged {value!r} is not at {place}, there is {log.get(place)!r}"
        for value, place in account.acknowledged.items()
        if log.get(place) != value
    ]
    found += [
        f"a reader saw {value!r} at {place}, in the end there is {log.get(place)!r}"
        for place, value in account.seen.items()
        if log.get(place) != value
    ]
    counts = Counter(log.values())
    found += [
        f"{value!r} of an idempotent producer is there {counts[value]} times"
        for value in sorted(account.exactly_once)
        if counts[value] > 1
    ]
    found += [
        f"{value!r} was refused for good, and is there (P4)"
        for value in sorted(account.refused)
        if counts[value] and value not in account.acknowledged
    ]
    found += _holes(log)
    return found


def _holes(log: dict[Place, bytes]) -> list[str]:
    """Offsets are dense: from 0 to the end of each partition without a hole."""
    ends: Counter[int] = Counter()
    for partition, offset in log:
        ends[partition] = max(ends[partition], offset + 1)
    return [
        f"nothing at ({partition}, {offset}) below the end {end}"
        for partition, end in sorted(ends.items())
        for offset in range(end)
        if (partition, offset) not in log
    ]
