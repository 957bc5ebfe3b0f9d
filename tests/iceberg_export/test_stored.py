"""What tables keep of exports is written and read as ever."""

import base64
import json
import zlib

import pyarrow as pa
import pytest

from iceberg_export import names
from iceberg_export.dead_letters.dead_letter_table import (
    PendingDeadLetters,
    decode_pending,
    encode_pending,
)
from iceberg_export.records.last_records import digest_of, object_hash
from iceberg_export.records.rows import ROW_SCHEMA
from iceberg_export.table.state import (
    PARTITIONS_PLAIN_MAX,
    Follows,
    Gap,
    LastRecord,
    SnapshotView,
    State,
    TableView,
    decode_offsets,
    encode_keys,
    encode_offsets,
    read_state,
)
from protocol.types import position

STATE = State(
    topic_id="00ff" * 8,
    offsets={0: 5, 12: 7},
    seq=3,
    run_id="run-3",
    gaps=(Gap(12, 1, 2),),
    dead_letters="dead",
    line="run-3>run-2",
    dead_letters_mark="judged",
    follows=Follows("mark", {"l": 4}, was_reset=True),
    position=position(1, 900),
    last_records={12: LastRecord(6, "d" * 16, "0011aabb")},
    replays=("r1-2", "r5-9"),
)
KEYS = {
    "frazil.offsets": '{"0":5,"12":7}',
    "frazil.seq": "3",
    "frazil.run-id": "run-3",
    "frazil.sequence-number": "9",
    "frazil.topic-id": "00ff00ff00ff00ff00ff00ff00ff00ff",
    "frazil.gaps": "[[12,1,2]]",
    "frazil.dead-letters": "dead",
    "frazil.line": "run-3>run-2",
    "frazil.judged-by": "judged",
    "frazil.position": "281474976711556",
    "frazil.follows": '["mark",{"l":4},true]',
    "frazil.replays": "r1-2 r5-9",
}
LAST_RECORDS = '["run-3",{"12":[6,"dddddddddddddddd","0011aabb"]}]'
FIRST = {
    name: KEYS[name]
    for name in ("frazil.offsets", "frazil.seq", "frazil.run-id", "frazil.topic-id")
}


def view(properties: dict[str, str], summary: dict[str, str]) -> TableView:
    return TableView("t", 1, (SnapshotView(1, None, 9, summary),), properties)


def test_a_tables_state_is_written_and_read_as_ever() -> None:
    properties, summary = encode_keys(STATE, sequence_number=9, previous={0: 5})
    assert properties == {**KEYS, "frazil.seams": LAST_RECORDS, "frazil.lost": "[]"}
    assert summary == {**KEYS, "frazil.prev-offsets": '{"0":5}', "frazil.lost": "[]"}
    assert read_state(view({**KEYS, "frazil.seams": LAST_RECORDS}, KEYS)) == STATE


def test_a_state_of_dead_letters_names_replays_in_a_form_that_releases_without_them_refuse() -> (
    None
):
    follows = Follows("mark", {"l": 4}, replays={"r1-2": "r1-settle", "r5-9": ""})
    written, summary = encode_keys(
        STATE._replace(follows=follows, replays=()), sequence_number=9, previous={}
    )
    parts = '["mark",{"l":4},false,{"r1-2":"r1-settle","r5-9":""}]'
    assert (written["frazil.follows"], written["frazil.replays"]) == (parts, "")
    found = read_state(view(written, summary))
    assert found is not None
    assert found.follows == follows


def test_a_state_of_the_first_tables_is_read_as_ever() -> None:
    assert read_state(view(FIRST, FIRST)) == State(STATE.topic_id, STATE.offsets, 3, "run-3")


def test_offsets_of_many_partitions_are_read_as_ever() -> None:
    """How well they are compressed is zlib's affair."""
    offsets = {partition: 7 * partition for partition in range(PARTITIONS_PLAIN_MAX + 1)}
    plain = json.dumps({str(p): offset for p, offset in offsets.items()}, separators=(",", ":"))
    written = encode_offsets(offsets)
    assert written.startswith("z:")
    assert zlib.decompress(base64.b64decode(written[2:])).decode() == plain
    packed = base64.b64encode(zlib.compress(plain.encode(), 1)).decode()
    assert decode_offsets(f"z:{packed}") == offsets


def test_dead_letters_of_a_commit_are_named_and_found_as_ever() -> None:
    pending = PendingDeadLetters("run-3", "line", 3, ("s3://b/x.parquet", "y"))
    written = "eNqLVioqzdM1VtJRUMrJzEsF0sZAZrGxlb5+kn6FXkFiUWFpaglIulIpFgAY4Qx5"
    assert decode_pending(written) == pending
    text = zlib.decompress(base64.b64decode(encode_pending(pending))).decode()
    assert text == '["run-3", "line", 3, "s3://b/x.parquet", "y"]'


@pytest.mark.parametrize(
    ("record", "digest"),
    [
        ({}, "c5c27f0f4c187177"),
        (
            {
                names.TIMESTAMP: None,
                names.TIMESTAMP_TYPE: None,
                names.TIMESTAMP_RAW: 2**62,
                names.KEY: None,
                names.VALUE: None,
                names.HEADERS: [],
            },
            "75fb4a4010cd2aa4",
        ),
    ],
)
def test_the_last_record_of_a_partition_has_the_digest_that_it_ever_had(
    record: dict[str, object], digest: str
) -> None:
    whole = {
        names.PARTITION: 12,
        names.OFFSET: 6,
        names.TIMESTAMP: 1_700_000_000_123_000,
        names.TIMESTAMP_TYPE: 0,
        names.TIMESTAMP_RAW: 5,
        names.KEY: b"key",
        names.VALUE: b"\0value",
        names.HEADERS: [{"key": "ß", "value": b"1"}, {"key": "none", "value": None}],
    }
    row = pa.Table.from_pylist([whole | record], schema=ROW_SCHEMA)
    assert digest_of(row) == digest


def test_an_object_has_the_short_name_that_it_ever_had() -> None:
    assert object_hash("chunks/000100000000000a/00000007") == "6e53e02e"
