"""What a client pushes: opened, read as OTLP, taken as series, told to Prometheus, labelled for a collector.

Whatever it is, /metrics stays a page that Prometheus' own parser reads, with each series once and all
of them `kafka_client_…`; no point of two clients meets another's; and nothing is left when they have gone.

An input is a byte for the codec and the payload, compressed when it is run: changes are changes of OTLP.
"""

import random
from collections.abc import Hashable
from functools import partial
from typing import Any, ClassVar

from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import override

from broker.calls.shares import Owner
from broker.telemetry import otlp
from broker.telemetry.instances import Instance
from broker.telemetry.series import PREFIX, Series, labels_of
from broker.telemetry.subscriptions import NOTHING
from protocol.compression import Codec, compress
from protocol.errors import ProtocolError
from protocol.slices import advance, finish
from tests.fuzz.grammar import TEXTS
from tests.fuzz.target import Target, WrongError, words
from tests.kit.otlp import CUMULATIVE, DELTA, gauge, histogram, message, number, payload, total

BYTES_MAX = 1 << 18
SERIES_BYTES_MAX = 1 << 16
NAMES = ("a.b", "a_b", "a.b.total", "h", "h.count", "h_sum", "org.apache.kafka.a.b", "1", "x" * 255)
NUMBERS = (0, 1, -1, 1.5, float("nan"), float("inf"), -float("inf"), 1e308, (1 << 63) - 1, -0.0)
KEYS = ("topic", "node_id", "client_id", "le", "__name__", "", 'a"}', "é", "client_instance_id")


def _labels(rng: random.Random) -> dict[str, Any]:
    count = rng.choice((0, 0, 1, 2, 9))
    return {rng.choice(KEYS): rng.choice((*TEXTS, 1, True, 0.5, b"x")) for _ in range(count)}


def _metric(rng: random.Random) -> Any:
    name = rng.choice(NAMES if rng.random() < 0.9 else TEXTS)
    value, labels = rng.choice(NUMBERS), _labels(rng)
    temporality = rng.choice((DELTA, DELTA, CUMULATIVE, 0))
    match rng.randrange(5):
        case 0:
            made = gauge("", value)
        case 1 | 2:
            points = [
                number(rng.choice(NUMBERS), rng.randrange(2)) for _ in range(rng.randrange(4))
            ]
            made = total("", *points, temporality=temporality, is_monotonic=rng.random() < 0.7)
        case 3:
            bounds = sorted({float(rng.randrange(9)) for _ in range(rng.randrange(6))})
            counts = [rng.choice((0, 1, (1 << 64) - 1)) for _ in range(len(bounds) + 1)]
            made = histogram("", bounds, counts, float(value), temporality=temporality)
        case _:
            made = message("Metric", summary=message("Untold", data_points=[number(1)]))
    made.name = name
    for points in (made.gauge, made.sum, made.histogram):
        for point in points.data_points:
            point.attributes.extend(number(0, **labels).attributes)
    return made


class Telemetry(Target):
    name: ClassVar[str] = "telemetry"

    @override
    def generate(self, rng: random.Random) -> bytes:
        metrics = [_metric(rng) for _ in range(rng.choice((1, 2, 5, 20)))]
        return bytes((rng.randrange(len(Codec)),)) + payload(*metrics, **_labels(rng))

    @override
    def run(self, data: bytes) -> Hashable:
        codec = data[0] % len(Codec) if data else 0
        self.stood_ms = 0.0
        try:
            work = otlp.opened(codec, compress(codec, data[1:]), bytes_max=BYTES_MAX)
            while (ended := self.timed(partial(advance, work))) is None:
                pass
        except ProtocolError as error:
            return words(error)
        reading = ended.result.reading
        if bytes(ended.result.data) != data[1:]:
            raise WrongError("it was inflated to something else")
        try:
            labelled = otlp.labelled(data[1:], {"client_id": "é" * 40})
        except ProtocolError as error:
            return words(error)
        if repr(finish(otlp.read(labelled)).points) != repr(reading.points):  # NaN is not NaN.
            raise WrongError("labelled, it has other points")
        told = _told(reading)
        return told, tuple(sorted(reading.left_out))


def _told(reading: otlp.Reading) -> Hashable:
    """How two clients' series are told, that push the same twice."""
    series = Series(bytes_max=SERIES_BYTES_MAX)
    clients = [
        Instance(
            bytes([each]) * 16,
            Owner(f"10.0.0.{each}"),
            labels_of(f"i{each}", "c", "s"),
            NOTHING,
            0,
            0,
        )
        for each in (1, 2)
    ]
    for client in clients * 2:
        finish(series.take(client, reading.points, reading))
    if series.bytes_used > SERIES_BYTES_MAX:
        raise WrongError(f"series of {series.bytes_used} bytes")
    text = b"".join(series.text()).decode()
    seen = set()
    families = 0
    for family in text_string_to_metric_families(text):
        families += 1
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            if key in seen or not sample.name.startswith(PREFIX):
                raise WrongError(f"a series that is there twice, or not a client's: {sample.name}")
            if sample.labels.get("client_instance_id") not in ("i1", "i2"):
                raise WrongError("a series that is nobody's")
            seen.add(key)
    for client in clients:
        series.forget(client)
    if series.bytes_used or series.count or list(series.text()):
        raise WrongError("series whose clients have gone")
    return families
