"""What goes on now and what it costs: rates, curves, times, and that nothing is remembered once nobody looks."""

import asyncio
import re

import pytest

from broker.admin.metrics import LATENCY, TABLE
from broker.console import looking
from broker.console.looking import Looking
from broker.console.rendering import ms_text, usd_text
from broker.console.views import costs, live
from broker.console.views.costs import costs_view
from broker.console.views.live import Curve, Reading, curve_of, live_view
from broker.console.views.page_of_rows import Asked
from broker.reports.prices import Prices
from tests.broker.agents import serving
from tests.broker.console.test_pages import page, words
from tests.broker.groups.world import agents
from tests.kit.batches import batch


def numbers(**values: float) -> dict:
    return {(f"frazil_{name}", frozenset()): value for name, value in values.items()}


def answers(api: str, **counts: float) -> dict:
    """`le_4=3`: three took 4 ms at most."""
    return {
        (f"{LATENCY}_bucket", frozenset({("api", api), ("le", bound)})): count
        for name, count in counts.items()
        for bound in ["+Inf" if name == "le_inf" else str(int(name[3:]) / 1000)]
    }


def store(cause: str, call: str, count: float) -> dict:
    return {("frazil_store_requests", frozenset({("cause", cause), ("call", call)})): count}


def test_rates_are_of_the_last_ten_seconds_and_curves_of_all_looks() -> None:
    readings = [
        Reading(at_ms, numbers(produce_records=records, connections=7))
        for at_ms, records in ((0, 1_000), (10_000, 1_000), (15_000, 1_500), (20_000, 2_000))
    ]
    view = live_view(readings)
    records, *_ = view.flows
    assert (records.name, records.rate) == ("Records in", 100.0)
    assert (records.curve.most, view.seconds, view.connections) == (100.0, 20.0, 7)
    assert records.curve.points == "0.0,47.0 150.0,1.0 300.0,1.0"


def test_the_first_look_has_no_rate_and_a_counter_that_began_anew_counts_from_nothing() -> None:
    first = Reading(0, numbers(produce_records=50))
    assert live_view([first]).flows[0].rate is None
    assert live_view([first]).flows[0].curve == Curve("", 0.0)
    again = Reading(2_000, numbers(produce_records=20))
    assert live_view([first, again]).flows[0].rate == 10.0


def test_bytes_out_are_summed_over_zones() -> None:
    def reading(at_ms: int, none: float, own: float) -> Reading:
        found = {"none": none, "own": own}
        labels = {
            ("frazil_fetch_bytes", frozenset({("rack", rack)})): count
            for rack, count in found.items()
        }
        return Reading(at_ms, labels)

    out = live_view([reading(0, 0, 0), reading(1_000, 300, 700)]).flows[2]
    assert (out.name, out.rate, out.is_bytes) == ("Bytes out", 1_000.0, True)


def test_half_and_99_of_a_hundred_answers_are_found_among_the_new_ones() -> None:
    before = Reading(0, answers("Produce", le_4=1_000, le_8=1_000, le_64=1_000, le_inf=1_000))
    after = Reading(1_000, answers("Produce", le_4=1_050, le_8=1_098, le_64=1_100, le_inf=1_100))
    produce, fetch = live_view([before, after]).latencies
    assert (produce.p50_ms, produce.p99_ms, produce.answers) == (4.0, 64.0, 100)
    assert (fetch.api, fetch.p50_ms, fetch.p99_ms, fetch.answers) == ("Fetch", None, None, 0)
    slow = Reading(2_000, answers("Produce", le_4=1_050, le_8=1_098, le_64=1_100, le_inf=1_200))
    produce = live_view([after, slow]).latencies[0]
    assert ms_text(produce.p99_ms) == "more"
    assert "inf" not in produce.curve.points


def test_a_curve_of_nothing_lies_at_the_bottom() -> None:
    assert curve_of([0, 10], [0, 0]).points == "0.0,47.0 300.0,47.0"
    assert curve_of([5, 5], [1, 2]).points == "0.0,24.0 0.0,1.0"


async def test_a_minute_after_the_last_look_nothing_is_remembered() -> None:
    now_ms = 0
    watched = Looking(lambda: now_ms)
    assert not watched.remembers
    watched.read({})
    watched.lags("g", 5)
    await asyncio.sleep(looking.KEPT_S - 1)
    now_ms = 59_000
    watched.read({})
    await asyncio.sleep(looking.KEPT_S - 1)
    assert len(watched.readings) == 2
    await asyncio.sleep(2)
    assert not watched.remembers


