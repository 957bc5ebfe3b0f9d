"""What a store costs: by cause and by topic, and what other settings would change. Pure.

Rates are of two looks at an agent's counters. Requests are that agent's; what topics hold and are given
is the cluster's. A chunk holds batches of many topics, so requests are shared among topics by the
bytes that are written; how many bytes those are follows from offsets and the mean size of
the records that are there.

The model of chunks: a chunk closes when nothing of it is held back any more. Without a budget that
is when half of the time of a PUT has passed, but after `BUSY_LINGER_S` at most, and not before anything has
come; with one, a 1/`puts.per.second` after the chunk before, or when it is worth its PUT. What was
counted says how far the model is from the truth, and other settings are corrected by it.

Left out: asking agents (`broker.cli.cost_tool`); what etcd costs, which nobody charges by the entry.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker.config.settings import Settings
from broker.produce.chunk_limits import chunk_limits
from broker.reports.prices import MONTH_DAYS, SOURCE, Prices
from broker.reports.tables import Cell, table
from coordinator.machine.machine import Machine
from coordinator.tables.topics import Topic
from storage.accumulator import Limits

DAY_S: Final = 86_400
GiB: Final = 1 << 30
CALLS: Final = ("put", "get", "list", "delete")
BUSY_LINGER_S: Final = Limits().busy_linger_ms / 1000
WORTHWHILE_BYTES: Final = Limits().worthwhile_bytes
BUDGETS: Final = (1, 2, 5, 10, 20, 50, 100, 1000)
LINGERS_MS: Final = (0, 20, 50, 100, 250, 1000)
_SERIES = re.compile(r"^(frazil_\w+?)(?:_total)?(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class CostsView:
    """What an agent says of costs beside its counters."""

    settings: dict[str, int]
    agents: int
    """That are live."""
    topics: Iterator[dict[str, Any]]
    """Made as they are asked for: there may be very many."""
    told: list[dict[str, Any]] = field(default_factory=list)


def costs_view(machine: Machine, settings: Settings) -> CostsView:
    return CostsView(
        settings={
            "puts_per_second": chunk_limits(settings).puts_per_second,
            "linger_ms": settings.linger_ms,
            "chunk_bytes": settings.chunk_bytes_max,
        },
        agents=len(machine.incarnations),
        topics=(_topic_view(machine, topic) for topic in list(machine.topics)),
    )


def _topic_view(machine: Machine, topic: Topic) -> dict[str, Any]:
    """What it holds now, and how many records it was ever given."""
    numbers = range(topic.partition_count)
    found = [machine.partitions.get(topic.topic_id, number) for number in numbers]
    partitions = [each for each in found if each is not None]
    return {
        "name": topic.name,
        "bytes": sum([each.data_bytes for each in partitions]),
        "records": sum([each.end_offset - each.log_start for each in partitions]),
        "ends": sum([each.end_offset for each in partitions]),
    }


Metrics = Mapping[tuple[str, frozenset[tuple[str, str]]], float]
"""By the name without `_total`, and the labels."""


class CounterReading(NamedTuple):
    """An agent's numbers at one time."""

    time_s: float
    metrics: Metrics
    view: Mapping[str, Any]
    """What `/costs` answered."""


def metrics_of(text: str) -> Metrics:
    """Numbers of Prometheus' text format, those of the agent itself."""
    return {
        (name, frozenset(_LABEL.findall(labels))): float(value)
        for name, labels, value in _SERIES.findall(text)
    }


class _Rates:
    """What happened between two looks, a second."""

    def __init__(self, before: CounterReading, after: CounterReading) -> None:
        self.seconds = after.time_s - before.time_s
        assert self.seconds > 0
        self.settings: Mapping[str, int] = after.view["settings"]
        self.agents: int = after.view["agents"]
        self._before, self._after = before.metrics, after.metrics
        self.causes = sorted(
            {dict(labels)["cause"] for _, labels in after.metrics if "cause" in dict(labels)}
        )
        self.topics = self._topics(before.view["topics"], after.view["topics"])

    def of(self, name: str, **labels: str) -> float:
        """Of a counter; one that began anew counts from nothing."""
        key = (name, frozenset(labels.items()))
        now, then = self._after.get(key, 0.0), self._before.get(key, 0.0)
        return (now - then if now >= then else now) / self.seconds

    def _topics(
        self, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
    ) -> list[tuple[str, float, int]]:
        """Name, bytes written a second, bytes held; those that have or get any."""
        ends = {each["name"]: each["ends"] for each in before}
        topics = []
        for each in after:
            come = max(0, each["ends"] - ends.get(each["name"], 0))
            mean = each["bytes"] / each["records"] if each["records"] else 0.0
            if come or each["bytes"]:
                topics.append((each["name"], come * mean / self.seconds, each["bytes"]))
        return topics


