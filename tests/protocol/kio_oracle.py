"""kio as the oracle: random messages of any API and version, and their bytes."""

import dataclasses
import datetime as dt
import functools
import importlib
import io
import re
import types
import typing
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from protocol import apis

VERSIONS = [
    (api.key, version)
    for api in apis.APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    if apis.is_served(api.key, version)
]
"""Every (key, version) that is served."""

KINDS = ("request", "response")


def versions_of(key: int) -> list[int]:
    return [version for each, version in VERSIONS if each == key]


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def texts() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": ints(8),
    "int16": ints(16),
    "int32": ints(32),
    "int64": ints(64),
    "float64": st.floats(allow_nan=False),
    "uint16": st.integers(0, (1 << 16) - 1),
    "string": texts(),
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=40),
    "uuid": st.one_of(st.none(), st.uuids()),
    "error_code": st.sampled_from(sorted(KioErrorCode, key=lambda code: code.value)),
    "timedelta_i32": ints(32).map(lambda ms: dt.timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(-(1 << 45), 1 << 45).map(lambda ms: dt.timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(0, 1 << 40).map(lambda ms: _EPOCH + dt.timedelta(milliseconds=ms)),
}


def message_class(key: int, version: int, kind: str) -> type:
    name = apis.APIS[key].name
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    module = importlib.import_module(f"kio.schema.{folder}.v{version}.{kind}")
    return getattr(module, name + kind.capitalize())


@functools.cache
def messages(cls: type) -> st.SearchStrategy[Any]:
    """Random instances of one of kio's classes."""
    hints = typing.get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        nullable = isinstance(hint, types.UnionType)
        if nullable:
            hint = next(arg for arg in typing.get_args(hint) if arg is not types.NoneType)
        element = typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else hint
        kafka_type = field.metadata.get("kafka_type")
        value = messages(element) if kafka_type is None else _VALUES[kafka_type]
        if element is not hint:
            value = st.lists(value, max_size=3).map(tuple)
        if nullable and kafka_type != "uuid":
            value = st.one_of(st.none(), value)
        values[field.name] = value
    return st.builds(cls, **values)


@functools.cache
def requests(key: int) -> st.SearchStrategy[tuple[int, bytes]]:
    """A version that is served, and the bytes of a random request."""

    def of_version(version: int) -> st.SearchStrategy[tuple[int, bytes]]:
        shapes = messages(message_class(key, version, "request"))
        return shapes.map(lambda message: (version, encode(message)))

    return st.sampled_from(versions_of(key)).flatmap(of_version)


def encode(message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def decode(cls: type, data: bytes) -> Any:
    message, size = entity_reader(cls)(data, 0)
    assert size == len(data)
    return message
