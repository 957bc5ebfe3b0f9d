"""Results of cases as Markdown and as a plot that reads in light and dark."""

from collections.abc import Sequence
from html import escape

from tests.bench.case import Column, Result, Spread
from tests.bench.cases import Section
from tests.bench.sides import ALL, DEV, FLOOR, KAFKA, OTHER, S3

RATIOS = ((DEV, FLOOR), (DEV, KAFKA), (S3, KAFKA), (DEV, OTHER))
SHORT = {FLOOR: "floor", KAFKA: "Kafka", DEV: "dev", S3: "S3", OTHER: "other"}
LEFT, WIDTH, RIGHT, BAR, GAP, TOP = 330, 420, 130, 11, 12, 30
CLASSES = {FLOOR: "f", KAFKA: "k", DEV: "d", S3: "s"}
STYLE = """
  text { font: 11px sans-serif; fill: #333 } .title { font-weight: bold } .axis { stroke: #999 }
  .f { fill: #999 } .k { fill: #c2571a } .d { fill: #1f6fb2 } .s { fill: #2e8b57 }
  .spread { stroke: #333; stroke-width: 1.2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #ddd } .k { fill: #f0a060 } .d { fill: #6fb6f0 } .s { fill: #6fcf97 }
    .spread { stroke: #eee }
  }"""


def number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def cell(seen: Spread | None, digits: int) -> str:
    """The median, with the spread where there is one."""
    if seen is None:
        return ""
    middle, least, most = (number(value, digits) for value in seen)
    return middle if least == most else f"{middle} ({least} to {most})"


def sides_of(results: Sequence[Result]) -> list[str]:
    return [side for side in (*ALL, OTHER) if any(side in result.turns for result in results)]


def table(section: Section, results: Sequence[Result]) -> str:
    """A row for each figure of each case: of each side, and as ratios."""
    sides = sides_of(results)
    ratios = [pair for pair in RATIOS if set(pair) <= set(sides)]
    titles = [*sides, *(f"{SHORT[one]} ÷ {SHORT[two]}" for one, two in ratios)]
    rows = [f"| case | figure | {' | '.join(titles)} |", "|---|---|" + "---|" * len(titles)]
    for result in results:
        for column in section.columns:
            cells = _cells(result, column, sides, ratios)
            if any(cells):
                rows.append(f"| {result.case.title} | {column.unit} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cells(
    result: Result, column: Column, sides: Sequence[str], ratios: Sequence[tuple[str, str]]
) -> list[str]:
    figures = [cell(result.of(side, column.name), column.digits) for side in sides]
    for one, two in ratios:
        seen = result.ratio(one, two, column.name) if column.has_ratio else None
        figures.append(
            f"**{seen.middle:.2f}** ({seen.least:.2f} to {seen.most:.2f})" if seen else ""
        )
    return figures


def plot(section: Section, results: Sequence[Result]) -> str:
    """An SVG of the first column: a bar for each side of each case, from the least to the most a
    line across its end."""
    column, sides = section.columns[0], sides_of(results)
    seen = {
        (at, side): spread
        for at, result in enumerate(results)
        for side in sides
        if (spread := result.of(side, column.name)) is not None
    }
    most = max([spread.most for spread in seen.values()] or [1.0]) or 1.0
    parts, y = [_legend(column, sides)], TOP + 20
    for at, result in enumerate(results):
        parts.append(f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">')
        parts.append(f"{escape(result.case.title)}</text>")
        for side in sides:
            if (at, side) in seen:
                parts.append(_bar(seen[at, side], CLASSES[side], y, WIDTH / most, column.digits))
                y += BAR + 2
        y += GAP
    width = LEFT + WIDTH + RIGHT
    axis = f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP + 12}" y2="{y - GAP + 4}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}">'
        f"<style>{STYLE}\n</style>\n{''.join(parts)}{axis}\n</svg>\n"
    )


def _legend(column: Column, sides: Sequence[str]) -> str:
    parts, x = [f'<text class="title" x="8" y="18">{escape(column.unit)}</text>'], LEFT
    for side in sides:
        parts.append(f'<rect class="{CLASSES[side]}" x="{x}" y="9" width="10" height="10"/>')
        parts.append(f'<text x="{x + 14}" y="18">{escape(side)}</text>')
        x += 34 + 7 * len(side)
    return "".join(parts)


def _bar(seen: Spread, style: str, y: int, scale: float, digits: int) -> str:
    width, least, most = (value * scale for value in seen)
    middle = y + BAR / 2
    return (
        f'<rect class="{style}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}"/>'
        f'<line class="spread" x1="{LEFT + least:.1f}" x2="{LEFT + most:.1f}"'
        f' y1="{middle}" y2="{middle}"/>'
        f'<text x="{LEFT + most + 6:.1f}" y="{y + 10}">{number(seen.middle, digits)}</text>'
    )
