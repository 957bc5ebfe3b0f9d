"""Tables that have been through more than appends, and what each must hold, for all readers.

*Nested*: an Avro topic whose schema grew inside a struct, partitioned by transforms, with dead
letters beside it, its small files joined in the middle. Its schema
has what engines cannot read as it is: a time of day, and the name of a metadata column. *Newest*: mode
upsert, with updates, tombstones and merged buckets. *By value*: the same by keys that have become
columns, whose schema has grown. *Ruled*: columns dropped, renamed and masked, some of them when there
were rows already; sorted, and partitioned otherwise than at first. *Inferred*: JSON without a schema, whose
types drift. Rows are asked for in each engine's own words for lists and maps.
"""

import datetime as dt
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from iceberg_export.dead_letters.dead_letter_table import dead_letter_identifier
from iceberg_export.runs.export import export_topic
from iceberg_export.upkeep.compact import compact
from protocol.records import Record
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.place import DAY_MS, FAR, NOW_MS, Place
from tests.iceberg_export.kit.registry import FakeRegistry, avro, framed
from tests.iceberg_export.readers import Dialect, Rows


def _visit(id_type: str, *more: dict[str, Any]) -> dict[str, Any]:
    place = {
        "type": "record",
        "name": "Place",
        "fields": [{"name": "city", "type": "string"}, {"name": "code", "type": id_type}, *more],
    }
    stop = {"type": "record", "name": "Stop", "fields": [{"name": "at", "type": "string"}]}
    return {
        "type": "record",
        "name": "Visit",
        "fields": [
            {"name": "id", "type": id_type},
            {"name": "place", "type": place},
            {"name": "stops", "type": {"type": "array", "items": stop}},
            {"name": "counts", "type": {"type": "map", "values": "long"}},
            {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "_pos", "type": "int"},
            *more,
        ],
    }


VISIT_1 = _visit("int")
VISIT_2 = _visit("long", {"name": "zone", "type": ["null", "string"], "default": None})
CITIES = ("Ulm", "Ulan Bator", "Köln", "")


class Question(NamedTuple):
    """A table's metadata file, what is asked of it, and the right answer."""

    metadata: Path
    columns: tuple[str, ...]
    """With the names of a dialect's functions in braces."""
    rows: Rows
    where: str = "true"

    def said(self, dialect: Dialect) -> str:
        shown = ", ".join(dialect.say(one) for one in self.columns)
        where = dialect.say(self.where)
        return f"SELECT {shown} FROM {{table}} WHERE {where} ORDER BY 1, 2"


def metadata_of(here: Place, identifier: tuple[str, str] | None = None) -> Path:
    return Path(here.table(identifier).metadata_location.removeprefix("file://"))


