"""What goes in and out now, and how long answers take: from counters that were read at several times. Pure.

Rates are between the newest reading and one some seconds before; a curve has a point between each two readings. A time
that answers take is a bound of the histogram of answers (`broker.node.LATENCY_BUCKETS`): half of them took no longer
than the first, 99 of a hundred no longer than the second.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from broker.reports.cost_report import Metrics

LATENCY: Final = "frazil_request_seconds"
NUMBERS: Final = frozenset(
    {
        "frazil_produce_records",
        "frazil_produce_bytes",
        "frazil_fetch_bytes",
        "frazil_requests",
        "frazil_connections",
        LATENCY,
    }
)
"""That the page is made of."""
WINDOW_MS: Final = 10_000
"""Rates are of this long before the newest reading."""
LONGEST_MS: Final = 131_072.0
"""In a curve; the last bound of the histogram is none."""
WIDTH: Final = 300
HEIGHT: Final = 48


class Reading(NamedTuple):
    """The numbers of one time."""

    at_ms: int
    numbers: Metrics


class Curve(NamedTuple):
    """A curve in a box of WIDTH and HEIGHT."""

    points: str
    """Of SVG's `polyline`; "": there are fewer than two."""
    most: float


NO_CURVE: Final = Curve("", 0.0)


class Flow(NamedTuple):
    """What goes on a second."""

    name: str
    rate: float | None
    """None: it was read once only."""
    curve: Curve
    is_bytes: bool


class Latency(NamedTuple):
    """Of the answers of one API."""

    api: str
    p50_ms: float | None
    """None: nothing was answered."""
    p99_ms: float | None
    answers: int
    curve: Curve
    """Of p99."""


class LiveView(NamedTuple):
    """What the page shows."""

    seconds: float
    """That the curves are of."""
    flows: tuple[Flow, ...]
    latencies: tuple[Latency, ...]
    connections: int


_FLOWS: Final = (
    ("Records in", "frazil_produce_records", False),
    ("Bytes in", "frazil_produce_bytes", True),
    ("Bytes out", "frazil_fetch_bytes", True),
    ("Requests", "frazil_requests", False),
)


def live_view(readings: Sequence[Reading]) -> LiveView:
    """`readings`: in order of time, at least one."""
    first, last = readings[0], readings[-1]
    return LiveView(
        seconds=(last.at_ms - first.at_ms) / 1000,
        flows=tuple(_flow(readings, name, of, is_bytes=is_bytes) for name, of, is_bytes in _FLOWS),
        latencies=tuple(_latency(readings, api) for api in ("Produce", "Fetch")),
        connections=int(_sum(last, "frazil_connections")),
    )


def curve_of(times_ms: Sequence[int], values: Sequence[float]) -> Curve:
    """From the first time to the last; the highest value touches the top, and 0 the bottom."""
    most = max(values, default=0.0)
    if len(values) < 2:
        return Curve("", most)
    span, top = max(1, times_ms[-1] - times_ms[0]), most or 1.0
    points = (
        f"{(at - times_ms[0]) * WIDTH / span:.1f},{HEIGHT - 1 - value * (HEIGHT - 2) / top:.1f}"
        for at, value in zip(times_ms, values, strict=True)
    )
    return Curve(" ".join(points), most)


def _flow(readings: Sequence[Reading], name: str, metric: str, *, is_bytes: bool) -> Flow:
    pairs = list(pairwise(readings))
    rates = [_rate(before, after, metric) for before, after in pairs]
    curve = curve_of([after.at_ms for _, after in pairs], rates)
    since = _since(readings)
    rate = None if since is None else _rate(since, readings[-1], metric)
    return Flow(name, rate, curve, is_bytes)


def _latency(readings: Sequence[Reading], api: str) -> Latency:
    since, last = _since(readings), readings[-1]
    pairs = list(pairwise(readings))
    found = [_percentile(_answers(before, after, api), 0.99) or 0.0 for before, after in pairs]
    p99 = [min(each, LONGEST_MS) for each in found]
    answers = [] if since is None else _answers(since, last, api)
    return Latency(
        api,
        _percentile(answers, 0.5),
        _percentile(answers, 0.99),
        int(answers[-1][1]) if answers else 0,
        curve_of([after.at_ms for _, after in pairs], p99),
    )


def _since(readings: Sequence[Reading]) -> Reading | None:
    """What the newest is compared with: the oldest in WINDOW_MS, or the one before it."""
    last = readings[-1]
    return next(
        (each for each in readings[:-1] if last.at_ms - each.at_ms <= WINDOW_MS),
        readings[-2] if len(readings) > 1 else None,
    )


def _rate(before: Reading, after: Reading, metric: str) -> float:
    """A second; a counter that began anew counts from nothing."""
    now, then = _sum(after, metric), _sum(before, metric)
    return (now - then if now >= then else now) * 1000 / max(1, after.at_ms - before.at_ms)


def _sum(reading: Reading, metric: str) -> float:
    """Over all labels."""
    return sum([number for (name, _), number in reading.numbers.items() if name == metric])


def _answers(before: Reading, after: Reading, api: str) -> list[tuple[float, float]]:
    """Bounds in ms, in order, and how many answers between the readings took no longer."""
    found = []
    for (name, labels), number in after.numbers.items():
        said = dict(labels)
        if name == f"{LATENCY}_bucket" and said.get("api") == api:
            then = before.numbers.get((name, labels), 0.0)
            found.append((float(said["le"]) * 1000, number - then if number >= then else number))
    return sorted(found)


def _percentile(answers: Sequence[tuple[float, float]], part: float) -> float | None:
    """The bound under which so many of them lie; None: there are none."""
    count = answers[-1][1] if answers else 0.0
    if not count:
        return None
    return next(bound for bound, total in answers if total >= part * count)
