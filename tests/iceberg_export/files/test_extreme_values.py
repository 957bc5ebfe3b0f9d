"""No value stops an export: it is in the table or a dead letter, whatever the table is partitioned by."""

import json
from decimal import Decimal

import pytest

from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.registry import FakeRegistry, avro_bytes

LONG_MAX, INT_MAX, NINES = 2**63 - 1, 2**31 - 1, Decimal("9999999.99")
FIELDS = {
    "i": ("int", [-INT_MAX - 1, -1, 0, INT_MAX]),
    "l": ("long", [-LONG_MAX - 1, -1, 0, LONG_MAX]),
    "f": ("float", [float("nan"), -0.0, 0.0, float("inf"), float("-inf")]),
    "x": ("double", [float("nan"), -0.0, 0.1, float("inf"), -5e-324]),
    "d": ({"type": "int", "logicalType": "date"}, [-INT_MAX - 1, -719_163, -1, 2_932_897, INT_MAX]),
    "t": ({"type": "long", "logicalType": "timestamp-micros"},
          [-LONG_MAX - 1, -86_399_000_001, -1, 253_402_300_800_000_000, LONG_MAX]),
    "m": ({"type": "long", "logicalType": "timestamp-millis"},
          [-(LONG_MAX // 1000), -1, 253_402_300_800_000, LONG_MAX // 1000, LONG_MAX]),
    "n": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, [-NINES, NINES]),
    "s": ("string", ["", "\ud7ff" * 20, "\U0010ffff" * 20, "z" * 20_000]),
    "b": ("bytes", [b"", b"\xff" * 20, b"z" * 20_000]),
}  # fmt: skip
PARTITIONINGS = [
    "truncate(7,i),truncate(7,l),truncate(7,n),truncate(3,s),bucket(4,b)",
    "i,l,f,x,n",
    "d,t,s,b",
    "year(d),month(t),day(m),bucket(3,n)",
    "day(d),hour(t),year(m),bucket(3,s)",
]


SCHEMA = {"type": "record", "name": "R", "fields": [
    {"name": name, "type": ["null", kind], "default": None} for name, (kind, _) in FIELDS.items()
]}  # fmt: skip


def long_of(number):
    """Avro's zig-zag; fastavro refuses what Python's calendar has not."""
    value = (number << 1) ^ (number >> 63)
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def value_of(name, value):
    """A record of which one field says something."""
    out = b"\0\0\0\0\1"
    for field, (kind, _) in FIELDS.items():
        if field != name:
            out += b"\0"
            continue
        if isinstance(value, int):
            out += b"\2" + long_of(value)
            continue
        out += b"\2" + avro_bytes(kind, value)
    return out


@pytest.fixture
def registry(here):
    found = FakeRegistry()
    with served(found) as url:
        here.sets = (f"schema.registry.url={url}",)
        yield found


@pytest.mark.promise("P7")
@pytest.mark.parametrize("by", PARTITIONINGS)
def test_values_at_the_ends_of_their_types_are_in_the_table_or_dead_letters(here, registry, by):
    registry.register("orders-value", json.dumps(SCHEMA))
    here.world.configs["orders"] = {"value.mode": "avro", "partition.by": by}
    told = [(name, value) for name, (_, some) in FIELDS.items() for value in some]
    here.send(*(value_of(name, value) for name, value in told))
    report = here.export()
    wanted = [(told.index(("m", LONG_MAX)), "UNDECODABLE")]
    if "truncate(7,n)" in by:
        wanted.append((told.index(("n", -NINES)), "NO_PARTITION"))
    assert here.dead("kafka_offset", "error_code") == sorted(wanted)
    assert (report.rows, report.dead) == (len(told) - len(wanted), len(wanted))
    # The next commit reads this one's manifests, and writes them anew.
    here.send(value_of("i", 1))
    assert here.export().rows == 1
    assert here.verify().problems == ()


def test_what_no_partition_holds_is_left_out_where_bad_records_are_dropped(here, registry):
    registry.register("orders-value", json.dumps(SCHEMA))
    here.world.configs["orders"] = {
        "value.mode": "avro", "bad.records": "drop", "partition.by": "truncate(7,n)",
    }  # fmt: skip
    here.send(value_of("n", -NINES), value_of("n", NINES))
    report = here.export()
    assert (report.rows, report.left_out) == (1, 1)
    assert here.verify().problems == ()


@pytest.mark.parametrize("depth", [900, 975, 985, 990, 2_000, 100_000])
def test_json_that_nests_too_deep_is_a_dead_letter_alone(here, registry, depth):
    registry.register("orders-value", '{"type": "object", "properties": {"any": {}}}', kind="JSON")
    here.world.configs["orders"] = {"value.mode": "json"}
    deep = b'\0\0\0\0\1{"any":' + b"[" * depth + b"]" * depth + b"}"
    here.send(b'\0\0\0\0\1{"any":1}', deep, b'\0\0\0\0\1{"any":2}')
    report = here.export()
    assert report.rows + report.dead == 3
    assert report.rows >= 2
    assert here.verify().problems == ()
