"""Changes of groups, cut into commands that fit into entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.group.change_commands import COMMAND_BYTES_MAX, TooLargeError, group_write
from broker.groups.group.effects import Write
from coordinator.commands.codec import encode_entry, encoded_size
from coordinator.commands.entries import Entry
from coordinator.commands.group_commands import GROUP_NEW, ChangeGroup, GroupKind, GroupMember
from coordinator.tables.groups import GROUP_COMMAND_ROWS_MAX
from protocol.types import Incarnation

IDS = st.builds(
    lambda n, size: f"{n:x}".rjust(size, "m"), st.integers(0, 1 << 60), st.integers(1, 99)
)
ROWS = st.lists(
    st.builds(GroupMember, IDS, st.just(8), st.integers(0, 30_000).map(bytes)),
    max_size=30,
    unique_by=lambda member: member.member_id,
)


def written(write: Write) -> list[ChangeGroup]:
    commands = []
    for command in write.commands:
        assert isinstance(command, ChangeGroup)
        commands.append(command)
    return commands


def changed(
    put: list[GroupMember],
    removed: list[str],
    *,
    epoch_before: int = 7,
    group_id: str = "g",
    body: bytes = b"b",
) -> list[ChangeGroup]:
    return written(
        group_write(
            group_id,
            kind=GroupKind.CLASSIC,
            epoch_before=epoch_before,
            epoch=8,
            body=body,
            put=put,
            removed=removed,
        )
    )


@given(ROWS, st.lists(IDS, max_size=50, unique=True), st.sampled_from([GROUP_NEW, 0, 7, 8]))
def test_commands_are_the_change_and_each_fits_into_an_entry(
    put: list[GroupMember], removed: list[str], epoch_before: int
):
    commands = changed(put, removed, epoch_before=epoch_before)
    assert [member for command in commands for member in command.put] == put
    assert [member_id for command in commands for member_id in command.removed] == removed
    for command in commands:
        assert encoded_size(command) <= COMMAND_BYTES_MAX
        assert (command.group_id, command.kind, command.body) == ("g", GroupKind.CLASSIC, b"b")
    # Only the last one has the new epoch, and each goes on from the one before.
    epochs = [(command.epoch_before, command.epoch) for command in commands]
    between = max(epoch_before, 0)
    assert [before for before, _ in epochs] == [epoch_before] + [between] * (len(epochs) - 1)
    assert [after for _, after in epochs] == [between] * (len(epochs) - 1) + [8]


def test_a_change_that_fits_is_one_command():
    assert len(changed([], [])) == 1
    assert len(changed([GroupMember("m", 8, bytes(65_000))], ["n"])) == 1


def test_an_entry_takes_what_a_command_may_have():
    (command,) = changed([GroupMember("m", 8, bytes(65_440))], [])
    largest = (1 << 63) - 1
    encode_entry(Entry(Incarnation(largest), largest, largest, (command,)))
    with pytest.raises(TooLargeError):
        changed([GroupMember("m", 8, bytes(65_460))], [])


def test_a_command_has_no_more_rows_than_apply_takes():
    put = [GroupMember(f"m{n}", 8, b"") for n in range(1_500)]
    removed = [f"r{n}" for n in range(GROUP_COMMAND_ROWS_MAX - 1)]
    rows = [(len(command.removed), len(command.put)) for command in changed(put, removed)]
    assert rows == [(999, 1), (0, 1_000), (0, 499)]


def test_whoever_takes_over_after_the_first_command_sees_a_member_ahead():
    put = [GroupMember(f"m{n}", 8, b"") for n in range(2)]
    removed = [f"r{n}" for n in range(2_500)]
    commands = changed(put, removed)
    assert len(commands) == 3
    assert [member.member_id for member in commands[0].put] == ["m0"]
    assert commands[0].epoch == 7


def test_what_fits_into_no_entry_is_refused():
    with pytest.raises(TooLargeError, match="member"):
        changed([GroupMember("m", 8, bytes(COMMAND_BYTES_MAX))], [])
    with pytest.raises(TooLargeError, match="string"):
        changed([], ["r" * 40_000])
    with pytest.raises(TooLargeError, match="member"):
        changed([], ["r" * 30_000], group_id="g" * 32_000, body=bytes(5_000))
    with pytest.raises(TooLargeError, match="body"):
        changed([], [], body=bytes(COMMAND_BYTES_MAX))
