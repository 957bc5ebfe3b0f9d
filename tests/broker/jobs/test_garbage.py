"""Batches with a valid checksum over what nobody can read: they stop no job, and none loses them."""

import pytest

from coordinator.commands.job_commands import JobKind
from protocol.compression import Codec
from protocol.records import Record, assemble, build_batch, read_header
from storage.formats.spans import ObjectKind, Span
from tests.broker.jobs.world import World

GARBAGE = {
    "noise": (Codec.NONE, bytes(range(1, 200))),
    "zstd of noise": (Codec.ZSTD, bytes(range(1, 200))),
    "lengths beyond the end": (Codec.NONE, b"\x7e" * 50),
    "nothing": (Codec.NONE, b""),
}


def garbage(name: str, now_ms: int) -> bytes:
    codec, content = GARBAGE[name]
    header = read_header(build_batch([Record(timestamp=now_ms)] * 2))
    return assemble(header._replace(attributes=codec), content)


@pytest.mark.parametrize("kind", [JobKind.MERGE, JobKind.COMPACT])
@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_stays_as_it_is_and_what_lies_around_it_is_merged_or_compacted(
    name: str, kind: JobKind, world: World
) -> None:
    compacts = kind is JobKind.COMPACT
    policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"} if compacts else {}
    place = world.place("a", **policy)
    bad = garbage(name, world.clock_ms)
    for value in (b"1", b"2"):
        good = build_batch([Record(timestamp=world.clock_ms, key=b"k", value=value)])
        world.produce_batch(place, good, newest=world.clock_ms)
        world.produce_batch(place, bad, newest=world.clock_ms)
    end = world.row(place).end_offset
    world.pass_time(100_000)
    assert world.round(kind)
    row = world.row(place)
    assert row.end_offset == end
    rows = world.runner.run(world.rows(row))
    assert {each.object_id.kind for each in rows if isinstance(each, Span)} == {ObjectKind.SEGMENT}
    stored = [bytes(each) for each in world.runner.run(world.batches(row))]
    assert [each[21:] for each in stored].count(bad[21:]) == 2
    assert len(stored) == (3 if compacts else 4)
