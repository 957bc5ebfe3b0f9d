"""`frazil export plan --infer`: the columns that JSON would get, before anything is set or written."""

import json

import pytest

from protocol.records import Record


@pytest.fixture
def events(world):
    """Sends values to a topic of two partitions."""
    world.create("events", 2)

    def send(*values, partition=0):
        texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in values]
        records = [Record(timestamp=1_700_000_000_000, value=text) for text in texts]
        world.commit("events", {partition: [records]})

    return send


def test_columns_are_told_with_their_types_and_nothing_is_made(frazil, events):
    events({"id": 1, "who": {"name": "ada"}}, {"id": 2.5, "tags": ["x"]}, b"{")
    events({"id": 3, "who": 5}, partition=1)
    code, out, _err = frazil("plan", "--topic", "events", "--infer")
    assert code == 0
    told = out[out.index("events: columns") :].splitlines()
    assert told[0].endswith("value.schema=infer, from 4 values, 1 of which are no JSON")
    assert told[1:] == [
        "  id    double",
        "  tags  list<string>",
        "  who   string",
    ]
    assert frazil("status")[0] == 2, "nothing was made"


def test_a_table_that_has_columns_is_shown_with_those_that_would_come(frazil, events, world):
    world.configs["events"] = {"value.mode": "json", "value.schema": "infer"}
    events({"id": 1})
    frazil("run", "--once")
    events({"id": "x", "at": 2})
    out = frazil("plan", "--topic", "events", "--infer")[1]
    assert out.splitlines()[-3:] == [
        "  id        long",
        "  id__json  string  (new)",
        "  at        long  (new)",
    ]
    frazil("run", "--once")
    assert "no values to draw columns from" in frazil("plan", "--topic", "events", "--infer")[1]


def test_a_run_draws_what_was_shown(frazil, events, world):
    events(*({"n": n, f"f{n % 7}": [n]} for n in range(100)))
    shown = frazil("plan", "--topic", "events", "--infer")[1].splitlines()
    world.configs["events"] = {"value.mode": "json", "value.schema": "infer"}
    frazil("run", "--once")
    events({"n": 1})
    again = frazil("plan", "--topic", "events", "--infer")[1].splitlines()
    assert shown[-8:] == again[-8:]
