"""Retention and merging go by the records' timestamps, whatever their headers say of the newest."""

import logging

import pytest

from broker.config.topic_rules import TopicRules
from broker.produce.validation import ValidBatch, validate
from coordinator.commands.entries import SetTopicConfigs
from coordinator.commands.job_commands import JobKind
from protocol.compression import Codec
from protocol.fault_codes import FaultCode
from protocol.records import Record, build_batch, read_header
from storage.formats.spans import ObjectKind, Span
from storage.stores.object_store import ObjectNotFoundError, StoreRefusedError
from tests.broker.jobs.world import Place, World
from tests.storage.lies import FAR_MS, saying

RETENTION_MS = 60_000
HOUR_MS = 3_600_000
"""So far ahead timestamps may be."""

SAID = {
    "none": lambda _base: -1,
    "zero": lambda _base: 0,
    "below the base": lambda base: base - 100_000,
    "too much": lambda base: base + HOUR_MS // 2,
    "far future": lambda base: base + FAR_MS,
}

saids = pytest.mark.parametrize("said", SAID.values(), ids=SAID)
codecs = pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])


def topic(world: World, **more: str) -> Place:
    return world.place("a", retention_ms=str(RETENTION_MS), **more)


def batch(world: World, *ages_ms: int, codec: Codec = Codec.NONE) -> bytes:
    stamps = [world.clock_ms - age for age in ages_ms]
    return build_batch([Record(-1, stamp, b"k", b"v") for stamp in stamps], codec=codec)


def produce(world: World, place: Place, data: bytes) -> None:
    """As an agent takes it."""
    found = world.machine.topics.by_id(place[0])
    assert found is not None
    settings = TopicRules(world.settings).of(found)
    assert settings.timestamp_after_max_ms == HOUR_MS
    verdict = validate(memoryview(data), settings, version=9, now_ms=world.clock_ms)
    assert isinstance(verdict, ValidBatch)
    world.produce_batch(place, bytes(verdict.data), newest=verdict.timestamp_max)


def run(world: World, *kinds: JobKind) -> None:
    for kind in kinds:
        assert world.round(kind)


@pytest.mark.promise("P14")
@codecs
@saids
def test_young_records_stay_and_old_ones_go_whatever_their_header_says(said, codec, world):
    place = topic(world)
    produce(world, place, saying(batch(world, 0, 10, codec=codec), said(world.clock_ms)))
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 0
    world.pass_time(RETENTION_MS - 1000)
    run(world, JobKind.MERGE, JobKind.RETENTION)
    assert world.row(place).log_start == 0
    # One that says too much within the hour is believed until it is old enough to be merged.
    world.pass_time(HOUR_MS)
    run(world, JobKind.MERGE, JobKind.RETENTION)
    assert world.row(place).log_start == 2


@codecs
@saids
def test_old_records_are_gone_when_they_were_merged_whatever_their_header_says(said, codec, world):
    place = topic(world)
    old = batch(world, 10**6 - 5, 10**6 - 9, codec=codec)
    produce(world, place, saying(old, said(read_header(old).base_timestamp)))
    # They are merged when their row is old, and it says too much only in one case.
    world.pass_time(HOUR_MS if said is SAID["too much"] else 15_000)
    run(world, JobKind.MERGE, JobKind.RETENTION)
    assert world.row(place).log_start == 2


@codecs
@saids
def test_rows_say_the_newest_timestamp_of_their_records_when_they_are_merged(said, codec, world):
    place = topic(world)
    newest = world.clock_ms
    produce(world, place, saying(batch(world, 10, 0, 20, codec=codec), said(newest - 10)))
    world.pass_time(HOUR_MS)
    run(world, JobKind.MERGE)
    (row,) = world.runner.run(world.rows(world.row(place)))
    assert isinstance(row, Span)
    assert row.object_id.kind is ObjectKind.SEGMENT
    assert row.timestamp_max == newest
    (one,) = world.runner.run(world.batches(world.row(place)))
    assert read_header(one).max_timestamp == newest


@codecs
def test_young_records_stay_behind_an_old_one_that_their_header_says_is_the_newest(codec, world):
    """The only lie that nothing gives away: it is found out before anything goes."""
    place = topic(world)
    data = batch(world, 500_000, 0, codec=codec)
    produce(world, place, batch(world, 500_000))
    produce(world, place, saying(data, read_header(data).base_timestamp))
    produce(world, place, batch(world, 500_000))
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 1
    run(world, JobKind.MERGE, JobKind.RETENTION)
    assert world.row(place).log_start == 1
    world.pass_time(RETENTION_MS + 1)
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 4


@pytest.mark.promise("P14")
@codecs
@pytest.mark.parametrize("said", [SAID["none"], lambda base: base], ids=["none", "too little"])
def test_a_record_too_far_ahead_that_its_header_hid_keeps_nothing_for_ever(said, codec, world):
    """Kafka would have refused it. What is not hidden, is (`tests/broker/produce/test_validation.py`)."""
    place = topic(world)
    produce(world, place, saying(batch(world, 0, -FAR_MS, codec=codec), said(world.clock_ms)))
    produce(world, place, batch(world, 0))
    world.pass_time(15_000)
    run(world, JobKind.MERGE, JobKind.RETENTION)
    assert world.row(place).log_start == 0
    world.pass_time(HOUR_MS + RETENTION_MS + 1)
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 3


