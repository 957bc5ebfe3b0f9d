"""Topic configs of the tables that topics are exported to: `frazil.iceberg.*`. Pure.

Set and shown like Kafka's own. The exporter takes their effective values from its plans and reads
them as they are checked here; what only it can know (whether a schema has the column to partition
by) it says when it runs.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from broker.config.config_row import LONG_MAX, ConfigRow, Kind
from protocol.schemas import SchemaError
from protocol.schemas.json_schema import load

PREFIX: Final = "frazil.iceberg."
ENABLE: Final = f"{PREFIX}enable"
RETENTION_HOLD: Final = f"{PREFIX}retention.hold"
RETENTION_HOLD_MAX_MS: Final = f"{PREFIX}retention.hold.max.ms"

_DECODERS = ("raw", "string", "json", "avro", "protobuf")
_BY_SCHEMA = ("json", "avro", "protobuf")
_SCHEMAS = ("by-id", "latest", "inline", "infer")
_SCHEMA_BYTES_MAX = 16_384
_ENVELOPE = f"{PREFIX}envelope"
_TRANSACTIONS = f"{_ENVELOPE}.transactions"
VALUE_SCHEMA: Final = f"{PREFIX}value.schema"
_PARTITION_BY = f"{PREFIX}partition.by"
_COLUMNS: Final = {
    "kafka_partition": "number",
    "kafka_offset": "number",
    "kafka_timestamp": "time",
    "kafka_timestamp_type": "number",
    "kafka_timestamp_raw": "number",
    "kafka_key": "text",
    "value": "text",
}
"""That a table can be partitioned by, when keys and values are raw or text: `iceberg_export.table.schema`."""
_NAME_MAX = 255
_TABLE = re.compile(r"[\w-]+(\.[\w-]+)*")
_TERM = re.compile(r"(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^\s(),]+)\s*\)|([^\s(),]+))\s*(?:,|$)\s*")
_PLAIN_TRANSFORMS = ("year", "month", "day", "hour", "identity")
_NUMBERED_TRANSFORMS = ("bucket", "truncate")
_WIDTH_END = 1 << 31
_FILE_SIZE_MIN = 1 << 20
_PATH = r"[^\s(),:]+"
_RENAME = rf"{_PATH}\s*:\s*[^\s(),:.]+"
_SORT = r"(?:(?:asc|desc)\s*\(\s*[^\s(),]+\s*\)|[^\s(),]+)"
_ROUTE = r'(?:"[^"]*"|[^\s",:]+)\s*:\s*[\w-]+(?:\.[\w-]+)*'
_ROUTE_BY = f"{PREFIX}route.by"
_ROUTE_TABLES = f"{PREFIX}route.tables"
_ROUTES = 'order:orders,"late order":shop.late'
_ROUTED_TABLES_MAX, _ROUTED_VALUES_MAX = 16, 1000
_MASK = rf"(?:(?:hash|null)\s*\(|truncate\s*\(\s*\d{{1,9}}\s*,)\s*{_PATH}\s*\)"


def _check_table(value: str) -> None:
    if value and (len(value) > _NAME_MAX or _TABLE.fullmatch(value) is None):
        raise ValueError(f"a table has letters, digits, _ and -, dots between, at most {_NAME_MAX}")


def _check_subject(value: str) -> None:
    if len(value) > _NAME_MAX or any(each < " " or each == "\x7f" for each in value):
        raise ValueError(f"a subject has no control characters, at most {_NAME_MAX}")


def _check_schema(value: str) -> None:
    """Whether it says types that make columns, the exporter knows."""
    try:
        if value.strip() and not isinstance(load(value), dict):
            raise ValueError("a JSON Schema is an object")
    except SchemaError as error:
        raise ValueError(str(error)) from None


def _check_hold(value: str) -> None:
    if int(value) > LONG_MAX // 4:
        raise ValueError(f"at most {LONG_MAX // 4}")


def _check_file_size(value: str) -> None:
    if 0 < int(value) < _FILE_SIZE_MIN:
        raise ValueError(f"0, or at least {_FILE_SIZE_MIN} bytes (1 MiB)")


def _list_of(item: str, example: str) -> Callable[[str], None]:
    """A check of a list, as `iceberg_export.table.column_rules` reads it."""
    form = re.compile(rf"\s*(?:{item}(?:\s*,\s*{item})*)?\s*", re.IGNORECASE)

    def check(text: str) -> None:
        if form.fullmatch(text) is None:
            raise ValueError(f"a list like {example}")

    return check


def _check_route_by(text: str) -> None:
    parts = text.split(".")
    if text and (
        len(text) > _NAME_MAX
        or re.search(r'[\s(),:"\\]', text) is not None
        or not all(parts)
        or text == "kafka_headers"
        or (parts[0] == "kafka_key" and text != "kafka_key")
    ):
        raise ValueError(
            "a field of JSON values like type or payload.kind, a header like kafka_headers.type, or kafka_key"
        )


def _check_routes(text: str) -> None:
    _list_of(_ROUTE, _ROUTES)(text)
    values, tables = zip(*_routes(text), strict=True) if text.strip() else ((), ())
    if len(set(values)) < len(values):
        raise ValueError("each value once")
    if len(values) > _ROUTED_VALUES_MAX or len(set(tables)) > _ROUTED_TABLES_MAX:
        raise ValueError(f"at most {_ROUTED_VALUES_MAX} values and {_ROUTED_TABLES_MAX} tables")


def _routes(text: str) -> list[tuple[str, str]]:
    """Values with their tables."""
    found = re.findall(r'("[^"]*"|[^\s",:]+)\s*:\s*([\w.-]+)', text)
    return [(value.strip('"'), table) for value, table in found]


def _terms(text: str) -> list[tuple[str, int, str]]:
    """(transform, number, column), as the exporter reads them (`iceberg_export.table.topic_settings`).

    Raises ValueError with the end of a sentence.
    """
    text = text.strip()
    if text.lower() in ("", "none"):
        return []
    terms = []
    at = 0
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise ValueError(
                f"it cannot be read at {text[at:]!r}; it is a list like"
                " day(kafka_timestamp),bucket(16,user_id),city, or none"
            )
        transform, number, column, plain = found.groups()
        if plain is None:
            _check_transform(transform.lower(), number)
            terms.append((transform.lower(), int(number or 0), column))
        else:
            terms.append(("identity", 0, plain))
        at = found.end()
    if text.endswith(","):
        raise ValueError("it ends with a comma")
    if len(dict.fromkeys(terms)) != len(terms):
        raise ValueError("one field is named twice")
    return terms


def _check_transform(transform: str, number: str | None) -> None:
    if transform in _NUMBERED_TRANSFORMS:
        if number is None or not 0 < int(number) < _WIDTH_END:
            raise ValueError(f"{transform}(N,column) has a number N of at least 1")
    elif transform not in _PLAIN_TRANSFORMS or number is not None:
        known = ", ".join([f"{name}(column)" for name in _PLAIN_TRANSFORMS])
        raise ValueError(f"{transform!r} is none of {known}, bucket(N,column), truncate(W,column)")


TABLE_CONFIGS: Final = (
    ConfigRow(f"{PREFIX}bad.records", Kind.STRING, "dlq",
              "What becomes of a record that cannot be decoded: dlq keeps it in a table of its"
              " own, drop leaves it out, fail stops the export.", choices=("dlq", "drop", "fail")),
    ConfigRow(f"{PREFIX}columns.drop", Kind.STRING, "",
              "Columns that the table is not to have: a list like email,address.street.",
              check=_list_of(_PATH, "email,address.street")),
    ConfigRow(f"{PREFIX}columns.mask", Kind.STRING, "",
              "Columns that hold no values as they are: a list like"
              " hash(email),truncate(3,phone),null(iban): the SHA-256 of text or bytes, so many"
              " characters or bytes of it, or nothing.",
              check=_list_of(_MASK, "hash(email),truncate(3,phone),null(iban)")),
    ConfigRow(f"{PREFIX}columns.rename", Kind.STRING, "",
              "Columns that have other names in the table: a list like"
              " city:town,address.zip:postcode.",
              check=_list_of(_RENAME, "city:town,address.zip:postcode")),
    ConfigRow(ENABLE, Kind.BOOLEAN, "true", "Whether the topic is exported at all."),
    ConfigRow(_ENVELOPE, Kind.STRING, "none",
              "Values are change events, whose rows are the table's: debezium (before, after, op) or"
              " maxwell (data, type); none: a value is a row.", choices=("none", "debezium", "maxwell")),
    ConfigRow(_TRANSACTIONS, Kind.BOOLEAN, "false",
              "Whether columns say of which transaction a change is, as Debezium's connectors tell with"
              " provide.transaction.metadata=true."),
    ConfigRow(f"{PREFIX}key.mode", Kind.STRING, "raw", "How keys are decoded.", choices=_DECODERS),
    ConfigRow(f"{PREFIX}key.schema", Kind.STRING, "by-id",
              "As value.schema, for keys.", choices=_SCHEMAS),
    ConfigRow(f"{PREFIX}key.schema.json", Kind.STRING, "",
              "As value.schema.json, for keys.", check=_check_schema, bytes_max=_SCHEMA_BYTES_MAX),
    ConfigRow(f"{PREFIX}key.subject", Kind.STRING, "",
              "Subject of the schema registry that has the schemas of keys; empty: the topic's"
              " name and -key.", check=_check_subject),
    ConfigRow(f"{PREFIX}layout", Kind.STRING, "flat",
              "flat: a column for each field of a value; nested: one column that holds them"
              " all.", choices=("flat", "nested")),
    ConfigRow(f"{PREFIX}max.lag.ms", Kind.LONG, "300000",
              "How long records may wait for an exporter that runs at an interval.", 0),
    ConfigRow(f"{PREFIX}mode", Kind.STRING, "append",
              "append: the table has every record; upsert: the newest of each key.",
              choices=("append", "upsert")),
    ConfigRow(_PARTITION_BY, Kind.STRING, "",
              "How the table is partitioned: a list of day(column), hour(column),"
              " month(column), year(column), bucket(N,column), truncate(W,column) or column, or"
              " none; empty: as the exporter's settings say.", check=_terms),
    ConfigRow(RETENTION_HOLD, Kind.BOOLEAN, "false",
              "Whether retention keeps records until they are exported."),
    ConfigRow(RETENTION_HOLD_MAX_MS, Kind.LONG, "604800000",
              "How much longer than retention.ms records are kept for the export.",
              0, check=_check_hold),
    ConfigRow(_ROUTE_BY, Kind.STRING, "",
              "Where records have the value that route.tables has tables for: a field of JSON values"
              " (type, payload.kind), a header (kafka_headers.NAME) or kafka_key. Of mode append alone.",
              check=_check_route_by),
    ConfigRow(_ROUTE_TABLES, Kind.STRING, "",
              f"Tables for records with these values of route.by: a list like {_ROUTES}, of at most"
              " 16 tables. All other records go to the topic's own table.", check=_check_routes),
    ConfigRow(f"{PREFIX}schema.evolution", Kind.STRING, "add",
              "add: new fields become columns, and types grow wider; strict: the table stays as"
              " it is.", choices=("add", "strict")),
    ConfigRow(f"{PREFIX}sort.order", Kind.STRING, "",
              "What the table is sorted by, within row groups: a list like city,desc(price), or none;"
              " empty: the table stays as it is.", check=_list_of(_SORT, "city,desc(price), or none")),
    ConfigRow(f"{PREFIX}table", Kind.STRING, "",
              "Name of the table, or namespace and name with a dot between; empty: as the"
              " exporter names it after the topic.", check=_check_table),
    ConfigRow(f"{PREFIX}target.file.size", Kind.LONG, "0",
              "About how many bytes a data file has at most, at least 1048576 (1 MiB); 0: as the"
              " exporter's settings say.", 0, check=_check_file_size),
    ConfigRow(f"{PREFIX}types", Kind.STRING, "portable",
              "Of columns that come: portable: types that all engines read (a time of day becomes"
              " text, since Spark has no type for it); iceberg: all that Iceberg has.",
              choices=("portable", "iceberg")),
    ConfigRow(f"{PREFIX}value.mode", Kind.STRING, "raw",
              "How values are decoded.", choices=_DECODERS),
    ConfigRow(VALUE_SCHEMA, Kind.STRING, "by-id",
              "by-id: the schema that a value's frame or the record's header names (JSON"
              " without either is read by the newest); latest: no value has a frame, all are"
              " read by the subject's newest schema as it is when an export begins; inline: all"
              " are JSON, read by the schema in value.schema.json; infer: all are JSON, and columns are"
              " drawn from them.", choices=_SCHEMAS),
    ConfigRow(f"{VALUE_SCHEMA}.json", Kind.STRING, "",
              "A JSON Schema by which all values are read, where value.schema is inline.",
              check=_check_schema, bytes_max=_SCHEMA_BYTES_MAX),
    ConfigRow(f"{PREFIX}value.subject", Kind.STRING, "",
              "Subject of the schema registry that has the schemas of values; empty: the"
              " topic's name and -value.", check=_check_subject),
)  # fmt: skip


def check_together(configs: Mapping[str, str]) -> str | None:
    """Why a topic may not have all of these, each right alone; None when it may."""
    holds = configs.get(RETENTION_HOLD, "false").strip().lower() == "true"
    if holds and configs.get(ENABLE, "true").strip().lower() == "false":
        return f"{RETENTION_HOLD}=true waits for an export that {ENABLE}=false forbids"
    held = in_force(configs)
    if held[_ENVELOPE] != "none" and held[f"{PREFIX}value.mode"] in ("raw", "string"):
        return (
            f"{_ENVELOPE}={held[_ENVELOPE]} needs values with fields: a {PREFIX}value.mode of json, avro"
            " or protobuf"
        )
    if held[_TRANSACTIONS].lower() == "true" and held[_ENVELOPE] != "debezium":
        return f"{_TRANSACTIONS}=true needs {_ENVELOPE}=debezium"
    return (
        _without_text(held)
        or _uninferable(held)
        or _without_columns(held)
        or _unpartitionable(held)
        or _unroutable(held)
    )


def _uninferable(held: Mapping[str, str]) -> str | None:
    """Why types cannot be drawn from keys or values; None when they can."""
    if held[VALUE_SCHEMA] == "infer" and held[_ENVELOPE] != "none":
        return f"{_ENVELOPE}={held[_ENVELOPE]} needs a schema: {VALUE_SCHEMA} is infer"
    if held[f"{PREFIX}key.schema"] == "infer" and held[f"{PREFIX}mode"] == "upsert":
        return f"{PREFIX}mode=upsert needs columns of keys that do not grow: {PREFIX}key.schema is infer"
    return None


def _without_columns(held: Mapping[str, str]) -> str | None:
    """Why a rule for a column cannot be kept; None when it can."""
    for rule in ("columns.drop", "columns.mask", "columns.rename"):
        for path in re.findall(rf"(?:^|[,(])\s*({_PATH})\s*(?=$|[,:)])", held[f"{PREFIX}{rule}"]):
            if path.isdigit():
                continue  # The length of a mask.
            side = "key" if path.split(".")[0] == "kafka_key" else "value"
            mode, schema = held[f"{PREFIX}{side}.mode"], held[f"{PREFIX}{side}.schema"]
            if mode not in _BY_SCHEMA or schema == "infer":
                return (
                    f"{PREFIX}{rule} names the column {path}, which needs a schema: {PREFIX}{side}.mode is"
                    f" {mode}, {PREFIX}{side}.schema {schema}"
                )
    return None


def _without_text(held: Mapping[str, str]) -> str | None:
    """Why keys or values cannot be read by a schema of the topic's own; None when they can."""
    for side in ("value", "key"):
        name = f"{PREFIX}{side}.schema"
        choice = held[name]
        if choice in ("by-id", "latest"):
            continue
        if held[f"{PREFIX}{side}.mode"] != "json":
            return f"{name}={choice} needs {PREFIX}{side}.mode=json"
        if choice == "inline" and not held[f"{name}.json"]:
            return f"{name}=inline needs a JSON Schema in {name}.json"
    return None


