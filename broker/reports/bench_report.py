"""What `frazil bench` prints: rates, times, and a histogram, as a table and as JSON. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.reports.group_report import count
from broker.reports.tables import Cell, table

PARTS: Final = (50.0, 90.0, 99.0, 99.9, 100.0)
"""Percentiles."""
ENDS_US: Final = tuple(int(ms * 1000) for ms in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000))
"""Of the histogram's bars."""
BAR: Final = 40
FULL: Final = 0.9
"""Of a core for each process: more of them would see more."""


class TimesView(NamedTuple):
    percentiles: Mapping[float, int | None]
    """µs, by parts of 100; None without any time."""
    bars: Sequence[int]
    """Times up to each of `ENDS_US`."""
    total: int


class RunView(NamedTuple):
    produced: float
    """Records a second, acknowledged."""
    consumed: float | None
    """None: nobody read."""
    failed: int
    acknowledged: TimesView
    read: TimesView | None
    cpu_cores: float
    """Cores that all processes of clients were busy with."""


class BenchView(NamedTuple):
    partitions: int | None
    """None: of a topic that was there."""
    producers: int
    consumers: int
    bytes: int
    acks: str
    compression: str
    seconds: float
    most: RunView
    paced_rate: float
    paced: RunView
    cores: int


def lines(view: BenchView) -> list[str]:
    """Both runs: what went at most, and how long records took at a tenth of it."""
    partitions = "" if view.partitions is None else f"{count(view.partitions, 'partition')}, "
    said = (
        f"{partitions}{count(view.producers, 'producer')}, {count(view.consumers, 'consumer')}, {view.bytes:,} bytes,"
        f" acks={view.acks}, {view.compression} compressed, {view.seconds:g} s"
    )
    rates: list[list[Cell]] = [_rate("produced", view.most.produced, view.bytes)]
    if view.most.consumed is not None:
        rates.append(_rate("consumed", view.most.consumed, view.bytes))
    found = [said.replace("none compressed", "not compressed"), ""]
    found += table(("AS FAST AS IT GOES", "RECORDS/S", "MB/S"), rates)
    used = view.most.cpu_cores
    found.append(f"its clients kept {used:.1f} of {view.cores} cores busy")
    if used >= FULL * min(view.producers + view.consumers, view.cores):
        found.append(
            "so this is what they can do, not the cluster: more --producers, or another machine, would see more"
        )
    rows = [["acknowledged", *_percentiles(view.paced.acknowledged)]]
    if view.paced.read is not None:
        rows.append(["read", *_percentiles(view.paced.read)])
    head = f"AT {view.paced_rate:,.0f} RECORDS/S, MS"
    found += ["", *table((head, "P50", "P90", "P99", "P99.9", "MAX"), rows), ""]
    return [*found, *_bars(view.paced.acknowledged)]


def _rate(name: str, rate: float, size: int) -> list[Cell]:
    return [name, f"{rate:,.0f}", f"{rate * size / 1e6:,.1f}"]


def _percentiles(times: TimesView) -> list[Cell]:
    return [None if time is None else f"{time / 1000:,.1f}" for time in times.percentiles.values()]


def _bars(times: TimesView) -> list[str]:
    """How long acknowledgements took; ends that nothing lies at or above are left out."""
    most = max(times.bars, default=0)
    shown = [place for place, n in enumerate(times.bars) if n]
    if not shown:
        return []
    rows: list[list[Cell]] = [
        [
            f"{ENDS_US[place] / 1000:,.0f}",
            f"{100 * n / times.total:.1f} %",
            "#" * round(BAR * n / most),
        ]
        for place, n in enumerate(times.bars[: shown[-1] + 1])
    ]
    return table(("UP TO MS", "ACKNOWLEDGED", ""), rows)


def bench_json(view: BenchView) -> dict[str, Any]:
    """Everything, for programs; times in ms."""
    return {**view._asdict(), "most": _run_json(view.most), "paced": _run_json(view.paced)}


def _run_json(run: RunView) -> dict[str, Any]:
    return {
        **run._asdict(),
        "acknowledged": _times_json(run.acknowledged),
        "read": None if run.read is None else _times_json(run.read),
    }


def _times_json(times: TimesView) -> dict[str, float | None]:
    return {
        f"p{part:g}": None if time is None else time / 1000
        for part, time in times.percentiles.items()
    }
