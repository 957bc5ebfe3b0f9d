"""Questions about schemas and their answers as bytes, on a socket between an agent and its checker. Pure.

A frame is the length of all that follows, the length of a head in JSON, the head, and the texts that
it names by number: texts are long, and copied once. Both ends are the same program. What cannot be
read is a `FrameError`: then the other end is not what it should be.
"""

import json
import struct
from typing import Any, Final, assert_never

from broker.registry.checks import (
    Answer,
    CheckValues,
    CompareSchemas,
    FormatSchema,
    NamedBodies,
    Question,
    ReadSchema,
    ReadValues,
    StoredSchema,
)
from coordinator.commands.table_commands import Reference, SchemaKind

LENGTH: Final = struct.Struct("<I")
ANSWER_BYTES_MAX: Final = 8 << 20


class FrameError(Exception):
    """A frame cannot be read."""


class _Texts:
    """The texts of one frame; one that is there twice is sent once."""

    def __init__(self) -> None:
        self.all: list[bytes] = []
        self._places: dict[bytes, int] = {}

    def put(self, text: bytes) -> int:
        place = self._places.setdefault(text, len(self.all))
        if place == len(self.all):
            self.all.append(text)
        return place


def encode_question(question: Question) -> bytes:
    texts = _Texts()
    match question:
        case ReadSchema(kind, text, bodies, references, is_new, normalize):
            head: dict[str, Any] = {
                "read": texts.put(text.encode()),
                "kind": kind.value,
                "bodies": _put_bodies(texts, bodies),
                "references": [list(each) for each in references],
                "is_new": is_new,
                "normalize": normalize,
            }
        case CompareSchemas(level, new, earlier):
            head = {
                "level": level,
                "new": _put_stored(texts, new),
                "earlier": [[version, _put_stored(texts, each)] for version, each in earlier],
            }
        case FormatSchema(schema, wanted):
            head = {"format": wanted, "schema": _put_stored(texts, schema)}
        case CheckValues(schemas, values):
            head = {
                "schemas": [_put_stored(texts, each) for each in schemas],
                "values": [[number, texts.put(value)] for number, value in values],
            }
        case ReadValues(schemas, read, characters_max):
            head = {
                "schemas": [_put_stored(texts, each) for each in schemas],
                "to_read": [[number, list(path), texts.put(data)] for number, path, data in read],
                "characters_max": characters_max,
            }
        case _:
            assert_never(question)
    return _frame(head, texts.all)


def decode_question(data: bytes) -> Question:
    """`data`: behind the frame's length. Raises FrameError."""
    head, texts = _unframe(data)
    try:
        if "read" in head:
            return ReadSchema(
                SchemaKind(head["kind"]),
                texts[head["read"]].decode(),
                _take_bodies(texts, head["bodies"]),
                tuple(Reference(*each) for each in head["references"]),
                bool(head["is_new"]),
                bool(head["normalize"]),
            )
        if "level" in head:
            earlier = (
                (int(version), _take_stored(texts, each)) for version, each in head["earlier"]
            )
            return CompareSchemas(
                str(head["level"]), _take_stored(texts, head["new"]), tuple(earlier)
            )
        if "values" in head:
            schemas = tuple(_take_stored(texts, each) for each in head["schemas"])
            values = ((int(number), texts[place]) for number, place in head["values"])
            return CheckValues(schemas, tuple(values))
        if "to_read" in head:
            schemas = tuple(_take_stored(texts, each) for each in head["schemas"])
            read = (
                (int(number), tuple(map(int, path)), texts[place])
                for number, path, place in head["to_read"]
            )
            return ReadValues(schemas, tuple(read), int(head["characters_max"]))
        return FormatSchema(_take_stored(texts, head["schema"]), str(head["format"]))
    except (LookupError, TypeError, ValueError) as error:
        raise FrameError(f"a question that cannot be read: {error}") from error


def encode_answer(answer: Answer) -> bytes:
    head = {
        "error": answer.error,
        "fingerprint": answer.fingerprint.hex(),
        "lines": answer.lines,
        "refused": answer.refused,
        "refused_count": answer.refused_count,
    }
    return _frame(head, [answer.body])


def decode_answer(data: bytes) -> Answer:
    """`data`: behind the frame's length. Raises FrameError."""
    head, texts = _unframe(data)
    try:
        return Answer(
            str(head["error"]),
            bytes.fromhex(head["fingerprint"]),
            texts[0],
            tuple(str(line) for line in head["lines"]),
            tuple((int(index), str(reason)) for index, reason in head["refused"]),
            int(head["refused_count"]),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise FrameError(f"an answer that cannot be read: {error}") from error


def _put_bodies(texts: _Texts, bodies: NamedBodies) -> list[list[Any]]:
    return [[name, texts.put(body)] for name, body in bodies]


def _take_bodies(texts: list[bytes], said: list[list[Any]]) -> NamedBodies:
    return tuple((str(name), texts[place]) for name, place in said)


def _put_stored(texts: _Texts, stored: StoredSchema) -> list[Any]:
    bodies = _put_bodies(texts, stored.bodies)
    return [stored.kind.value, stored.fingerprint.hex(), texts.put(stored.body), bodies]


def _take_stored(texts: list[bytes], said: list[Any]) -> StoredSchema:
    kind, digest, place, bodies = said
    found = _take_bodies(texts, bodies)
    return StoredSchema(SchemaKind(kind), bytes.fromhex(digest), texts[place], found)


def _frame(head: dict[str, Any], texts: list[bytes]) -> bytes:
    said = json.dumps(head | {"texts": [len(text) for text in texts]}).encode()
    length = LENGTH.size + len(said) + sum(map(len, texts))
    return b"".join((LENGTH.pack(length), LENGTH.pack(len(said)), said, *texts))


def _unframe(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    try:
        (length,) = LENGTH.unpack_from(data)
        at = LENGTH.size + length
        head = json.loads(data[LENGTH.size : at])
        texts = []
        for each in head["texts"]:
            texts.append(data[at : at + each])
            at += each
    except (LookupError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise FrameError(f"a frame that cannot be read: {error}") from error
    if at != len(data):
        raise FrameError(f"a frame has {len(data)} bytes where {at} are told")
    return head, texts
