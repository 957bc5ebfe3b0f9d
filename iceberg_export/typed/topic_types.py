"""What the driver knows of a topic's schemas, and the table's columns that follow from it.

Once per run the versions of the topic's subjects are read (the newest thousand); an id, or a GUID
in a header, that a task meets and that was not among them is asked for when it is met. With
`value.schema=latest` (or `key.schema`) only the newest version is read, and decodes everything of
the run; with `inline` the topic's settings have the one schema of all, and nobody is asked. Of a Protobuf file with several messages each counts from when a record is one: which of
them records are only they say. Tasks get all schemas from the driver, so a task that runs twice comes to the same
rows. The table grows in commits of its own before any file of the new columns exists; growing is
repeated against the table as it is until nothing is left to add, so another exporter, or a person,
may change it at the same time.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import Table

from iceberg_export import names
from iceberg_export.errors import CatalogError, SettingsError, StateError
from iceberg_export.records.masks import check_masks
from iceberg_export.table import schema
from iceberg_export.table.catalog import Identifier
from iceberg_export.table.column_note import view
from iceberg_export.table.column_rules import (
    edits_of,
    masks_of,
    paths_without_column,
    read_rules,
)
from iceberg_export.table.commit import Pause
from iceberg_export.table.edits import (
    NONE,
    Edits,
    field_as_in_table,
    fields_without_dropped,
    width,
)
from iceberg_export.table.evolve import evolve
from iceberg_export.table.topic_settings import TopicTable
from iceberg_export.typed.decode_values import (
    INCOMPATIBLE,
    SCHEMA_INVALID,
    SCHEMA_UNKNOWN,
    UNSEEN,
    Message,
)
from iceberg_export.typed.envelope import row_fields
from iceberg_export.typed.fields import STRING_FIELDS
from iceberg_export.typed.framing import FIRST_MESSAGE
from iceberg_export.typed.inferred import (
    DRAWS,
    EXACT,
    LENIENT,
    NOTHING,
    Seen,
    Type,
    draw,
    join,
    read_seen,
    write_types,
)
from iceberg_export.typed.inferred_rows import fields_of_type, read_types
from iceberg_export.typed.inline import (
    INLINE,
    has_other_rows,
    inferred_note,
    inline_schema,
    note_of,
    say_schema,
    types_property,
)
from iceberg_export.typed.proto_schema import message_paths
from iceberg_export.typed.registry_client import RegistryClient
from iceberg_export.typed.schema_headers import GUID, guid_number, guid_text
from iceberg_export.typed.typed_rows import Refusal, RowTyping, Side, column_name, side_columns
from iceberg_export.typed.types import INFERRED, PROTOBUF, Schema
from protocol.schemas import SchemaError

GROW_ATTEMPTS_MAX = 10
STRANGERS_MAX = 1000
"""Schemas that records name and the registry does not have: after so many it is asked for no more in
this run. Else a producer could keep an export asking for ever."""
_NONE = 0
"""The id that no schema has: whoever meets a record asks for it, and then there is an error."""
_NOT_ASKED = Refusal(
    SCHEMA_UNKNOWN,
    f"records name over {STRANGERS_MAX} schemas that the registry does not have, so it was not asked"
    " for this one",
)
_ALWAYS: Message = (-1, ())
"""In the place of a message: columns that the mode has without any schema."""
_OWN: Message = (INLINE, FIRST_MESSAGE)
"""The topic's own schema."""


class _SideSchemas(NamedTuple):
    """Schemas of keys or of values, as far as the registry was asked."""

    source: str
    mode: str
    nested: bool
    schemas: dict[int, Schema]
    fields: dict[Message, pa.Schema]
    refused: dict[Message, Refusal]
    newest: list[int]
    """Ids of the subject's versions, oldest first; of `latest` the newest alone."""
    guids: dict[int, int]
    """Ids by GUIDs (`typed.schema_headers`)."""
    choice: str
    """Which schema decodes a record: `topic_settings.SCHEMA_CHOICES`."""
    envelope: str
    """Form of the change events that values are (`envelope.FORMS`); "": they are none."""
    seen: list[Seen]
    """What has no place in it so far."""

    @property
    def has_schemas(self) -> bool:
        return self.mode not in {"raw", "string"}

    @property
    def latest(self) -> bool:
        return self.choice == "latest"

    @property
    def inline(self) -> bool:
        return self.choice == "inline"

    @property
    def infers(self) -> bool:
        return self.choice == "infer"

    @property
    def pinned(self) -> bool:
        """One schema decodes everything: the newest, or the topic's own."""
        return self.has_schemas and self.choice != "by-id"

    def wanted_fields(self) -> list[pa.Field]:
        """The table's columns of all messages."""
        return [field for fields in self.wanted().values() for field in fields]

    def wanted(self) -> dict[Message, list[pa.Field]]:
        """The table's columns by message."""
        return {_ALWAYS: self.columns(pa.schema([]))} | {
            message: self.columns(fields) for message, fields in self.fields.items()
        }

    def columns(self, fields: pa.Schema) -> list[pa.Field]:
        """The table's columns for these fields."""
        return side_columns(
            self.source, self.mode, fields, nested=self.nested, envelope=self.envelope
        )


