"""Whether a reader's Protobuf schema can read what a writer's wrote. Pure, over descriptors.

Fields are known by their numbers. The differences, their names and which are harmless follow
Confluent's registry: names of fields and enum values may change, fields come and go (unless they
are required, or some but not all of a oneof go), integers may change into each other and into
enums, and strings into bytes and back; messages may not vanish, because somebody may have used
them as the message of a topic.

Descriptors are resolved: `type_name` is a full name with a dot before it. A pair of messages that
is being compared counts as compatible within itself (recursive messages).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2

from broker.registry.differences import PAIRS_MAX, Changes, Difference, SchemaChange, harmful
from protocol.schemas import SchemaError

HARMLESS: Final = frozenset(
    (
        "MESSAGE_ADDED",
        "MESSAGE_MOVED",
        "ENUM_ADDED",
        "ENUM_REMOVED",
        "ENUM_CONST_ADDED",
        "ENUM_CONST_CHANGED",
        "ENUM_CONST_REMOVED",
        "FIELD_ADDED",
        "FIELD_REMOVED",
        "FIELD_NAME_CHANGED",
        "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
        "ONEOF_ADDED",
        "ONEOF_REMOVED",
        "ONEOF_FIELD_ADDED",
        "ONEOF_FIELD_MOVED_TO_TOP_LEVEL",
    )
)

# Numbers of descriptor.proto: FieldDescriptorProto.Type and .Label.
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_REQUIRED, _REPEATED = 2, 3
_WIRE_KINDS: Final[dict[int, str]] = {
    **dict.fromkeys((3, 4, 5, 8, 13, _ENUM), "general number"),  # int, uint, bool, enum
    **dict.fromkeys((17, 18), "signed number"),  # sint32, sint64
    **dict.fromkeys((9, 12), "string or bytes"),
    **dict.fromkeys((7, 15), "fixed32"),
    **dict.fromkeys((6, 16), "fixed64"),
    2: "float",
    1: "double",
}
"""Types that read each other's bytes (protobuf.dev, "Updating A Message Type")."""


class ProtoSchema(NamedTuple):
    """FileDescriptorProtos: of the schema, and of all that it imports."""

    file: Any
    imported: Sequence[Any] = ()


def proto_schema(descriptor: Any) -> ProtoSchema:
    """Returns a FileDescriptor as the messages that are compared."""
    imported: dict[str, Any] = {}
    _collect(descriptor, imported)
    return ProtoSchema(_proto_of(descriptor), tuple(imported.values()))


def _collect(descriptor: Any, imported: dict[str, Any]) -> None:
    for dependency in descriptor.dependencies:
        if dependency.name not in imported:
            imported[dependency.name] = _proto_of(dependency)
            _collect(dependency, imported)


def _proto_of(descriptor: Any) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto.FromString(descriptor.serialized_pb)


def protobuf_differences(*, reader: ProtoSchema, writer: ProtoSchema) -> list[Difference]:
    """Why the reader's schema misreads what the writer's wrote; none: it does not.

    Raises SchemaError for schemas that are too involved.
    """
    return harmful(protobuf_changes(original=writer, update=reader), HARMLESS)


def protobuf_changes(*, original: ProtoSchema, update: ProtoSchema) -> Changes:
    """All that has changed, harmless or not."""
    comparison = _Comparison(_Types(original), _Types(update))
    changes = []
    if original.file.package != update.file.package:
        changes.append(SchemaChange("PACKAGE_CHANGED", "#/"))
    return changes + comparison.types(original.file, update.file, "")


class _Type(NamedTuple):
    descriptor: Any
    package: str
    is_local: bool


class _Types:
    """Messages by full name, of a file and its imports."""

    def __init__(self, schema: ProtoSchema) -> None:
        self._by_name: dict[str, _Type] = {}
        self._proto2 = schema.file.syntax in ("", "proto2")
        for file in (*schema.imported, schema.file):
            prefix = f".{file.package}" if file.package else ""
            self._add(file.message_type, prefix, file, is_local=file is schema.file)

    def _add(self, messages: Iterable[Any], prefix: str, file: Any, *, is_local: bool) -> None:
        for message in messages:
            full = f"{prefix}.{message.name}"
            self._by_name[full] = _Type(message, file.package, is_local)
            self._add(message.nested_type, full, file, is_local=is_local)

    def get(self, full_name: str) -> _Type:
        found = self._by_name.get(full_name)
        if found is None:
            raise SchemaError(f"{full_name} is not defined")
        return found

    def label(self, field: Any) -> int | None:
        """As it is written; None: no label, and then nothing that could have changed."""
        if field.label in (_REPEATED, _REQUIRED) or field.proto3_optional:
            return int(field.label)
        # In proto2 what is in no oneof must have one.
        return int(field.label) if self._proto2 and not field.HasField("oneof_index") else None

    def local_name(self, full_name: str) -> str:
        """Without the package: packages of imports may change with their versions."""
        package = self.get(full_name).package
        return full_name.removeprefix(f".{package}." if package else ".")


