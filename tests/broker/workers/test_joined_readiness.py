"""Whether several agents of one machine are ready."""

from broker.workers.joined_readiness import join

READY = {"ready": True, "reasons": []}
STARTING = {"ready": False, "reasons": ["the agent is starting"]}


def test_one_that_is_ready_is_enough_and_the_others_reasons_are_notes() -> None:
    assert join({"w1": STARTING, "w2": READY}) == {
        "ready": True,
        "reasons": [],
        "notes": ["w1: the agent is starting"],
    }


def test_where_none_is_ready_each_says_why() -> None:
    assert join({"w1": STARTING, "w2": None}) == {
        "ready": False,
        "reasons": ["w1: the agent is starting", "w2: it does not answer, or is being started"],
    }


def test_codes_are_told_once_whoever_is_ready() -> None:
    away = STARTING | {"codes": ["store-unreachable", "clock-skew"]}
    assert join({"w1": away, "w2": away})["codes"] == ["clock-skew", "store-unreachable"]
    assert join({"w1": away, "w2": READY})["codes"] == ["clock-skew", "store-unreachable"]


def test_notes_and_overload_are_told_with_whose_they_are() -> None:
    said = READY | {"notes": ["the log is over its budget"], "overloaded": ["loop"]}
    assert join({"w1": said, "w2": READY}) == {
        "ready": True,
        "reasons": [],
        "notes": ["w1: the log is over its budget"],
        "overloaded": ["w1: loop"],
    }
