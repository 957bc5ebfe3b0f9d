"""One record at a time, in plain Python: what a payload says, by its schema.

This is the definition; the fast decoders must give the same and are tested against it. It shares
with them the trees of types, no code that reads bytes. Values are what `pyarrow.array` takes for
the column's type: structs as dicts, maps as lists of pairs in order of their keys (the last of
equal keys counts), instants as whole microseconds.
"""

import json
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError

from iceberg_export.typed.avro_schema import AvroType
from iceberg_export.typed.fields import Shape, shape_is_record
from iceberg_export.typed.json_schema import JsonType
from iceberg_export.typed.proto_schema import ProtoField, ProtoMessage, ProtoType
from iceberg_export.typed.types import VALUE

LONG_MAX = (1 << 63) - 1
DAY_MICROS = 86_400_000_000
SECONDS_MIN, SECONDS_MAX = -62_135_596_800, 253_402_300_799
"""What a Protobuf timestamp may say (0001-01-01 to 9999-12-31)."""


class UndecodableError(ValueError):
    """The payload is not what its schema says. The message is one sentence."""


Decoder = Callable[[bytes], dict[str, Any]]


def decoder_of(shape: Shape) -> Decoder:
    """Payload to columns by name. The decoder raises UndecodableError."""
    if isinstance(shape, ProtoMessage):
        return _proto_decoder(shape)
    is_record = shape_is_record(shape)
    read: Callable[[bytes], Any]
    if isinstance(shape, AvroType):
        avro = shape
        read = lambda payload: _read_avro(avro, payload)  # noqa: E731
    else:
        json_type = shape
        read = lambda payload: _read_json(json_type, payload)  # noqa: E731

    def decode(payload: bytes) -> dict[str, Any]:
        value = read(payload)
        if not is_record:
            return {VALUE: value}
        # An optional record that is null has no columns; one without fields is only there.
        return value if isinstance(value, dict) else {}

    return decode


# Avro (specification 1.12, "Binary Encoding").


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.data) - self.at:
            raise UndecodableError(f"the value ends at byte {len(self.data)}, too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def long(self, bits: int = 64) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift >= 70:
                raise UndecodableError("a number has over 64 bits")
        if value >> bits:
            raise UndecodableError(f"a number has over {bits} bits")
        return (value >> 1) ^ -(value & 1)


def _read_avro(shape: AvroType, payload: bytes) -> Any:
    data = _Bytes(payload)
    value = _avro(shape, data)
    if data.at != len(payload):
        raise UndecodableError(f"{len(payload) - data.at} bytes are left over")
    return value


def _avro(shape: AvroType, data: _Bytes) -> Any:
    match shape.kind:
        case "record":
            values = {name: _avro(one, data) for name, one in shape.fields}
            nulls = {name for name, one in shape.fields if one.arrow == pa.null()}
            fields = {name: value for name, value in values.items() if name not in nulls}
            return fields or True
        case "union":
            index = data.long()
            if not 0 <= index < len(shape.fields):
                raise UndecodableError(f"a union has no branch {index}")
            name, branch = shape.fields[index]
            value = _avro(branch, data)
            if shape.branch is not None or branch.kind == "null":
                return value
            return {name: value}
        case "array":
            return list(_blocks(shape.fields[0][1], data, with_keys=False))
        case "map":
            return sorted(dict(_blocks(shape.fields[0][1], data, with_keys=True)).items())
        case _:
            return _avro_scalar(shape, data)


def _blocks(shape: AvroType, data: _Bytes, *, with_keys: bool) -> Any:
    while count := data.long():
        if count < 0:
            count = -count
            data.long()
        # Each element takes a byte at least.
        if count > len(data.data) - data.at:
            raise UndecodableError("an array or map is longer than the value")
        for _ in range(count):
            if with_keys:
                key = _text(data.take(data.long()))
                yield key, _avro(shape, data)
            else:
                yield _avro(shape, data)


def _avro_scalar(shape: AvroType, data: _Bytes) -> Any:
    match shape.kind:
        case "null":
            return None
        case "boolean":
            byte = data.take(1)[0]
            if byte > 1:
                raise UndecodableError(f"{byte} is no boolean")
            return byte == 1
        case "int":
            return _instant(shape.logical, data.long(32))
        case "long":
            return _instant(shape.logical, data.long())
        case "float":
            return struct.unpack("<f", data.take(4))[0]
        case "double":
            return struct.unpack("<d", data.take(8))[0]
        case "enum":
            index = data.long(32)
            if not 0 <= index < len(shape.symbols):
                raise UndecodableError(f"the enum {shape.name} has no symbol {index}")
            return shape.symbols[index]
        case "string":
            return _text(data.take(data.long()))
        case _:
            raw = data.take(shape.size if shape.kind == "fixed" else data.long())
            return _from_bytes(shape, raw)


def _from_bytes(shape: AvroType, raw: bytes) -> Any:
    if shape.logical == "uuid":
        return "-".join(
            (raw[:4].hex(), raw[4:6].hex(), raw[6:8].hex(), raw[8:10].hex(), raw[10:].hex())
        )
    if shape.logical != "decimal":
        return raw
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) >= 10**shape.arrow.precision:
        raise UndecodableError(f"a decimal has over {shape.arrow.precision} digits")
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -shape.arrow.scale))