class _Message(NamedTuple):
    """Fields and oneofs of a message, as comparing needs them."""

    by_number: dict[int, Any]
    oneof_of: dict[int, str]
    """Number -> oneof, where it is in one that somebody wrote."""
    oneofs: dict[str, list[int]]


class _Comparison:
    def __init__(self, original: _Types, update: _Types) -> None:
        self._original = original
        self._update = update
        self._under_way: set[str] = set()
        self._pairs = 0

    def types(self, original: Any, update: Any, path: str) -> Changes:
        """Messages and enums of a file, or of a message."""
        changes: Changes = []
        before, after = _messages(original), _messages(update)
        places, places_after = (
            {name: place for place, name in enumerate(names)} for names in (before, after)
        )
        for name in dict.fromkeys([*before, *after]):
            here = f"{path}/{name}"
            if name not in after:
                changes.append(SchemaChange("MESSAGE_REMOVED", f"#{here}"))
            elif name not in before:
                changes.append(SchemaChange("MESSAGE_ADDED", f"#{here}"))
            else:
                changes += self.messages(before[name], after[name], here)
                if places[name] != places_after[name]:
                    changes.append(SchemaChange("MESSAGE_MOVED", f"#{here}"))
        enums_before = {enum.name: enum for enum in original.enum_type}
        enums_after = {enum.name: enum for enum in update.enum_type}
        for name in dict.fromkeys([*enums_before, *enums_after]):
            here = f"#{path}/{name}"
            if name not in enums_after:
                changes.append(SchemaChange("ENUM_REMOVED", here))
            elif name not in enums_before:
                changes.append(SchemaChange("ENUM_ADDED", here))
            else:
                changes += _enums(enums_before[name], enums_after[name], here)
        return changes

    def messages(self, original: Any, update: Any, path: str) -> Changes:
        if path in self._under_way:
            return []
        self._pairs += 1
        if self._pairs > PAIRS_MAX:
            raise SchemaError("too involved to be compared")
        self._under_way.add(path)
        before, after = _fields(original), _fields(update)
        changes = [
            *_exclusive(before, after, path),
            *_oneofs(before, after, path),
            *self._fields(before, after, path),
            *self.types(original, update, path),
        ]
        self._under_way.discard(path)
        return changes

    def _fields(self, before: _Message, after: _Message, path: str) -> Changes:
        changes: Changes = []
        # A oneof of which nothing survives was deleted as a whole, like a field.
        gone = {
            name
            for name, numbers in before.oneofs.items()
            if name not in after.oneofs and not any(each in after.by_number for each in numbers)
        }
        for number in sorted({*before.by_number, *after.by_number}):
            old, new = before.by_number.get(number), after.by_number.get(number)
            old_oneof, new_oneof = before.oneof_of.get(number), after.oneof_of.get(number)
            oneof = new_oneof if new is not None else old_oneof
            here = f"#{path}/{oneof}/{number}" if oneof else f"#{path}/{number}"
            if new is None:
                assert old is not None
                if old_oneof is None:
                    required = old.label == _REQUIRED
                    kind = "REQUIRED_FIELD_REMOVED" if required else "FIELD_REMOVED"
                    changes.append(SchemaChange(kind, here))
                elif old_oneof not in gone:
                    changes.append(SchemaChange("ONEOF_FIELD_REMOVED", here))
            elif old is None:
                required = new.label == _REQUIRED
                plain = "REQUIRED_FIELD_ADDED" if required else "FIELD_ADDED"
                changes.append(SchemaChange("ONEOF_FIELD_ADDED" if new_oneof else plain, here))
            else:
                if old_oneof is not None and new_oneof is None:
                    changes.append(SchemaChange("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", here))
                changes += self._field(old, new, here)
        return changes

    def _field(self, old: Any, new: Any, path: str) -> Changes:
        changes = [] if old.name == new.name else [SchemaChange("FIELD_NAME_CHANGED", path)]
        return changes + self._types_of_field(old, new, path, in_map=False)

    def _types_of_field(self, old: Any, new: Any, path: str, *, in_map: bool) -> Changes:
        entry, entry_after = _entry(self._original, old), _entry(self._update, new)
        kinds = _kind(old, entry), _kind(new, entry_after)
        if kinds[0] != kinds[1]:
            return [SchemaChange("FIELD_KIND_CHANGED", path)]
        if entry is not None and entry_after is not None:
            return [
                change
                for key_or_value in (0, 1)
                for change in self._types_of_field(
                    entry.field[key_or_value], entry_after.field[key_or_value], path, in_map=True
                )
            ]
        if kinds[0] == "message":
            return self._named(old.type_name, new.type_name, path)
        if _WIRE_KINDS[old.type] != _WIRE_KINDS[new.type]:
            return [SchemaChange("FIELD_SCALAR_KIND_CHANGED", path)]
        labels = self._original.label(old), self._update.label(new)
        if in_map or None in labels or labels[0] == labels[1]:
            return []
        text = _WIRE_KINDS[old.type] == "string or bytes"
        return [
            SchemaChange(f"FIELD_{'STRING_OR_BYTES' if text else 'NUMERIC'}_LABEL_CHANGED", path)
        ]

    def _named(self, old: str, new: str, path: str) -> Changes:
        """Fields that are messages: of one name, and what is in them compatible.

        Messages of the schemas themselves are compared at their own places.
        """
        if self._original.local_name(old) != self._update.local_name(new):
            return [SchemaChange("FIELD_NAMED_TYPE_CHANGED", path)]
        before, after = self._original.get(old), self._update.get(new)
        if (before.is_local and after.is_local) or before.descriptor == after.descriptor:
            return []
        local = f"/{self._update.local_name(new).replace('.', '/')}"
        changes = self.messages(before.descriptor, after.descriptor, local)
        if any(change.kind not in HARMLESS for change in changes):
            changes.append(SchemaChange("FIELD_NAMED_TYPE_CHANGED", path))
        return changes