class ChunkLoad(NamedTuple):
    """What a model of chunks knows of an agent; of one second."""

    bytes_written: float
    requests: float
    """Of producers, that brought something."""
    put_s: float
    """How long one takes."""
    chunk_bytes_max: int


def chunk_gap_s(load: ChunkLoad, *, puts_per_second: int, linger_ms: int) -> float:
    """From one chunk to the next, by the model. There must be a load."""
    unbound = max(linger_ms / 1000, min(load.put_s / 2, BUSY_LINGER_S), 1 / load.requests)
    budget = min(1 / puts_per_second, WORTHWHILE_BYTES / load.bytes_written)
    return min(max(unbound, budget), load.chunk_bytes_max / load.bytes_written)


def report(before: CounterReading, after: CounterReading, prices: Prices) -> dict[str, Any]:
    """Everything that the tables show, and no more. Amounts are USD."""
    rates = _Rates(before, after)
    causes = [_cause(rates, cause, prices) for cause in rates.causes]
    requests_day = sum([each["usd_a_day"] for each in causes])
    return {
        "prices": {**prices._asdict(), "source": SOURCE if prices == Prices() else "given"},
        "seconds": rates.seconds,
        "agents": rates.agents,
        "causes": [each for each in causes if any(each[name] for name in each if name != "cause")],
        "requests_usd_a_day": requests_day,
        "topics": _topics(rates, requests_day, prices),
        "settings": dict(rates.settings),
        "others": _others(rates, prices),
    }


def _cause(rates: _Rates, cause: str, prices: Prices) -> dict[str, Any]:
    calls = {call: rates.of("frazil_store_requests", cause=cause, call=call) for call in CALLS}
    a_second = (calls["put"] + calls["list"]) * prices.put_1000 + calls["get"] * prices.get_1000
    return {
        "cause": cause,
        **{f"{call}s_a_second": rate for call, rate in calls.items()},
        "bytes_written_a_second": rates.of("frazil_store_bytes", cause=cause, way="written"),
        "bytes_read_a_second": rates.of("frazil_store_bytes", cause=cause, way="read"),
        "log_writes_a_second": rates.of("frazil_log_writes", cause=cause),
        "usd_a_day": a_second / 1000 * DAY_S,
    }


def _topics(rates: _Rates, requests_day: float, prices: Prices) -> list[dict[str, Any]]:
    written = sum([each[1] for each in rates.topics])
    rows = []
    for name, come, held in sorted(rates.topics, key=lambda each: (-each[1], -each[2], each[0])):
        share = requests_day * come / written if written else 0.0
        storage = held / GiB * prices.gib_month / MONTH_DAYS
        rows.append(
            {
                "topic": name,
                "bytes_written_a_second": come,
                "bytes": held,
                "requests_usd_a_day": share,
                "storage_usd_a_day": storage,
                "requests_usd_a_gib": share / (come * DAY_S / GiB) if come else None,
            }
        )
    return rows


def _others(rates: _Rates, prices: Prices) -> list[dict[str, Any]]:
    """What producing would cost by other settings, one changed at a time; nothing without a load."""
    settings, puts = rates.settings, rates.of("frazil_store_requests", cause="produce", call="put")
    load = ChunkLoad(
        rates.of("frazil_store_bytes", cause="produce", way="written"),
        rates.of("frazil_requests", api="Produce"),
        rates.of("frazil_store_put_seconds") / puts if puts else 0.0,
        settings["chunk_bytes"],
    )
    if not puts or not load.bytes_written or not load.requests:
        return []
    budget, linger_ms = settings["puts_per_second"], settings["linger_ms"]
    now_s = chunk_gap_s(load, puts_per_second=budget, linger_ms=linger_ms)
    correction = 1 / puts / now_s
    chosen = [(each, linger_ms) for each in sorted({*BUDGETS, budget})]
    chosen += [(budget, each) for each in sorted({*LINGERS_MS, linger_ms} - {linger_ms})]
    return [
        _other(
            chunk_gap_s(load, puts_per_second=budget, linger_ms=linger_ms) * correction,
            {"puts_per_second": budget, "linger_ms": linger_ms},
            load,
            prices,
        )
        for budget, linger_ms in chosen
    ]


