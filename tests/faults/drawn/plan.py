"""What befalls real processes, and when: a pure function of the seed.

Several faults may hold at a time, but never two of one target; and never, for longer than
`BLOCKED_S_MAX`, such that no agent could make progress: that has a running process, its store, a
majority of etcd's members and clients that reach it. Some runs have an upheaval besides: a rolling
upgrade, or an etcd that is lost.
"""

import itertools
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

BLOCKED_S_MAX = 12.0
FIRST_S = 2.0
"""Fine weather at the beginning."""
APART_S = 1.0
"""From the end of a fault to the beginning of one that it excludes."""
GAP_S, GAP_S_MAX = 0.3, (1.5, 4.0, 8.0)
"""From the beginning of one fault to that of the next; the longest is drawn for the whole run."""
LASTS_S = (0.5, 2.0, 5.0, 9.0)
DELAYS_S = (0.02, 0.1, 0.5)

AHEAD_S = (600.0, 7_200.0, 172_800.0)
"""How wrong a clock is: S3 refuses what was signed more than a quarter of an hour before or later."""
WRONG_STARTS_S = (-7_200.0, -600.0, 600.0, 7_200.0)
DRIFTS = (-0.5, 0.05, 0.5)
"""Seconds that a clock gains in each."""

PROCESS_KINDS = ("kill", "pause")
LINK_KINDS = ("cut", "half-open", "slow", "torn", "lost")
CLOCK_KINDS = ("ahead", "behind", "drift", "wrong-start")
DISK_KINDS = ("full",)
SPACE_KINDS = ("no-space",)
RELEASE_KINDS = ("replace",)
LOSS_KINDS = ("log-lost",)
KINDS = (
    *(*PROCESS_KINDS, *LINK_KINDS, *CLOCK_KINDS, *DISK_KINDS, *SPACE_KINDS),
    *(*RELEASE_KINDS, *LOSS_KINDS),
)
BLOCKING = frozenset(KINDS) - {"slow", "drift", *LOSS_KINDS}
"""While one of these lasts little or nothing comes from its target."""
UPHEAVALS = ((), (), RELEASE_KINDS, LOSS_KINDS)
"""Of a run, each as likely."""
LOST_S_MIN = 20.0
"""Shorter runs do not lose their log."""
EVERY = (2, 5, 20)
CLIENTS, STORE, ETCD = "clients", "s3", "etcd"


@dataclass(frozen=True)
class Stage:
    """How many of each there are."""

    agents: int = 3
    members: int = 3
    """Of etcd: one, or three."""
    sets_clocks: bool = True
    """Whether the wall clocks of agents can be set."""
    fills_disks: bool = True
    """Whether the store has a disk that can be full."""

    @property
    def can_run_out(self) -> bool:
        """Whether etcd has a quota that it can reach: the one member that starts soon has none."""
        return self.members > 1

    def agent(self, index: int) -> str:
        return f"agent{index}"

    @property
    def processes(self) -> list[str]:
        return [*self.agent_names, *self.etcd, STORE]

    @property
    def agent_names(self) -> list[str]:
        return [self.agent(index) for index in range(self.agents)]

    @property
    def etcd(self) -> list[str]:
        return [f"etcd{index}" for index in range(self.members)]

    @property
    def links(self) -> list[str]:
        return [
            name
            for index in range(self.agents)
            for name in (
                link(CLIENTS, f"agent{index}"),
                *(link(f"agent{index}", member) for member in self.etcd),
                link(f"agent{index}", STORE),
            )
        ]


