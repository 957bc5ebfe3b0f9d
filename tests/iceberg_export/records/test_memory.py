"""What decoding, and a whole task, take of memory, whatever a batch inflates to: in a process of its own,
whose peak the system tells."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from iceberg_export.records.cells import CELLS_MAX
from iceberg_export.records.decode import BATCH_BYTES_MAX, HEADERS_MAX, PIECE_BYTES
from protocol import records
from protocol.records import Record, build_batch

ROOT = Path(__file__).parents[3]
PIECE_PEAK_BYTES = 16 * PIECE_BYTES
"""Of a piece: where its fields lie, their columns, and the bytes in them."""
ROOM_BYTES = 16 * 1024 * 1024
"""The first buffer, which a larger one replaces."""
DECODE = """
import sys
from iceberg_export.plan.splits import PlannedSpan
from iceberg_export.records.rows import span_rows
from protocol.records import Record, build_batch

def decode(data, count):
    span = PlannedSpan(0, "chunks/1/2", 0, len(data), 0, count, 0, count)
    return sum(piece.tally.rows for piece in span_rows(span, memoryview(data)))

def peak():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

decode(build_batch([Record(value=b"warm", headers=(("a", b"b"),))] * 10, codec=4), 10)
data = open(sys.argv[1], "rb").read()
before = peak()
rows = decode(data, int(sys.argv[2]))
print(rows, peak() - before)
"""

TASK_PEAK_BYTES = 1 << 30
"""docs/design/tables.md §3."""
EXPORT = """
import sys
from tests.iceberg_export.kit.place import place

def peak():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

with place(1) as here:
    here.send(b"v", keys=[b"warm"])
    here.export()
    before = peak()
    data = open(sys.argv[1], "rb").read()
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        here.world.commit("orders", {0: [data[at : at + size]]})
        at += size
    report = here.export()
    print(report.rows, report.dead, peak() - before)
"""


CELL_BYTES = 40
TYPED = """
import sys
from iceberg_export.typed.typed_rows import RowDecoder
from tests.iceberg_export.records.test_cells import protobuf_of, rows_of, typing_of, wide_protobuf

def peak():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

make = {"columns": wide_protobuf, "lists": protobuf_of}[sys.argv[1]]
schema, payload = make(width=500)
rows = rows_of(schema, [payload(int(sys.argv[2]))] * int(sys.argv[3]))
decoder = RowDecoder(typing_of(schema))
list(decoder.parts(rows.slice(0, 1)))
before = peak()
print(sum(found.rows.num_rows for _, found in decoder.parts(rows)), peak() - before)
"""


def crafted(count: int, body: bytes) -> bytes:
    """A batch of such records, by zstd."""
    template = records.read_header(build_batch([Record()], codec=4))
    header = template._replace(last_offset_delta=count - 1, record_count=count)
    return records.assemble(header, body)


def small_records(count: int) -> bytes:
    """Records without key, value and headers."""
    parts = []
    for size, first, end in ((1, 0, 1 << 6), (2, 1 << 6, 1 << 13), (3, 1 << 13, 1 << 20)):
        deltas = np.arange(first, min(end, count)) << 1
        rows = np.zeros((len(deltas), size + 6), np.uint8)
        rows[:, 0] = (size + 5) << 1
        for byte in range(size):
            rows[:, 3 + byte] = (deltas >> 7 * byte & 0x7F) | (0x80 if byte < size - 1 else 0)
        rows[:, -3:-1] = 1
        parts.append(rows.tobytes())
    return b"".join(parts)


def varint(value: int) -> bytes:
    """A number above 0 in zigzag."""
    out, rest = bytearray(), value << 1
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(out) + bytes([rest])


def rows_and_peak(folder: Path, *batches: bytes) -> tuple[int, int]:
    """How many rows a process made of a span, and by how many bytes its peak grew."""
    (folder / "span").write_bytes(b"".join(batches))
    count = sum(records.read_header(one).last_offset_delta + 1 for one in batches)
    done = subprocess.run(
        [sys.executable, "-c", DECODE, str(folder / "span"), str(count)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, grown = map(int, done.stdout.split())
    return rows, grown


def test_bombs_take_the_bound_of_one_batch_however_many_there_are(tmp_path):
    bomb = crafted(1, bytes(900 << 20))
    assert len(bomb) < 30_000
    rows, grown = rows_and_peak(tmp_path, *[bomb] * 3)
    assert rows == 3, "each is a dead letter"
    assert grown < BATCH_BYTES_MAX + ROOM_BYTES


def test_a_million_small_records_take_the_batch_and_a_piece_at_a_time(tmp_path):
    body = small_records(1 << 20)
    rows, grown = rows_and_peak(tmp_path, *[crafted(1 << 20, body)] * 3)
    assert rows == 3 << 20
    # Where their fields lie would be 240 MiB for all, their columns more than that.
    assert grown < 2 * ROOM_BYTES + PIECE_PEAK_BYTES


def test_a_million_headers_take_a_record_at_a_time(tmp_path):
    fields = b"\0\0\0\1\1" + varint(HEADERS_MAX) + b"\0\1" * HEADERS_MAX
    batch = crafted(1, varint(len(fields)) + fields)
    rows, grown = rows_and_peak(tmp_path, *[batch] * 4)
    assert rows == 4
    assert grown < 2 * ROOM_BYTES + PIECE_PEAK_BYTES


def test_large_records_take_the_batch_and_the_columns_of_two(tmp_path):
    one = build_batch([Record(value=bytes(100 << 20))], codec=4)
    rows, grown = rows_and_peak(tmp_path, *[one] * 3)
    assert rows == 3
    assert grown < 3 * BATCH_BYTES_MAX


@pytest.mark.parametrize(
    ("what", "elements", "count"), [("columns", 0, 131_072), ("lists", 100, 5_000)]
)
def test_records_of_wide_schemas_take_the_cells_that_are_decoded_together(what, elements, count):
    done = subprocess.run(
        [sys.executable, "-c", TYPED, what, str(elements), str(count)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, grown = map(int, done.stdout.split())
    assert rows == count
    assert grown < 2 * CELLS_MAX * CELL_BYTES


def test_a_task_stays_within_its_bound_whatever_it_is_sent(tmp_path):
    bomb = crafted(1, bytes(900 << 20))
    fields = b"\0\0\0\1\1" + varint(60 << 20) + b"\0\1" * (60 << 20)
    headers = crafted(1, varint(len(fields)) + fields)
    large = [
        build_batch([Record(key=b"%d" % n, value=bytes([n]) * (100 << 20))], codec=4)
        for n in range(4)
    ]
    (tmp_path / "batches").write_bytes(b"".join([bomb, headers, *large, bomb]))
    done = subprocess.run(
        [sys.executable, "-c", EXPORT, str(tmp_path / "batches")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, dead, grown = map(int, done.stdout.split())
    assert (rows, dead) == (4, 3)
    assert grown < TASK_PEAK_BYTES
