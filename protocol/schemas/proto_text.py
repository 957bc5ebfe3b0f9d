"""Protobuf's schema language (`.proto` text) to descriptors, without protoc and its files.

`parse_proto` reads one file of syntax proto2 or proto3 into a FileDescriptorProto, as protoc's
parser does: names of types are left as they are written, a descriptor pool resolves them (C++'s
scoping rules). `load_files` does that for a file and what it imports; the well-known types are
those of the runtime, and two files of Confluent's are known, too (`BUILT_IN`).

Options are read over, but for `packed`, `default`, `json_name`, `deprecated` and `map_entry`'s own;
services and custom options say nothing about data. Left out: editions, groups, and descriptors of
extensions' values (extensions of other files are unknown fields to whoever reads a message).
"""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool

from protocol.schemas import SchemaError

FieldProto = descriptor_pb2.FieldDescriptorProto

WELL_KNOWN: Final[dict[str, bytes]] = {
    f"google/protobuf/{name}.proto": import_module(
        f"google.protobuf.{name}_pb2"
    ).DESCRIPTOR.serialized_pb
    for name in (
        *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context"),
        *("struct", "timestamp", "type", "wrappers"),
    )
}

BUILT_IN: Final[dict[str, str]] = {
    "confluent/meta.proto": """
        syntax = "proto3";
        package confluent;
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        """,
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
        """,
}
"""What Confluent's registry knows besides, and its clients therefore never register: Kafka Connect's converter
imports both. Extensions are left out, as everywhere."""

SCALARS: Final[dict[str, Any]] = {
    name: FieldProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
        *("bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64"),
    )
}
_LABELS: Final = {
    "optional": FieldProto.LABEL_OPTIONAL,
    "required": FieldProto.LABEL_REQUIRED,
    "repeated": FieldProto.LABEL_REPEATED,
}
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/                              # told apart by what they begin with
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<sign>[{}()\[\]<>;,=:+\-/])""",
    re.VERBOSE | re.DOTALL,
)
_DEPTH_MAX = 64