@dataclass(frozen=True)
class Fault:
    name: str
    kind: str
    target: str
    """A process, or a link: "agent1→s3"; or all members of etcd."""
    at_s: float
    seconds: float
    amount: float = 0.0
    """The seconds that what is slow takes, or of how many pieces of answers one is damaged; the seconds that a clock is
    wrong by, or that it gains in each."""

    @property
    def end_s(self) -> float:
        return self.at_s + self.seconds

    def told(self) -> str:
        for_so_long = f"for {self.seconds:g} s"
        if self.kind in CLOCK_KINDS:
            return self._told_of_clock()
        match self.kind:
            case "kill":
                return f"{self.target} is killed, and started again {self.seconds:g} s later"
            case "pause":
                return f"{self.target} stands still {for_so_long}"
            case "full":
                return f"the disk of {self.target} is full {for_so_long}"
            case "no-space":
                return f"{self.target} has reached its quota {for_so_long}, and refuses what needs space"
            case "replace":
                return f"{self.target} leaves, and comes again {self.seconds:g} s later as the other release"
            case "log-lost":
                return f"all of {self.target} is lost, agents are killed, and `frazil recover` begins the log anew"
            case "cut":
                return f"{self.target} is cut {for_so_long}: connections break, new ones too"
            case "half-open":
                return (
                    f"{self.target} is silent {for_so_long}: what was sent arrives when it is over"
                )
            case "slow":
                return f"{self.target} takes {self.amount * 1000:g} ms more {for_so_long}"
            case "torn":
                damage = "is torn in the middle"
            case _:
                damage = "is lost"
        often = f"one of {self.amount:g} pieces of answers"
        return f"{self.target}: {often} {damage} and its connection breaks, {for_so_long}"

    def _told_of_clock(self) -> str:
        right = f"and is set right {self.seconds:g} s later"
        minutes = abs(self.amount) / 60
        length = f"{minutes / 60:g} h" if minutes >= 60 else f"{minutes:g} min"
        wrong = f"{length} {'ahead' if self.amount > 0 else 'behind'}"
        match self.kind:
            case "drift":
                share = f"{abs(self.amount):.0%} too {'fast' if self.amount > 0 else 'slow'}"
                return f"the clock of {self.target} goes {share}, {right}"
            case "wrong-start":
                return f"{self.target} is killed and starts with a clock {wrong}, which is set right {self.seconds:g} s later"
            case _:
                return f"the clock of {self.target} jumps to {wrong}, {right}"


def link(of: str, to: str) -> str:
    return f"{of}→{to}"


def draw(seed: int, seconds: float, stage: Stage) -> list[Fault]:
    """The plan of a run, in the order of time; all faults are over when its time is.

    What cannot be done on this stage is left out in the end: the rest is as it is elsewhere.
    """
    rng = random.Random(seed)
    # Half of the kinds, as in the simulator, but some of each sort: a run is about something.
    kinds = {*rng.sample(PROCESS_KINDS, rng.choice((1, 2))), *rng.sample(LINK_KINDS, 3)}
    kinds |= {*rng.sample(CLOCK_KINDS, 2), *rng.sample(DISK_KINDS, rng.choice((0, 1)))}
    kinds |= {*rng.sample(SPACE_KINDS, rng.choice((0, 1)))}
    upheaval, lost_s = rng.choice(UPHEAVALS), rng.uniform(0.3, 0.7) * seconds
    faults: list[Fault] = []
    if upheaval == LOSS_KINDS and seconds >= LOST_S_MIN:
        # It takes what it takes: the plan stands still meanwhile.
        faults.append(Fault("fault1", *LOSS_KINDS, ETCD, round(lost_s, 3), 0.0))
    if upheaval == RELEASE_KINDS:
        # What the release before makes of a wrong clock was mended since.
        kinds = {*RELEASE_KINDS, *kinds} - {*CLOCK_KINDS}
    at_s, gap_s_max = FIRST_S, rng.choice(GAP_S_MAX)
    while at_s < seconds - min(LASTS_S):
        fault = _drawn(rng, f"fault{len(faults) + 1}", at_s, seconds, kinds, stage)
        if _fits(fault, faults, stage):
            faults.append(fault)
        at_s += rng.uniform(GAP_S, gap_s_max)
    return sorted((each for each in faults if _can(stage, each)), key=lambda each: each.at_s)


