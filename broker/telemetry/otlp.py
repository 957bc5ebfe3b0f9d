"""OTLP's MetricsData (opentelemetry/proto/metrics/v1), read from Protobuf into points. Pure.

What holds:

* Reading goes over the bytes once, without recursion, in slices, and makes nothing but points and what
  they need; a payload of a megabyte may be half a million empty messages. Behind `FIELDS_MAX`
  fields or `POINTS_MAX` points nothing more is read, which is counted and no error: the metrics
  before that are taken.
* What is no Protobuf raises ProtocolError. Unknown fields are read over, and so is a known one of
  another type, as Protobuf has it.
* What /metrics has no place for is counted by the reason and left out: summaries, exponential
  histograms, histograms of many buckets, names that OTLP does not allow, values that are no numbers.

Decided against: the messages that protoc generates (the package of OpenTelemetry, or our own). They are
made whole before anything can be counted, at once and under the interpreter's lock, and take
a hundred bytes for an empty message.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from protocol.compression import decompress
from protocol.errors import ProtocolError
from protocol.primitives import uvarint
from protocol.slices import Sliced
from protocol.types import Buffer

FIELDS_MAX: Final = 100_000
"""A consumer of a thousand partitions sends about as many; a tenth of a second."""
POINTS_MAX: Final = 10_000
SLICE_FIELDS: Final = 500
RESOURCES_MAX: Final = 64
"""Of a payload that is labelled; Kafka's clients send one."""
ATTRIBUTES_MAX: Final = 8
"""Of a point; Kafka's clients have two."""
BUCKETS_MAX: Final = 64
NAME_CHARACTERS_MAX: Final = 255
"""As OpenTelemetry has it."""
TEXT_CHARACTERS_MAX: Final = 128
"""Of an attribute's value, which is cut."""
DELTA: Final = 1
"""AGGREGATION_TEMPORALITY_DELTA"""
NO_VALUE: Final = 1
"""DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK"""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_DOUBLE: Final = struct.Struct("<d")
_SIGNED: Final = struct.Struct("<q")
_UNSIGNED: Final = struct.Struct("<Q")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Kind(Enum):
    """What a metric is, as Prometheus calls it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Buckets(NamedTuple):
    """What a histogram has besides its sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """One more than there are bounds."""


class Point(NamedTuple):
    """One number, or one histogram, of one metric."""

    name: str
    kind: Kind
    is_delta: bool
    """It is to be added to what was."""
    attributes: tuple[tuple[str, str], ...]
    value: float
    """Of a histogram the sum."""
    buckets: Buckets | None = None


@dataclass(slots=True)
class Reading:
    """What a payload came to."""

    points: list[Point] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    """Points by the reason; "size": once, for all that was not read."""

    def leave_out(self, reason: str, count: int = 1) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + count


class _Message(Enum):
    METRICS_DATA = auto()
    RESOURCE_METRICS = auto()
    SCOPE_METRICS = auto()
    METRIC = auto()
    GAUGE = auto()
    SUM = auto()
    HISTOGRAM = auto()
    UNTOLD = auto()
    """Exponential histograms and summaries, whose points are only counted."""
    NUMBER = auto()
    HISTOGRAM_POINT = auto()
    UNTOLD_POINT = auto()
    ATTRIBUTE = auto()
    ANY = auto()


class _Value(NamedTuple):
    """A field that is no message: which one, how it lies in bytes, and what it is."""

    name: str
    wire: int
    read: Callable[[Any], Any]


def _double(data: memoryview) -> float:
    number: float = _DOUBLE.unpack(data)[0]
    return number


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("a string that is not UTF-8") from error


def _several(unpacked: struct.Struct) -> Callable[[memoryview], list[Any] | None]:
    """Of packed numbers; None: there are too many."""

    def read(data: memoryview) -> list[Any] | None:
        if len(data) % 8:
            raise ProtocolError("packed numbers that end early")
        if len(data) > 8 * (BUCKETS_MAX + 1):
            return None
        return [each[0] for each in unpacked.iter_unpack(data)]

    return read


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


