"""One page of a run: what befell whom over what clients got, in SVG, without a script. Pure."""

import math
from collections.abc import Iterator, Sequence
from html import escape

from tests.faults.drawn.plan import ETCD, Fault
from tests.faults.drawn.recorded import Ack, Recorded

WIDTH, LEFT, RIGHT = 1000, 130, 10
LANE, PLOT, APART = 20, 110, 34
BUCKET_S = 0.5
LATENCY_S = (0.001, 100.0)
TICKS = 12
"""Of the axis of time, at most."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1040px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse } td, th { text-align: left; padding: .15em .8em .15em 0 }
td.n { text-align: right } code, pre { font: 13px monospace } pre { white-space: pre-wrap }
svg { width: 100%; height: auto } text { font: 11px sans-serif; fill: currentColor }
.grid { stroke: currentColor; stroke-opacity: .18 } .heal { stroke: currentColor; stroke-dasharray: 4 3 }
.rate { fill: #4c8f5b } .p50 { stroke: #1f6fb2; fill: none; stroke-width: 1.5 }
.most { stroke: #c2571a; fill: none; stroke-width: 1 }
.kill { fill: #b3261e } .pause { fill: #c77d0a } .cut { fill: #6a4fa3 } .half-open { fill: #3f7fbf }
.ahead { fill: #0f8a8a } .behind { fill: #0b5f73 } .drift { fill: #5aa9a0 } .wrong-start { fill: #a3324f }
.no-space { fill: #9a7d0a } .replace { fill: #2f6f4f } .log-lost { fill: #e0318c }
.full { fill: #555f6b } .slow { fill: #7a8c2e } .torn { fill: #b0457b } .lost { fill: #8a5a3c }
.good { color: #2e7d32 } .bad { color: #c62828 }
body { color: #222; background: #fff }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #16181a } .good { color: #81c784 } .bad { color: #ef9a9a }
}
"""


def page(recorded: Recorded) -> str:
    """HTML that needs nothing else."""
    wrong = recorded.wrong
    verdict = f"{len(wrong)} wrong" if wrong else "no anomaly"
    title = f"Faults of seed {recorded.seed}: {verdict}"
    style = "bad" if wrong else "good"
    stage = recorded.stage
    told = (
        f"{recorded.seconds:g} s of faults over {stage.agents} agents, {stage.members} "
        f"etcd and an S3 server."
    )
    return "\n".join(
        [
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{STYLE}</style></head><body>",
            f'<h1>Faults of seed {recorded.seed}: <span class="{style}">{verdict}</span></h1>',
            f"<p>{escape(told)} Again: <code>{escape(recorded.command)}</code></p>",
            *_list("What is wrong", wrong),
            *_timeline(recorded),
            *_faults(recorded.faults),
            *_settled(recorded),
            *_counts(recorded),
            *_list("What this run does not do", recorded.notes),
            "</body></html>\n",
        ]
    )


