"""Commands about groups for the tests of codecs: one of each kind, and any there may be."""

from hypothesis import strategies as st

from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_NEW,
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupCommand,
    GroupKind,
    GroupMember,
    ReleaseShards,
    SetGroupConfigs,
    SetTopicConfigs,
)
from protocol.types import INCARNATION_NONE, Incarnation, TopicId, position

TOPIC = TopicId(bytes(range(16)))
OTHER = TopicId(bytes(range(16, 32)))
INCARNATION = Incarnation(position(1, 9))

GROUP_COMMANDS: tuple[GroupCommand | SetTopicConfigs, ...] = (
    ClaimShards((0, 5, 63)),
    ReleaseShards((5,), INCARNATION),
    ReleaseShards((0, 63), INCARNATION_NONE),
    ChangeGroup(
        "billing",
        GroupKind.CONSUMER,
        7,
        8,
        b"\x01\xff",
        (GroupMember("m-1", 8, b"body"), GroupMember("m-2", -2, b"")),
        ("m-0",),
    ),
    ChangeGroup("simple", GroupKind.CLASSIC, GROUP_NEW, 0, b"", (), ()),
    DeleteGroup("billing", only_without_offsets=False),
    DeleteGroup("billing", only_without_offsets=True),
    CommitOffsets(
        "billing",
        "m-1",
        8,
        (
            CommittedOffset(TOPIC, 0, 1_000_000, 0, ""),
            CommittedOffset(TOPIC, 1, 999_990, 0, "host-1"),
            CommittedOffset(TOPIC, 7, 0, -1, "host-1"),
            CommittedOffset(OTHER, 3, 2**63 - 1, 2**31 - 1, ""),
            CommittedOffset(TOPIC, 2, -1, -1, "ß"),
        ),
    ),
    CommitOffsets("simple", "", EPOCH_NONE, (CommittedOffset(TOPIC, 3, 5, -1, ""),)),
    DeleteOffsets("billing", ((TOPIC, 0), (TOPIC, 1), (OTHER, 9))),
    ExpireOffsets("billing", 604_800_000, ((OTHER, 9), (TOPIC, 5), (TOPIC, 2))),
    SetGroupConfigs("billing", (("consumer.session.timeout.ms", "50000"), ("x", None), ("y", ""))),
    SetTopicConfigs(TOPIC, (("retention.ms", "1000"), ("cleanup.policy", None))),
)

_I32 = st.integers(-(2**31), 2**31 - 1)
_U31 = st.integers(0, 2**31 - 1)
_strings = st.text(max_size=20)
_topic_ids = st.sampled_from([TOPIC, OTHER, TopicId(bytes(16))])
_bodies = st.binary(max_size=30)
_shards = st.sets(st.integers(0, GROUP_SHARDS - 1)).map(lambda shards: tuple(sorted(shards)))
_partitions = st.one_of(st.integers(0, 5), _U31)
any_places = st.lists(st.tuples(_topic_ids, _partitions), max_size=8).map(tuple)
_changes = st.lists(st.tuples(_strings, st.none() | _strings), max_size=4).map(tuple)
any_offsets = st.lists(
    st.builds(
        CommittedOffset,
        topic_id=_topic_ids,
        partition=_partitions,
        offset=st.one_of(st.integers(0, 2**20), st.integers(-(2**63), 2**63 - 1)),
        leader_epoch=st.one_of(st.integers(-1, 1), _I32),
        metadata=st.one_of(st.sampled_from(["", "a"]), _strings),
    ),
    max_size=8,
).map(tuple)
_members = st.builds(GroupMember, member_id=_strings, epoch=_I32, body=_bodies)

any_group_command: st.SearchStrategy[GroupCommand | SetTopicConfigs] = st.one_of(
    st.builds(ClaimShards, _shards),
    st.builds(ReleaseShards, _shards, st.integers(0, 2**63 - 1)),
    st.builds(
        ChangeGroup,
        group_id=_strings,
        kind=st.sampled_from(GroupKind),
        epoch_before=_I32,
        epoch=_I32,
        body=_bodies,
        put=st.lists(_members, max_size=4).map(tuple),
        removed=st.lists(_strings, max_size=3).map(tuple),
    ),
    st.builds(DeleteGroup, _strings, only_without_offsets=st.booleans()),
    st.builds(CommitOffsets, _strings, _strings, _I32, any_offsets),
    st.builds(DeleteOffsets, _strings, any_places),
    st.builds(ExpireOffsets, _strings, st.integers(0, 2**63 - 1), any_places),
    st.builds(SetGroupConfigs, _strings, _changes),
    st.builds(SetTopicConfigs, _topic_ids, _changes),
)
