"""The table and the plot of an overload."""

from xml.etree import ElementTree as ET

from tests.harm.canary import Account
from tests.harm.overload.steps import Probes, Run, Seen
from tests.harm.overload.told import plot, table

MiB = 1 << 20
SVG = "{http://www.w3.org/2000/svg}"


def seen(factor: float, *, errors: dict[str, int] | None = None) -> Seen:
    produce = {"errors": errors or {}}
    return Seen(
        factor=factor,
        offered=1000 * factor,
        offered_bytes=0.0,
        served=min(1000.0, 1000 * factor),
        kinds={"produce": produce},
        canary=Account(acknowledged=600, ack_p50=20.0 * factor, ack_p99=40.0 * factor),
        probes=Probes(count=20, longest=7.5),
        memory=200 * MiB,
        stall_ms=0.0,
        agent_busy=0.9,
        agent_waited=0.0,
        load_busy=0.2,
        drained_s=0.5,
    )


def run_of(*steps: Seen) -> Run:
    return Run(
        name="dev",
        connections=5000,
        addresses=10,
        bears=1000.0,
        unloaded=Account(acknowledged=400, ack_p50=5.0, ack_p99=12.0),
        memory_before=150 * MiB,
        memory_bound=1800 * MiB,
        steps=[*steps],
        recovered_s=2.5,
        recovery=[],
    )


def test_a_table_has_a_row_for_the_unloaded_agent_and_for_each_step() -> None:
    told = table(run_of(seen(1.0), seen(10.0)))
    assert "| none | 0 | 0 | 5.0 / 12.0 ms | | 150 MiB | | |" in told
    assert "| 10 x | 10,000 | 1,000 | 200.0 / 400.0 ms | 7.5 ms | 200 MiB | 90% | nothing |" in told
    assert "as before 2.5 s later" in told
    assert "Memory bound: 1800 MiB" in told


def test_what_was_refused_is_in_the_table() -> None:
    assert "| produce: error 6 x 31 |" in table(run_of(seen(2.0, errors={"error 6": 31})))


def test_a_plot_has_three_panels_for_each_run_and_colours_for_the_dark() -> None:
    text = plot([run_of(seen(0.5), seen(1.0), seen(10.0)), run_of(seen(1.0), seen(2.0))])
    root = ET.fromstring(text)
    panels = root.findall(f"{SVG}g")
    assert len(panels) == 6
    lines = [len(panel.findall(f"{SVG}path")) for panel in panels]
    assert lines == [2, 3, 2] * 2
    assert "prefers-color-scheme: dark" in text


def test_what_is_larger_lies_higher_in_a_plot() -> None:
    root = ET.fromstring(plot([run_of(seen(1.0), seen(10.0))]))
    offered = root.findall(f"{SVG}g")[0].findall(f"{SVG}path")[0].attrib["d"]
    first, last = (float(point.split()[1]) for point in offered.removeprefix("M").split(" L"))
    assert last < first
