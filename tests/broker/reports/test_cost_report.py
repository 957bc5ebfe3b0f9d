"""What a store costs, from two readings of an agent's counters; and what other settings would cost."""

from typing import Any

import pytest

from broker.reports import cost_report
from broker.reports.cost_report import ChunkLoad, CounterReading, chunk_gap_s, metrics_of, report
from broker.reports.prices import MONTH_DAYS, Prices

SETTINGS = {"puts_per_second": 10, "linger_ms": 0, "chunk_bytes": 8 << 20}
TEXT = """\
# HELP frazil_store_requests_total Requests
# TYPE frazil_store_requests_total counter
frazil_store_requests_total{call="put",cause="produce"} 12.0
frazil_log_writes_total{cause="clock"} 3.0
frazil_cache_bytes 1.5e+06
process_cpu_seconds_total 1.0
"""
DAY_S = 86_400


def topic(name: str, *, held: int, records: int, ends: int) -> dict[str, Any]:
    return {"name": name, "bytes": held, "records": records, "ends": ends}


LABELS = {
    "store_requests": ("cause", "call"),
    "store_bytes": ("cause", "way"),
    "log_writes": ("cause",),
    "requests": ("api",),
}


def reading(time_s: float, *topics: dict[str, Any], **counters: float) -> CounterReading:
    metrics = {}
    for key, value in counters.items():
        name, *labels = key.split("__")
        named = frozenset(zip(LABELS.get(name, ()), labels, strict=True))
        metrics[f"frazil_{name}", named] = value
    view = {"settings": SETTINGS, "agents": 1, "topics": list(topics)}
    return CounterReading(time_s, metrics, view)


def produced(puts: float, megabytes: float, requests: float) -> dict[str, float]:
    return {
        "store_requests__produce__put": puts,
        "store_bytes__produce__written": megabytes * 1e6,
        "requests__Produce": requests,
        "store_put_seconds": puts * 0.03,
    }


def test_prometheus_text_is_read_by_name_and_labels_and_what_is_not_the_agents_is_left_out() -> (
    None
):
    assert metrics_of(TEXT) == {
        ("frazil_store_requests", frozenset({("cause", "produce"), ("call", "put")})): 12.0,
        ("frazil_log_writes", frozenset({("cause", "clock")})): 3.0,
        ("frazil_cache_bytes", frozenset()): 1.5e6,
    }


def test_a_cause_costs_its_puts_and_lists_and_gets_and_no_deletes() -> None:
    before = reading(100)
    after = reading(
        110,
        store_requests__merge__put=10,
        store_requests__merge__list=20,
        store_requests__merge__get=100,
        store_requests__merge__delete=1000,
    )
    (merge,) = report(before, after, Prices(put_1000=5.0, get_1000=1.0))["causes"]
    assert merge["puts_a_second"] == 1.0
    assert merge["usd_a_day"] == pytest.approx((3 * 5.0 + 10 * 1.0) / 1000 * DAY_S)


def test_requests_are_shared_among_topics_by_the_bytes_that_they_were_given() -> None:
    before = reading(
        0,
        topic("large", held=1000, records=10, ends=10),
        topic("small", held=1000, records=10, ends=10),
        topic("empty", held=0, records=0, ends=0),
    )
    after = reading(
        10,
        topic("large", held=4000, records=40, ends=40),
        topic("small", held=2000, records=20, ends=20),
        topic("empty", held=0, records=0, ends=0),
        **produced(puts=10, megabytes=4, requests=10),
    )
    found = report(before, after, Prices())
    large, small = found["topics"]
    assert (large["topic"], small["topic"]) == ("large", "small")
    assert large["bytes_written_a_second"] == 300.0
    assert large["requests_usd_a_day"] == pytest.approx(3 * small["requests_usd_a_day"])
    total = large["requests_usd_a_day"] + small["requests_usd_a_day"]
    assert total == pytest.approx(found["requests_usd_a_day"])


def test_what_a_topic_holds_costs_by_the_month() -> None:
    before = after = topic("held", held=1 << 30, records=1, ends=1)
    (row,) = report(reading(0, before), reading(10, after), Prices(gib_month=MONTH_DAYS))["topics"]
    assert row["storage_usd_a_day"] == pytest.approx(1.0)
    assert row["requests_usd_a_gib"] is None


