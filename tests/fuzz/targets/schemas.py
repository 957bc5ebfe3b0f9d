"""The registry's texts: parsed, written in one form, compared with another.

An input is a byte for the kind, two texts, and a line between them.
"""

import random
from collections.abc import Hashable, Sequence

from typing_extensions import override

from broker.registry.parsed_schema import ParsedSchema, PreviousVersion, incompatibilities, parse
from coordinator.commands.table_commands import SchemaKind
from protocol.schemas import SchemaError
from tests.fuzz import mutation, schema_texts
from tests.fuzz.target import Target, WrongError, words

KINDS = (SchemaKind.AVRO, SchemaKind.JSON, SchemaKind.PROTOBUF)
BETWEEN = b"\n---\n"


class Schemas(Target):
    name = "schemas"
    fixed = 1200
    cpu_ms_max = 1000.0
    """Texts this short; a worker that can be ended parses them (`make_app`)."""

    @override
    def generate(self, rng: random.Random) -> bytes:
        kind = rng.randrange(3)
        one = schema_texts.text(rng, kind)
        other = one if rng.random() < 0.5 else schema_texts.text(rng, kind)
        if rng.random() < 0.5:
            other = mutation.mutated(rng, other.encode(), one.encode()).decode("utf-8", "replace")
        if rng.random() < 0.1:
            one = schema_texts.deeper(rng, one)
        return bytes((kind,)) + one.encode() + BETWEEN + other.encode()

    @override
    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        return data[:1] + mutation.mutated(rng, data[1:], other[1:])

    @override
    def run(self, data: bytes) -> Hashable:
        kind = KINDS[data[0] % 3] if data else SchemaKind.AVRO
        texts = [each.decode("utf-8", "replace") for each in data[1:].split(BETWEEN, 1)]
        said: list[Hashable] = [kind.value]
        parsed: list[ParsedSchema] = []
        for text in texts:
            for is_new in (True, False):
                try:
                    parsed.append(parse(kind, text, {}, is_new=is_new, normalize=is_new))
                except SchemaError as error:
                    said.append(words(error).partition(":")[0])
        for each in parsed:
            _again(kind, each)
        if len(texts) > 1 and len(parsed) > 1:
            said.append(_compared(parsed))
        return tuple(said)


def _again(kind: SchemaKind, parsed: ParsedSchema) -> None:
    try:
        again = parse(kind, parsed.canonical, {})
    except SchemaError as error:
        raise WrongError(f"its canonical form is none: {error}") from error
    if again.canonical != parsed.canonical:
        raise WrongError(
            f"the canonical form has another: {parsed.canonical!r}, {again.canonical!r}"
        )


def _compared(parsed: Sequence[ParsedSchema]) -> Hashable:
    try:
        found = incompatibilities("FULL", parsed[0], [PreviousVersion(1, parsed[-1])])
    except SchemaError as error:
        return words(error)
    return len(found)
