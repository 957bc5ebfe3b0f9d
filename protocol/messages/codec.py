"""Neutral shapes to bytes and back, for every version, from kio's generated message schemas.

kio says which fields a version has, in which order and of which type; reading and writing are
done here, because its reader refuses tagged fields it does not know (KIP-482 wants them read
over) and its writer is ten times slower. Tests hold both against kio's, message by message.

A field is found in the shape under its name, with "_ms" where kio has a duration or a time. What
a version lacks is left out when written, and has the shape's default when read. Null for what a
version cannot leave null is written as empty. Bytes behind a message are ignored, as Kafka does.
Layouts are made when first used and kept.
"""

import dataclasses
import functools
import importlib
import struct
import typing
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from protocol import apis
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import cluster, groups, schemas, topics, transactions
from protocol.primitives import (
    MALFORMED,
    array_count,
    malformed,
    nullable_string,
    read_array_count,
    read_count,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    string,
    uvarint,
)
from protocol.types import Buffer

REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of APIs that carry no records. Elements may have two bytes, and cost us a hundred times that;
100,000 topics with long names still fit.
"""

Reader = Callable[[memoryview, int], tuple[Any, int]]
"""Value and the place after it."""
Writer = Callable[[bytearray, Any], None]

_FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "uuid": "16s",
}
"""Types of one length, as struct formats."""

_SHORT_ARRAY: Final = 8
"""Lists of nodes shorter than this, so nearly all, are packed together with their length."""


class Layout(NamedTuple):
    """How one message, or a struct inside one, is read and written."""

    read: Reader
    write: Writer


class _Tagged(NamedTuple):
    tag: int
    name: str
    layout: Layout
    default: Any


class _Step(NamedTuple):
    """One field, or a run of fields that are packed together."""

    names: tuple[str, ...]
    layout: Layout


def decode_request(key: int, version: int, body: Buffer) -> Any:
    """The request of an API, as its shape. Raises ProtocolError; KeyError for unknown keys."""
    if len(body) > REQUEST_BYTES_MAX:
        raise ProtocolError(f"a request of {len(body)} bytes, at most {REQUEST_BYTES_MAX}")
    return _decode(request_layout(key, version), key, body)


def encode_response(key: int, version: int, response: Any) -> bytes:
    """The body of an answer, without header."""
    out = bytearray()
    if key == apis.API_VERSIONS:
        response = _features_for(version, response)
    response_layout(key, version).write(out, response)
    return bytes(out)


def encode_request(key: int, version: int, request: Any) -> bytes:
    """The body of a request, without header (tests, simulator, tools)."""
    out = bytearray()
    request_layout(key, version).write(out, request)
    return bytes(out)


def decode_response(key: int, version: int, body: Buffer) -> Any:
    """As `decode_request`, for answers (tests, simulator, tools)."""
    return _decode(response_layout(key, version), key, body)


def unsupported_api_versions() -> bytes:
    """The answer to an ApiVersions request of an unknown version: in version 0, with an error
    and nothing but the versions of ApiVersions itself (KIP-511).
    """
    row = apis.APIS[apis.API_VERSIONS]
    response = cluster.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            cluster.ApiVersion(
                api_key=row.key, min_version=row.min_version, max_version=row.max_version
            )
        ],
    )
    return encode_response(apis.API_VERSIONS, 0, response)


def shape_of(key: int, kind: str) -> type:
    """Returns the shape of an API's "Request" or "Response"; KeyError for unknown keys."""
    name = apis.APIS[key].name + kind
    if key in {apis.PRODUCE, apis.FETCH}:
        module = importlib.import_module("protocol.messages.hot")
    else:
        modules = (topics, groups, transactions, cluster)
        module = next(module for module in modules if hasattr(module, name))
    shape: type = getattr(module, name)
    return shape


@functools.cache
def request_layout(key: int, version: int) -> Layout:
    return _message_layout(key, version, "Request")


@functools.cache
def response_layout(key: int, version: int) -> Layout:
    return _message_layout(key, version, "Response")


def _features_for(
    version: int, response: cluster.ApiVersionsResponse
) -> cluster.ApiVersionsResponse:
    """Clients older than v4 choke on features from level 0 on (KAFKA-17011); none at 0 is final."""
    return dataclasses.replace(
        response,
        supported_features=[
            feature
            for feature in response.supported_features
            if version >= 4 or feature.min_version > 0
        ],
        finalized_features=[
            feature for feature in response.finalized_features if feature.max_version_level > 0
        ],
    )


