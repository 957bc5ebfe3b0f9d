"""Which offsets of a commit may be proposed, in whose name, in how many commands."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.group_settings import GroupSettings
from broker.groups.commits import (
    COMMAND_BYTES_MAX,
    NOBODY,
    Committer,
    RequestedOffset,
    commands,
    committer,
    is_known,
    not_found_code,
    places,
    unknown_code,
    validate_offset,
)
from coordinator.commands.codec import encoded_size
from coordinator.commands.encoding import CodecError
from coordinator.commands.group_commands import EPOCH_NONE, CommittedOffset, GroupKind
from coordinator.tables.topics import Topic
from protocol.errors import ErrorCode, KafkaError
from protocol.types import Position, TopicId

LOGS = Topic(TopicId(bytes(16)), "logs", 3, {}, Position(1))
OWNER_ONLY = GroupSettings(commit_owner_only=True)
CLASSIC = Committer("me", 5, ErrorCode.ILLEGAL_GENERATION)
CONSUMER = Committer("me", 5, ErrorCode.STALE_MEMBER_EPOCH)


def wanted(
    partition: int = 0, *, topic: Topic | None = LOGS, metadata: str = ""
) -> RequestedOffset:
    return RequestedOffset(topic, partition, 7, -1, metadata)


class Group:
    """A live group as commits see it: one member "me" at epoch 5, another that owns partition 1."""

    def __init__(self, kind: GroupKind, *, classic: bool) -> None:
        self.kind = kind
        self._wrong = ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH

    def check_commit(self, member_id, epoch, instance_id, *, version, now_ms) -> ErrorCode:
        if member_id != "me":
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == 5 else self._wrong

    def owner_of(self, topic_name, topic_id, partition) -> str | None:
        assert (topic_name, topic_id) == (LOGS.name, LOGS.topic_id)
        return ("me", "other", None)[partition]


@pytest.mark.parametrize(
    ("topic", "partition", "version", "code"),
    [
        (None, 0, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, 0, 10, ErrorCode.UNKNOWN_TOPIC_ID),
        (LOGS, 3, 10, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (LOGS, -1, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_not_known_is_called_by_its_version(topic, partition, version, code) -> None:
    assert not is_known(wanted(partition, topic=topic))
    assert unknown_code(wanted(partition, topic=topic), version) is code


def test_the_first_and_the_last_partition_are_known() -> None:
    assert is_known(wanted(0))
    assert is_known(wanted(2))


@pytest.mark.parametrize(
    ("version", "code"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_member_of_no_group_is_told_so_from_version_9_on(version, code) -> None:
    assert not_found_code(version) is code
    with pytest.raises(KafkaError) as refused:
        committer(None, member_id="me", epoch=0, instance_id=None, version=version, now_ms=0)
    assert refused.value.code is code


def whose(group, member_id: str, epoch: int) -> Committer:
    return committer(group, member_id=member_id, epoch=epoch, instance_id=None, version=9, now_ms=0)


@pytest.mark.parametrize("member_id", ["", "me"])
def test_without_a_group_whoever_gives_no_epoch_commits_for_nobody(member_id) -> None:
    assert whose(None, member_id, -1) == NOBODY == ("", EPOCH_NONE, 22)


def test_in_a_group_that_lets_it_whoever_gives_no_epoch_commits_for_nobody() -> None:
    group = SimpleNamespace(kind=GroupKind.CONSUMER, check_commit=lambda *_, **__: ErrorCode.NONE)
    assert whose(group, "me", -1) == NOBODY


@pytest.mark.parametrize(
    ("kind", "classic", "stale", "not_owner"),
    [
        (GroupKind.CLASSIC, True, 22, 27),
        (GroupKind.CONSUMER, False, 113, 113),
        (GroupKind.CONSUMER, True, 22, 27),  # While a group is migrated (KIP-848).
    ],
)
def test_a_member_is_told_errors_of_its_own_protocol(kind, classic, stale, not_owner) -> None:
    by = whose(Group(kind, classic=classic), "me", 5)
    assert (by.member_id, by.epoch, by.stale, by.not_owner) == ("me", 5, stale, not_owner)


def test_who_may_not_commit_is_told_what_the_group_says() -> None:
    group = Group(GroupKind.CLASSIC, classic=True)
    for member_id, epoch, code in [
        ("me", 4, ErrorCode.ILLEGAL_GENERATION),
        ("nobody", 5, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        with pytest.raises(KafkaError) as refused:
            whose(group, member_id, epoch)
        assert refused.value.code is code


@pytest.mark.parametrize(
    ("settings", "by", "expected"),
    [
        (GroupSettings(), CLASSIC, [0, 0, 0]),
        (OWNER_ONLY, CLASSIC, [0, ErrorCode.REBALANCE_IN_PROGRESS, 0]),
        (OWNER_ONLY, CONSUMER, [0, ErrorCode.STALE_MEMBER_EPOCH, 0]),
        (OWNER_ONLY, NOBODY, [0, 0, 0]),
    ],
)
def test_owner_only_refuses_a_member_what_another_member_owns(settings, by, expected) -> None:
    group = Group(GroupKind.CLASSIC, classic=True)
    judged = [
        validate_offset(wanted(index), settings=settings, group=group, by=by) for index in range(3)
    ]
    assert judged == expected


def test_without_a_group_nobody_owns_anything() -> None:
    assert validate_offset(wanted(1), settings=OWNER_ONLY, group=None, by=NOBODY) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("metadata", "most", "fits"),
    [
        ("", 0, True),
        ("abc", 3, True),
        ("abcd", 3, False),
        ("\u20ac" * 3, 3, True),
        ("\U0001f600", 2, True),
        ("\U0001f600", 1, False),
        ("a", -1, False),
        ("x" * 32_767, 1 << 20, True),
        ("x" * 32_768, 1 << 20, False),
        ("\u20ac" * 10_922, 1 << 20, True),
        ("\u20ac" * 10_923, 1 << 20, False),
    ],
)
def test_metadata_are_counted_as_kafka_does_and_must_fit_a_string_of_the_log(
    metadata, most, fits
) -> None:
    settings = GroupSettings(offset_metadata_max_bytes=most)
    code = validate_offset(wanted(metadata=metadata), settings=settings, group=None, by=NOBODY)
    assert code is (ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE)


def test_metadata_are_looked_at_before_the_owner() -> None:
    settings = GroupSettings(commit_owner_only=True, offset_metadata_max_bytes=1)
    group = Group(GroupKind.CLASSIC, classic=True)
    code = validate_offset(wanted(1, metadata="long"), settings=settings, group=group, by=CLASSIC)
    assert code is ErrorCode.OFFSET_METADATA_TOO_LARGE


offsets_of_all_kinds = st.lists(
    st.builds(
        CommittedOffset,
        topic_id=st.integers(0, 5).map(lambda number: TopicId(bytes([number] * 16))),
        partition=st.integers(0, (1 << 31) - 1),
        offset=st.integers(-(1 << 63), (1 << 63) - 1),
        leader_epoch=st.integers(-(1 << 31), (1 << 31) - 1),
        metadata=st.one_of(
            st.text(max_size=3, alphabet="aä\u20ac\U0001f600"),
            st.sampled_from(["m" * 4096, "\u20ac" * 4096, "\U0001f600" * 2048]),
        ),
    ),
    max_size=40,
)


@given(offsets_of_all_kinds, st.integers(1, 60))
def test_commands_have_all_offsets_in_their_order_and_each_fits(offsets, repeat) -> None:
    offsets = offsets * repeat
    cut = commands("g", "me", 3, offsets)
    assert [each for command in cut for each in command.offsets] == offsets
    for command in cut:
        assert (command.group_id, command.member_id, command.epoch) == ("g", "me", 3)
        assert 0 < len(command.offsets) <= 1000
        assert encoded_size(command) <= COMMAND_BYTES_MAX


def test_a_usual_commit_is_one_command_and_nothing_is_none() -> None:
    offsets = [CommittedOffset(LOGS.topic_id, index, 7, 0, "") for index in range(1000)]
    assert len(commands("g", "", EPOCH_NONE, offsets)) == 1
    assert len(commands("g", "", EPOCH_NONE, [*offsets, offsets[0]])) == 2
    assert commands("g", "", EPOCH_NONE, []) == []


def test_the_cheap_bound_is_never_below_the_bytes_that_a_command_takes() -> None:
    """Each offset of another topic, all numbers as long as they can be."""
    offsets = [
        CommittedOffset(
            TopicId(index.to_bytes(16)), (1 << 31) - 1, -(1 << 63), -(1 << 31), "\U0001f600"
        )
        for index in range(900)
    ]
    for command in commands("\U0001f600" * 10, "\U0001f600" * 10, (1 << 31) - 1, offsets):
        assert encoded_size(command) <= COMMAND_BYTES_MAX


def test_an_offset_that_fits_into_no_entry_is_an_error() -> None:
    offset = CommittedOffset(LOGS.topic_id, 0, 7, 0, "m" * 32_000)
    assert commands("g", "m", 0, [offset])
    with pytest.raises(CodecError):
        commands("g" * 32_000, "m" * 32_000, 0, [offset])


def test_places_are_cut_into_what_a_command_may_name() -> None:
    all_places = [(LOGS.topic_id, index) for index in range(2001)]
    cut = places(all_places)
    assert [len(each) for each in cut] == [1000, 1000, 1]
    assert [place for each in cut for place in each] == all_places
    assert places([]) == []
