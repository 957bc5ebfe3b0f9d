"""Is this what a Kafka-compatible log may show its clients? `check` says what is not.

The definitions are those of Jepsen's queue workload (docs/design/anomalies.md §2), coded on our
own; `test_verdicts.py` compares them with the verdicts of the original, case by case. `analyse` is
the comparable part; `check` adds what the original leaves out.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from tests.anomalies import order, records
from tests.anomalies.cycles import cycles
from tests.anomalies.history import Facts, RawOp, completions
from tests.anomalies.records import Case

ALLOWED = frozenset(
    ("int-send-skip", "G0", "G0-realtime", "PL-1-cycle-exists", "strong-PL-1-cycle-exists")
)
"""Transactions do not isolate writes: records of others lie between those of one."""
ALLOWED_WW = frozenset(("G1c", "G1c-realtime", "PL-2-cycle-exists", "strong-PL-2-cycle-exists"))
"""As well where writes count as ordered: those cycles may go through a write."""
ALLOWED_SUBSCRIBED = frozenset(("poll-skip", "nonmonotonic-poll"))
"""As well where groups move partitions between consumers."""


class Anomaly(NamedTuple):
    """One kind of anomaly that a history shows."""

    type: str
    cases: Sequence[Case]
    """What is in them is said where they are found (`records`, `order`, `cycles`); operations by
    their indexes in the history."""


def check(
    history: Sequence[RawOp],
    *,
    subscribed: bool = False,
    transactional: bool = False,
    complete: bool = True,
) -> list[Anomaly]:
    """All that must not be; an empty list is what one wants.

    `history` is as in `tests.anomalies.history`; its `Recorder` writes one:

        recorder.invoke(process=1, f="txn", value=[["send", 0, 7], ["poll"]])
        recorder.complete(1, "ok", "txn", [["send", 0, [41, 7]], ["poll", {0: [[40, 6]]}]])

    Say "ok" when all of it happened (of a transaction: it was committed), "fail" when nothing of
    it did or will, "info" when that is not known; go on under a new process number after "info".
    A value must never be sent twice to one key. After "fail" and "info" a consumer is taken to go
    back to where the operation began. Fetch the whole of every partition at the end, and add that
    poll: without it lost records at the ends of partitions go unnoticed.

    `subscribed`: consumers got their partitions from a group (subscribe), so they may jump;
    `transactional`: each operation was one transaction, so one seen in part is torn;
    `complete`: there was such a last poll; if not, what was never read (unseen) is no anomaly.
    """
    facts = Facts(completions(history))
    found = _without_cycles(facts)
    for ww_deps in (True, False):
        cyclic = cycles(facts, history, ww_deps=ww_deps)
        bad = bad_types(cyclic, subscribed=subscribed, ww_deps=ww_deps)
        found.update({type: cases for type, cases in cyclic.items() if type in bad})
    found["phantom-read"] = records.phantom_reads(facts)
    if transactional and complete:
        found["torn-transaction"] = records.torn_transactions(facts)
    if not complete:
        found.pop("unseen", None)
    wrong = bad_types(found, subscribed=subscribed, ww_deps=False)
    return [Anomaly(type, cases) for type, cases in found.items() if cases and type in wrong]


def analyse(history: Sequence[RawOp], *, ww_deps: bool) -> dict[str, list[Case]]:
    """Every anomaly of Jepsen's that the history shows, allowed ones too."""
    facts = Facts(completions(history))
    found = {**_without_cycles(facts), **cycles(facts, history, ww_deps=ww_deps)}
    return {type: cases for type, cases in found.items() if cases}


def _without_cycles(facts: Facts) -> dict[str, list[Case]]:
    int_poll_skip, int_nonmonotonic_poll = order.internal_polls(facts)
    int_send_skip, int_nonmonotonic_send = order.internal_sends(facts)
    poll_skip, nonmonotonic_poll = order.external_polls(facts)
    return {
        "inconsistent-offsets": records.inconsistent_offsets(facts),
        "duplicate": records.duplicates(facts),
        "G1a": records.aborted_reads(facts),
        "precommitted-read": records.precommitted_reads(facts),
        "lost-write": records.lost_writes(facts),
        "unseen": records.unseen(facts),
        "int-poll-skip": int_poll_skip,
        "int-nonmonotonic-poll": int_nonmonotonic_poll,
        "int-send-skip": int_send_skip,
        "int-nonmonotonic-send": int_nonmonotonic_send,
        "poll-skip": poll_skip,
        "nonmonotonic-poll": nonmonotonic_poll,
        "nonmonotonic-send": order.external_sends(facts),
    }


def bad_types(found: Collection[str], *, subscribed: bool, ww_deps: bool) -> set[str]:
    """Those of the types that make a history invalid."""
    allowed = ALLOWED | (ALLOWED_SUBSCRIBED if subscribed else set())
    return set(found) - allowed - (ALLOWED_WW if ww_deps else set())
