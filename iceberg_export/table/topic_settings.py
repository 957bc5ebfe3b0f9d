"""What a topic's own settings, `frazil.iceberg.*`, say about its table.

Agents check them when they are set and tell their effective values with every plan; a setting
that an agent does not tell (one of an older release) has its default here. What cannot be
understood is refused in one sentence: an export that guesses would write a table that has to
be made again. Pure; leaves out the columns that a partitioning names (`schema`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple, TypeVar

from iceberg_export import routes
from iceberg_export.errors import SettingsError
from iceberg_export.names import KEY
from iceberg_export.routes import Route
from iceberg_export.table.column_rules import (
    NO_RULES,
    ColumnRules,
    Mask,
    check_rules,
    parse_drop,
    parse_mask,
    parse_rename,
)

T = TypeVar("T")

PREFIX = "frazil.iceberg."

MODES = ("raw", "string", "json", "avro", "protobuf")
SCHEMA_CHOICES = ("by-id", "latest", "inline", "infer")
"""The schema that a record names; for all records the newest of the subject, one in the settings, or types
that are drawn from the values."""
_TERM = re.compile(r"(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^\s(),]+)\s*\)|([^\s(),]+))\s*(?:,|$)\s*")
_SORT_TERM = re.compile(
    r"(?:(asc|desc)\s*\(\s*([^\s(),]+)\s*\)|([^\s(),]+))\s*(?:,|$)\s*", re.IGNORECASE
)
_TABLE = re.compile(r"[\w-]+(\.[\w-]+)*")
_NAME_CHARS_MAX = 255
_FILE_SIZE_MIN = 1 << 20
_PLAIN_TRANSFORMS = frozenset({"year", "month", "day", "hour", "identity"})
_NUMBERED_TRANSFORMS = frozenset({"bucket", "truncate"})


class PartitionTerm(NamedTuple):
    """One field of a table's partitioning: `day(kafka_timestamp)`, `bucket(16,user_id)`, `city`."""

    transform: str
    """year, month, day, hour, identity, bucket or truncate."""
    column: str
    """A struct's field is written `struct.field`."""
    number: int = 0
    """Of bucket and truncate."""


class SortTerm(NamedTuple):
    """A column that a table is sorted by."""

    column: str
    """A struct's field is written `struct.field`."""
    descending: bool = False


def parse_partition_by(text: str) -> tuple[PartitionTerm, ...]:
    """A list of terms, `none` for none. Raises SettingsError.

    `day(kafka_timestamp), bucket(16, user_id), city`; order matters to readers of the table.
    """
    if text.strip().lower() == "none":
        return ()
    terms: list[PartitionTerm] = []
    at = len(text) - len(text.lstrip())
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise SettingsError(
                f"partition.by {text!r} cannot be read at {text[at:]!r}; it is a comma list like "
                "day(kafka_timestamp), bucket(16, user_id), city, or none"
            )
        terms.append(_term(text, *found.groups()))
        at = found.end()
    if not terms or text.rstrip().endswith(","):
        raise SettingsError(f"partition.by {text!r} names no column; none is written none")
    if len(set(terms)) != len(terms):
        raise SettingsError(f"partition.by {text!r} names one field twice")
    return tuple(terms)


def _term(
    text: str, transform: str | None, number: str | None, column: str | None, plain: str | None
) -> PartitionTerm:
    if plain is not None:
        return PartitionTerm("identity", plain)
    assert transform is not None
    assert column is not None
    transform = transform.lower()
    if transform in _PLAIN_TRANSFORMS and number is None:
        return PartitionTerm(transform, column)
    if transform in _NUMBERED_TRANSFORMS and number is not None and 0 < int(number) < 1 << 31:
        return PartitionTerm(transform, column, int(number))
    wanted = (
        f"{transform}(N, column)"
        if transform in _NUMBERED_TRANSFORMS
        else f"one of {', '.join(sorted(_PLAIN_TRANSFORMS | _NUMBERED_TRANSFORMS))}"
    )
    raise SettingsError(f"partition.by {text!r}: {transform} must be {wanted}")


