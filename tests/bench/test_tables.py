"""What benchmarks make of figures: medians, spreads, ratios turn by turn, tables and plots."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import tables
from tests.bench.__main__ import chosen, write
from tests.bench.case import Result
from tests.bench.cases import SECTIONS, Head, Produce
from tests.bench.report import ORDER
from tests.bench.sides import DEV, FLOOR, KAFKA, Cost

PRODUCE = next(section for section in SECTIONS if section.title == "Produce")


def result() -> Result:
    turns = {
        FLOOR: [
            {"CPU": 2.0, "MB/s": 100.0},
            {"CPU": 4.0, "MB/s": 90.0},
            {"CPU": 3.0, "MB/s": 95.0},
        ],
        KAFKA: [{"CPU": 8.0, "MB/s": 50.0}, {"CPU": 8.0, "MB/s": 50.0}, {"CPU": 6.0, "MB/s": 55.0}],
        DEV: [{"CPU": 4.0, "MB/s": 50.0}, {"CPU": 16.0, "MB/s": 45.0}, {"CPU": 6.0, "MB/s": 44.0}],
    }
    return Result(Produce(16 << 10, 64), turns)


def test_a_ratio_is_the_median_of_the_turns_ratios_and_not_the_ratio_of_medians() -> None:
    assert result().ratio(DEV, KAFKA, "CPU") == (1.0, 0.5, 2.0)  # 6 / 8 by the medians.


def test_a_side_without_a_figure_has_an_empty_cell_and_no_ratio() -> None:
    short = replace(result(), turns={**result().turns, DEV: []})
    assert short.of(DEV, "CPU") is None
    assert short.ratio(DEV, KAFKA, "CPU") is None
    assert "| CPU s/GB | 3.00 (2.00 to 4.00) | 8.00 (6.00 to 8.00) |  |  |  |" in tables.table(
        PRODUCE, [short]
    )


def test_a_table_has_a_row_for_each_figure_with_spread_and_ratios() -> None:
    rows = tables.table(PRODUCE, [result()]).splitlines()
    assert rows[0] == "| case | figure | floor | Kafka | frazil dev | dev ÷ floor | dev ÷ Kafka |"
    assert rows[2].endswith(
        "| 6.00 (4.00 to 16.00) | **2.00** (2.00 to 4.00) | **1.00** (0.50 to 2.00) |"
    )
    assert [row.split(" | ")[1] for row in rows[2:]] == ["CPU s/GB", "MB/s"]


def test_a_plot_has_a_bar_for_each_side_and_is_well_formed() -> None:
    drawn = ET.fromstring(tables.plot(PRODUCE, [result(), result()]))
    bars = list(drawn.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(bars) == 3 + 2 * 3  # With those of the legend.


def test_each_case_has_a_name_of_its_own_and_each_section_its_place_in_the_report() -> None:
    names = [case.name for section in SECTIONS for case in section.cases]
    assert len(names) == len(set(names))
    assert [section.title for section in SECTIONS if section.title not in ORDER] == []


def test_a_section_is_written_whole_with_its_plot_beside_it(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    out = tmp_path / "BENCHMARKS.md"
    write(PRODUCE, [result()], out)
    text = out.read_text()
    (image,) = re.findall(r"!\[.*\]\((.*)\)", text)
    assert ET.parse(tmp_path / image).getroot().tag.endswith("svg")
    assert tables.table(PRODUCE, [result()]) in text


def test_only_the_named_cases_are_run() -> None:
    ((section, (case,)),) = chosen(["head-64"])
    assert (section.title, case) == ("Head", Head())


def test_a_wrong_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no case is called heads; there are .*head-64"):
        chosen(["heads"])


def test_a_mean_is_of_what_happened_in_the_turn() -> None:
    cost = Cost(counted={"puts": 4.0, "put_s": 0.2})
    assert cost.mean_ms("put_s", "puts") == 50.0
    assert Cost(counted={}).mean_ms("put_s", "puts") == 0.0