def _list(title: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield f"<h2>{escape(title)}</h2><ul>"
        yield from (f"<li><pre>{escape(each)}</pre></li>" for each in items)
        yield "</ul>"


def _faults(faults: Sequence[Fault]) -> Iterator[str]:
    yield "<h2>Faults</h2><table><tr><th>at</th><th>name</th><th>what</th></tr>"
    for fault in faults:
        yield (
            f'<tr><td class="n">{fault.at_s:.1f} s</td><td>{escape(fault.name)}</td>'
            f"<td>{escape(fault.told())}</td></tr>"
        )
    yield "</table>"


def _settled(recorded: Recorded) -> Iterator[str]:
    yield "<h2>After the faults</h2><table>"
    for each in recorded.settled:
        took = "never" if each.took_s is None else f"{each.took_s:.1f} s"
        yield (
            f'<tr><td>{escape(each.what)}</td><td class="n">{took}</td>'
            f"<td>of {each.within_s:g} s</td></tr>"
        )
    yield "</table>"


def _counts(recorded: Recorded) -> Iterator[str]:
    yield "<h2>Counts</h2><table>"
    for what, count in recorded.counts.items():
        yield f'<tr><td>{escape(what)}</td><td class="n">{count:,}</td></tr>'
    yield "</table>"


# The timeline: a lane for each target that was hit, then acknowledgements and their latency.


def _timeline(recorded: Recorded) -> Iterator[str]:
    targets = [
        each
        for each in (*recorded.stage.processes, ETCD, *recorded.stage.links)
        if any(fault.target == each for fault in recorded.faults)
    ]
    end_s = max([recorded.over_s, *(ack.at_s for ack in recorded.acks)])
    lanes = APART + LANE * len(targets)
    height = lanes + 2 * (PLOT + APART) + 10
    time = _Axis(end_s)
    yield (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="faults over acknowledgements and their latency">'
    )
    yield from time.grid(height)
    over = time.x(recorded.over_s)
    yield f'<line class="heal" x1="{over}" x2="{over}" y1="20" y2="{height}"/>'
    for lane, target in enumerate(targets):
        yield from _lane(time, recorded.faults, target, APART + LANE * lane)
    buckets = _buckets(recorded.acks, end_s)
    yield from _rates(time, buckets, lanes + APART)
    yield from _latencies(time, buckets, lanes + PLOT + 2 * APART)
    yield "</svg>"


class _Axis:
    """Of time."""

    def __init__(self, end_s: float) -> None:
        self._end_s = end_s

    def x(self, at_s: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * at_s / self._end_s, 1)

    def grid(self, height: float) -> Iterator[str]:
        steps = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
        step = next((each for each in steps if self._end_s / each <= TICKS), steps[-1])
        for number in range(int(self._end_s // step) + 1):
            x = self.x(number * step)
            yield f'<line class="grid" x1="{x}" x2="{x}" y1="20" y2="{height}"/>'
            yield f'<text x="{x}" y="14" text-anchor="middle">{number * step} s</text>'


def _lane(time: _Axis, faults: Sequence[Fault], target: str, y: float) -> Iterator[str]:
    yield f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(target)}</text>'
    for fault in faults:
        if fault.target == target:
            x = time.x(fault.at_s)
            width = max(2.0, round(time.x(fault.end_s) - x, 1))
            yield (
                f'<rect class="{fault.kind}" x="{x}" y="{y + 3}" width="{width}" height="{LANE - 6}" '
                f'rx="2"><title>{escape(f"{fault.name}: {fault.told()}")}</title></rect>'
            )


def _buckets(acks: Sequence[Ack], end_s: float) -> list[list[float]]:
    """The latencies of each half second, sorted."""
    buckets: list[list[float]] = [[] for _ in range(int(end_s / BUCKET_S) + 1)]
    for ack in acks:
        if ack.at_s >= 0:
            buckets[int(ack.at_s / BUCKET_S)].append(ack.latency_s)
    return [sorted(bucket) for bucket in buckets]


def _rates(time: _Axis, buckets: Sequence[Sequence[float]], top: float) -> Iterator[str]:
    most = max([1, *map(len, buckets)])
    width = max(1.0, round(time.x(BUCKET_S) - time.x(0.0) - 0.5, 1))
    yield f'<text x="{LEFT - 8}" y="{top + 10}" text-anchor="end">{most / BUCKET_S:,.0f}</text>'
    yield f'<text x="{LEFT - 8}" y="{top + PLOT}" text-anchor="end">0</text>'
    yield f'<text x="{LEFT}" y="{top - 6}">records acknowledged a second</text>'
    for number, bucket in enumerate(buckets):
        if bucket:
            high = round(PLOT * len(bucket) / most, 1)
            x = time.x(number * BUCKET_S)
            yield (
                f'<rect class="rate" x="{x}" y="{top + PLOT - high}" '
                f'width="{width}" height="{high}"/>'
            )


def _latencies(time: _Axis, buckets: Sequence[Sequence[float]], top: float) -> Iterator[str]:
    least, most = map(math.log10, LATENCY_S)
    yield f'<text x="{LEFT}" y="{top - 6}">latency of acknowledgements: the median, and the longest</text>'
    for power in range(int(least), int(most) + 1):
        y = round(top + PLOT * (most - power) / (most - least), 1)
        label = f"{10**power:g} s" if power >= 0 else f"{10 ** (power + 3):g} ms"
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{label}</text>'
    for name, share in (("most", 1.0), ("p50", 0.5)):
        steps: list[str] = []
        is_open = False
        for number, bucket in enumerate(buckets):
            if bucket:
                value = bucket[min(len(bucket) - 1, int(len(bucket) * share))]
                value_power = math.log10(min(max(value, LATENCY_S[0]), LATENCY_S[1]))
                y = round(top + PLOT * (most - value_power) / (most - least), 1)
                x = time.x((number + 0.5) * BUCKET_S)
                steps.append(f"{'L' if is_open else 'M'}{x} {y}")
            is_open = bool(bucket)
        yield f'<path class="{name}" d="{" ".join(steps)}"/>'