def _other(
    gap_s: float, settings: dict[str, int], load: ChunkLoad, prices: Prices
) -> dict[str, Any]:
    usd_a_day = DAY_S / gap_s * prices.put_1000 / 1000
    return settings | {
        "chunk_every_ms": gap_s * 1000,
        "puts_a_second": 1 / gap_s,
        "usd_a_day": usd_a_day,
        "usd_a_gib": usd_a_day / (load.bytes_written * DAY_S / GiB),
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """The report, for people."""
    prices = found["prices"]
    told = (
        f"prices, USD: {prices['put_1000']:g} for 1,000 PUT or LIST, {prices['get_1000']:g} for 1,000"
        f" GET, {prices['gib_month']:g} a GiB and month; DELETE and traffic within a region are free"
        f" ({prices['source']})"
    )
    requests = (
        f"requests of this agent (of {found['agents']}) in {found['seconds']:.0f} s, by cause:"
        f" ${found['requests_usd_a_day']:.2f} a day"
    )
    said = [
        told,
        requests,
        "",
        *table(_CAUSES, [_cause_row(each) for each in found["causes"]]),
        "",
        "topics; requests are shared by bytes written:",
        "",
        *table(_TOPICS, [_topic_row(each) for each in found["topics"]]),
    ]
    if not found["others"]:
        return [*said, "", "nothing is being written, so other settings cannot be weighed"]
    settings = found["settings"]
    now = (settings["puts_per_second"], settings["linger_ms"])
    rows = [_other_row(each, now) for each in found["others"]]
    return [*said, "", "chunks by other settings, by a model:", "", *table(_OTHERS, rows)]


_CAUSES: Final = (
    *("CAUSE", "PUT/S", "GET/S", "LIST/S", "DELETE/S", "WRITTEN/S", "READ/S"),
    *("LOG-WRITES/S", "$/DAY"),
)
_TOPICS: Final = ("TOPIC", "WRITTEN/S", "STORED", "REQUESTS-$/DAY", "STORAGE-$/DAY", "$/GIB")
_OTHERS: Final = (
    *("PUTS.PER.SECOND", "CHUNK.LINGER.MS", "CHUNK-EVERY-MS", "PUT/S", "$/DAY", "$/GIB", ""),
)


def _cause_row(each: Mapping[str, Any]) -> list[Cell]:
    return [
        each["cause"],
        *(f"{each[f'{call}s_a_second']:.2f}" for call in CALLS),
        _size(each["bytes_written_a_second"]),
        _size(each["bytes_read_a_second"]),
        f"{each['log_writes_a_second']:.2f}",
        f"{each['usd_a_day']:.4f}",
    ]


def _topic_row(each: Mapping[str, Any]) -> list[Cell]:
    a_gib = each["requests_usd_a_gib"]
    return [
        each["topic"],
        _size(each["bytes_written_a_second"]),
        _size(each["bytes"]),
        f"{each['requests_usd_a_day']:.4f}",
        f"{each['storage_usd_a_day']:.4f}",
        None if a_gib is None else f"{a_gib:.4f}",
    ]


def _other_row(each: Mapping[str, Any], now: tuple[int, int]) -> list[Cell]:
    budget, linger_ms = each["puts_per_second"], each["linger_ms"]
    return [
        budget,
        linger_ms,
        round(each["chunk_every_ms"]),
        f"{each['puts_a_second']:.1f}",
        f"{each['usd_a_day']:.3f}",
        f"{each['usd_a_gib']:.4f}",
        "now" if (budget, linger_ms) == now else "",
    ]


def _size(size: float) -> str:
    """With three digits or so: 1.23 MiB."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.3g} {units[0]}"
