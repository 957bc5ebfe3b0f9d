"""Anomalies of order: readers and writers that skip records or go back.

Definitions: docs/design/anomalies.md §2.1. Inside one operation consecutive values are compared;
outside, the end of one operation with the beginning of the next of the same process. Not
comparable in histories with inconsistent offsets: there is no order then.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from tests.anomalies.history import ASSIGNS, Facts, Op, Read, Written
from tests.anomalies.records import Case

Steps = Sequence[Read] | Sequence[Written]


def internal_polls(facts: Facts) -> tuple[list[Case], list[Case]]:
    """int-poll-skip and int-nonmonotonic-poll: (key, (value, value), delta, operation)."""
    found = [
        case
        for op in facts.data
        for key, reads in op.reads.items()
        if key not in op.rebalanced
        for case in _pairs(facts, op, key, reads)
    ]
    return _skips(found), _backwards(found)


def internal_sends(facts: Facts) -> tuple[list[Case], list[Case]]:
    """int-send-skip and int-nonmonotonic-send, likewise."""
    found = [
        case
        for op in facts.data
        for key, writes in op.writes.items()
        for case in _pairs(facts, op, key, writes)
    ]
    return _skips(found), _backwards(found)


Pair = tuple[int, tuple[int, int], int, int]


def _pairs(facts: Facts, op: Op, key: int, steps: Steps) -> Iterator[Pair]:
    for before, after in pairwise(step.value for step in steps):
        yield key, (before, after), facts.delta(key, before, after), op.index


def _skips(found: Sequence[Pair]) -> list[Case]:
    return [case for case in found if case[2] > 1]


def _backwards(found: Sequence[Pair]) -> list[Case]:
    return [case for case in found if case[2] < 1]


def external_polls(facts: Facts) -> tuple[list[Case], list[Case]]:
    """poll-skip (key, delta, values skipped, operations) and nonmonotonic-poll.

    The latter: (key, (value, value), delta, operations). A failed operation is compared but does
    not move its reader on: its client goes back to where the operation began.
    """
    skips: list[Case] = []
    backwards: list[Case] = []
    for key, before, after in _followed(facts, lambda op: op.reads, {"ok"}, {"ok", "info", "fail"}):
        last, first = before.reads[key][-1].value, after.reads[key][0].value
        delta = facts.delta(key, last, first)
        ops = (before.index, after.index)
        if delta > 1:
            at = facts.position[key][last]
            skips.append((key, delta, tuple(facts.order[key][at + 1 : at + delta]), ops))
        elif delta < 1:
            backwards.append((key, (last, first), delta, ops))
    return skips, backwards


def external_sends(facts: Facts) -> list[Case]:
    """nonmonotonic-send: (key, (value, value), delta, operations)."""
    cases: list[Case] = []
    happened = {"ok", "info"}
    for key, before, after in _followed(facts, lambda op: op.writes, happened, happened):
        last, first = before.writes[key][-1].value, after.writes[key][0].value
        delta = facts.known_delta(key, last, first)
        if delta is not None and delta < 1:
            cases.append((key, (last, first), delta, (before.index, after.index)))
    return cases


def _followed(
    facts: Facts,
    steps: Callable[[Op], Mapping[int, Steps]],
    remembered: set[str],
    compared: set[str],
) -> Iterator[tuple[int, Op, Op]]:
    """Key and two operations of one process, the later compared with the newest remembered."""
    newest: dict[int, dict[int, Op]] = {}
    for op in facts.ops:
        last = newest.setdefault(op.process, {})
        if op.f in ASSIGNS:
            if op.type in ("ok", "info"):
                newest[op.process] = {key: last[key] for key in op.keys if key in last}
            continue
        for key in steps(op):
            if op.type in compared and key in last:
                yield key, last[key], op
            if op.type in remembered:
                last[key] = op