def _choice(*allowed: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return value

    return check


def _boolean(value: str) -> bool:
    return _choice("true", "false")(value.lower()) == "true"


def _milliseconds(value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise ValueError("a whole number of milliseconds")
    return int(value)


def _file_size(value: str) -> int:
    digits = value.removeprefix("+")
    if digits.isascii() and digits.isdigit() and not 0 < int(digits) < _FILE_SIZE_MIN:
        return int(digits)
    raise ValueError(f"0, or at least {_FILE_SIZE_MIN} bytes")


def _partition_by(text: str) -> tuple[PartitionTerm, ...] | None:
    return parse_partition_by(text) if text.strip() else None


def _sort_order(text: str) -> tuple[SortTerm, ...] | None:
    """Reads `city, desc(price)`, or none."""
    text = text.strip()
    if not text or text.lower() == "none":
        return () if text else None
    found: list[SortTerm] = []
    at = 0
    while at < len(text):
        one = _SORT_TERM.match(text, at)
        if one is None:
            raise SettingsError(
                f"sort.order {text!r} cannot be read at {text[at:]!r}; it is a list like city,desc(price), or"
                " none"
            )
        direction, named, plain = one.groups()
        found.append(SortTerm(named or plain, (direction or "").lower() == "desc"))
        at = one.end()
    columns = [one.column for one in found]
    if text.endswith(",") or len(set(columns)) != len(columns):
        raise SettingsError(f"sort.order {text!r} ends with a comma, or names a column twice")
    return tuple(found)


def _table(value: str) -> str:
    if value and (len(value) > _NAME_CHARS_MAX or _TABLE.fullmatch(value) is None):
        raise ValueError(
            f"letters, digits, _ and -, dots between, at most {_NAME_CHARS_MAX} characters"
        )
    return value


def _setting(read: Callable[[str], T], *, default: T) -> T:
    """A field of `TopicTable`; `read` raises ValueError with the end of a sentence."""
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True, slots=True)
class TopicTable:
    """The settings of one topic, checked. A field is named like its setting, without the prefix."""

    enable: bool = _setting(_boolean, default=True)
    table: str = _setting(_table, default="")
    """`name` or `namespace.name`; empty: as the exporter names tables."""
    mode: str = _setting(_choice("append", "upsert"), default="append")
    value_mode: str = _setting(_choice(*MODES), default="raw")
    key_mode: str = _setting(_choice(*MODES), default="raw")
    layout: str = _setting(_choice("flat", "nested"), default="flat")
    value_subject: str = _setting(str, default="")
    """Never empty after `parse`."""
    key_subject: str = _setting(str, default="")
    """Never empty after `parse`."""
    value_schema: str = _setting(_choice(*SCHEMA_CHOICES), default="by-id")
    key_schema: str = _setting(_choice(*SCHEMA_CHOICES), default="by-id")
    value_schema_json: str = _setting(str, default="")
    """A JSON Schema, when `value_schema` is inline."""
    key_schema_json: str = _setting(str, default="")
    envelope: str = _setting(_choice("none", "debezium", "maxwell"), default="none")
    """debezium, maxwell: values are change events, and rows are in them."""
    envelope_transactions: bool = _setting(_boolean, default=False)
    """Columns say of which transaction a change is."""
    partition_by: tuple[PartitionTerm, ...] | None = _setting(_partition_by, default=None)
    """None: as the exporter's own settings say; (): not partitioned."""
    columns_drop: tuple[str, ...] = _setting(parse_drop, default=())
    columns_rename: tuple[tuple[str, str], ...] = _setting(parse_rename, default=())
    columns_mask: tuple[tuple[str, Mask], ...] = _setting(parse_mask, default=())
    sort_order: tuple[SortTerm, ...] | None = _setting(_sort_order, default=None)
    """None: the table stays as it is; (): it has no order."""
    route_by: str = _setting(routes.parse_by, default="")
    route_tables: tuple[tuple[str, str], ...] = _setting(routes.parse_tables, default=())
    """Of records with these values; () when all are the topic's own table's."""
    bad_records: str = _setting(_choice("dlq", "fail", "drop"), default="dlq")
    schema_evolution: str = _setting(_choice("add", "strict"), default="add")
    types: str = _setting(_choice("portable", "iceberg"), default="portable")
    """Of columns to come: those that all engines read, or all that Iceberg has."""
    target_file_size: int = _setting(_file_size, default=0)
    """Bytes; 0: as the exporter's own settings say."""
    max_lag_ms: int = _setting(_milliseconds, default=300_000)
    retention_hold: bool = _setting(_boolean, default=False)
    retention_hold_max_ms: int = _setting(_milliseconds, default=604_800_000)

    @property
    def typed(self) -> bool:
        """Keys or values are decoded, so that some of them may turn out not to be decodable."""
        return self.value_mode != "raw" or self.key_mode != "raw"

    @property
    def envelope_form(self) -> str:
        """What is read of change events, as a table notes it; none: values are none."""
        return f"{self.envelope} with transactions" if self.envelope_transactions else self.envelope

    @property
    def column_rules(self) -> ColumnRules:
        """Which columns are dropped, renamed or masked."""
        return ColumnRules(self.columns_drop, self.columns_rename, self.columns_mask)

    @property
    def routes(self) -> list[str]:
        """The tables that the topic has beside its own."""
        return list(dict.fromkeys(table for _, table in self.route_tables))

    def route(self, table: str) -> Route | None:
        """Returns which records a table has, one of `routes` or "" for the topic's own; None: all."""
        return routes.route_of(self.route_by, self.route_tables, table)

    def identifier(self, namespace: str, default: str, route: str = "") -> tuple[str, str]:
        """Namespace and name of the table, or of one of `routes`."""
        chosen = route or self.table
        if not chosen:
            return namespace, default
        before, dot, name = chosen.rpartition(".")
        return (before, name) if dot else (namespace, name)


def parse(configs: Mapping[str, str], topic: str) -> TopicTable:
    """The settings of `topic` from what an agent tells. Raises SettingsError with one mistake.

    Names that are not known here are left alone: agents may be newer than the exporter.
    """
    values: dict[str, object] = {}
    for item in fields(TopicTable):
        name = PREFIX + item.name.replace("_", ".")
        if name not in configs:
            continue
        text = configs[name].strip()
        try:
            values[item.name] = item.metadata["read"](text)
        except ValueError as error:
            raise SettingsError(f"topic {topic}: {name} must be {error}, not {text!r}") from error
        except SettingsError as error:
            raise SettingsError(f"topic {topic}: {error}") from error
    values["value_subject"] = values.get("value_subject") or f"{topic}-value"
    values["key_subject"] = values.get("key_subject") or f"{topic}-key"
    found = TopicTable(**values)  # type: ignore[arg-type]
    if found.envelope != "none" and found.value_mode in ("raw", "string"):
        raise SettingsError(
            f"topic {topic}: {PREFIX}envelope is {found.envelope}, and {PREFIX}value.mode is "
            f"{found.value_mode}, which has no fields; set it to json, avro or protobuf"
        )
    if found.envelope_transactions and found.envelope != "debezium":
        raise SettingsError(
            f"topic {topic}: {PREFIX}envelope.transactions is for {PREFIX}envelope=debezium, not {found.envelope}"
        )
    if "infer" in (found.value_schema, found.key_schema):
        _check_infer(found, topic)
    if found.column_rules != NO_RULES:
        _check_column_rules(found, topic)
    if found.route_by or found.route_tables:
        _check_routes(found, topic)
    _check_inline("value", found.value_schema, found.value_mode, found.value_schema_json, topic)
    _check_inline("key", found.key_schema, found.key_mode, found.key_schema_json, topic)
    return found


def _check_inline(side: str, schema: str, mode: str, text: str, topic: str) -> None:
    if schema != "inline":
        return
    name = f"{PREFIX}{side}.schema"
    if mode != "json":
        raise SettingsError(f"topic {topic}: {name}=inline is for {side}.mode=json, not {mode}")
    if not text:
        raise SettingsError(f"topic {topic}: {name} is inline, and {name}.json has no JSON Schema")


def _check_column_rules(found: TopicTable, topic: str) -> None:
    try:
        check_rules(found.column_rules)
    except SettingsError as error:
        raise SettingsError(f"topic {topic}: {PREFIX}{error}") from error
    for path in found.column_rules.paths:
        of_key = path.split(".")[0] == KEY
        side, mode, schema = (
            ("key", found.key_mode, found.key_schema)
            if of_key
            else ("value", found.value_mode, found.value_schema)
        )
        if mode in ("raw", "string") or schema == "infer":
            raise SettingsError(
                f"topic {topic}: {PREFIX}columns.* has a rule for {path}, whose columns need a schema: set"
                f" {PREFIX}{side}.mode to json, avro or protobuf, and {side}.schema not to infer"
            )
        if of_key and found.mode == "upsert":
            raise SettingsError(
                f"topic {topic}: mode upsert finds rows by {KEY}: {PREFIX}columns.* cannot have a rule for"
                f" {path}"
            )


def _check_routes(found: TopicTable, topic: str) -> None:
    if not (found.route_by and found.route_tables):
        raise SettingsError(
            f"topic {topic}: {PREFIX}route.by says where the value is that {PREFIX}route.tables has tables for:"
            " set both, or neither"
        )
    if found.mode == "upsert":
        raise SettingsError(
            f"topic {topic}: {PREFIX}route.by is for mode append: in mode upsert the next record of a key could"
            " be of another table, and its row would stay in both"
        )
    route = found.route("")
    if route is not None and route.path and found.value_mode != "json":
        raise SettingsError(
            f"topic {topic}: {PREFIX}route.by={route.by} is a field of JSON values, and {PREFIX}value.mode is"
            f" {found.value_mode}; route by a header (kafka_headers.NAME) or by kafka_key"
        )


def _check_infer(found: TopicTable, topic: str) -> None:
    for side, schema, mode in (
        ("value", found.value_schema, found.value_mode),
        ("key", found.key_schema, found.key_mode),
    ):
        if schema == "infer" and mode != "json":
            raise SettingsError(
                f"topic {topic}: {PREFIX}{side}.schema=infer is for {side}.mode=json, not {mode}"
            )
    if found.value_schema == "infer" and found.envelope != "none":
        raise SettingsError(
            f"topic {topic}: change events need a schema: set {PREFIX}value.schema to inline, or "
            "register one"
        )
    if found.key_schema == "infer" and found.mode == "upsert":
        raise SettingsError(
            f"topic {topic}: mode upsert tells rows apart by their keys, whose columns cannot grow: "
            f"set {PREFIX}key.schema to inline"
        )