def parse_proto(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    """One file. Raises SchemaError."""
    return _Parser(text).file(name)


def load_files(
    text: str, references: Mapping[str, str], name: str = "schema.proto"
) -> tuple[descriptor_pool.DescriptorPool, Any]:
    """(pool, descriptor of the file): a file with all that it imports. Raises SchemaError."""
    pool = descriptor_pool.DescriptorPool()
    while name in references:
        name = f"_{name}"
    texts = {**references, name: text}
    added: set[str] = set()
    _add(pool, name, texts, added, ())
    return pool, pool.FindFileByName(name)


def _add(
    pool: Any, name: str, texts: Mapping[str, str], added: set[str], above: tuple[str, ...]
) -> None:
    if name in added:
        return
    if name in above:
        raise SchemaError(f"{name} imports itself")
    if name in texts:
        parsed = parse_proto(texts[name], name)
    elif name in WELL_KNOWN:
        parsed = descriptor_pb2.FileDescriptorProto.FromString(WELL_KNOWN[name])
    elif name in BUILT_IN:
        parsed = parse_proto(BUILT_IN[name], name)
    else:
        raise SchemaError(f"{above[-1] if above else name} imports {name}, which is not known")
    for dependency in parsed.dependency:
        _add(pool, dependency, texts, added, (*above, name))
    try:
        pool.AddSerializedFile(parsed.SerializeToString())
        pool.FindFileByName(name)
    except (TypeError, KeyError, ValueError) as error:
        sentence = " ".join(str(error).split())
        raise SchemaError(f"{name} is no valid Protobuf file: {sentence}") from error
    added.add(name)


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """(kind, text, line) of everything but space and comments."""
    found = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SchemaError(f"line {line}: {text[at : at + 20]!r} is not Protobuf")
        if match.lastgroup is not None:
            found.append((match.lastgroup, match.group(), line))
        line += match.group().count("\n")
        at = match.end()
    return found


INTEGER_DIGITS_MAX = 24
"""0x and 16 of them, or 0 and 22; with some zeros."""


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.at = 0
        self.syntax = "proto2"

    # What comes next.

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at][1] if at < len(self.tokens) else ""

    def next(self, kind: str = "") -> str:
        if self.at >= len(self.tokens):
            raise SchemaError("the file ends too early")
        found, text, _ = self.tokens[self.at]
        if kind and found != kind:
            raise self.error(f"{text!r} where a {kind} belongs")
        self.at += 1
        return text

    def take(self, text: str) -> bool:
        if self.peek() != text:
            return False
        self.at += 1
        return True

    def expect(self, *texts: str) -> None:
        for text in texts:
            if not self.take(text):
                raise self.error(f"{self.peek()!r} where {text!r} belongs")

    def error(self, what: str) -> SchemaError:
        line = self.tokens[min(self.at, len(self.tokens) - 1)][2] if self.tokens else 1
        return SchemaError(f"line {line}: {what}")

    # Values.

    def string(self) -> str:
        parts = [_unquote(self.next("string"))]
        while self.at < len(self.tokens) and self.tokens[self.at][0] == "string":
            parts.append(_unquote(self.next("string")))
        return b"".join(parts).decode(errors="replace")

    def integer(self) -> int:
        negative = self.take("-")
        text = self.next("number")
        if len(text) > INTEGER_DIGITS_MAX:
            raise self.error(f"{text[:20]}... is no number of 64 bits")
        try:
            octal = len(text) > 1 and text[0] == "0" and text[1] not in "xX"
            value = int(text, 8 if octal else 0)
        except ValueError as error:
            raise self.error(f"{text!r} is no whole number") from error
        return -value if negative else value

    def skip_value(self) -> str:
        """A constant, or an aggregate in braces; gives the text of a constant."""
        if self.peek() in {"{", "<", "["}:
            self.skip_brackets()
            return ""
        sign = self.next() if self.peek() in {"-", "+"} else ""
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "string":
            return self.string()
        return sign.replace("+", "") + self.next()

    def skip_brackets(self) -> None:
        depth = 0
        while True:
            token = self.next()
            depth += (token in {"{", "<", "["}) - (token in {"}", ">", "]"})
            if depth == 0:
                return

    def skip_statement(self) -> None:
        """Up to a semicolon, or to the end of a block."""
        while not self.take(";"):
            if self.peek() == "{":
                self.skip_brackets()
                self.take(";")
                return
            self.next()

    def option_name(self) -> str:
        parts = []
        while self.peek() not in {"=", ""}:
            parts.append(self.next())
        return "".join(parts)

    # The file.

    def file(self, name: str) -> descriptor_pb2.FileDescriptorProto:
        out = descriptor_pb2.FileDescriptorProto(name=name)
        if self.take("syntax"):
            self.expect("=")
            self.syntax = self.string()
            self.expect(";")
        if self.peek() == "edition" or self.syntax not in {"proto2", "proto3"}:
            raise self.error("only the syntaxes proto2 and proto3 are read")
        out.syntax = self.syntax
        while self.at < len(self.tokens):
            self.top_level(out)
        return out

    def top_level(self, out: descriptor_pb2.FileDescriptorProto) -> None:
        word = self.peek()
        if word == "message":
            self.next()
            self.message(out.message_type.add(), 0)
        elif word == "enum":
            self.next()
            self.enum(out.enum_type.add())
        elif word == "package":
            self.next()
            out.package = self.next("word")
            self.expect(";")
        elif word == "import":
            self.next()
            kind = self.next() if self.peek() in {"public", "weak"} else ""
            if kind == "public":
                out.public_dependency.append(len(out.dependency))
            out.dependency.append(self.string())
            self.expect(";")
        elif word in {"option", "service", "extend"}:
            self.skip_statement()
        elif not self.take(";"):
            raise self.error(f"{word!r} begins nothing that a file has")

    def message(self, out: descriptor_pb2.DescriptorProto, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise self.error(f"messages are over {_DEPTH_MAX} deep")
        out.name = self.next("word")
        self.expect("{")
        while not self.take("}"):
            self.in_message(out, depth)
        # Synthetic oneofs come after those that are written (descriptor.proto, proto3_optional).
        for field in out.field:
            if field.proto3_optional:
                field.oneof_index = len(out.oneof_decl)
                out.oneof_decl.add(name=_fresh(f"_{field.name}", out))

    def in_message(self, out: descriptor_pb2.DescriptorProto, depth: int) -> None:
        word = self.peek()
        named = self.at + 1 < len(self.tokens) and self.tokens[self.at + 1][0] == "word"
        if word == "message" and named:
            self.next()
            self.message(out.nested_type.add(), depth + 1)
        elif word == "enum" and named:
            self.next()
            self.enum(out.enum_type.add())
        elif word == "oneof" and named:
            self.next()
            self.oneof(out)
        elif word == "reserved" or (
            word in {"extend", "option"} and (named or self.peek(1) == "(")
        ):
            self.skip_statement()
        elif word == "extensions":
            self.extensions(out)
        elif not self.take(";"):
            self.field(out, None)

    def extensions(self, out: descriptor_pb2.DescriptorProto) -> None:
        self.next()
        while True:
            start = self.integer()
            end = start
            if self.take("to"):
                end = (1 << 29) - 1 if self.take("max") else self.integer()
            if not 1 <= start <= end < 1 << 29:
                raise self.error(f"{start} to {end} are no numbers of extensions")
            out.extension_range.add(start=start, end=end + 1)
            if not self.take(","):
                break
        self.skip_statement()

    def oneof(self, out: descriptor_pb2.DescriptorProto) -> None:
        index = len(out.oneof_decl)
        out.oneof_decl.add(name=self.next("word"))
        self.expect("{")
        while not self.take("}"):
            if self.peek() == "option":
                self.skip_statement()
            elif not self.take(";"):
                self.field(out, index)

    def field(self, out: descriptor_pb2.DescriptorProto, oneof: int | None) -> None:
        label = self.next() if self.peek() in _LABELS and oneof is None else ""
        if self.peek() == "map" and self.peek(1) == "<":
            self.map_field(out)
            return
        kind = self.next("word")
        if kind == "group":
            raise self.error("groups are not read")
        if not label and oneof is None and self.syntax == "proto2":
            raise self.error(f"a field of type {kind} has no label")
        field = out.field.add(name=self.next("word"))
        self.expect("=")
        field.number = self.integer_number()
        field.label = _LABELS[label or "optional"]
        _set_type(field, kind)
        if oneof is not None:
            field.oneof_index = oneof
        elif label == "optional" and self.syntax == "proto3":
            field.proto3_optional = True
        self.field_options(field)

    def map_field(self, out: descriptor_pb2.DescriptorProto) -> None:
        self.expect("map", "<")
        key = self.next("word")
        self.expect(",")
        value = self.next("word")
        self.expect(">")
        field = out.field.add(name=self.next("word"), label=FieldProto.LABEL_REPEATED)
        self.expect("=")
        field.number = self.integer_number()
        camel = "".join(part[:1].upper() + part[1:] for part in field.name.split("_"))
        entry = out.nested_type.add(name=f"{camel}Entry")
        entry.options.map_entry = True
        for number, name, kind in ((1, "key", key), (2, "value", value)):
            _set_type(
                entry.field.add(name=name, number=number, label=FieldProto.LABEL_OPTIONAL), kind
            )
        field.type_name = entry.name
        field.type = FieldProto.TYPE_MESSAGE
        self.field_options(field)

    def integer_number(self) -> int:
        number = self.integer()
        if not 1 <= number < 1 << 29:
            raise self.error(f"{number} is no number of a field")
        return number

    def field_options(self, field: descriptor_pb2.FieldDescriptorProto) -> None:
        if self.take("["):
            while not self.take("]"):
                name = self.option_name()
                self.expect("=")
                value = self.skip_value()
                if name == "packed":
                    field.options.packed = value == "true"
                elif name == "deprecated":
                    field.options.deprecated = value == "true"
                elif name == "default":
                    if field.label == FieldProto.LABEL_REPEATED:
                        # protoc says so, too; the library that resolves names dies of it.
                        raise self.error(f"{field.name} is repeated, so it has no default")
                    field.default_value = value
                elif name == "json_name":
                    field.json_name = value
                if not self.take(",") and self.peek() != "]":
                    raise self.error(f"{self.peek()!r} in the options of {field.name}")
        self.expect(";")

    def enum(self, out: descriptor_pb2.EnumDescriptorProto) -> None:
        out.name = self.next("word")
        self.expect("{")
        while not self.take("}"):
            if self.peek() == "option":
                self.next()
                name = self.option_name()
                self.expect("=")
                if self.skip_value() == "true" and name == "allow_alias":
                    out.options.allow_alias = True
                self.expect(";")
            elif self.peek() == "reserved":
                self.skip_statement()
            elif not self.take(";"):
                value = out.value.add(name=self.next("word"))
                self.expect("=")
                value.number = self.enum_number()
                if self.peek() == "[":
                    self.skip_brackets()
                self.expect(";")

    def enum_number(self) -> int:
        number = self.integer()
        if not -(1 << 31) <= number < 1 << 31:
            raise self.error(f"{number} is no number of an enum")
        return number


def _set_type(field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    if kind in SCALARS:
        field.type = SCALARS[kind]
    else:
        # Message or enum: the pool finds out.
        field.type_name = kind


def _fresh(name: str, out: descriptor_pb2.DescriptorProto) -> str:
    taken = {one.name for one in out.field} | {one.name for one in out.oneof_decl}
    while name in taken:
        name = f"X{name}"
    return name


_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f"}


def _unquote(text: str) -> bytes:
    """What a quoted string says."""

    def one(match: re.Match[bytes]) -> bytes:
        what = match.group(1)
        if what[:1] in b"xX" and what[1:]:
            return bytes([int(what[1:], 16)])
        if what[:1] in b"01234567":
            return bytes([int(what, 8) & 0xFF])
        return _ESCAPES.get(what, b"\v" if what == b"v" else what)

    return re.sub(rb"\\([xX][0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", one, text[1:-1].encode())
