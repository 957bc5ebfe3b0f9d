"""What `check` says of small histories, a line of text each: what is fine, and each anomaly.

The verdicts of the original cover its definitions (`test_verdicts`); here is what it lacks, and
that `check` takes the right ones for errors.
"""

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.anomalies import Recorder, check
from tests.anomalies.cycles import components, realtime
from tests.anomalies.history import Facts, completions


def _history(*ops, end=None):
    """Of operations (process, type, f, value), one after the other; at the end all is polled."""
    recorder = Recorder()
    for process, type, f, value in ops:
        recorder.invoke(process, f, value)
        if type:
            recorder.complete(process, type, f, value)
    if end is not None:
        recorder.invoke(99, "poll", [["poll"]])
        recorder.complete(99, "ok", "poll", [["poll", end]])
    return recorder.history


def _types(history, **options):
    return [anomaly.type for anomaly in check(history, **options)]


def _send(*records):
    return [["send", key, [offset, value]] for key, offset, value in records]


def test_records_read_once_in_order_are_fine():
    history = _history(
        (1, "ok", "txn", _send((0, 0, 1), (1, 0, 1))),
        (2, "ok", "poll", [["poll", {0: [[0, 1]]}]]),
        (1, "ok", "txn", _send((0, 2, 2))),
        (2, "ok", "poll", [["poll", {0: [[2, 2]]}]]),
        end={0: [[0, 1], [2, 2]], 1: [[0, 1]]},
    )
    assert check(history, transactional=True) == []


def test_a_transaction_of_unknown_fate_may_be_seen_whole_or_not_at_all():
    info = (1, "info", "txn", _send((0, 0, 1), (1, 0, 1)))
    whole = _history(info, end={0: [[0, 1]], 1: [[0, 1]]})
    nothing = _history(info, (2, "ok", "send", _send((0, 2, 2))), end={0: [[2, 2]]})
    assert check(whole, transactional=True) == []
    assert check(nothing, transactional=True) == []


def test_a_transaction_seen_in_part_is_torn_even_if_nothing_came_after_it():
    history = _history((1, "info", "txn", _send((0, 0, 1), (1, 0, 1))), end={0: [[0, 1]]})
    (torn,) = check(history, transactional=True)
    assert torn.type == "torn-transaction"
    assert torn.cases == [(1, ((0, 1),), ((1, 1),))]


def test_a_transaction_that_never_answered_may_be_seen_but_not_torn():
    never = (1, None, "txn", [["send", 0, 1], ["send", 1, 1]])
    assert _types(_history(never, end={0: [[0, 1]], 1: [[0, 1]]}), transactional=True) == []
    assert _types(_history(never, end={0: [[0, 1]]}), transactional=True) == ["torn-transaction"]


def test_an_aborted_transaction_must_not_be_read():
    history = _history((1, "fail", "txn", _send((0, 0, 1))), end={0: [[0, 1]]})
    assert _types(history, transactional=True) == ["G1a"]


def test_an_acknowledged_record_that_others_overtook_is_lost():
    history = _history((1, "ok", "send", _send((0, 0, 1), (0, 1, 2))), end={0: [[1, 2]]})
    assert _types(history) == ["lost-write", "unseen"]


def test_an_acknowledged_record_at_the_end_is_unseen_unless_nobody_looked():
    history = _history((1, "ok", "send", _send((0, 0, 1))), end={})
    assert _types(history) == ["unseen"]
    assert _types(history, complete=False) == []


def test_a_record_that_nobody_sent_is_a_phantom():
    assert _types(_history(end={0: [[0, 7]]})) == ["phantom-read"]


def test_a_record_at_two_offsets_is_a_duplicate():
    history = _history((1, "ok", "send", _send((0, 0, 1))), end={0: [[0, 1], [1, 1]]})
    assert "duplicate" in _types(history)


def test_two_readers_must_agree_about_an_offset():
    history = _history(
        (1, "ok", "send", _send((0, 0, 1))),
        (2, "ok", "send", _send((0, 0, 2))),
        end={0: [[0, 1]]},
    )
    assert "inconsistent-offsets" in _types(history)


def test_consumers_of_a_group_may_jump_between_polls_and_others_may_not():
    sends = (1, "ok", "send", _send((0, 0, 1), (0, 1, 2), (0, 2, 3)))
    polls = [(2, "ok", "poll", [["poll", {0: [[at, at + 1]]}]]) for at in (0, 2, 0)]
    history = _history(sends, *polls, end={0: [[0, 1], [1, 2], [2, 3]]})
    assert _types(history) == ["poll-skip", "nonmonotonic-poll"]
    assert _types(history, subscribed=True) == []