def _unpartitionable(held: Mapping[str, str]) -> str | None:
    """Why a table whose columns need no schema cannot be partitioned so; None when it can."""
    modes = {held[f"{PREFIX}value.mode"], held[f"{PREFIX}key.mode"]}
    if not modes <= {"raw", "string"}:
        return None
    for transform, _, column in _terms(held[_PARTITION_BY]):
        if column not in _COLUMNS:
            return (
                f"{_PARTITION_BY} names the column {column}; without a value.mode that makes columns of"
                f" fields a table has {', '.join(_COLUMNS)}"
            )
        if not _takes(transform, _COLUMNS[column]):
            return f"{_PARTITION_BY} says {transform} of {column}, which is a {_COLUMNS[column]}"
    return None


def _unroutable(held: Mapping[str, str]) -> str | None:
    """Why records cannot go to several tables; None when they can, or need not."""
    by, tables = held[_ROUTE_BY], held[_ROUTE_TABLES]
    if bool(by) != bool(tables):
        return f"{_ROUTE_BY} and {_ROUTE_TABLES} go together, and one of them is not set"
    if not by:
        return None
    if held[f"{PREFIX}mode"] == "upsert":
        return f"{_ROUTE_BY} needs {PREFIX}mode=append: in upsert a row could be in two tables"
    mode = held[f"{PREFIX}value.mode"]
    if by.split(".")[0] not in ("kafka_headers", "kafka_key") and mode != "json":
        return (
            f"{_ROUTE_BY}={by} is a field of JSON values, {PREFIX}value.mode is {mode}; a header"
            " (kafka_headers.NAME) or kafka_key has a value in every mode"
        )
    return None


def _takes(transform: str, kind: str) -> bool:
    if transform in ("identity", "bucket"):
        return True
    return (kind == "time") != (transform == "truncate")


def in_force(configs: Mapping[str, str]) -> dict[str, str]:
    """Every config of a table, as it is set or by default."""
    return {row.name: configs.get(row.name, row.default_text).strip() for row in TABLE_CONFIGS}


def keys_name_schemas(configs: Mapping[str, str]) -> bool:
    """Whether each key begins with the id of its schema."""
    held = in_force(configs)
    return held[f"{PREFIX}key.mode"] in _BY_SCHEMA and held[f"{PREFIX}key.schema"] == "by-id"


def hold_ms(configs: Mapping[str, str]) -> int:
    """How much longer than retention.ms records are kept for the export; -1: it is not waited for."""
    held = in_force(configs)
    return int(held[RETENTION_HOLD_MAX_MS]) if held[RETENTION_HOLD].lower() == "true" else -1
