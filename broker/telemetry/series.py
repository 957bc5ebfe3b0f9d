"""What clients pushed, as series for Prometheus: one of each metric, client and set of attributes. Pure.

What holds:

* Counters of delta temporality are summed up for as long as their client is known here; a cumulative one
  is what the client says. Both begin anew with another agent, as Prometheus expects of counters.
* All series together take at most `telemetry.metrics.bytes`, in shares by address, and the page of them
  about as much. What is beyond is left out and counted, and so is what would make the page one that
  cannot be read: two metrics of one name, or one that changes its kind.
* A client's series go with it.

A name is `kafka_client_` and OTLP's, without Kafka's own beginning, and with `_` for what Prometheus does
not take. Labels are the client's (`labels_of`), and the attributes of the point; help is OTLP's name.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

from broker.calls.shares import Owner, may_take
from broker.telemetry.instances import Instance
from broker.telemetry.otlp import TEXT_CHARACTERS_MAX, Buckets, Kind, Point, Reading
from protocol.slices import Sliced

SERIES_BYTES: Final = 150
"""Of one, besides its name and labels."""
FAMILY_BYTES: Final = 400
"""More of the first of a metric, besides names."""
SLICE_POINTS: Final = 200
"""Taken, or told, in one slice."""
PREFIX: Final = "kafka_client_"
_KAFKAS: Final = "org.apache.kafka."
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_]")
CLIENT_LABELS: Final = ("client_instance_id", "client_id", "client_software_name")
_TAKEN: Final = frozenset({*CLIENT_LABELS, "le"})
"""Labels that no attribute can be."""
LABEL_CHARACTERS_MAX: Final = 100
"""Of a label's name, which is cut."""
_OF_HISTOGRAMS: Final = ("_bucket", "_sum", "_count")

Value = float | tuple[float, Buckets]
"""Of a histogram its sum, too."""


def name_of(metric: str, kind: Kind) -> str:
    """What a metric is called here."""
    name = PREFIX + _OTHER.sub("_", metric.removeprefix(_KAFKAS))
    return f"{name}_total" if kind is Kind.COUNTER and not name.endswith("_total") else name


def labels_of(client_instance_id: str, client_id: str, client_software_name: str) -> bytes:
    """The labels of all series of a client."""
    texts = (client_instance_id, client_id[:TEXT_CHARACTERS_MAX], client_software_name)
    return ",".join(map(_label, CLIENT_LABELS, texts)).encode()


def _label(name: str, text: str) -> str:
    for character, written in (("\\", r"\\"), ("\n", r"\n"), ('"', r"\"")):
        text = text.replace(character, written)
    return f'{name}="{text}"'


def _labels(instance: Instance, point: Point) -> bytes:
    named = {}
    for key, text in sorted(point.attributes):
        name = _OTHER.sub("_", key[:LABEL_CHARACTERS_MAX]).lstrip("_")
        if name and not name[0].isdigit() and name not in _TAKEN:
            named[name] = text
    return b",".join([instance.labels, *(_label(*each).encode() for each in named.items())])


class _Family:
    """One metric of all clients."""

    __slots__ = ("kind", "metric", "series")

    def __init__(self, metric: str, kind: Kind) -> None:
        self.metric = metric
        """As OTLP calls it."""
        self.kind = kind
        self.series: dict[bytes, Value] = {}
        """By their labels."""


