"""Any transactions of any clients: readers see what was committed, whole, and nothing else."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.machine.machine import Machine
from storage.formats.spans import Marker
from tests.coordinator.histories import history
from tests.coordinator.machine.transaction_model import (
    GROUP,
    PARTITIONS,
    Client,
    World,
    committed_offset,
    read_committed,
)
from tests.coordinator.snapshot.compare import differences

CLIENTS = 3
Step = Callable[[World], None]


def write(who: int, partition: int, records: int) -> Step:
    return lambda world: world.write(world.clients[who], partition, records)


def plain(partition: int, records: int) -> Step:
    return lambda world: world.write_plain(partition, records)


def end(who: int, commit: bool) -> Step:
    return lambda world: world.end(world.clients[who], commit=commit)


def offset(who: int, partition: int) -> Step:
    return lambda world: world.send_offset(world.clients[who], partition)


def hold(who: int, partition: int) -> Step:
    return lambda world: world.hold(world.clients[who], partition)


def of_client(what: Callable[[World, Client], None], who: int) -> Step:
    return lambda world: what(world, world.clients[who])


def of_place(what: Callable[[World, int], None], number: int) -> Step:
    return lambda world: what(world, number)


who = st.integers(0, CLIENTS - 1)
where = st.integers(0, PARTITIONS - 1)
writes = st.builds(write, who, where, st.integers(1, 3))
ends = st.builds(end, who, st.booleans())
late = st.builds(of_place, st.sampled_from([World.repeat, World.release]), st.integers(0, 1000))
steps = st.one_of(
    writes,
    writes,
    ends,
    ends,
    late,
    late,
    st.builds(plain, where, st.integers(1, 2)),
    st.builds(hold, who, where),
    st.builds(offset, who, where),
    st.builds(offset, who, where),
    st.builds(of_place, st.sampled_from([World.commit_offset, World.delete_offset]), where),
    st.just(World.delete_group),
    st.builds(of_client, st.sampled_from([World.init, World.take_over, World.give_up]), who),
)
stories = st.lists(steps, max_size=8) | st.lists(steps, min_size=25, max_size=80)
generations = st.lists(st.booleans(), min_size=CLIENTS, max_size=CLIENTS)


def played(generations: list[bool], steps: list[Step]) -> World:
    world = World([Client(f"id-{index}", old) for index, old in enumerate(generations)])
    for step in steps:
        step(world)
    return world


@settings(deadline=None)
@given(generations, stories, st.integers(0, 30))
def test_a_consumer_of_any_range_sees_what_was_committed_below_the_stable_offset(
    generations: list[bool], steps: list[Step], start: int
):
    world = played(generations, steps)
    for partition, log in enumerate(world.logs):
        row = world.story.partition(world.topic_id, partition)
        assert row.end_offset == len(log)
        for first in (0, start):
            for last in range(len(log) + 2):
                expected = read_committed(log, world.ended, first, last)
                assert world.found(partition, first, last) == [at for at, _ in expected]


@settings(deadline=None)
@given(generations, stories)
def test_offsets_are_those_of_the_newest_write_that_was_committed(
    generations: list[bool], steps: list[Step]
):
    check_offsets(played(generations, steps))


@pytest.mark.parametrize("seed", range(8))
def test_offsets_that_meet_in_a_place_are_ended_in_any_order(seed: int):
    """Transactions that wrote the same places, and little else: fifty stories of a seed."""
    rng = random.Random(seed)
    for _ in range(50):
        world = World([Client(f"id-{index}", rng.random() < 0.5) for index in range(CLIENTS)])
        for _ in range(30):
            client, partition = rng.choice(world.clients), rng.randrange(PARTITIONS)
            draw = rng.random()
            if draw < 0.35:
                world.send_offset(client, partition)
            elif draw < 0.7:
                world.end(client, commit=rng.random() < 0.7)
            elif draw < 0.8:
                world.commit_offset(partition)
            elif draw < 0.85:
                world.delete_offset(partition)
            else:
                world.repeat(rng.randrange(1000))
        check_offsets(world)


def check_offsets(world: World) -> None:
    group = world.story.machine.groups.get(GROUP)
    for partition, writes in enumerate(world.places):
        value, waits = committed_offset(writes, world.ended)
        if group is None:
            assert (value, waits) == (None, False)
            continue
        row = group.offsets.get(world.topic_id, partition)
        assert (row.offset if row is not None else None) == value
        assert group.offsets.has_pending(world.topic_id, partition) == waits


@settings(deadline=None)
@given(generations, stories)
def test_counts_are_those_of_the_rows(generations: list[bool], steps: list[Step]):
    machine = played(generations, steps).story.machine
    check_counts(machine)
    transactions = machine.transactions
    row_count = sum(len(row.partitions) + len(row.group_ids) for row in transactions)
    assert transactions.participants == row_count
    names = [row.transactional_id for row in transactions]
    groups = [group_id for row in transactions for group_id in row.group_ids]
    assert transactions.size == sum(map(len, [*names, *groups]))
    assert [*transactions.ongoing] == sorted(
        [row.transactional_id for row in transactions if row.is_ongoing],
        key=[*transactions.ongoing].index,
    )
    group = machine.groups.get(GROUP)
    if group is not None:
        pending = group.offsets.pending_count
        assert machine.groups.pending_rows == pending == len(group.offsets.pending())
        assert machine.groups.offset_rows == pending + len(group.offsets)


def check_counts(machine: Machine) -> None:
    """Of all topics, none of which is deleted."""
    rows = [
        row
        for topic in machine.topics
        for index in range(topic.partition_count)
        if (row := machine.partitions.get(topic.topic_id, index)) is not None
    ]
    table = machine.partitions
    assert table.row_count == sum(row.row_count for row in rows)
    assert table.window_count == sum(len(row.windows or ()) for row in rows)
    assert table.aborted_count == sum(row.aborted_count for row in rows)
    for row in rows:
        stable = min(row.open_transactions.values(), default=row.end_offset)
        assert row.last_stable == stable
        assert [*row.open_transactions.values()] == sorted(row.open_transactions.values())


@settings(deadline=None)
@given(generations, stories)
def test_a_replay_through_the_codec_ends_in_the_same_state(
    generations: list[bool], steps: list[Step]
):
    story = played(generations, steps).story
    machine = Machine()
    for place, entry in story.log:
        machine.apply(place, decode_entry(encode_entry(entry)))
    assert differences(machine, story.machine) == []


def test_histories_hold_transactions():
    """What the tests of replays replay."""
    for seed in range(4):
        machine = history(seed, steps=400).machine
        assert sum(row.txn_metadata.instance for row in machine.transactions) >= 3


def test_histories_together_hold_markers_of_both_kinds_and_aborted_ranges():
    found: set[bool] = set()
    for seed in range(6):
        machine = history(seed, steps=400).machine
        for topic in machine.topics:
            for index in range(topic.partition_count):
                row = machine.partitions.get(topic.topic_id, index)
                assert row is not None
                rows = row.rows_from(0, row.row_count)
                found |= {each.commit for each in rows if isinstance(each, Marker)}
    assert found == {True, False}