_POINT_FIELDS: Final[Mapping[int, _Message | _Value]] = {
    4: _Value("value", _FIXED64, _double),
    6: _Value("value", _FIXED64, lambda data: float(_SIGNED.unpack(data)[0])),
    7: _Message.ATTRIBUTE,
    8: _Value("flags", _VARINT, int),
}
_FIELDS: Final[Mapping[_Message, Mapping[int, _Message | _Value]]] = {
    _Message.METRICS_DATA: {1: _Message.RESOURCE_METRICS},
    _Message.RESOURCE_METRICS: {2: _Message.SCOPE_METRICS},
    _Message.SCOPE_METRICS: {2: _Message.METRIC},
    _Message.METRIC: {
        1: _Value("name", _BYTES, _text),
        5: _Message.GAUGE,
        7: _Message.SUM,
        9: _Message.HISTOGRAM,
        10: _Message.UNTOLD,
        11: _Message.UNTOLD,
    },
    _Message.GAUGE: {1: _Message.NUMBER},
    _Message.SUM: {
        1: _Message.NUMBER,
        2: _Value("temporality", _VARINT, int),
        3: _Value("is_monotonic", _VARINT, bool),
    },
    _Message.HISTOGRAM: {
        1: _Message.HISTOGRAM_POINT,
        2: _Value("temporality", _VARINT, int),
    },
    _Message.UNTOLD: {1: _Message.UNTOLD_POINT},
    _Message.NUMBER: _POINT_FIELDS,
    _Message.HISTOGRAM_POINT: {
        5: _Value("value", _FIXED64, _double),
        6: _Value("counts", _BYTES, _several(_UNSIGNED)),
        7: _Value("bounds", _BYTES, _several(_DOUBLE)),
        9: _Message.ATTRIBUTE,
        10: _Value("flags", _VARINT, int),
    },
    _Message.UNTOLD_POINT: {},
    _Message.ATTRIBUTE: {1: _Value("key", _BYTES, _text), 2: _Message.ANY},
    _Message.ANY: {
        1: _Value("text", _BYTES, _text),
        2: _Value("text", _VARINT, lambda number: "true" if number else "false"),
        3: _Value("text", _VARINT, lambda number: str(_signed(number))),
        4: _Value("text", _FIXED64, lambda data: repr(_double(data))),
    },
}
"""What is looked at. All else is read over."""
_POINTS: Final = (_Message.NUMBER, _Message.HISTOGRAM_POINT, _Message.UNTOLD_POINT)


class _Frame:
    """A message that is being read."""

    __slots__ = ("end", "inner", "message", "values")

    def __init__(self, message: _Message, end: int) -> None:
        self.message = message
        self.end = end
        self.values: dict[str, Any] = {}
        self.inner: list[Any] = []
        """What came of the messages in it."""


class Opened(NamedTuple):
    """A payload and what is in it."""

    data: Buffer
    reading: Reading


def opened(codec: int, data: Buffer, *, bytes_max: int) -> Sliced[Opened]:
    """A payload as it was sent. Raises ProtocolError, also when it becomes more than `bytes_max`."""
    inflated = decompress(codec, data, bytes_max=bytes_max)
    yield
    return Opened(inflated, (yield from read(inflated)))


def read(data: Buffer) -> Sliced[Reading]:
    """The points of a payload. Raises ProtocolError."""
    view = memoryview(data)
    reading = Reading()
    stack = [_Frame(_Message.METRICS_DATA, len(view))]
    at = fields = points = 0
    while stack:
        frame = stack[-1]
        if at == frame.end:
            stack.pop()
            _end(frame, stack, reading)
            continue
        fields += 1
        if fields % SLICE_FIELDS == 0:
            yield
        if fields > FIELDS_MAX or points > POINTS_MAX:
            reading.leave_out("size")
            break
        tag, at = _varint(view, at, frame.end)
        value, at = _value(view, at, frame.end, tag)
        found = _FIELDS[frame.message].get(tag >> 3)
        if isinstance(found, _Value):
            if found.wire == tag & 7:
                frame.values[found.name] = found.read(value)
        elif found is not None and tag & 7 == _BYTES:
            points += found in _POINTS
            stack.append(_Frame(found, at))
            at -= len(value)
    return reading


def labelled(data: Buffer, attributes: Mapping[str, str]) -> bytes:
    """The payload with these attributes of its resources beside their own.

    They are put behind everything else of each ResourceMetrics as another `resource`: Protobuf merges
    two of a field that is not repeated. Raises ProtocolError, also for more than `RESOURCES_MAX`.
    """
    more = b"".join(
        _message(1, _message(1, key.encode()) + _message(2, _message(1, text.encode())))
        for key, text in attributes.items()
    )
    view = memoryview(data)
    out = bytearray()
    at = fields = 0
    while at < len(view):
        fields += 1
        if fields > RESOURCES_MAX:
            raise ProtocolError(f"more than {RESOURCES_MAX} resources")
        begin = at
        tag, at = _varint(view, at, len(view))
        value, at = _value(view, at, len(view), tag)
        if tag == 1 << 3 | _BYTES:
            out += _message(1, bytes(value) + _message(1, more))
        else:
            out += view[begin:at]
    return bytes(out)


