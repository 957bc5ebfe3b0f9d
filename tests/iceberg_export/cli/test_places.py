"""Commands that say where an export begins, or goes on: at offsets, ends of the log, or times."""

import json

from iceberg_export.table.catalog import open_catalog
from tests.iceberg_export.kit.world import some_records

BEGIN_MS = 1_700_000_000_000
"""Of `some_records`, a millisecond apart: 2023-11-14T22:13:20Z."""


def test_init_makes_a_table_that_has_a_snapshot(frazil):
    code, out, _err = frazil("init", "--topic", "orders")
    assert (code, out) == (0, "orders: table frazil.orders is ready\n")
    assert frazil("init", "--topic", "orders")[0] == 0
    assert "0 records, each exactly once" in frazil("verify", "--topic", "orders")[1]


def test_reset_offsets_wants_a_yes_and_then_the_next_run_brings_the_rows_again(frazil):
    frazil("run", "--once")
    code, out, err = frazil("reset-offsets", "--topic", "orders", "--to", "{0:2}")
    assert (code, out) == (2, "")
    assert err.endswith(
        "this would take the rows from 0:2 on out of table frazil.orders, 3 offsets, for the next "
        "run to bring them again; say --yes to do it\n"
    )
    code, out, _err = frazil("reset-offsets", "--topic", "orders", "--to", "{0:2}", "--yes")
    said = "orders: the export goes on at 0:2; 3 rows left table frazil.orders\n"
    assert (code, out) == (0, said)
    assert frazil("run", "--once")[1].startswith("orders: 3 records")
    assert "5 records, each exactly once" in frazil("verify", "--topic", "orders")[1]


def test_reset_offsets_checks_what_is_wanted_also_without_a_yes(frazil, world, tmp_path):
    open_catalog({}, tmp_path / "data").engine.dispose()
    code, _out, err = frazil("reset-offsets", "--topic", "orders", "--to", "earliest")
    assert code == 1
    assert "has no table frazil.orders yet" in err
    frazil("run", "--once")
    for wrong, said in (("{0:9}", "offsets 0 to 5, 9 is not"), ("{7:0}", "no partition 7")):
        code, _out, err = frazil("reset-offsets", "--topic", "orders", "--to", wrong)
        assert code == 2
        assert said in err
        assert "--yes" not in err
    world.commit("orders", {0: [some_records(4, 5)]})
    _code, _out, err = frazil("reset-offsets", "--topic", "orders", "--to", "{0:7}")
    assert "this would skip 2 offsets, until a backfill, before 0:7; say --yes" in err


def test_agents_that_hold_records_for_the_export_hear_of_a_reset(frazil, world):
    frazil("run", "--once")
    assert world.exported == {"orders": {"0": 5}}
    frazil("reset-offsets", "--topic", "orders", "--to", "earliest", "--yes")
    assert world.exported == {"orders": {"0": 0}}


def test_init_may_begin_at_a_time_and_what_is_before_is_skipped_on_purpose(frazil):
    code, out, _err = frazil(
        "init", "--topic", "orders", "--from-datetime", "2023-11-14T22:13:20.003"
    )
    said = "orders: table frazil.orders is ready, its export begins at 0:3\n"
    assert (code, out) == (0, said)
    assert frazil("run", "--once")[1].startswith("orders: 2 records")
    code, out, _err = frazil("verify", "--topic", "orders")
    assert code == 0
    assert "orders: 2 records, each exactly once" in out
    assert "; 3 offsets were skipped on purpose, by reset-offsets or init" in out
    assert "gone" not in out
    said = frazil("status", "--topics", "orders")[1]
    assert "orders: 3 offsets were skipped on purpose" in said
    assert "unexported" not in said
    (told,) = json.loads(frazil("status", "--json")[1])["topics"]
    assert (told["skipped"], told["deleted_unexported"]) == (3, 0)


def test_init_says_where_an_export_begins_once(frazil):
    frazil("run", "--once")
    code, _out, err = frazil("init", "--topic", "orders", "--from", "latest")
    assert code == 2
    assert "has begun; reset-offsets says where it goes on" in err


def test_reset_offsets_goes_to_a_time_in_either_direction(frazil, world):
    frazil("run", "--once")
    back = ("reset-offsets", "--topic", "orders", "--to-datetime", "2023-11-14T23:13:20.002+01:00")
    assert "the rows from 0:2 on out of table frazil.orders, 3 offsets" in frazil(*back)[2]
    assert frazil(*back, "--yes")[1].startswith("orders: the export goes on at 0:2; 3 rows left")
    ahead = ("reset-offsets", "--topic", "orders", "--to", "latest", "--yes")
    assert "3 offsets are skipped until a backfill" in frazil(*ahead)[1]
    assert frazil("run", "--once")[0] == 0
    assert "; 3 offsets were skipped on purpose" in frazil("verify", "--topic", "orders")[1]


def test_a_time_that_is_none_is_refused(frazil):
    reset = ("reset-offsets", "--topic", "orders")
    assert "'yesterday' is not a time like 2026-" in frazil(*reset, "--to-datetime", "yesterday")[2]


def test_a_backfill_brings_what_an_export_that_began_in_the_middle_has_skipped(frazil, world):
    frazil("init", "--topic", "orders", "--from", "{0:4}")
    frazil("run", "--once")
    code, out, _err = frazil("backfill", "--topic", "orders", "--to", "{0:2}")
    assert (code, out) == (
        0,
        "orders: 2 skipped offsets filled, 2 rows into table frazil.orders; 2 others stay skipped\n",
    )
    world.topics["orders"][1][0].log_start = 3
    code, out, _err = frazil("backfill", "--topic", "orders")
    assert (code, out) == (
        0,
        "orders: 1 skipped offsets filled, 1 rows into table frazil.orders; 1 are gone from the log\n",
    )
    code, out, _err = frazil("verify", "--topic", "orders")
    assert (code, "1 were skipped" in out or "skipped on purpose" in out) == (0, True)
