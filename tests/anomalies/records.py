"""Anomalies of single records: what was lost, doubled, seen too early, or never seen.

Definitions: docs/design/anomalies.md §2.1. Each function takes the facts of a history and gives
its cases as tuples, in order of keys; what they hold is said there.
"""

from collections import defaultdict

from tests.anomalies.history import Facts

Case = tuple[object, ...]


def inconsistent_offsets(facts: Facts) -> list[Case]:
    """(key, offset, values): two values were seen at one offset."""
    return [
        (key, offset, tuple(sorted(values)))
        for key, at in facts.log.items()
        for offset, values in at.items()
        if len(values) > 1
    ]


def duplicates(facts: Facts) -> list[Case]:
    """(key, value, count, offsets): one value was seen at two offsets."""
    cases: list[Case] = []
    for key, at in facts.log.items():
        offsets: defaultdict[int, list[int]] = defaultdict(list)
        for offset, values in at.items():
            for value in sorted(values):
                offsets[value].append(offset)
        cases += [
            (key, value, len(places), tuple(places))
            for value, places in sorted(offsets.items())
            if len(places) > 1
        ]
    return cases


def aborted_reads(facts: Facts) -> list[Case]:
    """G1a (key, value, writer, reader): an operation read what a failed one wrote."""
    failed = {
        (key, written.value)
        for op in facts.data
        if op.type == "fail"
        for key, writes in op.writes.items()
        for written in writes
    }
    return [
        (key, read.value, facts.writer[key, read.value].index, op.index)
        for op in facts.data
        if op.type == "ok"
        for key, reads in op.reads.items()
        for read in reads
        if (key, read.value) in failed
    ]


def precommitted_reads(facts: Facts) -> list[Case]:
    """(key, values, operation): it read what it wrote itself. The first key that it wrote so."""
    cases: list[Case] = []
    for op in facts.data:
        for key in (key for key in op.writes if key in op.reads):
            read = {read.value for read in op.reads[key]}
            own = read & {written.value for written in op.writes[key]}
            if own:
                cases.append((key, tuple(sorted(own)), op.index))
                break
    return cases


def lost_writes(facts: Facts) -> list[Case]:
    """(key, value, place, newest place read, writer): later ones were read, this never was."""
    cases: list[Case] = []
    for key, at in facts.log.items():
        if not facts.ok_reads[key]:
            continue
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for place, values in enumerate(at.values()):
            for value in values:
                first.setdefault(value, place)
                last[value] = place
        bound = max(first[value] for value in facts.ok_reads[key])
        for value, place in last.items():
            writer = facts.writer.get((key, value))
            if place > bound or value in facts.ok_reads[key] or writer is None:
                continue
            if facts.committed(writer):
                cases.append((key, value, first[value], bound, writer.index))
    return cases


def unseen(facts: Facts) -> list[Case]:
    """(key, value): acknowledged, and never read by the end of the history."""
    sent = {
        (key, written.value)
        for op in facts.data
        if op.type == "ok"
        for key, writes in op.writes.items()
        for written in writes
    }
    return [case for case in sorted(sent) if case[1] not in facts.ok_reads[case[0]]]


def torn_transactions(facts: Facts) -> list[Case]:
    """(operation, read, not read), the latter as (key, value): it was committed in part.

    Not one of Jepsen's: those notice it only where something later was read (lost-write). Only for
    histories whose operations are all transactions, and whose last polls reached the ends.
    """
    cases: list[Case] = []
    for op in facts.data:
        own = sorted(
            (key, written.value) for key, writes in op.writes.items() for written in writes
        )
        seen = tuple(case for case in own if case[1] in facts.ok_reads[case[0]])
        if op.type == "info" and 0 < len(seen) < len(own):
            cases.append((op.index, seen, tuple(case for case in own if case not in seen)))
    return cases


def phantom_reads(facts: Facts) -> list[Case]:
    """(key, value, reader): nobody ever sent it. Jepsen's checker gives up on such a history."""
    return [
        (key, value, ops[0].index)
        for (key, value), ops in facts.readers.items()
        if (key, value) not in facts.writer
    ]
