"""A seed that fails, made short: as few faults, as little time, as few agents and clients as still fail.

Delta debugging by halves: parts of what is there are left out, large ones first, as long as the run
goes wrong in the same way. Nothing that is left out is replaced by anything (`tests.sim.cut`), and a
run is a function of seed and cut, so the same seed gets the same script wherever it is made short.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.sim.cut import WHOLE, Cut

RUNS_MAX = 200
SECONDS_MAX = 300.0
SIGN_LENGTH = 40
SHARES_OF_TIME = (0.125, 0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Observed:
    """What a run showed of itself."""

    violations: list[str]
    happened: dict[str, float]
    """Faults by name, and when."""
    told: dict[str, str]
    """In words, of some."""
    clients: Sequence[str]
    """That could be left out, with those that were."""
    agents: int
    until_s: float
    counts: dict[str, int]

    @property
    def signs(self) -> frozenset[str]:
        return frozenset(sign_of(each) for each in self.violations)


class SpentError(Exception):
    """No more runs, or no more time."""


class Shrinking:
    """From a run that failed to a short one that does."""

    def __init__(
        self,
        run: Callable[[Cut], Observed],
        whole: Observed,
        *,
        runs_max: int = RUNS_MAX,
        is_over: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda _told: None,
    ) -> None:
        """`is_over`: whether the time for it is."""
        self._run, self._is_over, self._tell = run, is_over, tell
        self._runs_max = runs_max
        self.whole = whole
        self.cut, self.seen = WHOLE, whole
        """The shortest that failed so far."""
        self.runs = 0
        self.is_spent = False
        """It could be shorter still."""

    def shrink(self) -> None:
        try:
            if not self._takes(replace(self.cut, only=frozenset())):
                self._shorten()
                self._with_fewer_agents()
                self._without_groups()
            self._without_clients()
            self._without_faults()
            self._shorten()
            self._with_fewer_agents()
        except SpentError:
            self.is_spent = True
        # What did not happen does not matter, whatever its name.
        if self.cut.only is not None:
            self.cut = replace(self.cut, only=self.cut.only & self.seen.happened.keys())

    def _observed(self, cut: Cut) -> Observed:
        if self.runs >= self._runs_max or self._is_over():
            raise SpentError
        self.runs += 1
        return self._run(cut)

    def _fails(self, seen: Observed) -> bool:
        return bool(seen.signs & self.whole.signs)

    def _takes(self, cut: Cut) -> bool:
        """Try this one; if it fails it is the shortest so far."""
        seen = self._observed(cut)
        if not self._fails(seen):
            return False
        is_for_faults = replace(cut, only=self.cut.only) == self.cut
        if not is_for_faults and self.cut.only != frozenset():
            # What fails in fine weather, for lack of time or of somebody to do it, is not looked for.
            fine = self._observed(replace(cut, only=frozenset()))
            if self._fails(fine):
                return False
        self.cut, self.seen = cut, seen
        faults, clients = len(seen.happened), len(self.clients)
        self._tell(
            f"{self.runs} runs: {faults} faults in {seen.until_s:g} s, {seen.agents} agents, "
            f"{clients} clients"
        )
        return True

    # What is tried, from what leaves out most.

    def _shorten(self) -> None:
        whole_s = self.seen.until_s
        any(
            self._takes(replace(self.cut, faults_s=round(whole_s * share, 3)))
            for share in SHARES_OF_TIME
        )

    def _with_fewer_agents(self) -> None:
        any(self._takes(replace(self.cut, agents=count)) for count in range(1, self.seen.agents))

    def _without_groups(self) -> None:
        """All faults of an agent's port, and of a kind, at once."""
        for group in sorted({group for name in self.seen.happened for group in groups_of(name)}):
            left = [name for name in self.seen.happened if group not in groups_of(name)]
            if len(left) < len(self.seen.happened):
                self._takes(replace(self.cut, only=frozenset(left)))

    @property
    def clients(self) -> list[str]:
        return [each for each in self.seen.clients if each not in self.cut.without]

    def _without_clients(self) -> None:
        def leave_out(left: Sequence[str]) -> list[str] | None:
            without = frozenset(self.seen.clients) - set(left)
            return self.clients if self._takes(replace(self.cut, without=without)) else None

        by_halves(self.clients, leave_out)

    def _without_faults(self) -> None:
        def leave_out(left: Sequence[str]) -> list[str] | None:
            return self.faults if self._takes(replace(self.cut, only=frozenset(left))) else None

        by_halves(self.faults, leave_out)

    @property
    def faults(self) -> list[str]:
        """In the order in which they happened."""
        return list(self.seen.happened)

    # What comes of it.

    def script(self, seed: int) -> Iterator[str]:
        """The faults that are left, what goes wrong, and how to see it again."""
        seen, whole = self.seen, self.whole
        yield (
            f"seed {seed}: {len(seen.happened)} of {len(whole.happened)} faults, {seen.agents} of "
            f"{whole.agents} agents, {len(self.clients)} of {len(whole.clients)} clients, "
            f"{seen.until_s:g} of {whole.until_s:g} s ({self.runs} runs"
            f"{', more would shorten it' if self.is_spent else ''})"
        )
        for name, at_s in seen.happened.items():
            told = f": {seen.told[name]}" if name in seen.told else ""
            yield f"  {at_s:8.3f} s  {name}{told}"
        same = [each for each in seen.violations if sign_of(each) in whole.signs]
        yield from (f"  violates: {each}" for each in same[:3])
        yield f"replay: {' '.join(['python -m tests.sim --seed', str(seed), *self.cut.arguments()])}"


def sign_of(violation: str) -> str:
    """Without what differs from run to run."""
    return re.sub(r"[0-9]+", "0", violation)[:SIGN_LENGTH]


def groups_of(name: str) -> Iterable[str]:
    """What befalls this port, and all of this kind: "agent1.log" and "lost" of what is lost there."""
    kind = name.rpartition(".")[2].rstrip("0123456789")
    return (".".join(name.split(".")[:2]), kind)


def by_halves(
    items: Sequence[str], leave_out: Callable[[Sequence[str]], list[str] | None]
) -> list[str]:
    """Leave out parts of the items, smaller and smaller ones, until none can be left out.

    `leave_out` is given what would be left, and tells what is, or None: that cannot be.
    """
    left, size = list(items), len(items)
    while size:
        at, before = 0, len(left)
        while at < len(left):
            shorter = leave_out([*left[:at], *left[at + size :]])
            if shorter is None:
                at += size
            else:
                left = shorter
        if size > 1 or len(left) == before:
            size //= 2
    return left