def test_after_a_failure_a_consumer_goes_back_to_where_the_operation_began():
    sends = (1, "ok", "send", _send((0, 0, 1), (0, 1, 2)))
    first, failed, again = (
        (2, type, "poll", [["poll", {0: [[at, at + 1]]}]])
        for type, at in (("ok", 0), ("fail", 1), ("ok", 1))
    )
    assert check(_history(sends, first, failed, again, end={0: [[0, 1], [1, 2]]})) == []


def test_records_of_others_may_lie_between_those_of_one_transaction():
    history = _history(
        (1, "ok", "txn", _send((0, 0, 1), (0, 2, 3))),
        (2, "ok", "txn", _send((0, 1, 2))),
        end={0: [[0, 1], [1, 2], [2, 3]]},
    )
    assert _types(history, transactional=True) == []


def test_a_read_of_what_is_sent_only_later_is_a_cycle():
    history = _history(
        (1, "ok", "txn", [["poll", {0: [[0, 7]]}], *_send((1, 0, 1))]),
        (2, "ok", "txn", _send((0, 0, 7))),
        end={0: [[0, 7]], 1: [[0, 1]]},
    )
    assert _types(history) == ["strong-PL-2-cycle-exists", "G1c-realtime"]


def test_sends_of_one_operation_that_is_no_transaction_may_be_seen_in_part():
    history = _history((1, "info", "send", _send((0, 0, 1), (1, 0, 1))), end={0: [[0, 1]]})
    assert check(history) == []


def test_a_record_that_was_also_seen_above_all_that_was_read_is_not_lost_yet():
    sends = (1, "ok", "send", _send((0, 0, 1), (0, 1, 2)))
    above = (2, "fail", "poll", [["poll", {0: [[2, 1]]}]])
    found = _types(_history(sends, above, end={0: [[1, 2]]}))
    assert "duplicate" in found
    assert "lost-write" not in found


def test_a_send_of_unknown_fate_counts_for_the_order_of_its_process():
    history = _history(
        (1, "ok", "send", _send((0, 0, 1))),
        (1, "info", "send", _send((0, 2, 2))),
        (1, "ok", "send", _send((0, 1, 3))),
        end={0: [[0, 1], [1, 3], [2, 2]]},
    )
    assert _types(history) == ["nonmonotonic-send"]


def test_what_injects_faults_is_no_client():
    history = _history((1, "ok", "send", _send((0, 0, 1))), end={0: [[0, 1]]})
    history.insert(1, {"process": "nemesis", "type": "info", "f": "kill", "value": None})
    assert check(history) == []


@given(st.integers(0, 2**32))
def test_realtime_edges_have_the_same_closure_as_all_pairs(seed):
    dice = random.Random(seed)
    recorder, busy = Recorder(), set()
    for _ in range(dice.randrange(40)):
        process = dice.randrange(4)
        if process in busy:
            recorder.complete(process, dice.choice(["ok", "ok", "fail", "info"]), "poll", [])
        else:
            recorder.invoke(process, "poll", [])
        busy ^= {process}
    ops = completions(recorder.history)
    graph = realtime(Facts(ops), recorder.history)
    expected = {
        (a.index, b.index) for a in ops for b in ops if a.type == "ok" and b.invoked > a.index
    }
    assert _closure(graph) == expected


def test_realtime_edges_are_as_few_as_can_be():
    history = _history(*[(1, "ok", "poll", [])] * 100)
    graph = realtime(Facts(completions(history)), history)
    assert sum(map(len, graph.values())) == 99


@given(st.dictionaries(st.integers(0, 7), st.dictionaries(st.integers(0, 7), st.just("ww"))))
def test_components_are_what_reach_each_other(graph):
    reached = _closure(graph)
    expected = {
        frozenset({a} | {b for b in range(8) if (a, b) in reached and (b, a) in reached})
        for a in range(8)
    }
    found = components(graph)
    assert {frozenset(part) for part in found} == {part for part in expected if len(part) > 1}
    assert sum(map(len, found)) == len({node for part in found for node in part})


def _closure(graph):
    pairs = {(a, b) for a, afters in graph.items() for b in afters}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs
