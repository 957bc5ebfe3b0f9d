"""Neutral shapes to bytes and back, for every version, by Kafka's message schemas (`schemas`).

The schemas say which fields a version has, in which order and of which type. They are kio's; reading and
writing are done here, because its reader refuses tagged fields it does not know (KIP-482 wants them read
over) and its writer is ten times slower. Tests hold both against kio's, message by message.

A field is found in the shape under its name. What
a version lacks is left out when written, and has the shape's default when read. Null for what a
version cannot leave null is written as empty. Bytes behind a message are ignored, as Kafka does.
Layouts are made when first used and kept.

Long messages are read and written in slices: `decode_slices` and `encode_slices` are generators
that pause after so many elements or bytes, and return what `decode_request` and `encode_response`
do. Only arrays can be long, so only structs with arrays have a second reader and writer.
"""

import dataclasses
import functools
import importlib
import typing
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from protocol import apis
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import discovery, schemas
from protocol.messages.budgets import (
    AT_ONCE_BYTES_MAX,
    REQUEST_BYTES_MAX,
    RESPONSE_BYTES_MAX,
)
from protocol.messages.layouts import (
    FIXED,
    Layout,
    Meter,
    Pauses,
    Reader,
    SliceReader,
    SliceWriter,
    Writer,
    array,
    at_once,
    fixed_layout,
    int32_array,
    nullable_struct,
    value_layout,
)
from protocol.messages.places import MODULE_OF
from protocol.primitives import MALFORMED, malformed, read_tagged_fields, uvarint
from protocol.types import Buffer


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
    if len(body) > AT_ONCE_BYTES_MAX:
        return at_once(decode_slices(key, version, body, Meter(key)))
    return _decode(request_layout(key, version), key, body)


def decode_slices(key: int, version: int, body: Buffer, meter: Meter) -> Pauses:
    """As `decode_request`, with pauses; `meter` has counted the elements at the end.

    Raises OverBudgetError, a ProtocolError, before too many are made.
    """
    if len(body) > REQUEST_BYTES_MAX:
        raise ProtocolError(f"a request of {len(body)} bytes, at most {REQUEST_BYTES_MAX}")
    layout = request_layout(key, version)
    if layout.read_slices is None:
        return _decode(layout, key, body)
    try:
        request, _ = yield from layout.read_slices(memoryview(body), 0, meter)
    except MALFORMED as error:
        raise malformed(f"a message of {apis.APIS[key].name}", error) from error
    return request


@functools.cache
def refusable(key: int, version: int) -> bool:
    """Whether the answer can say INVALID_REQUEST about the whole: it has an error code of its own.

    Otherwise nothing can be said without naming elements, and the connection is closed.
    """
    fields = schemas.fields_of(apis.APIS[key].name, version, "Response")
    return any(field.name == "error_code" for field in fields)


def encode_response(key: int, version: int, response: Any) -> bytes:
    """The body of an answer, without header."""
    out = bytearray()
    if key == apis.API_VERSIONS:
        response = _features_for(version, response)
    response_layout(key, version).write(out, response)
    return bytes(out)


def encode_slices(key: int, version: int, response: Any) -> Pauses:
    """As `encode_response`, with pauses. Raises ProtocolError for an answer of too many bytes."""
    layout = response_layout(key, version)
    if layout.write_slices is None or key == apis.API_VERSIONS:
        return encode_response(key, version, response)
    out = bytearray()
    for _ in layout.write_slices(out, response, Meter(key)):
        if len(out) > RESPONSE_BYTES_MAX:
            raise ProtocolError(
                f"the answer would have more than {RESPONSE_BYTES_MAX} bytes;"
                " ask for less at a time"
            )
        yield
    return out


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
    response = discovery.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            discovery.ApiVersion(
                api_key=row.key, min_version=row.min_version, max_version=row.max_version
            )
        ],
    )
    return encode_response(apis.API_VERSIONS, 0, response)


def shape_of(key: int, kind: str) -> type:
    """Returns the shape of an API's "Request" or "Response"; KeyError for unknown keys."""
    name = apis.APIS[key].name + kind
    place = "hot" if key in {apis.PRODUCE, apis.FETCH} else MODULE_OF[name]
    shape: type = getattr(importlib.import_module(f"protocol.messages.{place}"), name)
    return shape


@functools.cache
def request_layout(key: int, version: int) -> Layout:
    return _message_layout(key, version, "Request")


@functools.cache
def response_layout(key: int, version: int) -> Layout:
    return _message_layout(key, version, "Response")


def _features_for(
    version: int, response: discovery.ApiVersionsResponse
) -> discovery.ApiVersionsResponse:
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
    fields = schemas.fields_of(apis.APIS[key].name, version, kind)
    return _struct_layout(fields, shape_of(key, kind), flexible=apis.is_flexible(key, version))


def _struct_layout(fields: Iterable[schemas.Field], shape: type, *, flexible: bool) -> Layout:
    """The layout of a struct, read into and written from `shape`."""
    shapes = _nested_shapes(shape)
    defaults = _defaults(shape)
    steps: list[_Step] = []
    tagged: list[_Tagged] = []
    run: list[schemas.Field] = []
    for field in fields:
        if field.name not in defaults:
            raise TypeError(f"{shape.__name__} has no field {field.name}")
        nested = shapes.get(field.name)
        if field.tag is not None:
            layout = _field_layout(field, nested, flexible=flexible)
            tagged.append(_Tagged(field.tag, field.name, layout, defaults[field.name]))
        elif field.kafka_type in FIXED and not field.is_array:
            run.append(field)
        else:
            _close_run(run, steps)
            steps.append(_Step((field.name,), _field_layout(field, nested, flexible=flexible)))
    _close_run(run, steps)
    tagged.sort(key=attrgetter("tag"))
    assert flexible or not tagged
    tags = {field.tag: field for field in tagged} if flexible else None
    layout = Layout(
        _struct_reader(shape, steps, tags),
        _struct_writer(steps, tags),
        sum(step.layout.bytes_min for step in steps) + (1 if flexible else 0),
    )
    if any(step.layout.read_slices for step in steps):
        layout = layout._replace(read_slices=_struct_slice_reader(shape, steps, tags))
    if any(step.layout.write_slices for step in steps):
        layout = layout._replace(write_slices=_struct_slice_writer(steps, tags))
    return layout


_Tags = dict[int, _Tagged] | None
"""In ascending order; None where messages have no place for tagged fields."""


def _struct_reader(shape: type, steps: list[_Step], tags: _Tags) -> Reader:
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
            at = _read_tagged(view, at, tags, values)
        return shape(**values), at

    return read


def _struct_slice_reader(shape: type, steps: list[_Step], tags: _Tags) -> SliceReader:
    read_steps = [(step.names, step.layout.read, step.layout.read_slices) for step in steps]

    def read(view: memoryview, at: int, meter: Meter) -> Pauses:
        values: dict[str, Any] = {}
        for names, read_step, read_slices in read_steps:
            if read_slices is None:
                value, at = read_step(view, at)
            else:
                value, at = yield from read_slices(view, at, meter)
            if len(names) == 1:
                values[names[0]] = value
            else:
                values.update(zip(names, value, strict=True))
        if tags is not None:
            at = _read_tagged(view, at, tags, values)
        return shape(**values), at

    return read


def _read_tagged(
    view: memoryview, at: int, tags: dict[int, _Tagged], values: dict[str, Any]
) -> int:
    sent, at = read_tagged_fields(view, at)
    for tag, content in sent.items():
        if tag in tags:
            values[tags[tag].name] = tags[tag].layout.read(content, 0)[0]
    return at


def _struct_writer(steps: list[_Step], tags: _Tags) -> Writer:
    write_steps = [(attrgetter(*step.names), step.layout.write) for step in steps]
    end = b"" if tags is None else b"\0"
    tagged = list((tags or {}).values())

    def write(out: bytearray, value: Any) -> None:
        for get, write_step in write_steps:
            write_step(out, get(value))
        if tagged:
            _write_tagged(out, tagged, value)
        else:
            out += end

    return write


def _struct_slice_writer(steps: list[_Step], tags: _Tags) -> SliceWriter:
    write_steps = [
        (attrgetter(*step.names), step.layout.write, step.layout.write_slices) for step in steps
    ]
    end = b"" if tags is None else b"\0"
    tagged = list((tags or {}).values())

    def write(out: bytearray, value: Any, meter: Meter) -> Pauses:
        for get, write_step, write_slices in write_steps:
            if write_slices is None:
                write_step(out, get(value))
            else:
                yield from write_slices(out, get(value), meter)
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


@functools.cache
def _nested_shapes(shape: type) -> Mapping[str, type]:
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


@functools.cache
def _defaults(shape: type) -> Mapping[str, Any]:
    empty = shape()
    return {field.name: getattr(empty, field.name) for field in dataclasses.fields(empty)}


def _close_run(run: list[schemas.Field], steps: list[_Step]) -> None:
    """Fields of fixed length that follow one another are packed at once."""
    if not run:
        return
    codes = [FIXED[field.kafka_type] for field in run if field.kafka_type is not None]
    steps.append(_Step(tuple(field.name for field in run), fixed_layout(codes)))
    run.clear()


def _field_layout(field: schemas.Field, nested: type | None, *, flexible: bool) -> Layout:
    if field.fields is not None:
        assert nested is not None, field.name
        layout = _struct_layout(field.fields, nested, flexible=flexible)
        if field.is_nullable and not field.is_array:
            return nullable_struct(layout)
    else:
        assert field.kafka_type is not None
        if field.is_array and field.kafka_type == "int32":
            return int32_array(flexible=flexible, nullable=field.is_nullable)
        nullable = field.is_nullable and not field.is_array
        layout = value_layout(field.kafka_type, flexible=flexible, nullable=nullable)
    if field.is_array:
        return array(layout, flexible=flexible, nullable=field.is_nullable)
    return layout
