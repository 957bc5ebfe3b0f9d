"""One record at a time, by libraries of others: what a payload says, by its schema.

This is the definition; the fast decoders must give the same and are tested against it. It shares
with them the trees of types, no code that reads bytes: fastavro, Python's json and Protobuf's
runtime do that, and are held to what their formats allow. Values are what `pyarrow.array` takes for
the column's type: structs as dicts, maps as lists of pairs in order of their keys (the last of
equal keys counts), instants as whole microseconds.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

# The reader in Python: the compiled one takes no decoder of ours, and its own reads over damage.
from fastavro._read_py import read_data
from fastavro.io.binary_decoder import BinaryDecoder
from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError
from typing_extensions import override

from iceberg_export.records.cells import CELLS_MAX, Cells
from iceberg_export.typed.avro_schema import AvroType
from iceberg_export.typed.fields import Shape, shape_is_record
from iceberg_export.typed.inferred import Fraction
from iceberg_export.typed.inferred_rows import Inferred, place
from iceberg_export.typed.json_schema import JsonType
from iceberg_export.typed.proto_schema import ProtoField, ProtoMessage, ProtoType
from iceberg_export.typed.types import TEXT, VALUE
from protocol.schemas.protobuf_values import methods_of

LONG_MAX = (1 << 63) - 1
DAY_MICROS = 86_400_000_000
_DIGITS_SURE = 15
"""So many digits a double gives back as they were, between the exponents of 10 that they can have without `e`."""
SECONDS_MIN, SECONDS_MAX = -62_135_596_800, 253_402_300_799
"""What a Protobuf timestamp may say (0001-01-01 to 9999-12-31)."""


class UndecodableError(ValueError):
    """The payload is not what its schema says. The message is one sentence."""


Decoder = Callable[[bytes, Cells], dict[str, Any]]


def decoder_of(shape: Shape) -> Decoder:
    """Payload to columns by name. The decoder raises UndecodableError, and TooManyCellsError."""
    if isinstance(shape, ProtoMessage):
        return _proto_decoder(shape)
    is_record = shape_is_record(shape)
    read: Callable[[bytes, Cells], Any]
    if isinstance(shape, Inferred):
        return _inferred_decoder(shape)
    if isinstance(shape, AvroType):
        avro, schema = shape, _plain_schema(shape)
        read = lambda payload, cells: _read_avro(avro, schema, payload, cells)  # noqa: E731
    else:
        json_type = shape
        read = lambda payload, cells: _read_json(json_type, payload, cells)  # noqa: E731

    def decode(payload: bytes, cells: Cells) -> dict[str, Any]:
        value = read(payload, cells)
        if not is_record:
            return {VALUE: value}
        # An optional record that is null has no columns; one without fields is only there.
        return value if isinstance(value, dict) else {}

    return decode


# Avro: fastavro reads, we take its values over.


class _Payload:
    """The bytes of one value as fastavro's file, which never gives fewer than it is asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def read(self, count: int) -> bytes:
        if count < 0 or count > len(self.data) - self.at:
            raise UndecodableError(f"the value ends at byte {len(self.data)}, too early")
        self.at += count
        return self.data[self.at - count : self.at]


class _Decoder(BinaryDecoder):
    """fastavro's, but with the bounds of the specification, over which it reads on.

    It takes numbers of any length, any byte for true, and counts negative branches from the end;
    compiled, it lets numbers wrap around as well. Such bytes are damage, and no value.
    """

    index = 0
    """The branch of a union that was read last."""

    def __init__(self, payload: _Payload, cells: Cells) -> None:
        super().__init__(payload)  # type: ignore[no-untyped-call]
        self._cells = cells

    @override
    def read_float(self) -> float:
        self._cells.take(1)
        number: float = super().read_float()  # type: ignore[no-untyped-call]
        return number

    @override
    def read_double(self) -> float:
        self._cells.take(1)
        number: float = super().read_double()  # type: ignore[no-untyped-call]
        return number

    @override
    def read_fixed(self, size: int) -> bytes:
        self._cells.take(1)
        data: bytes = self.fo.read(size)
        return data

    @override
    def read_boolean(self) -> bool:
        self._cells.take(1)
        byte: int = self.fo.read(1)[0]
        if byte > 1:
            raise UndecodableError(f"{byte} is no boolean")
        return byte == 1

    @override
    def read_long(self) -> int:
        return self._number(64)

    @override
    def read_int(self) -> int:
        return self._number(32)

    def _number(self, bits: int) -> int:
        self._cells.take(1)
        # Seen beforehand: a number of a million bytes would take minutes.
        head = self.fo.data[self.fo.at : self.fo.at + 10]
        if len(head) == 10 and min(head) >= 0x80:
            raise UndecodableError("a number has over 64 bits")
        value: int = super().read_long()  # type: ignore[no-untyped-call]
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise UndecodableError(f"a number has over {bits} bits")
        return value

    @override
    def read_utf8(self, handle_unicode_errors: str = "strict") -> str:
        return _text(self.read_bytes())  # type: ignore[no-untyped-call]

    @override
    def read_index(self) -> int:
        self.index = self.read_long()
        if self.index < 0:
            raise IndexError
        return self.index