def _instant(logical: str, value: int) -> int:
    if logical in {"timestamp-millis", "local-timestamp-millis"}:
        if not -LONG_MAX // 1000 <= value <= LONG_MAX // 1000:
            raise UndecodableError("a timestamp lies beyond 64 bits of microseconds")
        return value * 1000
    if logical in {"time-millis", "time-micros"}:
        micros = value * 1000 if logical == "time-millis" else value
        if not 0 <= micros < DAY_MICROS:
            raise UndecodableError("a time of day lies outside the day")
        return micros
    return value


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UndecodableError("a string is not UTF-8") from error


# JSON (RFC 8259).


def _refuse_constant(name: str) -> Any:
    raise UndecodableError(f"{name} is not JSON")


def _read_json(shape: JsonType, payload: bytes) -> Any:
    try:
        value = json.loads(_text(payload), parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UndecodableError(f"the value is not JSON: {error}") from error
    except UndecodableError:
        raise
    except ValueError as error:
        # Python refuses to read numbers of thousands of digits.
        raise UndecodableError(f"the value is not JSON that can be read: {error}") from error
    return _json(shape, value, VALUE)


def _json(shape: JsonType, value: Any, path: str) -> Any:
    if value is None:
        return None
    match shape.kind:
        case "json":
            return _dump(value)
        case "object" if isinstance(value, dict):
            return {name: _json(one, value.get(name), name) for name, one in shape.fields}
        case "map" if isinstance(value, dict):
            inner = shape.fields[0][1]
            return sorted((_clean(key), _json(inner, one, path)) for key, one in value.items())
        case "array" if isinstance(value, list):
            return [_json(shape.fields[0][1], one, path) for one in value]
        case "boolean" if isinstance(value, bool):
            return value
        case "integer" | "number" if isinstance(value, int | float) and not isinstance(value, bool):
            return _number(shape.kind, value, path)
        case "string" if isinstance(value, str):
            return _clean(value)
        case "date-time" | "date" if isinstance(value, str):
            return _moment(shape.kind, value, path)
    raise UndecodableError(f"field {path} is {_dump(value)[:40]}, the schema says {shape.kind}")


def _number(kind: str, value: float, path: str) -> float:
    if kind == "integer":
        if value != value // 1 or not -LONG_MAX - 1 <= value <= LONG_MAX:
            raise UndecodableError(f"field {path} is no integer of 64 bits")
        return int(value)
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if abs(number) == float("inf"):
        raise UndecodableError(f"field {path} is too great for a double")
    # JSON has one zero.
    return number + 0.0


def _clean(text: str) -> str:
    """Half a surrogate pair, which JSON can say, is no text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UndecodableError("a string has half a surrogate pair") from error
    return text


def _dump(value: Any) -> str:
    return _clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_DATE_TIME = re.compile(
    _DATE.pattern + r"[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)


def _moment(kind: str, text: str, path: str) -> int:
    """RFC 3339: days, or microseconds, since 1970. What lies below a microsecond is cut off."""
    match = (_DATE if kind == "date" else _DATE_TIME).fullmatch(text)
    days = None if match is None else _days(*map(int, match.group(1, 2, 3)))
    if match is None or days is None:
        raise UndecodableError(f"field {path}: {text[:40]!r} is no {kind} (RFC 3339)")
    if kind == "date":
        return days
    hour, minute, second = map(int, match.group(4, 5, 6))
    off_hour, off_minute = int(match.group(9) or 0), int(match.group(10) or 0)
    if max(hour, off_hour) > 23 or max(minute, off_minute) > 59 or second > 59:
        raise UndecodableError(f"field {path}: {text[:40]!r} is no {kind} (RFC 3339)")
    offset = (off_hour * 60 + off_minute) * (-60 if match.group(8) == "-" else 60)
    micros = int(f"{match.group(7) or '0':0<6}"[:6])
    return (days * 86_400 + hour * 3600 + minute * 60 + second - offset) * 1_000_000 + micros


_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _days(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the calendar of today; None when there is no such day."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if year < 1 or not 1 <= month <= 12:
        return None
    if not 1 <= day <= _MONTH_DAYS[month - 1] + (leap and month == 2):
        return None
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    return days + sum(_MONTH_DAYS[: month - 1]) + (leap and month > 2) + day - 1 - 719_162


# Protobuf: the runtime reads, we take its values over.


def _proto_decoder(shape: ProtoMessage) -> Decoder:
    message_class = message_factory.GetMessageClass(shape.descriptor)

    def decode(payload: bytes) -> dict[str, Any]:
        try:
            message = message_class.FromString(payload)
        except DecodeError as error:
            raise UndecodableError("the value is no such Protobuf message") from error
        if not message.IsInitialized():
            raise UndecodableError("the Protobuf message lacks a required field")
        return {field.name: _proto_field(field, message) for field in shape.type.fields}

    return decode


def _proto_field(field: ProtoField, message: Any) -> Any:
    value = getattr(message, field.name)
    if field.type.kind == "map":
        inner = field.type.fields[1].type
        key_type = field.type.fields[0].type
        return [(_proto(key_type, key), _proto(inner, value[key])) for key in sorted(value)]
    if field.is_list:
        return [_proto(field.type, one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _proto(field.type, value)


def _proto(shape: ProtoType, value: Any) -> Any:
    match shape.kind:
        case "message":
            return {field.name: _proto_field(field, value) for field in shape.fields} or True
        case "timestamp":
            if not SECONDS_MIN <= value.seconds <= SECONDS_MAX or not 0 <= value.nanos < 10**9:
                raise UndecodableError("a Timestamp lies outside the years 1 to 9999")
            return value.seconds * 1_000_000 + value.nanos // 1000
        case "wrapper":
            return _proto(shape.fields[0].type, value.value)
        case "string":
            # Strings of proto2 may be any bytes to the runtime, which then hands out those.
            return value if isinstance(value, str) else _text(value)
        case "enum":
            return dict(shape.symbols).get(value, str(value))
        case "uint64" | "fixed64":
            return Decimal(value)
        case "json":
            try:
                said = json_format.MessageToDict(value)
            except (json_format.Error, ValueError) as error:
                raise UndecodableError(f"a {value.DESCRIPTOR.name} is not JSON") from error
            return json.dumps(said, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        case _:
            return value
