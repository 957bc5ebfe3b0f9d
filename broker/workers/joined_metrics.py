"""The metrics of several agents of one machine, as one page in Prometheus' text format. Pure.

    our counters, histograms        ──▶ summed over the workers, and over the lives of each
    gauges, and what clients pushed ──▶ side by side, with the label `worker`

What holds: no sum ever falls while the supervisor lives. What a worker counted before it died was told to
somebody, so it stays in the sum; without that a restart of one worker would look to `rate()` as if all had
begun anew, and what the others have counted would count twice. A client counts for itself, and has
told more than one worker when it has gone from one to another, so its counters are not summed.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

LABEL: Final = "worker"
SUMMED: Final = ("counter", "histogram")
OURS: Final = ("frazil_", "process_", "python_")
"""What names of metrics begin with that workers count themselves."""
UP: Final = "frazil_worker_up"
STARTS: Final = "frazil_worker_starts_total"
NAMES: Final = (UP, STARTS)
"""Of the supervisor's own metrics."""
_PAIRS: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(slots=True)
class Family:
    """A metric."""

    help: str
    type: str
    samples: dict[str, float] = field(default_factory=dict)
    """By name and labels, as they are written."""


Page = dict[str, Family]


def parse(text: str) -> Page:
    """A page as `prometheus_client` and `broker.telemetry.series` write it; what cannot be read is left out."""
    page: Page = {}
    helped = ("", "")
    family: Family | None = None
    # Not `splitlines`: what clients call themselves may have its other breaks (U+2028) in it.
    for line in text.split("\n"):
        if line.startswith("# HELP "):
            name, _, told = line[7:].partition(" ")
            helped = (name, told)
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            family = page.setdefault(name, Family(helped[1] if helped[0] == name else "", kind))
        elif line and family is not None and not line.startswith("#"):
            key, _, value = line.rpartition(" ")
            number = _number(value)
            if key and number is not None:
                family.samples[key] = number
    return page


class JoinedMetrics:
    """What all workers have told so far."""

    def __init__(self, names: Iterable[str]) -> None:
        self._told: dict[str, Page] = {name: {} for name in names}
        """Of the present life of each, newest page."""
        self._silent: set[str] = set(self._told)
        """Whose gauges are not known."""
        self._past: Page = {}
        """Counted by lives that have ended."""
        self._starts = dict.fromkeys(self._told, 0)

    def started(self, name: str) -> None:
        self._starts[name] += 1

    def take(self, name: str, text: str | None) -> None:
        """What a worker told; None: it did not answer."""
        page = parse(text) if text else {}
        if page:
            self._told[name] = page
            self._silent.discard(name)
        else:
            self._silent.add(name)

    def ended(self, name: str) -> None:
        """A worker's life is over: its counters begin at 0 again."""
        for metric, family in self._told[name].items():
            if _is_summed(metric, family):
                _add(self._past, metric, family)
        self._told[name] = {}
        self._silent.add(name)

    def page(self) -> str:
        joined: Page = {}
        for name, page in self._told.items():
            for metric, family in page.items():
                if _is_summed(metric, family):
                    _add(joined, metric, family)
                elif name not in self._silent:
                    told = joined.setdefault(metric, Family(family.help, family.type))
                    told.samples |= {
                        labelled(key, name): value for key, value in family.samples.items()
                    }
        for metric, family in self._past.items():
            _add(joined, metric, family)
        return _text(joined | self._own())

    def _own(self) -> Page:
        up = Family("Whether a worker of this machine answers.", "gauge")
        up.samples = {labelled(UP, name): float(name not in self._silent) for name in self._told}
        starts = Family("Times that a worker's process was started.", "counter")
        starts.samples = {
            labelled(STARTS, name): float(count) for name, count in self._starts.items()
        }
        return {UP: up, STARTS: starts}


def labelled(key: str, worker: str) -> str:
    """The sample with the label of its worker. One of that name, which a client has pushed, is renamed
    as Prometheus would: twice the same name would make the page unreadable."""
    name, brace, labels = key.partition("{")
    if not brace:
        return f'{name}{{{LABEL}="{worker}"}}'
    if f'{LABEL}="' in labels:
        pairs = _PAIRS.findall(labels)
        labels = ",".join(
            f'exported_{each}="{text}"' if each == LABEL else f'{each}="{text}"'
            for each, text in pairs
        )
        labels += "}"
    return f'{name}{{{LABEL}="{worker}",{labels}'


def _is_summed(metric: str, family: Family) -> bool:
    return family.type in SUMMED and metric.startswith(OURS)


def _add(to: Page, metric: str, family: Family) -> None:
    sums = to.setdefault(metric, Family(family.help, family.type)).samples
    for key, value in family.samples.items():
        sums[key] = sums.get(key, 0.0) + value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _written(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def _text(page: Mapping[str, Family]) -> str:
    lines = []
    for metric, family in page.items():
        lines += [f"# HELP {metric} {family.help}", f"# TYPE {metric} {family.type}"]
        lines += [f"{key} {_written(value)}" for key, value in family.samples.items()]
    return "\n".join(lines) + "\n"