def _read_avro(shape: AvroType, schema: Any, payload: bytes, cells: Cells) -> Any:
    data = _Payload(payload)
    decoder = _Decoder(data, cells)
    try:
        value = read_data(decoder, schema, None)  # type: ignore[no-untyped-call]
    except IndexError as error:
        raise UndecodableError(f"a union has no branch {decoder.index}") from error
    if data.at != len(payload):
        raise UndecodableError(f"{len(payload) - data.at} bytes are left over")
    return _avro(shape, value, cells)


def _plain_schema(shape: AvroType) -> Any:
    """A schema of the same bytes, as fastavro has parsed ones.

    Without logical types and symbols, since what they may say is ours to judge. A branch is a
    record of one field, so that the value tells which branch it is of; a map is an array of its
    entries, so that those are judged, too, whose key comes again.
    """
    match shape.kind:
        case "record":
            return _plain_record(shape.fields)
        case "union":
            return [_plain_record((branch,)) for branch in shape.fields]
        case "array":
            return {"type": "array", "items": _plain_schema(shape.fields[0][1])}
        case "map":
            entry = (("key", AvroType("string", TEXT)), *shape.fields)
            return {"type": "array", "items": _plain_record(entry)}
        case "fixed":
            return {"type": "fixed", "size": shape.size}
        case "enum":
            return "int"
        case _:
            return shape.kind


def _plain_record(fields: tuple[tuple[str, AvroType], ...]) -> Any:
    return {
        "type": "record",
        "fields": [{"name": name, "type": _plain_schema(one)} for name, one in fields],
    }


def _avro(shape: AvroType, value: Any, cells: Cells) -> Any:
    match shape.kind:
        case "record":
            columns = [(name, one) for name, one in shape.fields if one.arrow != pa.null()]
            return {name: _avro(one, value[name], cells) for name, one in columns} or True
        case "union":
            ((name, of_branch),) = value.items()
            branch = dict(shape.fields)[name]
            found = _avro(branch, of_branch, cells)
            return found if shape.branch is not None or branch.kind == "null" else {name: found}
        case "array":
            cells.take(len(value) * shape.fields[0][1].nodes)
            return [_avro(shape.fields[0][1], one, cells) for one in value]
        case "map":
            ((what, inner),) = shape.fields
            cells.take(len(value) * inner.nodes)
            return sorted({one["key"]: _avro(inner, one[what], cells) for one in value}.items())
        case "int" | "long":
            return _instant(shape.logical, value)
        case "enum":
            if not 0 <= value < len(shape.symbols):
                raise UndecodableError(f"the enum {shape.name} has no symbol {value}")
            return shape.symbols[value]
        case "bytes" | "fixed":
            return _from_bytes(shape, value)
        case _:
            return value


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


_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def _check_json_size(payload: bytes, cells: Cells) -> None:
    """A value of Python's takes twenty times its three bytes. Raises TooManyCellsError."""
    marks = (b",", b"[", b"{")
    if sum(map(payload.count, marks)) > CELLS_MAX:
        payload = _STRING.sub(b"", payload)
    cells.take(sum(map(payload.count, marks)))


def _inferred_decoder(shape: Inferred) -> Decoder:
    def decode(payload: bytes, cells: Cells) -> dict[str, Any]:
        value = read_json_value(payload, cells, parse_float=Fraction)
        return place(shape.type, value, full=shape.full, lenient=shape.lenient, take=cells.take)

    return decode


def _read_json(shape: JsonType, payload: bytes, cells: Cells) -> Any:
    return _json(shape, read_json_value(payload, cells, parse_float=_float), VALUE, cells)