class Series:
    """All of an agent."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes_used = 0
        self.count = 0
        self._families: dict[str, _Family] = {}
        self._of_clients: dict[bytes, dict[tuple[str, bytes], int]] = {}
        """By instance id: names and labels of its series, and what each takes."""
        self._held: dict[Owner, int] = {}

    def take(self, instance: Instance, points: Iterable[Point], reading: Reading) -> Sliced[None]:
        """Have points count for their client; `reading` is told what had to be left out."""
        mine = self._of_clients.setdefault(instance.instance_id, {})
        for number, point in enumerate(points, 1):
            reason = self._take(instance, mine, point)
            if reason is not None:
                reading.leave_out(reason)
            if number % SLICE_POINTS == 0:
                yield
                if self._of_clients.get(instance.instance_id) is not mine:
                    return  # It has gone meanwhile.

    def forget(self, instance: Instance) -> None:
        """A client has gone."""
        for (name, labels), size in self._of_clients.pop(instance.instance_id, {}).items():
            family = self._families[name]
            del family.series[labels]
            if not family.series:
                del self._families[name]
            self._charge(instance.owner, -size)
            self.count -= 1

    def text(self) -> Iterator[bytes]:
        """Prometheus' text format, a slice of it at a time; series may come and go meanwhile."""
        for name, family in sorted(self._families.items()):
            yield f"# HELP {name} {family.metric}\n# TYPE {name} {family.kind.value}\n".encode()
            lines: list[bytes] = []
            for labels, value in list(family.series.items()):
                lines += _lines(name.encode(), labels, value)
                if len(lines) >= SLICE_POINTS:
                    yield b"".join(lines)
                    lines = []
            yield b"".join(lines)

    def _take(
        self, instance: Instance, mine: dict[tuple[str, bytes], int], point: Point
    ) -> str | None:
        """Why a point had to be left out, in a word."""
        name, labels = name_of(point.name, point.kind), _labels(instance, point)
        family = self._families.get(name)
        if family is not None and (family.metric, family.kind) != (point.name, point.kind):
            return "conflict"
        if family is not None and labels in family.series:
            after = _after(family.series[labels], point)
            if after is None:
                return "conflict"
            family.series[labels] = after
            return None
        lines = 1 if point.buckets is None else len(point.buckets.counts) + 2
        size = SERIES_BYTES + lines * (len(name) + len(labels))
        if family is None:
            if self._is_taken(name, point.kind):
                return "conflict"
            size += FAMILY_BYTES + len(name)
        if not self._has_room(instance.owner, size):
            return "room"
        family = self._families.setdefault(name, _Family(point.name, point.kind))
        family.series[labels] = (
            point.value if point.buckets is None else (point.value, point.buckets)
        )
        mine[name, labels] = size
        self._charge(instance.owner, size)
        self.count += 1
        return None

    def _is_taken(self, name: str, kind: Kind) -> bool:
        """Whether a series of a new metric would be called as one of another."""
        if kind is Kind.HISTOGRAM:
            return any(name + ending in self._families for ending in _OF_HISTOGRAMS)
        bases = [name.removesuffix(ending) for ending in _OF_HISTOGRAMS if name.endswith(ending)]
        families = filter(None, map(self._families.get, bases))
        return any(family.kind is Kind.HISTOGRAM for family in families)

    def _has_room(self, owner: Owner, size: int) -> bool:
        used = self.bytes_used
        return may_take(self._held.get(owner, 0), size, used=used, most=self._bytes_max)

    def _charge(self, owner: Owner, size: int) -> None:
        self.bytes_used += size
        held = self._held.get(owner, 0) + size
        if held:
            self._held[owner] = held
        else:
            del self._held[owner]


def _after(before: Value, point: Point) -> Value | None:
    """What a series is after a point; None: its histogram has other buckets than before."""
    if isinstance(before, tuple):
        assert point.buckets is not None
        total, (bounds, counts) = before
        if bounds != point.buckets.bounds:
            return None
        if not point.is_delta:
            return point.value, point.buckets
        summed = tuple(map(sum, zip(counts, point.buckets.counts, strict=True)))
        return total + point.value, Buckets(bounds, summed)
    return before + point.value if point.is_delta else point.value


def _lines(name: bytes, labels: bytes, value: Value) -> list[bytes]:
    if not isinstance(value, tuple):
        return [b"%b{%b} %b\n" % (name, labels, _number(value))]
    total, (bounds, counts) = value
    lines = []
    count = 0
    for bound, more in zip((*bounds, math.inf), counts, strict=True):
        count += more
        lines.append(b'%b_bucket{%b,le="%b"} %d\n' % (name, labels, _number(bound), count))
    lines.append(b"%b_sum{%b} %b\n" % (name, labels, _number(total)))
    lines.append(b"%b_count{%b} %d\n" % (name, labels, count))
    return lines


def _number(value: float) -> bytes:
    if math.isfinite(value):
        return repr(value).encode()
    return b"NaN" if math.isnan(value) else b"+Inf" if value > 0 else b"-Inf"
