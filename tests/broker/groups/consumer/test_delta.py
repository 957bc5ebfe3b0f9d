"""A change of a KIP-848 group as commands: what fits, and what a part of it is worth."""

from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.consumer import delta
from broker.groups.consumer.delta import COMMAND_BYTES_MAX, GroupDelta, delta_commands
from broker.groups.consumer.members import Member, Subscription
from broker.groups.consumer.rows import GroupBody, decode_group
from coordinator.commands.codec import ENTRY_BYTES_MAX, ENTRY_OVERHEAD_BYTES_MAX, encoded_size
from coordinator.commands.group_commands import GROUP_NEW, ChangeGroup, GroupKind
from coordinator.tables.groups import GROUP_COMMAND_ROWS_MAX
from protocol.errors import ErrorCode, KafkaError

BEFORE = GroupBody(4, b"before")


def member(index: int, size: int = 0) -> Member:
    """One whose row takes about `size` bytes: names of digests do not shrink."""
    names = frozenset(
        blake2b(b"%d %d" % (index, n), digest_size=16).hexdigest() for n in range(size // 20)
    )
    return Member(f"m{index}", 6, subscription=Subscription(names))


def commands(change: GroupDelta, epoch_before: int = 5) -> list[ChangeGroup]:
    write = delta_commands("g", BEFORE, epoch_before, change)
    found = [command for command in write.commands if isinstance(command, ChangeGroup)]
    assert len(found) == len(write.commands)
    return found


def test_a_change_that_fits_is_one_command():
    change = GroupDelta(6, 6, b"after", (member(1), member(2)), ("m0",))
    (command,) = commands(change)
    assert (command.kind, command.epoch_before, command.epoch) == (GroupKind.CONSUMER, 5, 6)
    assert [row.member_id for row in command.put] == ["m1", "m2"]
    assert command.removed == ("m0",)
    assert decode_group(command.body) == GroupBody(6, b"after")


def test_the_first_change_of_a_group_names_no_epoch_before():
    (command,) = commands(GroupDelta(1, 1, b"", (member(1),)), GROUP_NEW)
    assert (command.epoch_before, command.epoch) == (GROUP_NEW, 1)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 100, 5_000, 20_000, 40_000]), min_size=1, max_size=8),
    replaces=st.booleans(),
)
def test_every_part_of_a_cut_change_is_whole_in_itself(sizes: list[int], replaces: bool):
    members = tuple(member(index, size) for index, size in enumerate(sizes))
    removed = ("replaced",) if replaces else ()
    parts = commands(GroupDelta(6, 6, b"after", members, removed))
    assert [row.member_id for part in parts for row in part.put] == [m.member_id for m in members]
    before = 5
    for part in parts:
        assert encoded_size(part) <= ENTRY_BYTES_MAX - ENTRY_OVERHEAD_BYTES_MAX
        assert (part.epoch_before, part.epoch) == (before, 6)
        before = 6
    for part in parts[:-1]:
        assert decode_group(part.body) == BEFORE, "who takes over here computes the target again"
        assert part.removed == ()
    assert decode_group(parts[-1].body) == GroupBody(6, b"after")
    assert parts[-1].put[-1].member_id == members[-1].member_id
    assert parts[-1].removed == removed


def test_rows_are_counted_too():
    members = tuple(member(index) for index in range(GROUP_COMMAND_ROWS_MAX + 1))
    assert [len(part.put) for part in commands(GroupDelta(6, 6, b"", members))] == [1000, 1]
    full = (*members[:-2], members[-1])
    parts = commands(GroupDelta(6, 6, b"", full, ("replaced",)))
    assert [len(part.put) + len(part.removed) for part in parts] == [999, 2]


def test_many_removals_are_several_commands():
    removed = tuple(f"m{index}" for index in range(2_500))
    parts = commands(GroupDelta(6, 4, b"before", removed=removed))
    assert [len(part.removed) for part in parts] == [1000, 1000, 500]
    assert [decode_group(part.body) for part in parts] == [BEFORE] * 3
    long_ids = tuple(f"{index}-{'x' * 20_000}" for index in range(5))
    parts = commands(GroupDelta(6, 4, b"", removed=long_ids))
    assert [len(part.removed) for part in parts] == [2, 2, 1]


def test_a_change_without_rows_is_a_command():
    (command,) = commands(GroupDelta(6, 4, b"before"))
    assert (command.put, command.removed) == ((), ())


def test_a_member_that_fits_into_no_entry_is_refused():
    with pytest.raises(KafkaError) as error:
        commands(GroupDelta(6, 6, b"", (member(1, 2 * COMMAND_BYTES_MAX),)))
    assert error.value.code is ErrorCode.INVALID_REQUEST
    assert "m1" in error.value.message
    too_long = Member("m", client_id="x" * 40_000)
    with pytest.raises(KafkaError) as error:
        commands(GroupDelta(6, 6, b"", (too_long,)))
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_the_bound_leaves_room_for_what_else_is_in_an_entry():
    at_most = 2 * 32_767  # A group id, though one so long is nobody's.
    assert delta.COMMAND_BYTES_MAX < ENTRY_BYTES_MAX < COMMAND_BYTES_MAX + at_most