def nested(folder: Path) -> list[Question]:
    """Questions to the table of visits and to that of its dead letters."""
    here, registry = Place(folder, 2), FakeRegistry()
    by = "day(kafka_timestamp),bucket(4,id),truncate(2,place.city)"
    here.world.configs["orders"] = {"value.mode": "avro", "partition.by": by}
    rows: Rows = []
    dead: Rows = []
    schema_id = 0
    with served(registry) as url:

        def run() -> Any:
            job = here.job(f"schema.registry.url={url}", now_ms=NOW_MS + DAY_MS)
            export_topic(job, here.topic(job))
            return job

        for number in range(40):
            schema = VISIT_1 if number < 20 else VISIT_2
            value = {
                "id": number if number < 20 else (1 << 40) + number,
                "place": {"city": CITIES[number % 4], "code": number, "zone": f"z{number}"},
                "zone": f"Z{number}",
                "stops": [{"at": f"s{place}"} for place in range(number % 3)],
                "counts": {"n": number, "m": -number},
                "clock": dt.time(6, number),
                "_pos": number,
            }
            if number % 20 == 0:
                schema_id = registry.register("orders-value", schema)
            partition, offset = number % 2, 2 * (number // 2)
            good = avro(schema_id, schema, value)
            bad = framed(schema_id, b"\x01")
            when = NOW_MS - number % 3 * DAY_MS
            records = [Record(timestamp=when, value=one) for one in (good, bad)]
            here.world.commit("orders", {partition: [records]})
            zone, own = (f"z{number}", f"Z{number}") if number >= 20 else (None, None)
            last = f"s{number % 3 - 1}" if number % 3 else None
            rows.append(
                (partition, offset, value["id"], CITIES[number % 4], number, zone, number % 3,
                 last, number, own, f"06:{number:02}:00.000000", number)
            )  # fmt: skip
            dead.append((partition, offset + 1, bad.hex().upper(), "UNDECODABLE"))
            if number % 5 == 4:
                job = run()
            if number == 29:
                assert compact(job, here.name, FAR).files_before > 2
    columns = (
        "kafka_partition", "kafka_offset", "id", "{member:place,city}", "{member:place,code}",
        "{member:place,zone}", "{size:stops}", "{last:stops,at}", "{element:counts,n}", "zone",
        "clock", "_pos_",
    )  # fmt: skip
    main = metadata_of(here)
    letters = metadata_of(here, dead_letter_identifier(here.name))
    here.close()
    ordered = sorted(rows, key=lambda row: row[:2])
    return [
        Question(main, columns, ordered),
        Question(main, columns, [r for r in ordered if r[3] == "Ulm" and r[2] > 1 << 40],
                 "{member:place,city} = 'Ulm' AND id > 1099511627776"),
        Question(main, columns, [r for r in ordered if r[2] == 7], "id = 7"),
        Question(letters, ("kafka_partition", "kafka_offset", "{hex}(value)",
                           "error_code"), sorted(dead)),
    ]  # fmt: skip


def newest(folder: Path) -> list[Question]:
    """A question to a table of the newest record of each key."""
    here = Place(folder, 2)
    here.world.configs["orders"] = {"mode": "upsert", "partition.by": "bucket(3,kafka_key)"}
    for number in range(30):
        key = number * 7 % 11
        value = None if number % 6 == 5 else b"\x00%d" % number
        record = Record(timestamp=NOW_MS, key=b"key-%d" % key, value=value)
        here.world.commit("orders", {key % 2: [[record]]})
        if number % 8 == 7:
            here.export()
    here.export()
    metadata = metadata_of(here)
    here.close()
    last = {
        one.key: (partition, one.offset, one.key, one.value)
        for partition, log in enumerate(here.world.topics["orders"][1])
        for one in log.wanted
    }
    rows = [
        (partition, offset, key.hex().upper(), value.hex().upper())
        for partition, offset, key, value in sorted(last.values(), key=lambda row: row[:2])
        if key is not None and value is not None
    ]
    columns = ("kafka_partition", "kafka_offset", "{hex}(kafka_key)", "{hex}(value)")
    return [Question(metadata, columns, rows)]


def _key(id_type: str, *more: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Key", "fields": [{"name": "id", "type": id_type}, *more]}


KEY_1 = _key("int")
KEY_2 = _key("long", {"name": "zone", "type": ["null", "string"], "default": None})


def by_value(folder: Path) -> list[Question]:
    """A question to a table of the newest record of each key, by the values of its columns."""
    here, registry = Place(folder, 1), FakeRegistry()
    here.world.configs["orders"] = {"mode": "upsert", "key.mode": "avro"}
    newest_of: dict[int, tuple[int, bytes]] = {}
    schema_id = 0
    with served(registry) as url:
        for number in range(24):
            schema = KEY_1 if number < 12 else KEY_2
            if number % 12 == 0:
                schema_id = registry.register("orders-key", schema)
            key, value = number * 5 % 7, b"%d" % number
            newest_of[key] = (number, value)
            sent = Record(timestamp=NOW_MS, key=avro(schema_id, schema, {"id": key}), value=value)
            here.world.commit("orders", {0: [[sent]]})
            if number % 8 == 7:
                here.export(f"schema.registry.url={url}")
    metadata = metadata_of(here)
    here.close()
    rows: Rows = sorted(
        (offset, key, None, value.hex().upper()) for key, (offset, value) in newest_of.items()
    )
    columns = ("kafka_offset", "{member:kafka_key,id}", "{member:kafka_key,zone}", "{hex}(value)")
    return [Question(metadata, columns, rows)]


PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "mail", "type": ["null", "string"]},
        {"name": "note", "type": "string"},
        {"name": "phone", "type": "string"},
        {"name": "home", "type": {"type": "record", "name": "Home", "fields": [
            {"name": "street", "type": "string"}, {"name": "city", "type": "string"}]}},
    ],
}  # fmt: skip