def _messages(container: Any) -> dict[str, Any]:
    """Those that somebody wrote: maps have messages that nobody did."""
    nested = container.nested_type if hasattr(container, "nested_type") else container.message_type
    return {each.name: each for each in nested if not each.options.map_entry}


def _fields(message: Any) -> _Message:
    oneof_of = {
        field.number: message.oneof_decl[field.oneof_index].name
        for field in message.field
        if field.HasField("oneof_index") and not field.proto3_optional
    }
    oneofs: dict[str, list[int]] = {}
    for number, name in oneof_of.items():
        oneofs.setdefault(name, []).append(number)
    return _Message({field.number: field for field in message.field}, oneof_of, oneofs)


def _exclusive(before: _Message, after: _Message, path: str) -> Changes:
    """Fields that could be set together and now cannot."""
    changes: Changes = []
    for name, numbers in after.oneofs.items():
        known = [number for number in numbers if number in before.by_number]
        moved = [number for number in known if number not in before.oneof_of]
        groups = {before.oneof_of[number] for number in known if number in before.oneof_of}
        if len(moved) + len(groups) > 1:
            many = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(moved) > 1 else None
            changes.append(SchemaChange(many or "FIELD_MOVED_TO_EXISTING_ONEOF", f"#{path}/{name}"))
    return changes


def _oneofs(before: _Message, after: _Message, path: str) -> Changes:
    return [
        SchemaChange("ONEOF_REMOVED" if name in before.oneofs else "ONEOF_ADDED", f"#{path}/{name}")
        for name in sorted(before.oneofs.keys() ^ after.oneofs.keys())
    ]


def _enums(original: Any, update: Any, path: str) -> Changes:
    before = {value.number: value.name for value in original.value}
    after = {value.number: value.name for value in update.value}
    changes: Changes = []
    for number in sorted({*before, *after}):
        if before.get(number) != after.get(number):
            kind = (
                "REMOVED" if number not in after else "ADDED" if number not in before else "CHANGED"
            )
            changes.append(SchemaChange(f"ENUM_CONST_{kind}", f"{path}/{number}"))
    return changes


def _entry(types: _Types, field: Any) -> Any | None:
    """The message of a map's entries, if the field is a map."""
    if field.type not in (_MESSAGE, _GROUP) or field.label != _REPEATED:
        return None
    descriptor = types.get(field.type_name).descriptor
    return descriptor if descriptor.options.map_entry else None


def _kind(field: Any, entry: Any | None) -> str:
    if entry is not None:
        return "map"
    return "message" if field.type in (_MESSAGE, _GROUP) else "scalar"
