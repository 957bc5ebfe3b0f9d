"""Whether a reader's Avro schema can read what a writer's wrote: Avro's schema resolution. Pure.

The rules are those of the Avro specification ("Schema Resolution") as Java's SchemaCompatibility
carries them out, which is what Confluent's registry asks: names of records, enums and fixed are
compared without namespace; a field that the writer lacks needs a default; ints may become longs,
floats and doubles; bytes and strings change into each other.

Recursive types: a pair that is being compared is taken as compatible within itself.
"""

from typing import Final

from broker.registry.differences import PAIRS_MAX, Difference
from protocol.schemas import SchemaError
from protocol.schemas.avro import (
    MISSING,
    Array,
    AvroSchema,
    AvroType,
    Field,
    Map,
    Named,
    Primitive,
    Union,
    type_name,
)

PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""What a reader's type takes besides itself."""


def avro_differences(*, reader: AvroSchema, writer: AvroSchema) -> list[Difference]:
    """Why `reader` cannot read all that `writer` can write; none: it can. Raises SchemaError."""
    return _Comparison().compare(reader.root, writer.root, "")


class _Comparison:
    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()
        self._pairs = 0

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        self._pairs += 1
        if self._pairs > PAIRS_MAX:
            raise SchemaError("too involved to be compared")
        pair = (id(reader), id(writer))
        if pair in self._under_way:
            return []
        self._under_way.add(pair)
        try:
            return self._compare(reader, writer, path)
        finally:
            self._under_way.discard(pair)

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        match reader, writer:
            case _, Union():
                return self._writer_union(reader, writer, path)
            case Union(), _:
                return self._reader_union(reader, writer, path)
            case Array(), Array():
                return self.compare(reader.items, writer.items, f"{path}/items")
            case Map(), Map():
                return self.compare(reader.values, writer.values, f"{path}/values")
            case Named(), Named() if type_name(reader) == type_name(writer):
                return _names(reader, writer, path) + self._named(reader, writer, path)
            case Primitive(), Primitive() if writer.name in (
                reader.name,
                *PROMOTIONS.get(reader.name, ()),
            ):
                return []
            case _:
                return [_type_mismatch(reader, writer, path)]

    def _writer_union(self, reader: AvroType, writer: Union, path: str) -> list[Difference]:
        """Whatever was written is of one branch, so each must be readable."""
        found: list[Difference] = []
        for index, branch in enumerate(writer.branches):
            if isinstance(reader, Union):
                found += self._reader_union(reader, branch, f"{path}/{index}")
            else:
                found += self.compare(reader, branch, path)
        return found

    def _reader_union(self, reader: Union, writer: AvroType, path: str) -> list[Difference]:
        if any(not self.compare(branch, writer, path) for branch in reader.branches):
            return []
        said = (
            f"The {{reader}} schema is missing a type inside a union field at path '{path or '/'}'"
            f" in the {{writer}} schema: {_called(writer)}"
        )
        return [Difference("MISSING_UNION_BRANCH", path or "/", said)]

    def _named(self, reader: Named, writer: Named, path: str) -> list[Difference]:
        if reader.is_record:
            return self._fields(reader, writer, path)
        if reader.kind == "fixed":
            if reader.size == writer.size:
                return []
            said = (
                f"The size of FIXED type field at path '{path}/size' in the {{reader}} schema"
                f" ({reader.size}) does not match with the {{writer}} schema ({writer.size})"
            )
            return [Difference("FIXED_SIZE_MISMATCH", f"{path}/size", said)]
        missing = [symbol for symbol in writer.symbols if symbol not in reader.symbol_set]
        if not missing or reader.default is not MISSING:
            return []
        said = (
            f"The {{reader}} schema is missing enum symbols '[{', '.join(missing)}]' at path"
            f" '{path}/symbols' in the {{writer}} schema"
        )
        return [Difference("MISSING_ENUM_SYMBOLS", f"{path}/symbols", said)]

    def _fields(self, reader: Named, writer: Named, path: str) -> list[Difference]:
        found: list[Difference] = []
        by_name = {each.name: each for each in writer.fields}
        for index, each in enumerate(reader.fields):
            written = _written(each, by_name)
            if written is not None:
                found += self.compare(each.type, written.type, f"{path}/fields/{index}/type")
            elif each.default is MISSING and not _has_enum_default(each.type):
                said = (
                    f"The field '{each.name}' at path '{path}/fields/{index}' in the {{reader}}"
                    " schema has no default value and is missing in the {writer} schema"
                )
                kind = "READER_FIELD_MISSING_DEFAULT_VALUE"
                found.append(Difference(kind, f"{path}/fields/{index}", said))
        return found


def _written(each: Field, by_name: dict[str, Field]) -> Field | None:
    """The writer's field of that name, else of one of the reader's aliases."""
    for name in (each.name, *each.aliases):
        if name in by_name:
            return by_name[name]
    return None


def _has_enum_default(avro: AvroType) -> bool:
    return isinstance(avro, Named) and avro.kind == "enum" and avro.default is not MISSING


def _names(reader: Named, writer: Named, path: str) -> list[Difference]:
    if writer.name == reader.name or writer.full_name in reader.aliases:
        return []
    said = (
        f"The name of the schema has changed (path '{path}/name'): {{reader}} schema"
        f" {reader.full_name}, {{writer}} schema {writer.full_name}"
    )
    return [Difference("NAME_MISMATCH", f"{path}/name", said)]


def _type_mismatch(reader: AvroType, writer: AvroType, path: str) -> Difference:
    said = (
        f"The type (path '{path or '/'}') of a field in the {{reader}} schema does not match with"
        f" the {{writer}} schema: reader type {_called(reader)} not compatible with writer type"
        f" {_called(writer)}"
    )
    return Difference("TYPE_MISMATCH", path or "/", said)


def _called(avro: AvroType) -> str:
    return avro.full_name if isinstance(avro, Named) else type_name(avro)