def _can(stage: Stage, fault: Fault) -> bool:
    if fault.kind in CLOCK_KINDS:
        return stage.sets_clocks
    if fault.kind in SPACE_KINDS:
        return stage.can_run_out
    return stage.fills_disks or fault.kind not in DISK_KINDS


def _drawn(
    rng: random.Random, name: str, at_s: float, seconds: float, kinds: Collection[str], stage: Stage
) -> Fault:
    kind = rng.choice(sorted(kinds))
    target = rng.choice(_targets(kind, stage))
    lasts_s = min(rng.choice(LASTS_S), seconds - at_s)
    delay_s, every = rng.choice(DELAYS_S), rng.choice(EVERY)
    ahead_s, start_s, rate = rng.choice(AHEAD_S), rng.choice(WRONG_STARTS_S), rng.choice(DRIFTS)
    amounts = {"slow": delay_s, "torn": every, "lost": every, "ahead": ahead_s, "behind": -ahead_s}
    amounts |= {"drift": rate, "wrong-start": start_s}
    return Fault(name, kind, target, round(at_s, 3), round(lasts_s, 3), amounts.get(kind, 0.0))


def _targets(kind: str, stage: Stage) -> list[str]:
    if kind in LINK_KINDS:
        return stage.links
    if kind in DISK_KINDS:
        return [STORE]
    if kind in SPACE_KINDS:
        return [ETCD]
    # Clocks of Go's programs cannot be set.
    return stage.processes if kind in PROCESS_KINDS else stage.agent_names


def _fits(fault: Fault, faults: Sequence[Fault], stage: Stage) -> bool:
    if any(_excludes(each, fault, stage) for each in faults):
        return False
    # A block that it is part of shows here, if it is too long.
    first_s, last_s = fault.at_s - BLOCKED_S_MAX, fault.end_s + BLOCKED_S_MAX
    near = [each for each in faults if each.end_s > first_s and each.at_s < last_s]
    return longest_block_s([*near, fault], stage) <= BLOCKED_S_MAX


def _excludes(first: Fault, other: Fault, stage: Stage) -> bool:
    """Whether what both do cannot be at a time."""
    if other.at_s >= first.end_s + APART_S or first.at_s >= other.end_s + APART_S:
        return False
    if {first.kind, other.kind} & {*LOSS_KINDS}:
        return True
    targets = {first.target, other.target}
    # Each member is written to, and defragmented.
    return len(targets) == 1 or (ETCD in targets and not targets.isdisjoint(stage.etcd))


def longest_block_s(faults: Sequence[Fault], stage: Stage) -> float:
    """For how long on end no agent could make progress."""
    faults = [each for each in faults if each.kind in BLOCKING]
    longest = current = 0.0
    for start_s, end_s in _spans(faults):
        hit = {
            each.target
            for each in faults
            if each.kind in BLOCKING and each.at_s <= start_s and each.end_s >= end_s
        }
        current = 0.0 if _progresses(hit, stage) else current + end_s - start_s
        longest = max(longest, current)
    return longest


def _spans(faults: Sequence[Fault]) -> Iterator[tuple[float, float]]:
    times = sorted({time_s for each in faults for time_s in (each.at_s, each.end_s)})
    yield from itertools.pairwise(times)


def _progresses(hit: Collection[str], stage: Stage) -> bool:
    """Whether some agent could, of whose neighbours and links these are hit."""
    if STORE in hit or ETCD in hit:
        return False
    for index in range(stage.agents):
        agent = stage.agent(index)
        needed = (agent, link(CLIENTS, agent), link(agent, STORE))
        members = [each for each in stage.etcd if each not in hit and link(agent, each) not in hit]
        alive = [each for each in stage.etcd if each not in hit]
        majority = stage.members // 2 + 1
        if members and len(alive) >= majority and not any(each in hit for each in needed):
            return True
    return False