def _message(number: int, data: bytes) -> bytes:
    return uvarint(number << 3 | _BYTES) + uvarint(len(data)) + data


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7
    raise ProtocolError("a number that ends early or is too long")


def _value(view: memoryview, at: int, end: int, tag: int) -> tuple[Any, int]:
    """A field's value as it lies there, and the place behind it."""
    if not 0 < tag >> 3 < 1 << 29:
        raise ProtocolError(f"a field of number {tag >> 3}")
    match tag & 7:
        case 0:
            return _varint(view, at, end)
        case 1:
            length = 8
        case 2:
            length, at = _varint(view, at, end)
        case 5:
            length = 4
        case wire:
            raise ProtocolError(f"a field of type {wire}")
    if length > end - at:
        raise ProtocolError(f"a field of {length} bytes, {end - at} left")
    return view[at : at + length], at + length


def _end(frame: _Frame, stack: list[_Frame], reading: Reading) -> None:
    """A message has been read to its end: it becomes part of the one around it, or points."""
    match frame.message:
        case _Message.METRICS_DATA | _Message.RESOURCE_METRICS | _Message.SCOPE_METRICS:
            pass
        case _Message.METRIC:
            _end_metric(frame, reading)
        case _Message.GAUGE | _Message.SUM | _Message.HISTOGRAM:
            stack[-1].inner += _points(frame, reading)
        case _Message.UNTOLD:
            if frame.inner:
                reading.leave_out("kind", len(frame.inner))
        case _Message.NUMBER | _Message.HISTOGRAM_POINT | _Message.UNTOLD_POINT:
            stack[-1].inner.append(frame)
        case _Message.ATTRIBUTE:
            # Without a text it is a list or a map, which no label can be.
            if "text" in frame.values and len(stack[-1].inner) < ATTRIBUTES_MAX:
                key = frame.values.get("key", "")
                stack[-1].inner.append((key, frame.values["text"][:TEXT_CHARACTERS_MAX]))
        case _Message.ANY:
            stack[-1].values |= frame.values


def _end_metric(frame: _Frame, reading: Reading) -> None:
    name = frame.values.get("name", "")
    if len(name) <= NAME_CHARACTERS_MAX and _NAME.fullmatch(name):
        reading.points += [point._replace(name=name) for point in frame.inner]
    elif frame.inner:
        reading.leave_out("name", len(frame.inner))


def _points(frame: _Frame, reading: Reading) -> list[Point]:
    """Of a Gauge, a Sum or a Histogram that has been read."""
    is_delta = frame.values.get("temporality") == DELTA
    kind = Kind.COUNTER if frame.values.get("is_monotonic") else Kind.GAUGE
    if frame.message is _Message.HISTOGRAM:
        kind = Kind.HISTOGRAM
    found = []
    for each in frame.inner:
        if each.values.get("flags", 0) & NO_VALUE:
            continue
        buckets = _buckets(each) if kind is Kind.HISTOGRAM else None
        value = each.values.get("value", None if buckets is None else 0.0)
        if kind is Kind.HISTOGRAM and buckets is None:
            reading.leave_out("kind")
        elif value is None or not _is_possible(value, kind, is_delta=is_delta):
            reading.leave_out("value")
        else:
            found.append(Point("", kind, is_delta, tuple(each.inner), value, buckets))
    return found


def _is_possible(value: float, kind: Kind, *, is_delta: bool) -> bool:
    """Whether it is a number that such a metric can have, and that others can be added to."""
    if kind is Kind.GAUGE and not is_delta:
        return True
    return math.isfinite(value) and (kind is not Kind.COUNTER or value >= 0)


def _buckets(point: _Frame) -> Buckets | None:
    """None: there are none, too many, or they are none that could be."""
    bounds, counts = point.values.get("bounds", []), point.values.get("counts", [])
    if bounds is None or counts is None or len(counts) != len(bounds) + 1:
        return None
    if not all(map(math.isfinite, bounds)) or sorted({*bounds}) != bounds:
        return None
    return Buckets(tuple(bounds), tuple(counts))
