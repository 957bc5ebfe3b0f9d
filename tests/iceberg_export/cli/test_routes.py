"""Commands over a topic with several tables: each names the one that it means, or is told to."""

import json

import pytest

from protocol.records import Record
from tests.iceberg_export.kit.http import served

ROUTED = {
    "value.mode": "json",
    "value.schema": "infer",
    "route.by": "type",
    "route.tables": "refund:refunds",
}


@pytest.fixture
def events(world):
    """A topic whose refunds have a table of their own, with three records."""
    world.create("events", 1)
    world.configs["events"] = dict(ROUTED)
    send(world, "refund", "order", "order")
    return world


def send(world, *types):
    values = [json.dumps({"type": one}).encode() for one in types]
    world.commit("events", {0: [[Record(timestamp=1, value=one) for one in values]]})


def test_a_run_exports_each_table_and_verify_proves_them_all(events, frazil):
    code, out, _err = frazil("run", "--once", "--topics", "events")
    assert (code, out.splitlines()) == (
        0,
        [
            "events: 2 records in 1 files into table frazil.events",
            "events: 1 records in 1 files into table frazil.refunds",
        ],
    )
    code, out, _err = frazil("verify", "--topic", "events")
    assert code == 0
    assert [line.partition(" (")[0] for line in out.splitlines()] == [
        "events: 2 records, each exactly once in table frazil.events",
        "events: 1 records, each exactly once in table frazil.refunds",
    ]
    code, out, _err = frazil("verify", "--topic", "events", "--table", "refunds")
    assert (code, len(out.splitlines())) == (0, 1)


def test_verify_tells_of_a_table_that_differs_also_when_the_last_one_does_not(events, frazil):
    frazil("run", "--once", "--topics", "events")
    events.configs["events"]["table"] = "other"
    assert frazil("verify", "--topic", "events")[0] == 1, "it was never exported to"


def test_status_has_a_line_for_each_table(events, frazil):
    frazil("run", "--once")
    send(events, "refund")
    code, out, _err = frazil("status", "--topics", "events")
    assert code == 0
    rows = [line.split() for line in out.splitlines()[1:]]
    assert [(*row[:5], row[6]) for row in rows] == [
        ("events", "0", "3", "4", "1", "frazil.events"),
        ("events", "0", "3", "4", "1", "frazil.refunds"),
    ]


@pytest.mark.parametrize(
    "command",
    [
        ("reset-offsets", "--to", "earliest", "--yes"),
        ("replay",),
        ("plan",),
        ("view",),
        ("backfill",),
    ],
    ids=lambda one: one[0],
)
def test_a_command_for_one_table_wants_to_know_which(events, frazil, command):
    frazil("run", "--once", "--topics", "events")
    code, _out, err = frazil(*command, "--topic", "events")
    assert code == 2
    assert err.endswith(
        "topic events has several tables (frazil.iceberg.route.by); say --table frazil.events or frazil.refunds\n"
    )
    code, out, _err = frazil(*command, "--topic", "events", "--table", "frazil.refunds")
    assert code == 0
    assert "refunds" in out
    code, _out, err = frazil(*command, "--topic", "events", "--table", "refund")
    assert code == 2
    assert "--table is frazil.events or frazil.refunds" in err


def test_agents_hear_of_what_all_tables_have_and_of_a_reset_of_one(events, frazil):
    frazil("run", "--once", "--topics", "events")
    assert events.exported["events"] == {"0": 3}
    send(events, "order")
    events.configs["events"]["route.tables"] = "refund:no-such-space.refunds"
    assert frazil("run", "--once", "--topics", "events")[0] == 2
    assert events.exported["events"] == {"0": 3}, "one of its tables is refused"
    events.configs["events"] = dict(ROUTED)
    frazil("run", "--once", "--topics", "events")
    assert events.exported["events"] == {"0": 4}
    frazil("reset-offsets", "--topic", "events", "--table", "refunds", "--to", "{0:1}", "--yes")
    assert events.exported["events"] == {"0": 1}


def test_maintain_keeps_each_table(events, frazil):
    frazil("run", "--once", "--topics", "events")
    code, out, _err = frazil("maintain", "--topics", "events", "--expire")
    assert code == 0
    assert out.splitlines() == [
        f"frazil.{name}: 0 snapshots expired"
        for name in ("events", "events__dlq", "refunds", "refunds__dlq")
    ]


def test_one_table_is_all_that_most_topics_have(world, frazil):
    with served(world):
        frazil("run", "--once")
        assert frazil("verify", "--topic", "orders", "--table", "frazil.orders")[0] == 0
        code, _out, err = frazil("verify", "--topic", "orders", "--table", "refunds")
    assert (code, "--table is frazil.orders" in err) == (2, True)


def test_a_table_that_is_refused_keeps_no_command_from_the_others(events, frazil):
    frazil("run", "--once", "--topics", "events")
    events.configs["events"]["route.tables"] = "refund:refunds,gift:secret.gifts"
    reset = ("reset-offsets", "--topic", "events", "--to", "{0:1}", "--yes")
    code, out, err = frazil(*reset, "--table", "refunds")
    assert (code, "the export goes on at 0:1" in out) == (0, True)
    assert "the agents did not hear of it" in err
    code, _out, err = frazil(*reset, "--table", "secret.gifts")
    assert (code, "asks for a table in namespace secret" in err) == (2, True)
    assert "--table frazil.events or frazil.refunds or secret.gifts" in frazil(*reset)[2]
