"""Keys and values of records as the command line reads them: which schema they name, and what they say by it.

An input is a byte for the schema, and a value without its frame; the frame is read of the same bytes. What is read is
JSON, and the same after it was written.
"""

import contextlib
import json
import random
from collections.abc import Callable, Hashable
from typing import Any, Final

from typing_extensions import override

from protocol.schemas.avro import parse_avro
from protocol.schemas.avro_read import value_reader
from protocol.schemas.avro_values import value_check
from protocol.schemas.avro_write import value_writer
from protocol.schemas.frames import unframed
from protocol.schemas.protobuf import parse_protobuf
from protocol.schemas.protobuf_values import message_at, message_reader, message_writer
from tests.fuzz import mutation
from tests.fuzz.target import Target, WrongError, words

AVRO: Final = (
    """{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"},
    {"name": "c", "type": {"type": "array", "items": ["null", "R"]}}, {"name": "d", "type": {"type": "map",
    "values": ["long", "double", "bytes", "string", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]}}]}""",
    '{"type": "array", "items": {"type": "array", "items": "null"}}',
    '["float", {"type": "fixed", "name": "F", "size": 2}, "boolean", {"type": "map", "values": "int"}]',
)
PROTO: Final = """syntax = "proto3"; message M { int64 a = 1; repeated M b = 2; map<string, double> c = 3;
oneof d { bytes e = 4; string f = 5; } }"""


class Values(Target):
    name = "values"

    @override
    def open(self) -> None:
        schemas = [parse_avro(text) for text in AVRO]
        message = message_at(parse_protobuf(PROTO, {}).descriptor, (0,))
        self._readers = [*map(value_reader, schemas), message_reader(message)]
        self._writers = [*map(value_writer, schemas), message_writer(message)]
        self._checks: list[Callable[[bytes], str]] = [*map(value_check, schemas)]

    @override
    def generate(self, rng: random.Random) -> bytes:
        kind = rng.randrange(len(self._writers))
        return bytes((kind,)) + self._writers[kind](_value(rng, kind, 3))

    @override
    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        return data[:1] + mutation.mutated(rng, data[1:], other[1:])

    @override
    def run(self, data: bytes) -> Hashable:
        kind, value = data[0] % len(self._readers) if data else 0, data[1:]
        for header in (None, value):
            with contextlib.suppress(ValueError):
                unframed(value, header, has_path=True)
        try:
            found = self._readers[kind](value)
        except ValueError as error:
            if (
                kind < len(self._checks)
                and not self._checks[kind](value)
                and "empty" not in str(error)
            ):
                raise WrongError(f"only one of two readers refuses it: {error}") from error
            return kind, words(error).partition(":")[0]
        text = json.dumps(found, allow_nan=False)
        if self._readers[kind](self._writers[kind](json.loads(text))) != found:
            raise WrongError(f"it is another after it was text: {text[:100]}")
        return kind, len(found)


def _value(rng: random.Random, kind: int, depth: int) -> Any:
    below = range(rng.randrange(3) if depth else 0)
    if kind == 0:
        named = [
            {"long": 1 << rng.randrange(63)},
            {"double": rng.random()},
            {"bytes": "ÿ"},
            {"E": "B"},
        ]
        return {
            "a": rng.randrange(-9, 9),
            "b": rng.choice(["", "é", "text"]),
            "c": [rng.choice([None, _value(rng, kind, depth - 1)]) for _ in below],
            "d": {str(number): rng.choice(named) for number in below},
        }
    if kind == 1:
        return [[None] * rng.randrange(9) for _ in below]
    if kind == 2:
        return rng.choice([{"float": 0.5}, {"F": "ab"}, {"boolean": True}, {"map": {"k": 1}}])
    return {
        "a": str(rng.randrange(1 << 40)),
        "b": [_value(rng, kind, depth - 1) for _ in below],
        "c": {str(number): rng.random() for number in below},
        rng.choice("ef"): "AAAA",
    }
