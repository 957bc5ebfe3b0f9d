"""What was seen of agents under overload: as a table, and as a plot that reads in light and dark."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from tests.harm.overload.steps import Run, Seen

MiB = 1 << 20
WIDTH, HEIGHT, LEFT, TOP, APART = 270, 170, 56, 44, 52
STYLE = """
  text { font: 11px sans-serif; fill: #333 } .title { font-weight: bold }
  .axis { stroke: #999 } .grid { stroke: #999; stroke-opacity: .25 } path { fill: none; stroke-width: 2 }
  .a { stroke: #1f6fb2 } .b { stroke: #c2571a } .bound { stroke: #888; stroke-dasharray: 5 4 }
  .ta { fill: #1f6fb2 } .tb { fill: #c2571a } .tbound { fill: #777 }
  @media (prefers-color-scheme: dark) {
    text { fill: #ddd } .a { stroke: #6fb6f0 } .b { stroke: #f0a060 } .ta { fill: #6fb6f0 }
    .tb { fill: #f0a060 } .tbound { fill: #aaa } .bound { stroke: #aaa }
  }"""

PREFACE = """`python -m tests.harm.overload --write`: one agent on one core; the load (producers of 1 KiB records, five
requests in flight each; 200 groups that rejoin; readers of old data; descriptions of all topics), a canary of
100 records a second and the agent's servers share another. Multiples of what it bears are offered, whatever becomes of
what was sent before. The last column has every answer that was an error, and every connection that was closed.

![offered and served load, latency, memory](docs/overload.svg)"""

HEAD = (
    "| load | offered /s | served /s | canary p50 / p99 | probes at most | memory at most |"
    " agent's core | refused |\n|---|---|---|---|---|---|---|---|"
)


def table(run: Run) -> str:
    """What each step came to; and the sentence about before and after."""
    unloaded = run.unloaded
    before = f"{unloaded.ack_p50} / {unloaded.ack_p99} ms | | {run.memory_before // MiB} MiB"
    rows = [f"| none | 0 | 0 | {before} | | |", *map(_row, run.steps)]
    after = "not as before" if run.recovered_s is None else f"as before {run.recovered_s} s later"
    bound = "" if run.memory_bound is None else f" Memory bound: {run.memory_bound // MiB} MiB."
    title = (
        f"*{run.name}*: {run.connections:,} producers from {run.addresses} addresses; it bears"
        f" {run.bears:,.0f} produce requests a second. When the load has ended, it is {after}.{bound}"
    )
    return "\n".join([title, "", HEAD, *rows])


def _row(seen: Seen) -> str:
    canary, probes = seen.canary, seen.probes
    lost = "; ".join([*(f"{what} x {count}" for what, count in seen.errors.items()), *canary.lost])
    failed = "".join(f"; not {what}: {count}" for what, count in probes.failed.items())
    return (
        f"| {seen.factor:g} x | {seen.offered:,.0f} | {seen.served:,.0f}"
        f" | {canary.ack_p50} / {canary.ack_p99} ms | {probes.longest} ms{failed}"
        f" | {seen.memory // MiB} MiB | {seen.agent_busy:.0%} | {lost or 'nothing'} |"
    )


class Line(NamedTuple):
    name: str
    style: str
    values: Sequence[float]


class Panel(NamedTuple):
    """One diagram: its lines over the steps; the axis of values begins at 0, or is logarithmic."""

    title: str
    lines: Sequence[Line]
    log: bool = False


def panels(run: Run) -> list[Panel]:
    steps = run.steps
    count = len(steps)
    memory = [Line("resident, most", "a", [seen.memory / MiB for seen in steps])]
    if run.memory_bound is not None:
        memory.append(Line("bound", "bound", [run.memory_bound / MiB] * count))
    return [
        Panel(
            f"{run.name}: requests a second",
            [
                Line("offered", "b", [seen.offered for seen in steps]),
                Line("served", "a", [seen.served for seen in steps]),
            ],
            log=True,
        ),
        Panel(
            "canary's acknowledgements, ms",
            [
                Line("p99", "b", [seen.canary.ack_p99 for seen in steps]),
                Line("p50", "a", [seen.canary.ack_p50 for seen in steps]),
                Line("3 x unloaded p99", "bound", [3 * run.unloaded.ack_p99] * count),
            ],
            log=True,
        ),
        Panel("memory, MiB", memory),
    ]


def plot(runs: Sequence[Run]) -> str:
    """An SVG with a row of three panels for each run, over the load as multiples of what it bears."""
    parts = []
    for row, run in enumerate(runs):
        names = [f"{seen.factor:g}x" for seen in run.steps]
        for column, panel in enumerate(panels(run)):
            x, y = LEFT + column * (WIDTH + APART), TOP + row * (HEIGHT + 2 * TOP)
            parts.append(f'<g transform="translate({x},{y})">{_panel(panel, names)}</g>')
    width, height = LEFT + 3 * (WIDTH + APART), len(runs) * (HEIGHT + 2 * TOP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
        f"<style>{STYLE}\n</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(panel: Panel, names: Sequence[str]) -> str:
    ticks, y_of = _scale(panel)
    step = WIDTH / max(1, len(names) - 1)
    parts = [f'<text class="title" x="0" y="-24">{escape(panel.title)}</text>']
    for tick in ticks:
        y = y_of(tick)
        parts.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{tick:,g}</text>')
    parts.append(f'<line class="axis" x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}"/>')
    for index, name in enumerate(names):
        x = index * step
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT + 16}" text-anchor="middle">{name}</text>')
    for index, line in enumerate(panel.lines):
        points = " L".join(f"{i * step:.1f} {y_of(v):.1f}" for i, v in enumerate(line.values))
        parts.append(f'<path class="{line.style}" d="M{points}"/>')
        parts.append(
            f'<text class="t{line.style}" x="{index * 72}" y="-8">{escape(line.name)}</text>'
        )
    return "".join(parts)


def _scale(panel: Panel) -> tuple[list[float], Callable[[float], float]]:
    """Values with a line of their own, and how high a value lies."""
    values = [value for line in panel.lines for value in line.values]
    most = max([*values, 1.0])
    if not panel.log:
        size = 10 ** math.floor(math.log10(most))
        unit = next(size * part for part in (0.2, 0.5, 1.0, 2.0) if most <= 6 * size * part)
        count = math.ceil(most / unit)
        return [unit * i for i in range(count + 1)], lambda v: HEIGHT * (1 - v / (unit * count))
    first = math.floor(math.log10(max(min(values), 0.1)))
    last = max(first + 1, math.ceil(math.log10(most)))
    ticks = [10.0**power for power in range(first, last + 1)]

    def y_of(value: float) -> float:
        return HEIGHT * (1 - (math.log10(max(value, ticks[0])) - first) / (last - first))

    return ticks, y_of