def _decode(layout: Layout, key: int, body: Buffer) -> Any:
    try:
        return layout.read(memoryview(body), 0)[0]
    except MALFORMED as error:
        raise malformed(f"a message of {apis.APIS[key].name}", error) from error


def _message_layout(key: int, version: int, kind: str) -> Layout:
    schema = schemas.message_class(apis.APIS[key].name, version, kind)
    return _struct_layout(schema, shape_of(key, kind))


def _struct_layout(schema: type, shape: type) -> Layout:
    """The layout of kio's class `schema`, read into and written from `shape`."""
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]  # kio sets it.
    shapes = _nested_shapes(shape)
    defaults = _defaults(shape)
    steps: list[_Step] = []
    tagged: list[_Tagged] = []
    run: list[schemas.Field] = []
    for field in schemas.fields(schema):
        if field.name not in defaults:
            raise TypeError(f"{shape.__name__} has no field {field.name}")
        nested = shapes.get(field.name)
        if field.tag is not None:
            layout = _field_layout(field, nested, flexible=flexible)
            tagged.append(_Tagged(field.tag, field.name, layout, defaults[field.name]))
        elif field.kafka_type in _FIXED and not field.is_array:
            run.append(field)
        else:
            _close_run(run, steps)
            steps.append(_Step((field.name,), _field_layout(field, nested, flexible=flexible)))
    _close_run(run, steps)
    tagged.sort(key=attrgetter("tag"))
    if not flexible:
        assert not tagged
        return Layout(_struct_reader(shape, steps), _struct_writer(steps))
    return Layout(
        _struct_reader(shape, steps, {field.tag: field for field in tagged}),
        _struct_writer(steps, tagged),
    )


def _struct_reader(
    shape: type, steps: list[_Step], tags: dict[int, _Tagged] | None = None
) -> Reader:
    """`tags` is None where messages have no place for tagged fields."""
    read_steps = [(step.names, step.layout.read) for step in steps]

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for names, read_step in read_steps:
            value, at = read_step(view, at)
            if len(names) == 1:
                values[names[0]] = value
            else:
                values.update(zip(names, value, strict=True))
        if tags is not None:
            sent, at = read_tagged_fields(view, at)
            for tag, content in sent.items():
                if tag in tags:
                    values[tags[tag].name] = tags[tag].layout.read(content, 0)[0]
        return shape(**values), at

    return read


def _struct_writer(steps: list[_Step], tagged: list[_Tagged] | None = None) -> Writer:
    """As `_struct_reader`."""
    write_steps = [(attrgetter(*step.names), step.layout.write) for step in steps]
    end = b"" if tagged is None else b"\0"

    def write(out: bytearray, value: Any) -> None:
        for get, write_step in write_steps:
            write_step(out, get(value))
        if tagged:
            _write_tagged(out, tagged, value)
        else:
            out += end

    return write


def _write_tagged(out: bytearray, tagged: list[_Tagged], value: Any) -> None:
    """Tagged fields that differ from their defaults; the others are not sent (KIP-482)."""
    contents = bytearray()
    count = 0
    for tag, name, layout, default in tagged:
        content = getattr(value, name)
        if content != default:
            encoded = bytearray()
            layout.write(encoded, content)
            contents += uvarint(tag) + uvarint(len(encoded)) + encoded
            count += 1
    out += uvarint(count) + contents


def _nested_shapes(shape: type) -> dict[str, type]:
    """The shapes inside the fields of a shape."""
    nested = {}
    for name, hint in typing.get_type_hints(shape).items():
        candidates = [hint]
        while candidates:
            candidate = candidates.pop()
            if dataclasses.is_dataclass(candidate):
                nested[name] = typing.cast("type", candidate)
            candidates.extend(typing.get_args(candidate))
    return nested


def _defaults(shape: type) -> dict[str, Any]:
    empty = shape()
    return {field.name: getattr(empty, field.name) for field in dataclasses.fields(empty)}


def _close_run(run: list[schemas.Field], steps: list[_Step]) -> None:
    """Fields of fixed length that follow one another are packed at once."""
    if not run:
        return
    codes = [_FIXED[field.kafka_type] for field in run if field.kafka_type is not None]
    steps.append(_Step(tuple(field.name for field in run), _fixed_layout(codes)))
    run.clear()


def _fixed_layout(codes: list[str]) -> Layout:
    packer = struct.Struct(">" + "".join(codes))
    unpack, pack, size = packer.unpack_from, packer.pack, packer.size
    if len(codes) == 1:

        def read_one(view: memoryview, at: int) -> tuple[Any, int]:
            return unpack(view, at)[0], at + size

        def write_one(out: bytearray, value: Any) -> None:
            out += pack(value)

        return Layout(read_one, write_one)

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        return unpack(view, at), at + size

    def write(out: bytearray, values: Any) -> None:
        out += pack(*values)

    return Layout(read, write)


