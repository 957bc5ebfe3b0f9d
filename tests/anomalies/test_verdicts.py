"""Our checkers agree with Jepsen's on 306 histories, case by case (docs/design/anomalies.md §2.3).

Left out, since the original's answers are arbitrary there: order and cycles where offsets are
inconsistent; which of several values of a key a precommitted read names; which cycles it happens
to find in a component. One history has no verdict: the original crashed.
"""

import gzip
import json
from pathlib import Path

import pytest

from tests.anomalies.checker import analyse, bad_types

VERDICTS = Path(__file__).parent / "verdicts.jsonl.gz"
HISTORIES = {
    found["name"]: found
    for found in map(json.loads, gzip.decompress(VERDICTS.read_bytes()).splitlines())
}
CRASHED = {"empty-poll-list.jsonl"}
OF_ORDER = {
    "int-poll-skip",
    "int-nonmonotonic-poll",
    "int-send-skip",
    "int-nonmonotonic-send",
    "poll-skip",
    "nonmonotonic-poll",
    "nonmonotonic-send",
}
CYCLES = {"G0", "G1c", "G0-realtime", "G1c-realtime"}
COMPONENTS = {
    "PL-1-cycle-exists",
    "PL-2-cycle-exists",
    "strong-PL-1-cycle-exists",
    "strong-PL-2-cycle-exists",
}


def _comparable(types, ambiguous):
    return set(types) - CYCLES - (OF_ORDER | COMPONENTS if ambiguous else set())


def _tuples(value):
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _theirs(type, cases):
    """The original's cases in our words."""
    if type == "unseen":
        by_key = cases["messages"].items()
        return sorted(((int(key), v) for key, values in by_key for v in values), key=repr)
    if type in COMPONENTS:
        return sorted((_tuples(case["scc"]) for case in cases), key=repr)
    if type == "empty-transaction-graph":
        return [()]
    return sorted(map(_tuples, cases), key=repr)


def _ours(type, cases, theirs):
    if type == "precommitted-read":
        named = {(key, op): value for key, value, op in theirs}
        chosen = []
        for key, values, op in cases:
            value = named.get((key, op))
            chosen.append((key, value if value in values else values, op))
        cases = chosen
    return sorted(cases, key=repr)


def test_there_are_306_histories_of_all_kinds():
    assert len(HISTORIES) == 306
    seen = {type for found in HISTORIES.values() for type in found["ww_deps"].get("errors", ())}
    assert seen >= OF_ORDER | COMPONENTS | CYCLES
    assert sum(not found["order_ambiguous"] for found in HISTORIES.values()) == 238


@pytest.mark.parametrize("ww_deps", [True, False], ids=["ww_deps", "no_ww_deps"])
@pytest.mark.parametrize("name", sorted(HISTORIES.keys() - CRASHED))
def test_every_verdict_is_that_of_the_original(name, ww_deps):
    found = HISTORIES[name]
    verdict = found["ww_deps" if ww_deps else "no_ww_deps"]
    ambiguous, errors = found["order_ambiguous"], verdict["errors"]
    ours = analyse(found["history"], ww_deps=ww_deps)

    types = _comparable(errors, ambiguous)
    assert _comparable(ours, ambiguous) == types
    for type in types:
        theirs = _theirs(type, errors[type])
        assert _ours(type, ours[type], theirs) == theirs, type
    bad = bad_types(ours, subscribed=False, ww_deps=ww_deps)
    assert _comparable(bad, ambiguous) == _comparable(verdict["bad"], ambiguous)
    if not ambiguous:
        assert verdict["valid"] == (not bad)