async def test_what_is_remembered_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(looking, "GROUPS_MAX", 2)
    now_ms = 0
    watched = Looking(lambda: now_ms)
    for _ in range(400):
        now_ms += 1_000
        assert watched.is_due()
        watched.read({})
    assert not watched.is_due()
    assert len(watched.readings) == looking.READINGS_MAX
    watched.lags("a", 1)
    watched.lags("b", 2)
    now_ms += 500
    assert watched.lags("a", 3) == ([400_000], [3])
    watched.lags("c", 4)
    now_ms += 5_000
    assert watched.lags("a", 5) == ([400_000, 405_500], [3, 5])
    assert watched.lags("b", 6) == ([405_500], [6])


async def test_costs_a_day_are_told_by_cause_since_the_start_and_as_now() -> None:
    async with agents() as (one,):
        await one.produce("logs", batch(b"a" * 1000))
        first = Reading(100_000, store("produce", "put", 50) | store("start", "get", 10))
        last = Reading(200_000, store("produce", "put", 250) | store("start", "get", 10))
        view = costs_view(
            one.machine,
            one.node.settings,
            readings=[first, last],
            began_ms=0,
            prices=Prices(put_1000=1.0, get_1000=0.1, gib_month=730.0),
            asked=Asked(),
        )
        produce, start = view.causes
        assert (produce.cause, produce.puts_a_day) == ("produce", 250 / 200 * 86_400)
        assert produce.usd_a_day == pytest.approx(108.0)
        assert produce.usd_a_day_now == pytest.approx(2 * 86.4)
        assert (start.cause, start.usd_a_day_now) == ("start", 0.0)
        assert (view.since_ms, view.look_ms, view.is_early) == (200_000, 100_000, True)
        assert view.source == "as you say"
        (row,) = view.topics.rows
        assert (row.topic, row.size) == ("logs", view.stored)
        assert view.storage_usd == pytest.approx(view.stored / (1 << 30) * 24.0)
        short = costs_view(
            one.machine,
            one.node.settings,
            readings=[last],
            began_ms=200_000,
            prices=Prices(),
            asked=Asked("none"),
        )
        assert (short.look_ms, short.requests_usd_now, short.topics.rows) == (0, None, [])
        assert short.source.startswith("list prices of S3 Standard")


def test_numbers_that_pages_are_made_of_are_metrics() -> None:
    assert {row.name for row in TABLE} | {LATENCY} >= live.NUMBERS | costs.NUMBERS


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.0, "$0.00"), (1234.5, "$1,234.50"), (0.0071, "$0.0071"), (0.00001, "under $0.0001")],
)
def test_amounts(amount: float, text: str) -> None:
    assert usd_text(amount) == text


@pytest.mark.real_loop
async def test_pages_of_figures_read_what_the_agent_counts_and_only_when_looked_at(
    monkeypatch,
) -> None:
    monkeypatch.setattr(looking, "APART_MS", 0)
    async with serving() as running:
        client = await running.connect()
        assert await client.create("orders") == 0
        reads = []
        numbers_of = running.agent.admin.numbers
        running.agent.admin.numbers = lambda names: reads.append(1) or numbers_of(names)
        for path in ("/", "/console/topics", "/console/group"):
            await page(running, path)
        assert reads == []
        _, html = await page(running, "/console/live")
        assert "This is the first look" in words(html)
        assert "<svg" not in html
        assert await client.produce("orders", [b"a"] * 10) == (0, 0)
        for _ in range(2):
            _, html = await page(running, "/console/live")
        assert len(reads) == 3
        assert re.search(r"Records in a second [1-9][0-9,]* at most [1-9]", words(html))
        assert re.search(r'<svg class="spark" viewBox="0 0 300 48"', html)
        assert "What this agent served" in words(html)
        _, html = await page(running, "/console/costs?put=1&get=nan&storage=-1")
        assert "1.0 for 1,000 PUT or LIST, 0.0004 for 1,000 GET, 0.023 a GiB" in words(html)
        assert re.search(r"produce [0-9,]+ 0 ", words(html))