def _field_layout(field: schemas.Field, nested: type | None, *, flexible: bool) -> Layout:
    if field.struct is not None:
        assert nested is not None, field.name
        layout = _struct_layout(field.struct, nested)
        if field.is_nullable and not field.is_array:
            return _nullable_struct(layout)
    else:
        assert field.kafka_type is not None
        if field.is_array and field.kafka_type == "int32":
            return _int32_array(flexible=flexible, nullable=field.is_nullable)
        nullable = field.is_nullable and not field.is_array
        layout = _value_layout(field.kafka_type, flexible=flexible, nullable=nullable)
    if field.is_array:
        return _array(layout, flexible=flexible, nullable=field.is_nullable)
    return layout


def _value_layout(kafka_type: str, *, flexible: bool, nullable: bool) -> Layout:
    match kafka_type:
        case "string" if nullable:
            return Layout(
                functools.partial(read_nullable_string, flexible=flexible),
                lambda out, value: out.extend(nullable_string(value, flexible=flexible)),
            )
        case "string":
            return Layout(
                functools.partial(read_string, flexible=flexible),
                lambda out, value: out.extend(string(value or "", flexible=flexible)),
            )
        case "bytes":
            return _own_bytes(flexible=flexible)
        case "records":
            return _bytes(flexible=flexible)
        case _:
            return _fixed_layout([_FIXED[kafka_type]])


def _own_bytes(*, flexible: bool) -> Layout:
    """A copy, since what groups carry (KIP-429's metadata, assignments) outlives its frame."""

    def read(view: memoryview, at: int) -> tuple[bytes, int]:
        count, at = read_count(view, at, flexible=flexible)
        if count < 0:
            raise ProtocolError("null for bytes that cannot be null")
        return bytes(view[at : at + count]), at + count

    def write(out: bytearray, value: bytes) -> None:
        out += array_count(len(value), flexible=flexible)
        out += value

    return Layout(read, write)


def _bytes(*, flexible: bool) -> Layout:
    def read(view: memoryview, at: int) -> tuple[memoryview | None, int]:
        count, at = read_count(view, at, flexible=flexible)
        return (None, at) if count < 0 else (view[at : at + count], at + count)

    def write(out: bytearray, value: Buffer | None) -> None:
        out += array_count(-1 if value is None else len(value), flexible=flexible)
        out += value or b""

    return Layout(read, write)


def _nullable_struct(layout: Layout) -> Layout:
    """A struct behind a byte that is negative for null (KIP-893)."""

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        return (None, at + 1) if view[at] >= 0x80 else layout.read(view, at + 1)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            layout.write(out, value)

    return Layout(read, write)


def _array(element: Layout, *, flexible: bool, nullable: bool) -> Layout:
    read_element, write_element = element

    def read(view: memoryview, at: int) -> tuple[list[Any] | None, int]:
        count, at = read_count(view, at, flexible=flexible)
        if count < 0:
            if not nullable:
                raise ProtocolError("null for an array that cannot be null")
            return None, at
        values = []
        for _ in range(count):
            value, at = read_element(view, at)
            values.append(value)
        return values, at

    def write(out: bytearray, values: Any) -> None:
        if values is None and nullable:
            out += array_count(-1, flexible=flexible)
            return
        out += array_count(len(values or ()), flexible=flexible)
        for value in values or ():
            write_element(out, value)

    return Layout(read, write)


def _int32_array(*, flexible: bool, nullable: bool) -> Layout:
    """Node ids and partitions: packed at once."""

    def read(view: memoryview, at: int) -> tuple[list[int] | None, int]:
        if nullable:
            count, at = read_count(view, at, flexible=flexible)
            if count < 0:
                return None, at
        else:
            count, at = read_array_count(view, at, flexible=flexible)
        return list(struct.unpack_from(f">{count}i", view, at)), at + 4 * count

    empty = array_count(0, flexible=flexible)
    null = array_count(-1, flexible=flexible) if nullable else empty
    short = [
        struct.Struct(f">{'B' if flexible else 'i'}{count}i").pack for count in range(_SHORT_ARRAY)
    ]
    extra = 1 if flexible else 0

    def write(out: bytearray, values: Any) -> None:
        if not values:
            out += null if values is None else empty
            return
        count = len(values)
        if count < _SHORT_ARRAY:
            out += short[count](count + extra, *values)
        else:
            out += array_count(count, flexible=flexible)
            out += struct.pack(f">{count}i", *values)

    return Layout(read, write)
