"""The uniform assignor: balances first, as far as subscriptions allow; then moves as little as it can. Pure.

It decides first *how many* partitions each member gets, then which. Topics with the same
subscribers are one *class*, as their partitions are interchangeable; so a group whose members
all subscribe to the same topics has one class, and is done after one step.

    fill     what nobody has goes to the least loaded subscribers, class by class
    level    inside a class, what is above the level goes below it
    chains   a → b → c through two or more classes, where no single step helps

Each step makes the sum of squared loads less, or keeps it and lets members keep more of what
they had; so it ends, and where no chain is left the loads are as even as they can be (Harvey,
Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs). Then:

 - with equal subscriptions, sizes differ by at most one, and no assignment of such sizes moves
   fewer partitions;
 - with others, no member could take a partition from one whose load is greater by two or more,
   however many others pass partitions on between them; and no partition that moved could go back
   to a member that still subscribes to it without making the loads less even;
 - assigning again from the result changes nothing.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from protocol.types import TopicId

Assignment = dict[TopicId, frozenset[int]]
"""Partitions by topic; no topic is without any."""

_Partition = tuple[TopicId, int]
_SWEEPS_BEFORE_CHAINS: Final = 4
"""Levelling is quick where much is to be moved, and slow to converge: chains do the rest."""


def assign_uniformly(
    subscribed: Sequence[frozenset[TopicId]],
    assigned: Sequence[Mapping[TopicId, frozenset[int]]],
    partitions: Mapping[TopicId, int],
) -> list[Assignment]:
    """Returns the partitions of each member. Arguments: subscriptions and former partitions, by the member's index."""
    classes = _classes(subscribed, assigned, partitions)
    loads = _Loads(len(subscribed), classes)
    loads.fill()
    if not loads.are_even():
        loads.level(sweeps=_SWEEPS_BEFORE_CHAINS)
        loads.follow_chains()
        loads.level()
    found: list[dict[TopicId, list[int]]] = [{} for _ in subscribed]
    for one in classes:
        for member, gets in one.dealt().items():
            for topic, partition in gets:
                found[member].setdefault(topic, []).append(partition)
    return [{topic: frozenset(numbers) for topic, numbers in mine.items()} for mine in found]


class _Class:
    """A class of topics with the same subscribers: its partitions, and each subscriber's count."""

    __slots__ = ("counts", "free", "had", "kept")

    def __init__(self, subscribers: Sequence[int]) -> None:
        self.counts = dict.fromkeys(subscribers, 0)
        """How many each subscriber gets."""
        self.kept: dict[int, list[_Partition]] = {}
        """What subscribers had, in the order in which they would keep it."""
        self.had: dict[int, int] = {}
        """How many that are."""
        self.free: list[_Partition] = []
        """What no subscriber had."""

    def start(self) -> None:
        """All is where it was."""
        self.had = {member: len(self.kept.get(member, ())) for member in self.counts}
        self.counts = self.had.copy()

    def dealt(self) -> dict[int, list[_Partition]]:
        """Returns the partitions of each member, sticky first, then a share of what is left over."""
        dealt = {}
        over = self.free.copy()
        for member, count in self.counts.items():
            kept = self.kept.get(member, [])
            dealt[member] = kept[:count]
            over += kept[count:]
        # In turn, so that everybody gets something of every topic if there is enough of it.
        over.sort()
        give = iter(over)
        short = list(dealt)
        while short := [member for member in short if len(dealt[member]) < self.counts[member]]:
            for member in short:
                dealt[member].append(next(give))
        assert next(give, None) is None
        return dealt


def same_subscribers(
    subscribed: Sequence[frozenset[TopicId]], partitions: Mapping[TopicId, int]
) -> list[tuple[list[TopicId], list[int]]]:
    """The topics that there are, ascending, together with those of the same subscribers."""
    alike: dict[frozenset[TopicId], list[int]] = {}
    for member, topics in enumerate(subscribed):
        alike.setdefault(topics, []).append(member)
    kinds: dict[TopicId, list[int]] = {}
    for members in alike.values():
        for topic in subscribed[members[0]]:
            kinds.setdefault(topic, []).append(members[0])
    same: dict[tuple[int, ...], list[TopicId]] = {}
    for topic in sorted(kinds.keys() & partitions.keys()):
        same.setdefault(tuple(kinds[topic]), []).append(topic)
    return [
        (topics, sorted(member for first in key for member in alike[subscribed[first]]))
        for key, topics in same.items()
    ]


def _classes(
    subscribed: Sequence[frozenset[TopicId]],
    assigned: Sequence[Mapping[TopicId, frozenset[int]]],
    partitions: Mapping[TopicId, int],
) -> list[_Class]:
    """Returns all classes, fewest subscribers first: they have the least choice."""
    claimed, kept = _claims(subscribed, assigned, partitions)
    classes = []
    class_of = {}
    for topics, members in same_subscribers(subscribed, partitions):
        one = _Class(members)
        classes.append(one)
        for topic in topics:
            class_of[topic] = one
            taken = claimed.get(topic, ())
            one.free += [(topic, part) for part in range(partitions[topic]) if part not in taken]
    for member, topic, numbers in kept:
        mine = class_of[topic].kept.setdefault(member, [])
        mine += [(topic, partition) for partition in sorted(numbers)]
    for one in classes:
        one.kept = {member: _by_turns(mine) for member, mine in one.kept.items()}
        one.start()
    return sorted(classes, key=lambda one: len(one.counts))