def ruled(folder: Path) -> list[Question]:
    """Questions to a table whose rules, order and partitions came when it had rows, and were compacted."""
    here, registry = Place(folder, 1), FakeRegistry()
    rows: Rows = []
    with served(registry) as url:
        here.sets = (f"schema.registry.url={url}",)
        schema_id = registry.register("orders-value", PERSON)
        for number in range(30):
            value = {
                "id": number * 7 % 30,
                "mail": f"{number}@ulm.de" if number % 4 else None,
                "note": "secret",
                "phone": f"0731-{number:03}",
                "home": {"street": "Hafengasse", "city": CITIES[number % 4]},
            }
            record = Record(timestamp=NOW_MS, value=avro(schema_id, PERSON, value))
            here.world.commit("orders", {0: [[record]]})
            hashed = hashlib.sha256(f"{number}@ulm.de".encode()).hexdigest()
            mail, phone = (value["mail"], value["phone"]) if number < 10 else (hashed, "0731-")
            rows.append(
                (number, value["id"], mail if number % 4 else None, phone, CITIES[number % 4])
            )
            if number == 9:
                here.configure(value_mode="avro", columns_mask="null(note)")
                here.export()
                here.configure(
                    value_mode="avro",
                    columns_drop="home.street",
                    columns_rename="home.city:town",
                    columns_mask="null(note),hash(mail),truncate(5,phone)",
                    sort_order="id",
                    partition_by="bucket(2,id)",
                )
            if number in (14, 29):
                here.export()
        assert compact(here.job(), here.name, FAR).files_before > 2
    metadata = metadata_of(here)
    here.close()
    columns = ("kafka_offset", "id", "mail", "phone", "{member:home,town}")
    return [
        Question(metadata, columns, rows),
        Question(metadata, columns, [row for row in rows if row[1] >= 20], "id >= 20"),
        Question(metadata, ("kafka_offset", "note"), [(row[0], None) for row in rows]),
    ]


def inferred(folder: Path) -> list[Question]:
    """A question to a table of JSON, and to its dead letters."""
    here = Place(folder, 1)
    here.configure(value_mode="json", value_schema="infer")
    values: list[Any] = [
        {"id": 1, "price": 2, "who": {"name": "Ada"}, "tags": ["a"]},
        {"id": 2, "price": 2.5, "who": {"name": "Bo", "age": 7}},
    ]
    later: list[Any] = [{"id": "three", "price": None, "who": {"name": 3}, "new": True}]
    for some in (values, later):
        here.send(*(json.dumps(value).encode() for value in some), b"{")
        here.export()
    main = metadata_of(here)
    letters = metadata_of(here, dead_letter_identifier(here.name))
    here.close()
    columns = (
        "kafka_offset", "id", "id__json", "price", "{member:who,name}", "{member:who,age}",
        "{size:tags}", "new",
    )  # fmt: skip
    rows: Rows = [
        (0, 1, None, 2.0, "Ada", None, 1, None),
        (1, 2, None, 2.5, "Bo", 7, 0, None),
        (3, None, '"three"', None, None, None, 0, True),
    ]
    dead = [(offset, "7B", "UNDECODABLE") for offset in (2, 4)]
    return [
        Question(main, columns, rows),
        Question(letters, ("kafka_offset", "{hex}(value)", "error_code"), dead),
    ]
