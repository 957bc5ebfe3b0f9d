"""Snapshots: what is restored is what was dumped, goes on alike, and is refused when it is damaged."""

from collections.abc import Iterator
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
)
from coordinator.commands.transaction_commands import InitProducer
from coordinator.machine.machine import Machine
from coordinator.snapshot import partitions, rows, stream
from coordinator.snapshot.snapshot import (
    SnapshotError,
    dump,
    is_dump_of,
    restore,
    restoring,
    time_ms_of,
)
from coordinator.snapshot.stream import HEAD_BYTES, BlockReader, PartWriter, head_of_all
from coordinator.tables.groups import shard_of
from tests.coordinator.histories import history
from tests.coordinator.machine.story import batch, begun, plain, span, with_agents
from tests.coordinator.snapshot.compare import differences
from txn.transactions import EPOCH_EXHAUSTED

SEEDS = range(12)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Parts, blocks and slices so small that everything crosses their ends."""
    with monkeypatch.context() as patch:
        make_small(patch)
        yield


def make_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stream, "_BODY_BYTES", 37)
    patch.setattr(rows, "_BLOCK_BYTES", 20)
    patch.setattr(partitions, "_SLICE_PARTITIONS_MAX", 2)


def restored(parts: list[bytes]) -> Machine:
    machine = Machine()
    restore(machine, parts)
    return machine


@pytest.mark.parametrize("seed", SEEDS)
def test_a_restored_machine_is_the_one_that_was_dumped(seed: int):
    machine = history(seed, steps=800).machine
    parts = dump(machine)
    again = restored(parts)
    assert differences(machine, again) == []
    assert dump(again) == parts


@pytest.mark.usefixtures("small")
def test_parts_and_blocks_may_end_anywhere():
    machine = history(3, steps=400).machine
    parts = dump(machine)
    assert len(parts) > 100
    again = restored(parts)
    assert differences(machine, again) == []
    assert dump(again) == parts


def test_parts_are_full_but_for_the_last(monkeypatch: pytest.MonkeyPatch):
    make_small(monkeypatch)
    parts = dump(history(3, steps=400).machine)
    assert {len(part) for part in parts[:-1]} == {HEAD_BYTES + 37}


def test_an_empty_machine_is_restored():
    assert differences(Machine(), restored(dump(Machine()))) == []


def test_a_machine_is_restored_over_another():
    """What it had is gone, and its tables are the objects that they were."""
    machine, other = history(1, steps=300).machine, history(2, steps=300).machine
    tables = {name: id(table) for name, table in vars(other).items() if not name.startswith("_")}
    restore(other, dump(machine))
    assert differences(machine, other) == []
    kept = {"position", "time_ms"}
    assert {name: id(vars(other)[name]) for name in tables if name not in kept} == {
        name: place for name, place in tables.items() if name not in kept
    }


@pytest.mark.promise("P13")
@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(0, 150))
def test_a_snapshot_at_any_position_and_the_rest_of_the_log_are_the_whole(seed: int, cut: int):
    story = history(seed, steps=150)
    cut = min(cut, len(story.log))
    machine = Machine()
    for place, entry in story.log[:cut]:
        machine.apply(place, decode_entry(encode_entry(entry)))
    again = restored(dump(machine))
    for place, entry in story.log[cut:]:
        decoded = decode_entry(encode_entry(entry))
        assert again.apply(place, decoded) == machine.apply(place, decoded)
    assert again.digest() == story.machine.digest()
    assert differences(again, story.machine) == []
    assert dump(again) == dump(story.machine)


def test_a_machine_that_is_snapshotted_all_the_time_comes_to_the_same():
    story = history(7, steps=150)
    machine = Machine()
    for place, entry in story.log:
        machine.apply(place, entry)
        machine = restored(dump(machine))
    assert differences(machine, story.machine) == []


@pytest.mark.usefixtures("small")
def test_parts_are_known_as_those_of_a_machine_or_not():
    machine, other = history(1, steps=200).machine, history(2, steps=200).machine
    parts = dump(machine)
    assert is_dump_of(machine, parts)
    assert not is_dump_of(other, parts)
    assert not is_dump_of(machine, dump(other))
    machine.groups.size += 1
    assert not is_dump_of(machine, parts)
    longer = dump(machine)
    machine.groups.size -= 1
    machine.pins._rows.clear()
    assert not is_dump_of(machine, longer)


@pytest.mark.parametrize("at", [0, 1])
def test_parts_that_go_on_or_end_early_are_not_the_machines(at: int):
    machine = Machine()
    blocks = BlockReader([*dump(machine)])
    found = [blocks.bytes()]
    while not blocks.is_at_end:
        found.append(blocks.bytes())
    out = PartWriter()
    for block in [*found, b"more"] if at else found[:-1]:
        out.block(block)
    assert not is_dump_of(machine, out.parts(machine.position, machine.digest()))


def test_which_partitions_were_asked_for_makes_no_difference():
    machine = history(1, steps=300).machine
    before = dump(machine)
    for topic in machine.topics:
        for index in range(topic.partition_count):
            machine.partitions.get(topic.topic_id, index)
    assert dump(machine) == before


def test_a_duplicate_is_recognised_after_a_restart_from_a_snapshot():
    story, agent, topic_id = begun()
    first = story.commit(agent, span(topic_id, batch(5, 0)))
    story.machine = restored(dump(story.machine))
    again = story.commit(agent, span(topic_id, batch(5, 0)))
    assert again[0].duplicate
    assert again[0].base_offset == first[0].base_offset


def test_a_partition_of_many_rows_spans_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream, "_BODY_BYTES", 1000)
    story, agent, topic_id = begun()
    for _ in range(100):
        story.commit(agent, span(topic_id, plain()))
    parts = dump(story.machine)
    assert len(parts) > 3
    assert differences(story.machine, restored(parts)) == []


def test_a_producer_whose_epochs_were_exhausted_is_still_known_by_its_former_id():
    story, agent = with_agents()
    story.do(agent, InitProducer("pay", 1000, -1, -1))
    row = story.machine.transactions.get("pay")
    assert row is not None
    former = row.txn_metadata.producer_id
    row.txn_metadata = row.txn_metadata._replace(epoch=EPOCH_EXHAUSTED)
    story.do(agent, InitProducer("pay", 1000, -1, -1))
    assert row.txn_metadata.previous_id == former
    machine = restored(dump(story.machine))
    assert differences(story.machine, machine) == []
    found = machine.transactions.by_producer(former)
    assert found is not None
    assert found is machine.transactions.by_producer(row.txn_metadata.producer_id)


def test_the_bytes_of_a_snapshot_are_pinned():
    """Who changes them changes `snapshot_stream.VERSION` too, and says what becomes of the snapshots
    that are there."""
    parts = example()
    assert stream.VERSION == 1
    assert [len(part) for part in parts] == [707]
    assert blake2b(parts[0], digest_size=8).hexdigest() == "46c3fdad686568a2"


# What is no snapshot.


def example() -> list[bytes]:
    story, agent, topic_id = begun(partitions=3)
    story.commit(agent, span(topic_id, plain(), batch(5, 0)), span(topic_id, plain(), partition=2))
    shard = shard_of("billing")
    story.do(agent, ClaimShards((shard,)))
    offsets = (CommittedOffset(topic_id, 0, 7, -1, "tag"),)
    story.do(agent, CommitOffsets("billing", "", EPOCH_NONE, offsets))
    return dump(story.machine)


def refused(machine: Machine, parts: list[bytes]) -> str:
    """Why it is refused; and that the machine has nothing of it."""
    with pytest.raises(SnapshotError) as error:
        restore(machine, parts)
    return str(error.value)


@pytest.mark.usefixtures("small")
def test_damage_anywhere_is_refused_and_the_machine_stays_what_it_was():
    parts = example()
    machine = history(1, steps=100).machine
    before = dump(machine)
    for number in range(0, len(parts), 3):
        for at in range(0, len(parts[number]), 5):
            damaged = bytearray(parts[number])
            damaged[at] ^= 0x10
            refused(machine, [*parts[:number], bytes(damaged), *parts[number + 1 :]])
    assert dump(machine) == before


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("mix_up", "reason"),
    [
        (lambda parts, _: parts[:-1], "parts of a snapshot of"),
        (lambda parts, _: [*parts, parts[-1]], "parts of a snapshot of"),
        (lambda parts, _: [parts[1], parts[0], *parts[2:]], "part 0 of .* is part 1"),
        (lambda parts, _: [parts[0], parts[0], *parts[2:]], "part 1 of .* is part 0"),
        (lambda parts, other: [*parts[:2], other[2], *parts[3:]], "part 2 of"),
        (lambda parts, _: [*parts[:-1], parts[-1][:-1]], "damaged"),
        (lambda parts, _: [*parts[:-1], parts[-1] + b"x"], "damaged"),
        (lambda parts, _: [b"", *parts[1:]], "no part of a snapshot"),
        (lambda parts, _: [], "without parts"),
    ],
    ids=range(9),
)
def test_parts_that_are_not_those_of_one_snapshot_are_refused(mix_up, reason: str):
    parts, other = example(), dump(history(1, steps=100).machine)
    machine = Machine()
    with pytest.raises(SnapshotError, match=reason):
        restore(machine, mix_up(parts, other))
    assert differences(machine, Machine()) == []


def test_a_snapshot_of_a_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream, "VERSION", stream.VERSION + 1)
    parts = example()
    monkeypatch.undo()
    reason = refused(Machine(), parts)
    assert f"of format {stream.VERSION + 1}" in reason
    assert f"reads format {stream.VERSION}" in reason


def test_no_half_of_a_machine_is_left_when_blocks_are_not_what_they_should_be():
    """Whole parts of the right checksums, made by something that is not this code."""
    whole = example()
    blocks = []
    reader = BlockReader([*whole])
    while not reader.is_at_end:
        blocks.append(reader.bytes())
    assert len(blocks) > 10
    refusals = 0
    for index, block in enumerate(blocks):
        for wrong in (b"", block[:-1], block + b"\0", b"\xff" * len(block)):
            out = PartWriter()
            for each in [*blocks[:index], wrong, *blocks[index + 1 :]]:
                out.block(each)
            head = head_of_all(whole)
            parts = out.parts(head.position, head.digest)
            machine = Machine()
            try:
                restore(machine, parts)
            except SnapshotError:
                refusals += 1
                assert differences(machine, Machine()) == []
    assert refusals > 2 * len(blocks)


def test_who_stops_in_the_middle_has_an_empty_machine():
    machine = Machine()
    steps = restoring(machine, dump(history(1, steps=300).machine))
    for _ in range(4):
        next(steps)
    steps.close()
    assert differences(machine, Machine()) == []


def test_the_machines_time_is_told_without_restoring():
    machine = history(1, steps=300).machine
    assert machine.time_ms > 0
    assert time_ms_of(dump(machine)) == machine.time_ms