class _Evolved(NamedTuple):
    """Columns by the exporter's names, after the schemas of both sides."""

    columns: pa.Schema
    refused: Mapping[str, Mapping[Message, str]]
    """By `Side.source`: why records of messages cannot be in the table."""


class TopicTypes:
    """The schemas of one topic in one run. `registry` is not asked when no mode needs schemas."""

    def __init__(
        self, settings: TopicTable, registry: RegistryClient, *, assumes_first: bool = False
    ) -> None:
        """`assumes_first`: records are of the first message of their file until they say otherwise, for
        who reads a topic and has no table."""
        self._settings = settings
        self._registry = registry
        self._sides = (
            _side_schemas(
                names.VALUE,
                settings.value_mode,
                nested=settings.layout == "nested",
                choice=settings.value_schema,
                envelope="" if settings.envelope == "none" else settings.envelope_form,
            ),
            _side_schemas(names.KEY, settings.key_mode, nested=True, choice=settings.key_schema),
        )
        self._subjects = (settings.value_subject, settings.key_subject)
        self._notes = {}
        for side, text in zip(
            self._sides, (settings.value_schema_json, settings.key_schema_json), strict=True
        ):
            if side.inline:
                _add_inline_schema(side, text)
                self._notes[side.source] = note_of(side.source, text)
            elif side.infers:
                _add_inferred_types(side, NOTHING)
                self._notes[side.source] = inferred_note(side.source)
        for side, subject in zip(self._sides, self._subjects, strict=True):
            if not side.has_schemas or side.choice in {"inline", "infer"}:
                continue
            for one in _versions(registry, subject, newest=side.latest):
                if assumes_first or side.latest or not _has_several_messages(one):
                    _add_schema(side, (one.schema_id, FIRST_MESSAGE), one)
                else:
                    _know_schema(side, one.schema_id, one)
                side.newest.append(one.schema_id)

    @property
    def subjects_without_schema(self) -> list[str]:
        """Subjects whose schemas are to become columns and that have none yet."""
        return [
            subject
            for side, subject in zip(self._sides, self._subjects, strict=True)
            if side.has_schemas and not side.newest
        ]

    @property
    def waits_for_messages(self) -> bool:
        """Columns may come with the first record of a message of some Protobuf file, or of any value."""
        return any(side.infers for side in self._sides) or any(
            _has_several_messages(one) for side in self._sides for one in side.schemas.values()
        )

    def check_newest(self) -> None:
        """Raises SettingsError when the newest schema is to decode everything and there is none."""
        for side, subject in zip(self._sides, self._subjects, strict=True):
            if side.latest and side.has_schemas and not side.newest:
                what = "values" if side.source == names.VALUE else "keys"
                raise SettingsError(
                    f"no schema is registered under {subject} yet, by whose newest one all {what} "
                    "are to be decoded (frazil.iceberg.value.schema, key.schema)"
                )

    @property
    def notes(self) -> Mapping[str, str]:
        """What a table is to say of the topic's own schemas before it has rows by them
        (`inline.note_of`), by `Side.source`."""
        return self._notes

    def repinned(self, properties: Mapping[str, str]) -> frozenset[str]:
        """Keys or values (`Side.source`) that earlier runs may have decoded by other schemas, given the
        table's properties."""
        return frozenset(
            side.source
            for side, subject in zip(self._sides, self._subjects, strict=True)
            if (side.latest and side.has_schemas and len(self._registry.versions(subject)) > 1)
            or has_other_rows(side.source, self._notes.get(side.source, ""), properties)
        )

    def fetch_schemas(self, unknown: Mapping[str, Iterable[Message]]) -> None:
        """Asks the registry about messages that tasks met, by `Side.source`. Raises ExportError."""
        self.check_newest()
        for side in self._sides:
            for message in sorted(unknown.get(side.source, ())):
                number, _ = message
                if message == UNSEEN:
                    continue
                if number not in side.schemas and _asks_no_more(side):
                    continue
                if number < GUID:
                    found = side.schemas.get(number) or self._registry.by_id(number)
                    _add_schema(side, message, found)
                elif (found := self._registry.by_guid(guid_text(number))) is not None:
                    side.guids[number] = found.schema_id
                    _add_schema(side, (found.schema_id, FIRST_MESSAGE), found)
                else:
                    reason = f"the registry has no schema {guid_text(number)}"
                    side.refused[message] = Refusal(SCHEMA_UNKNOWN, reason)

    def take_seen(self, seen: Mapping[str, str]) -> None:
        """Takes note of what has no place in inferred types, by `Side.source` (`inferred.write_seen`): the
        table grows by it next."""
        for side in self._sides:
            if text := seen.get(side.source):
                side.seen.append(read_seen(text))

    def columns(self) -> pa.Schema:
        """Returns columns of a new table, beside those that every table has, as the topic's rules want them."""
        return pa.schema(
            [field_as_in_table(one, self.rules) for one in self.columns_without_rules()]
        )

    def columns_without_rules(self) -> pa.Schema:
        """Returns the same by the exporter's names; what rules drop is not among them."""
        return self._evolve_sides(pa.schema([]), self.rules, may_grow=True).columns

    @property
    def rules_without_column(self) -> tuple[str, ...]:
        """Columns that the topic has rules for and that no schema has, as far as schemas are known."""
        if self.subjects_without_schema:
            return ()
        columns = [field for side in self._sides for field in side.wanted_fields()]
        return paths_without_column(self._settings.column_rules.paths, columns)

    @property
    def rules(self) -> Edits:
        """What the topic's rules do to the columns of a new table."""
        return view({}, IcebergSchema(), edits_of(self._settings.column_rules)).edits

    def read_typing(
        self,
        columns: pa.Schema,
        edits: Edits = NONE,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[pa.Schema, RowTyping]:
        """Columns grown by what the schemas need, and how rows come into them: for who reads
        records that are not in the table yet, which may not have grown so far. The columns are by the
        exporter's names; `properties` are the table's. What has no place in inferred types is left out."""
        self.check_newest()
        self._read_inferred(properties, LENIENT)
        for side in self._sides:
            _add_exported_messages(side, columns, edits)
        found = self._evolve_sides(columns, edits, may_grow=True)
        return found.columns, self._typing(found, edits, properties)

    def typing(self, table: Table) -> RowTyping:
        """Returns what tasks need for the table as it is."""
        seen = schema.columns_view(table)
        columns = schema.arrow_schema(seen.columns)
        self._read_inferred(table.metadata.properties)
        found = self._evolve_sides(columns, seen.edits, may_grow=False)
        return self._typing(found, seen.edits, table.metadata.properties)

    def evolve_table(
        self,
        catalog: Catalog,
        identifier: Identifier,
        table: Table,
        *,
        has_data: bool,
        pause: Pause,
    ) -> tuple[Table, RowTyping]:
        """Grows the table as schemas need and settings allow; returns it and what tasks need.

        With `schema.evolution=strict` a table that `has_data` does not grow.
        """
        may_grow = self._settings.schema_evolution == "add" or not has_data
        for _ in pause.attempts(GROW_ATTEMPTS_MAX):
            seen = schema.columns_view(table)
            columns = schema.arrow_schema(seen.columns)
            how = DRAWS if may_grow else EXACT
            inferred = self._read_inferred(table.metadata.properties, how)
            found = self._evolve_sides(columns, seen.edits, may_grow=may_grow)
            for side in self._sides:
                if (reason := found.refused[side.source].get(_ALWAYS)) is not None:
                    raise StateError(
                        f"table {'.'.join(identifier)} was not made for {side.mode} in "
                        f"{side.source}: {reason}; set frazil.iceberg.table to "
                        "another name, or the mode back"
                    )
                if (reason := found.refused[side.source].get(_OWN)) is not None:
                    raise StateError(
                        f"the topic's own schema of {side.source} does not fit table "
                        f"{'.'.join(identifier)}: {reason}; set frazil.iceberg.table to "
                        "another name, or the schema back"
                    )
            wanted = [field for side in self._sides for field in side.wanted_fields()]
            grown = schema.grow(
                catalog, identifier, table, found.columns, wanted=wanted, properties=inferred
            )
            if grown is None:
                for side in self._sides:
                    side.seen.clear()
                return table, self._typing(found, seen.edits, table.metadata.properties)
            table = grown
        raise CatalogError(
            f"the columns of table {'.'.join(identifier)} cannot be brought to what schemas need"
        )

    def _read_inferred(self, properties: Mapping[str, str], how: int = EXACT) -> dict[str, str]:
        """Takes inferred types from a table, and with `DRAWS` draws what has no place in them; returns the
        table's properties for them. Raises StateError."""
        wanted = {}
        for side in self._sides:
            if not side.infers:
                continue
            name = types_property(side.source)
            try:
                known = read_types(properties[name]).type if name in properties else NOTHING
            except SchemaError as error:
                raise StateError(f"the property {name} of the table: {error}") from error
            if how == DRAWS:
                known = draw(known, join(side.seen)) if side.seen else known
                wanted[name] = write_types(known)
            _add_inferred_types(side, known, how)
        return wanted

    def _evolve_sides(self, columns: pa.Schema, edits: Edits, *, may_grow: bool) -> _Evolved:
        portable = self._settings.types == "portable"
        refused = {}
        for side in self._sides:
            found = evolve(
                columns, side.wanted(), may_grow=may_grow, portable=portable, edits=edits
            )
            columns, refused[side.source] = found.columns, found.refused
        return _Evolved(columns, refused)

    def _typing(self, found: _Evolved, edits: Edits, properties: Mapping[str, str]) -> RowTyping:
        """Raises SettingsError for a mask that its column cannot have."""
        masks = masks_of(read_rules("the topic's table", properties))
        check_masks(masks, found.columns)
        value, key = (
            _side(one, found.columns, found.refused[one.source], edits) for one in self._sides
        )
        return RowTyping(key, value, edits=edits, masks=masks)


def _versions(registry: RegistryClient, subject: str, *, newest: bool) -> list[Schema]:
    if not newest:
        return registry.versions(subject)
    found = registry.latest(subject)
    return [] if found is None else [found]


def _side_schemas(
    source: str, mode: str, *, nested: bool, choice: str, envelope: str = ""
) -> _SideSchemas:
    return _SideSchemas(source, mode, nested, {}, {}, {}, [], {}, choice, envelope, [])


def _add_inferred_types(side: _SideSchemas, known: Type, how: int = EXACT) -> None:
    side.schemas[INLINE] = Schema(INLINE, INFERRED, write_types(known, how))
    side.fields[_OWN] = pa.schema(fields_of_type(known))
    side.newest[:] = [INLINE]


def _add_inline_schema(side: _SideSchemas, text: str) -> None:
    """Raises SettingsError."""
    _add_schema(side, _OWN, inline_schema(side.source, text))
    if (refusal := side.refused.get(_OWN)) is not None:
        raise SettingsError(f"{refusal.message}; set another one, or frazil.iceberg.envelope")
    side.newest.append(INLINE)


def _add_schema(side: _SideSchemas, message: Message, found: Schema | None) -> None:
    schema_id, indexes = message
    if found is None:
        reason = f"the registry has no schema {schema_id}"
        side.refused[message] = Refusal(SCHEMA_UNKNOWN, reason)
        return
    if not _know_schema(side, schema_id, found):
        reason = f"schema {schema_id} is {found.kind}, the topic's mode is {side.mode}"
        side.refused[message] = Refusal(SCHEMA_INVALID, reason)
        return
    try:
        side.fields[message] = row_fields(found, indexes, envelope=side.envelope)
    except SchemaError as error:
        side.refused[message] = Refusal(SCHEMA_INVALID, f"{say_schema(schema_id)}: {error}")


def _know_schema(side: _SideSchemas, schema_id: int, found: Schema) -> bool:
    """Remembers the schema, whichever of its messages are good. False: it is of another kind."""
    if found.guid:
        with contextlib.suppress(ValueError):  # A registry of other names.
            side.guids[guid_number(found.guid)] = schema_id
    if found.kind.lower() != side.mode:
        return False
    side.schemas[schema_id] = found
    return True


def _has_several_messages(found: Schema) -> bool:
    """Of a Protobuf file that can be read."""
    if found.kind != PROTOBUF:
        return False
    try:
        return len(message_paths(found)) > 1
    except SchemaError:
        return False


def _asks_no_more(side: _SideSchemas) -> bool:
    strangers = (1 for one in side.refused.values() if one.code == SCHEMA_UNKNOWN)
    return sum(strangers) >= STRANGERS_MAX


def _add_exported_messages(side: _SideSchemas, columns: pa.Schema, edits: Edits) -> None:
    """Adds the messages whose columns the table has: a query decodes no others."""
    if side.mode != "protobuf":
        return
    for schema_id, file in side.schemas.items():
        paths: list[tuple[int, ...]] = []
        with contextlib.suppress(SchemaError):
            paths = message_paths(file)
        for indexes in paths:
            message = (schema_id, indexes)
            if message in side.fields or message in side.refused:
                continue
            with contextlib.suppress(SchemaError):
                fields = row_fields(file, indexes, envelope=side.envelope)
                wanted = side.columns(fields)
                found = evolve(columns, {schema_id: wanted}, may_grow=False, edits=edits)
                if not found.refused:
                    side.fields[message] = fields


def _side(
    known: _SideSchemas, columns: pa.Schema, clashes: Mapping[Message, str], edits: Edits
) -> Side:
    """Returns what tasks need, for the columns as the table has them, by the exporter's names."""
    refused = dict(known.refused)
    for message, reason in clashes.items():
        refused[message] = Refusal(INCOMPATIBLE, f"{say_schema(message[0])}: {reason}")
    messages = known.fields.keys() - refused.keys()
    fields = [field.name for one in sorted(messages) for field in known.fields[one]]
    names_of_fields = dict.fromkeys(fields)
    ours = _edits_of_fields(known, names_of_fields, edits)
    kept = [name for name in names_of_fields if name not in ours.dropped]
    target = list(_target(known, columns, kept))
    newest = [one for one in known.newest if (one, FIRST_MESSAGE) in messages]
    return Side(
        source=known.source,
        mode=known.mode,
        nested=known.nested,
        envelope=known.envelope,
        schemas=dict(known.schemas),
        messages=frozenset(messages),
        refused=refused,
        others=_NOT_ASKED if _asks_no_more(known) else None,
        default=newest[-1] if newest and known.mode == "json" and not known.pinned else None,
        pinned=[_NONE, *known.newest][-1] if known.pinned else None,
        guids=dict(known.guids),
        target=pa.schema(target),
        edits=ours,
        hidden=max((_hidden(known.fields[one], ours) for one in messages), default=0),
    )


def _edits_of_fields(known: _SideSchemas, fields: Iterable[str], edits: Edits) -> Edits:
    """Returns what people changed of the fields of keys or values, given that of the table's columns."""
    if edits == NONE:
        return NONE
    if known.nested:
        gone = known.source in edits.dropped
        return Edits(dropped=frozenset(fields)) if gone else edits.below(known.source)
    columns = {name: column_name(name) for name in fields}
    return Edits(
        dropped=frozenset(name for name, column in columns.items() if column in edits.dropped),
        inner={
            name: edits.inner[column] for name, column in columns.items() if column in edits.inner
        },
    )


def _hidden(fields: pa.Schema, edits: Edits) -> int:
    """Returns how many columns of these fields the table has no more, nested ones counted."""
    if edits == NONE:
        return 0
    kept = pa.struct(fields_without_dropped(fields, edits))
    return width(pa.struct(list(fields))) - width(kept)


def _target(known: _SideSchemas, columns: pa.Schema, fields: Collection[str]) -> Iterable[pa.Field]:
    """Returns the fields to be decoded, as the table has them."""
    if known.mode == "string":
        return list(STRING_FIELDS)
    if not known.nested:
        return [pa.field(name, columns.field(column_name(name)).type) for name in fields]
    if not fields or known.source not in columns.names:
        return []
    # All of the struct: a row is written whole.
    whole = columns.field(known.source).type
    return [whole.field(place) for place in range(whole.num_fields)]