def _claims(
    subscribed: Sequence[frozenset[TopicId]],
    assigned: Sequence[Mapping[TopicId, frozenset[int]]],
    partitions: Mapping[TopicId, int],
) -> tuple[dict[TopicId, set[int]], list[tuple[int, TopicId, set[int]]]]:
    """Returns the former partitions that members may keep, by topic and by member.

    Two had the same only if the caller made a mistake: the first one has it.
    """
    claimed: dict[TopicId, set[int]] = {}
    kept = []
    for member, topics in enumerate(subscribed):
        for topic in sorted(topics.intersection(assigned[member])):
            size = partitions.get(topic, 0)
            taken = claimed.setdefault(topic, set())
            mine = {part for part in assigned[member][topic] if 0 <= part < size} - taken
            if mine:
                taken |= mine
                kept.append((member, topic, mine))
    return claimed, kept


def _by_turns(mine: list[_Partition]) -> list[_Partition]:
    """The first of every topic, then the second of every one, and so on.

    Whoever keeps only the first few gives up most of the topics it has most of.
    """
    seen: dict[TopicId, int] = {}
    keys = []
    for topic, partition in mine:
        nth = seen[topic] = seen.get(topic, -1) + 1
        keys.append((nth, topic, partition))
    keys.sort()
    return [(topic, partition) for _, topic, partition in keys]


class _Loads:
    """The number of partitions of each member, by class and in all."""

    __slots__ = ("_classes", "_classes_of", "_loads")

    def __init__(self, members: int, classes: list[_Class]) -> None:
        self._classes = classes
        self._classes_of: list[list[_Class]] = [[] for _ in range(members)]
        self._loads = [0] * members
        for one in classes:
            for member, count in one.counts.items():
                self._classes_of[member].append(one)
                self._loads[member] += count

    def fill(self) -> None:
        """Gives the free partitions to the least loaded members."""
        for one in self._classes:
            if one.free:
                nothing = [0] * len(one.counts)
                loads = [self._loads[member] for member in one.counts]
                shares = _shares(loads, len(one.free), nothing, nothing)
                for member, share in zip(one.counts, shares, strict=True):
                    one.counts[member] += share
                    self._loads[member] += share

    def are_even(self) -> bool:
        return max(self._loads, default=0) - min(self._loads, default=0) < 2

    def level(self, sweeps: int | None = None) -> None:
        """Balances each class by itself, repeatedly, since each changes the others."""
        while sweeps != 0:
            changed = [self._level(one) for one in self._classes]
            if not any(changed):
                return
            sweeps = None if sweeps is None else sweeps - 1

    def _level(self, one: _Class) -> bool:
        counts = list(one.counts.values())
        others = [self._loads[member] - count for member, count in one.counts.items()]
        shares = _shares(others, sum(counts), list(one.had.values()), counts)
        if shares == counts:
            return False
        one.counts = dict(zip(one.counts, shares, strict=True))
        for member, other, share in zip(one.counts, others, shares, strict=True):
            self._loads[member] = other + share
        return True

    def follow_chains(self) -> None:
        """Pass partitions on through several classes while that makes the loads more even.

        Always from the most loaded member that is not settled. If nothing passed on from it
        helps, none of those whom it can reach can help: they are settled with it.
        """
        settled = [False] * len(self._loads)
        heap = [(-load, member) for member, load in enumerate(self._loads)]
        heapify(heap)
        while heap:
            load, start = heappop(heap)
            if settled[start] or -load != self._loads[start]:
                continue
            reached, end = self._reach(start, settled)
            if end is None:
                for member in reached:
                    settled[member] = True
            else:
                self._pass_on(start, end, reached)
                heappush(heap, (-self._loads[start], start))
                heappush(heap, (-self._loads[end], end))

    def _reach(
        self, start: int, settled: list[bool]
    ) -> tuple[dict[int, tuple[_Class, int]], int | None]:
        """Who can get more if `start` gives: from whom and of which class; and whom it helps."""
        nobody = self._classes[0]
        reached = {start: (nobody, start)}
        queue = [start]
        seen: set[_Class] = set()
        for giver in queue:
            for one in self._classes_of[giver]:
                if one in seen or not one.counts[giver]:
                    continue
                seen.add(one)
                takers = [
                    taker for taker in one.counts if taker not in reached and not settled[taker]
                ]
                for taker in takers:
                    reached[taker] = (one, giver)
                queue += takers
                end = min(takers, key=self._loads.__getitem__, default=start)
                if self._loads[end] <= self._loads[start] - 2:
                    return reached, end
        return reached, None

    def _pass_on(self, start: int, end: int, reached: dict[int, tuple[_Class, int]]) -> None:
        steps = []
        taker = end
        while taker != start:
            one, giver = reached[taker]
            steps.append((one, giver, taker))
            taker = giver
        half = (self._loads[start] - self._loads[end]) // 2
        amount = min(half, *(one.counts[giver] for one, giver, _ in steps))
        assert amount > 0
        for one, giver, taker in steps:
            one.counts[giver] -= amount
            one.counts[taker] += amount
        self._loads[start] -= amount
        self._loads[end] += amount


def _shares(others: list[int], total: int, had: list[int], counts: list[int]) -> list[int]:
    """`total` in shares that, with what everybody has otherwise, are as even as can be.

    If that does not come out even, those who had more than their share are the first to get one
    more, and then those who have it now.
    """
    ascending = sorted(others)
    level, under, rest = ascending[0], 1, total
    while under < len(ascending) and (ascending[under] - level) * under <= rest:
        rest -= (ascending[under] - level) * under
        level = ascending[under]
        under += 1
    more, extra = divmod(rest, under)
    level += more
    shares = [level - other if other < level else 0 for other in others]
    if extra:
        getting = [place for place, other in enumerate(others) if other <= level]
        getting.sort(
            key=lambda place: (had[place] <= shares[place], counts[place] <= shares[place])
        )
        for place in getting[:extra]:
            shares[place] += 1
    return shares