def test_counters_of_an_agent_that_began_anew_count_from_nothing() -> None:
    before = reading(0, store_requests__fetch__get=1000)
    after = reading(10, store_requests__fetch__get=50)
    (fetch,) = report(before, after, Prices())["causes"]
    assert fetch["gets_a_second"] == 5.0


# The model of chunks.

SMALL = ChunkLoad(bytes_written=10_000, requests=200, put_s=0.03, chunk_bytes_max=8 << 20)


def test_a_budget_that_binds_says_how_often_chunks_close() -> None:
    assert chunk_gap_s(SMALL, puts_per_second=10, linger_ms=0) == 0.1
    assert chunk_gap_s(SMALL, puts_per_second=2, linger_ms=0) == 0.5


def test_a_budget_that_does_not_bind_leaves_it_to_half_of_what_a_put_takes() -> None:
    assert chunk_gap_s(SMALL, puts_per_second=1000, linger_ms=0) == 0.015
    slow = SMALL._replace(put_s=0.2)
    assert chunk_gap_s(slow, puts_per_second=1000, linger_ms=0) == 0.05


def test_nothing_closes_more_often_than_requests_come() -> None:
    rare = SMALL._replace(requests=2)
    assert chunk_gap_s(rare, puts_per_second=1000, linger_ms=0) == 0.5


def test_a_chunk_that_is_worth_its_put_does_not_wait_for_the_budget() -> None:
    much = SMALL._replace(bytes_written=640 * 1024)
    assert chunk_gap_s(much, puts_per_second=1, linger_ms=0) == pytest.approx(0.1)


def test_a_full_chunk_does_not_linger() -> None:
    full = SMALL._replace(bytes_written=80 << 20)
    assert chunk_gap_s(full, puts_per_second=10, linger_ms=1000) == pytest.approx(0.1)


def test_the_model_is_right_about_the_present_settings_since_it_is_corrected_by_them() -> None:
    after = reading(10, **produced(puts=80, megabytes=0.1, requests=2000))
    others = report(reading(0), after, Prices())["others"]
    (now,) = [each for each in others if each["puts_per_second"] == 10 and not each["linger_ms"]]
    assert now["puts_a_second"] == pytest.approx(8.0)
    assert now["usd_a_day"] == pytest.approx(8.0 * DAY_S * 0.005 / 1000)
    dear = [each["usd_a_day"] for each in others if not each["linger_ms"]]
    assert dear == sorted(dear)


def test_without_a_load_other_settings_are_not_weighed() -> None:
    found = report(reading(0), reading(10), Prices())
    assert found["others"] == []
    assert cost_report.lines(found)[-1] == (
        "nothing is being written, so other settings cannot be weighed"
    )


def test_the_report_for_people() -> None:
    before = reading(0, topic("orders", held=1000, records=10, ends=10))
    after = reading(
        10,
        topic("orders", held=2_000_000, records=2000, ends=2010),
        log_writes__produce=100,
        **produced(puts=100, megabytes=2, requests=2000),
    )
    lines = cost_report.lines(report(before, after, Prices()))
    assert lines[0].endswith("(list prices of S3 Standard in us-east-1, November 2026)")
    assert lines[1] == "requests of this agent (of 1) in 10 s, by cause: $4.32 a day"
    assert lines[3:5] == [
        "CAUSE    PUT/S  GET/S  LIST/S  DELETE/S  WRITTEN/S  READ/S  LOG-WRITES/S  $/DAY",
        "produce  10.00  0.00   0.00    0.00      195 KiB    0 B     10.00         4.3200",
    ]
    assert lines[8:10] == [
        "TOPIC   WRITTEN/S  STORED    REQUESTS-$/DAY  STORAGE-$/DAY  $/GIB",
        "orders  195 KiB    1.91 MiB  4.3200          0.0000         0.2684",
    ]
    assert lines[13].split() == [
        *("PUTS.PER.SECOND", "CHUNK.LINGER.MS", "CHUNK-EVERY-MS", "PUT/S", "$/DAY", "$/GIB"),
    ]
    assert [line for line in lines[14:] if line.endswith("now")] == [
        "             10                0             100  10.0   4.320   0.2684  now"
    ]