def _float(text: str) -> float:
    """With the text that it was written as, where a double may say another number."""
    if len(text) <= _DIGITS_SURE and "e" not in text and "E" not in text:
        return float(text)
    return Fraction(text)


def read_json_value(
    payload: bytes, cells: Cells, *, parse_float: Callable[[str], float] = float
) -> Any:
    """Returns the value of a JSON text. Raises UndecodableError, TooManyCellsError."""
    _check_json_size(payload, cells)
    try:
        return json.loads(_text(payload), parse_constant=_refuse_constant, parse_float=parse_float)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UndecodableError(f"the value is not JSON: {error}") from error
    except UndecodableError:
        raise
    except ValueError as error:
        # Python refuses to read numbers of thousands of digits.
        raise UndecodableError(f"the value is not JSON that can be read: {error}") from error


def _json(shape: JsonType, value: Any, path: str, cells: Cells) -> Any:
    if value is None:
        return None
    match shape.kind:
        case "json":
            return _dump(value)
        case "object" if isinstance(value, dict):
            return {name: _json(one, value.get(name), name, cells) for name, one in shape.fields}
        case "map" if isinstance(value, dict):
            inner = shape.fields[0][1]
            cells.take(len(value) * inner.nodes)
            return sorted(
                (_clean(key), _json(inner, one, path, cells)) for key, one in value.items()
            )
        case "array" if isinstance(value, list):
            cells.take(len(value) * shape.fields[0][1].nodes)
            return [_json(shape.fields[0][1], one, path, cells) for one in value]
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
        exact = Decimal(value.text) if isinstance(value, Fraction) else value
        if not -LONG_MAX - 1 <= exact <= LONG_MAX or exact != int(exact):
            raise UndecodableError(f"field {path} is no integer of 64 bits")
        return int(exact)
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
    """JSON text, of which no number is another than the one that was written."""
    if _has_inexact(value):
        return _clean(_dump_as_written(value))
    return _clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _has_inexact(value: Any) -> bool:
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)
        elif isinstance(one, Fraction) and _is_inexact(one):
            return True
    return False


def _is_inexact(number: Fraction) -> bool:
    """What a double's shortest text says is not what was written; beyond doubles that is "Infinity"."""
    try:
        return Decimal(float.__repr__(number)) != Decimal(number.text)
    except ArithmeticError:
        return True  # An exponent of more than eighteen digits.


def _dump_as_written(value: Any) -> str:
    if isinstance(value, dict):
        inner = [
            f"{json.dumps(name, ensure_ascii=False)}:{_dump_as_written(one)}"
            for name, one in value.items()
        ]
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_dump_as_written(one) for one in value]) + "]"
    if isinstance(value, Fraction) and _is_inexact(value):
        return value.text
    return json.dumps(value, ensure_ascii=False)


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
    methods = methods_of(message_class)

    def decode(payload: bytes, cells: Cells) -> dict[str, Any]:
        message = message_class()
        try:
            methods.MergeFromString(message, payload)
        except DecodeError as error:
            raise UndecodableError("the value is no such Protobuf message") from error
        if not methods.IsInitialized(message):
            raise UndecodableError("the Protobuf message lacks a required field")
        return {field.name: _proto_field(field, message, cells) for field in shape.type.fields}

    return decode


def _proto_field(field: ProtoField, message: Any, cells: Cells) -> Any:
    value = getattr(message, field.name)
    if field.is_list or field.type.kind == "map":
        cells.take(len(value) * field.type.nodes)
    if field.type.kind == "map":
        inner = field.type.fields[1].type
        key_type = field.type.fields[0].type
        return [
            (_proto(key_type, key, cells), _proto(inner, value[key], cells))
            for key in sorted(value)
        ]
    if field.is_list:
        return [_proto(field.type, one, cells) for one in value]
    if field.has_presence and not methods_of(type(message)).HasField(message, field.name):
        return None
    return _proto(field.type, value, cells)


def _proto(shape: ProtoType, value: Any, cells: Cells) -> Any:
    match shape.kind:
        case "message":
            return {field.name: _proto_field(field, value, cells) for field in shape.fields} or True
        case "timestamp":
            if not SECONDS_MIN <= value.seconds <= SECONDS_MAX or not 0 <= value.nanos < 10**9:
                raise UndecodableError("a Timestamp lies outside the years 1 to 9999")
            return value.seconds * 1_000_000 + value.nanos // 1000
        case "wrapper":
            return _proto(shape.fields[0].type, value.value, cells)
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