@pytest.mark.promise("P14")
@codecs
@pytest.mark.parametrize("before", [(), (JobKind.MERGE,)], ids=["in a chunk", "merged"])
@pytest.mark.parametrize("said", [SAID["none"], lambda base: base], ids=["none", "too little"])
def test_a_record_too_far_ahead_keeps_nothing_for_ever_once_its_topic_is_compacted(
    said, before, codec, world
):
    """It was taken while nobody looked at keys, and so at no record."""
    place = topic(world)
    stamps = [world.clock_ms, world.clock_ms + FAR_MS]
    records = [Record(-1, stamp, b"%d" % stamp, b"v") for stamp in stamps]
    produce(world, place, saying(build_batch(records, codec=codec), said(world.clock_ms)))
    produce(world, place, batch(world, 0))
    world.do(SetTopicConfigs(place[0], (("cleanup.policy", "compact,delete"),)))
    world.pass_time(15_000)
    run(world, *before, JobKind.COMPACT, JobKind.RETENTION)
    assert world.row(place).clean_to == 3
    assert world.row(place).log_start == 0
    world.pass_time(HOUR_MS + RETENTION_MS + 1)
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 3


@pytest.mark.parametrize(("ahead", "later"), [("0", 50_000), (str((1 << 63) - 1), FAR_MS)])
def test_rows_say_times_ahead_that_their_topic_takes_or_an_agent_has_taken(ahead, later, world):
    """An agent's clock may be ahead of the cluster's."""
    place = topic(world, message_timestamp_after_max_ms=ahead)
    stamp = world.clock_ms + later
    data = build_batch([Record(-1, stamp, b"k", b"v")])
    for _ in range(70):
        world.produce_batch(place, data, newest=stamp)
    run(world, JobKind.MERGE)
    rows = world.runner.run(world.rows(world.row(place)))
    assert isinstance(rows[0], Span)
    assert rows[0].object_id.kind is ObjectKind.SEGMENT
    assert rows[0].timestamp_max == stamp


def test_rows_without_a_timestamp_that_were_written_before_say_theirs_when_they_are_merged(world):
    place = topic(world)
    world.produce_batch(place, saying(batch(world, 5), -1), newest=-1)
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 0
    run(world, JobKind.MERGE)
    (row,) = world.runner.run(world.rows(world.row(place)))
    assert isinstance(row, Span)
    assert row.timestamp_max == world.clock_ms - 5
    world.pass_time(RETENTION_MS)
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 1


def test_records_that_cannot_be_read_go_by_their_row(caplog, world):
    caplog.set_level(logging.WARNING)
    place = topic(world)
    produce(world, place, batch(world, 500_000))
    produce(world, place, batch(world, 500_000))
    for index, content in ((0, None), (1, b"?")):
        row = world.row(place).row(index)
        assert isinstance(row, Span)
        data = world.store._objects.pop(row.object_id.key)
        if content is not None:
            world.store._objects[row.object_id.key] = data[:-1] + content
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 2
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        StoreRefusedError("getting a chunk: AccessDenied", fault=FaultCode.STORE_DENIED),
        StoreRefusedError("getting a chunk: RequestTimeTooSkewed", fault=FaultCode.CLOCK_SKEW),
        ObjectNotFoundError("a proxy knows of nothing"),
    ],
)
def test_where_nothing_can_be_read_no_record_goes_by_its_row(error, monkeypatch, world):
    """Credentials that are being changed, or a clock that is wrong, say nothing of the records."""

    async def get(_key: str, *_range: int) -> bytes:
        raise error

    place = topic(world)
    data = batch(world, 500_000, 0)
    produce(world, place, saying(data, read_header(data).base_timestamp))
    with monkeypatch.context() as denied:
        denied.setattr(world.store, "get", get)
        denied.setattr(world.store, "get_range", get)
        with pytest.raises(type(error), match=str(error)):
            world.round(JobKind.RETENTION)
    assert world.row(place).log_start == 0
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 0


def test_records_that_were_damaged_on_their_way_do_not_go_by_their_row(monkeypatch, world):
    get_range, damages = world.store.get_range, [1]

    async def damaged_once(key: str, start: int, length: int) -> bytes:
        data = bytearray(await get_range(key, start, length))
        if damages:
            data[-damages.pop()] ^= 1
        return data

    place = topic(world)
    data = batch(world, 500_000, 0)
    produce(world, place, saying(data, read_header(data).base_timestamp))
    monkeypatch.setattr(world.store, "get_range", damaged_once)
    run(world, JobKind.RETENTION)
    assert not damages
    assert world.row(place).log_start == 0


def test_what_is_kept_for_its_export_is_not_given_up_for_what_its_header_says(world):
    hold = {
        "frazil_iceberg_retention_hold": "true",
        "frazil_iceberg_retention_hold_max_ms": "0",
        "retention_bytes": "0",
    }
    place = topic(world, **hold)
    data = batch(world, 500_000, 0)
    produce(world, place, saying(data, read_header(data).base_timestamp))
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 0


@pytest.mark.promise("P6")
def test_records_written_after_a_clock_was_ahead_stay_as_long_as_those_before(world):
    """The machine's time never goes back, so it is ahead for as long as the clock was."""
    world.pass_time(30 * 24 * HOUR_MS)
    world.clock_ms -= 30 * 24 * HOUR_MS
    place = topic(world)
    produce(world, place, batch(world, 0, 10))
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 0
    world.pass_time(RETENTION_MS + 100)
    run(world, JobKind.RETENTION)
    assert world.row(place).log_start == 2
