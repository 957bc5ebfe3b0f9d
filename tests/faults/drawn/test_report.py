"""The page of a run has all that was seen, and needs nothing else."""

from html.parser import HTMLParser

import pytest
from typing_extensions import override

from tests.faults.drawn.plan import KINDS, Fault, Stage
from tests.faults.drawn.recorded import Ack, Recorded, Settled
from tests.faults.drawn.report import STYLE, page

FAULTS = [
    Fault("fault1", "kill", "agent1", 2.0, 5.0),
    Fault("fault2", "slow", "agent0→s3", 4.0, 2.0, 0.1),
    Fault("fault3", "pause", "agent1", 9.0, 2.0),
]
EVERYTHING = Stage()
EMPTY_TAGS = {"meta", "line", "rect", "path"}


def recorded(*anomalies: str, took_s: float | None = 1.5, stage: Stage = EVERYTHING) -> Recorded:
    return Recorded(
        seed=17,
        seconds=12,
        stood_s=0.0,
        stage=stage,
        faults=FAULTS,
        acks=[Ack(-1.0, 0.1), *(Ack(at / 10, 0.004 * (1 + at % 7)) for at in range(140))],
        settled=[Settled("all agents are ready", 60, took_s)],
        counts={"records acknowledged": 1234567},
        anomalies=anomalies,
    )


class Parsed(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in EMPTY_TAGS:
            self.open.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY_TAGS:
            assert self.open.pop() == tag

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.found if attrs.get("class") == name]


def test_a_page_has_no_script_and_loads_nothing() -> None:
    tags = Parsed(page(recorded())).found
    assert not {tag for tag, _ in tags} & {"script", "link", "img", "iframe", "object"}
    assert not [attrs for _, attrs in tags if {"src", "href", "xlink:href"} & attrs.keys()]
    assert "url(" not in page(recorded())


def test_every_fault_is_a_bar_in_the_lane_of_its_target_at_its_time() -> None:
    parsed = Parsed(page(recorded()))
    (kill,), (slow,), (pause,) = (parsed.of_class(kind) for kind in ("kill", "slow", "pause"))
    assert kill["y"] == pause["y"] != slow["y"]
    assert float(kill["x"] or 0) < float(slow["x"] or 0) < float(pause["x"] or 0)
    assert float(kill["width"] or 0) > float(slow["width"] or 0)


def test_acknowledgements_are_bars_of_half_a_second_over_which_latencies_are_drawn() -> None:
    parsed = Parsed(page(recorded()))
    assert len(parsed.of_class("rate")) == 28
    assert len(parsed.of_class("p50")) == len(parsed.of_class("most")) == 1


def test_a_gap_of_acknowledgements_is_a_gap_of_the_line() -> None:
    run = recorded()
    acks = [ack for ack in run.acks if not 4 <= ack.at_s < 6]
    (line,) = Parsed(page(Recorded(**{**vars(run), "acks": acks}))).of_class("p50")
    assert str(line["d"]).count("M") == 2


def test_a_run_without_acknowledgements_has_a_page_too() -> None:
    run = recorded("nothing was acknowledged")
    assert "nothing was acknowledged" in page(Recorded(**{**vars(run), "acks": []}))


def test_a_page_tells_seed_command_counts_and_verdict() -> None:
    text = page(recorded())
    assert "Faults of seed 17: no anomaly" in text
    assert "make faults SEED=17 SECONDS=12" in text
    assert "1,234,567" in text
    assert "What is wrong" not in text


def test_a_page_tells_what_cannot_be_done_where_the_run_was() -> None:
    title = "What this run does not do"
    assert title not in page(recorded())
    text = page(recorded(stage=Stage(sets_clocks=False, fills_disks=False)))
    assert title in text
    assert "Wall clocks are right" in text
    assert "Disks are never full" in text
    assert "make faults SEED=17 SECONDS=12" in text


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_has_a_colour(kind: str) -> None:
    assert f".{kind} {{ fill: " in STYLE


def test_what_is_wrong_is_told_as_it_is() -> None:
    text = page(recorded("lost-write: <7>", took_s=None))
    assert "Faults of seed 17: 2 wrong" in text
    assert "lost-write: &lt;7&gt;" in text
    assert "liveness: all agents are ready: not within 60 s after the faults" in text


def test_the_same_run_has_the_same_page() -> None:
    assert page(recorded()) == page(recorded())
