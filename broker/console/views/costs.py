"""What the store costs a day, by cause, and what is stored, by topic. Pure.

Requests are those that agents have counted: since they began, and while somebody looked at pages of figures. The
amounts are those of `frazil cost` (`broker.reports.cost_report`), by the same list of prices; what topics share of the
requests, and what other settings would cost, only that says, since it needs two looks at all topics.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.config.settings import Settings
from broker.console.views.live import Reading
from broker.console.views.page_of_rows import Asked, PageOfRows, page_of
from broker.console.views.topics import sums_of
from broker.produce.chunk_limits import chunk_limits
from broker.reports.cost_report import CALLS, CounterReading, GiB, report
from broker.reports.prices import MONTH_DAYS, SOURCE, Prices
from coordinator.machine.machine import Machine

NUMBERS: Final = frozenset(
    {
        "frazil_store_requests",
        "frazil_store_bytes",
        "frazil_store_put_seconds",
        "frazil_log_writes",
        "frazil_requests",
    }
)
"""That the page is made of."""
EARLY_MS: Final = 3_600_000
LOOK_MS_MIN: Final = 10_000
"""Of a shorter look no day is foretold."""


class CauseRow(NamedTuple):
    """What is asked of the store for one reason."""

    cause: str
    puts_a_day: float
    """With lists, which cost the same."""
    gets_a_day: float
    bytes_written_a_day: int
    bytes_read_a_day: int
    usd_a_day: float
    usd_a_day_now: float | None
    """As of the look; None: it is too short."""


class StoredRow(NamedTuple):
    """What a topic holds."""

    topic: str
    size: int | None
    """None: too many partitions stand on the page before it."""
    usd_a_day: float | None


class CostsView(NamedTuple):
    """What the page shows. Amounts are USD."""

    prices: Prices
    source: str
    """Of the prices."""
    agents: int
    """That are live; each counts for itself."""
    since_ms: int
    """What the amounts a day are made of."""
    is_early: bool
    """So short a time after the start that what is asked then counts too much in a day."""
    look_ms: int
    """What those of now are made of; 0: the look is too short."""
    causes: tuple[CauseRow, ...]
    """The dearest first."""
    requests_usd: float
    requests_usd_now: float | None
    stored: int
    """Bytes of records, of all topics."""
    storage_usd: float
    topics: PageOfRows[StoredRow]


def costs_view(
    machine: Machine,
    settings: Settings,
    *,
    readings: Sequence[Reading],
    began_ms: int,
    prices: Prices,
    asked: Asked,
) -> CostsView:
    """`readings`: in order of time, at least one. `began_ms`: when counting began, by their clock."""
    said = _said(machine, settings)
    first, last = readings[0], readings[-1]
    nothing = Reading(min(began_ms, last.at_ms - 1), {})
    whole = _report(nothing, last, said, prices)
    look_ms = last.at_ms - first.at_ms if last.at_ms - first.at_ms >= LOOK_MS_MIN else 0
    now = _report(first, last, said, prices) if look_ms else None
    now_by_cause = {} if now is None else {each["cause"]: each for each in now["causes"]}
    rows = [
        _cause(each, None if now is None else now_by_cause.get(each["cause"], {}))
        for each in whole["causes"]
        if any(each[f"{call}s_a_second"] for call in CALLS)
    ]
    stored = machine.partitions.data_bytes
    return CostsView(
        prices=prices,
        source=SOURCE if prices == Prices() else "as you say",
        agents=len(machine.incarnations),
        since_ms=last.at_ms - nothing.at_ms,
        is_early=last.at_ms - nothing.at_ms < EARLY_MS,
        look_ms=look_ms,
        causes=tuple(sorted(rows, key=lambda row: (-row.usd_a_day, row.cause))),
        requests_usd=whole["requests_usd_a_day"],
        requests_usd_now=None if now is None else now["requests_usd_a_day"],
        stored=stored,
        storage_usd=_storage(stored, prices),
        topics=_topics(machine, prices, asked),
    )


def _said(machine: Machine, settings: Settings) -> Mapping[str, Any]:
    """As `/costs` says it, without topics: there may be very many."""
    told = {
        "puts_per_second": chunk_limits(settings).puts_per_second,
        "linger_ms": settings.linger_ms,
        "chunk_bytes": settings.chunk_bytes_max,
    }
    return {"settings": told, "agents": len(machine.incarnations), "topics": []}


def _report(
    before: Reading, after: Reading, said: Mapping[str, Any], prices: Prices
) -> Mapping[str, Any]:
    return report(_look(before, said), _look(after, said), prices)


def _look(reading: Reading, said: Mapping[str, Any]) -> CounterReading:
    return CounterReading(reading.at_ms / 1000, reading.numbers, said)


def _cause(found: Mapping[str, Any], now: Mapping[str, Any] | None) -> CauseRow:
    day = 86_400
    return CauseRow(
        cause=found["cause"],
        puts_a_day=(found["puts_a_second"] + found["lists_a_second"]) * day,
        gets_a_day=found["gets_a_second"] * day,
        bytes_written_a_day=int(found["bytes_written_a_second"] * day),
        bytes_read_a_day=int(found["bytes_read_a_second"] * day),
        usd_a_day=found["usd_a_day"],
        usd_a_day_now=None if now is None else now.get("usd_a_day", 0.0),
    )


def _storage(size: int, prices: Prices) -> float:
    return size / GiB * prices.gib_month / MONTH_DAYS


def _topics(machine: Machine, prices: Prices, asked: Asked) -> PageOfRows[StoredRow]:
    page = page_of((topic.name for topic in machine.topics), asked)
    found = filter(None, map(machine.topics.by_name, page.rows))
    rows = [
        StoredRow(topic.name, None, None)
        if sums is None
        else StoredRow(topic.name, sums.size, _storage(sums.size, prices))
        for topic, sums in sums_of(machine, found)
    ]
    return PageOfRows(rows, page.asked, page.found, page.total)
