"""Entries as bytes: what is pinned, what is refused, and that nothing else can happen."""

from struct import pack
from typing import get_args

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from coordinator.commands.codec import (
    ENTRY_BYTES_MAX,
    ENTRY_OVERHEAD_BYTES_MAX,
    FORMAT_VERSION,
    STRING_BYTES_MAX,
    CodecError,
    decode_entry,
    encode_command,
    encode_entry,
    encoded_size,
    join_entry,
)
from coordinator.commands.declaration import READERS
from coordinator.commands.entries import (
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Entry,
    Tick,
    Unpin,
)
from coordinator.commands.group_commands import (
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupKind,
    GroupMember,
    ReleaseShards,
    SetGroupConfigs,
    SetTopicConfigs,
)
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    ClientProof,
    CommitTransactionOffsets,
    EndTransaction,
    ExpireProducers,
    ExpireTransactionalIds,
    GiveUpTransaction,
    InitProducer,
    PartitionProducers,
)
from protocol.types import Incarnation, Position, TopicId
from storage.formats.spans import Item
from tests.coordinator.commands.group_values import (
    GROUP_COMMANDS,
    INCARNATION,
    TOPIC,
    any_group_command,
)
from tests.coordinator.commands.job_values import JOB_COMMANDS, any_job_command
from tests.coordinator.commands.plain_values import PLAIN_COMMANDS, any_plain_command
from tests.coordinator.commands.table_values import TABLE_COMMANDS, any_table_command
from tests.coordinator.commands.transaction_values import (
    TRANSACTION_COMMANDS,
    any_transaction_command,
)
from txn.transactions import NO_TRANSACTION, OF_EPOCH

COMMANDS: tuple[Command, ...] = (
    *PLAIN_COMMANDS,
    *GROUP_COMMANDS,
    *TRANSACTION_COMMANDS,
    *JOB_COMMANDS,
    *TABLE_COMMANDS,
)
every_command = pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=f"{index}-{type(command).__name__}")
        for index, command in enumerate(COMMANDS)
    ],
)


def entry(*commands: Command) -> Entry:
    return Entry(INCARNATION, 5, 1_700_000_000_123, commands)


def sealed(body: bytes, version: int = FORMAT_VERSION) -> bytes:
    """A body with a good checksum."""
    head = bytes([version])
    return head + pack("<I", crc32c(head + body)) + body


def commit(*items: Item, start: int = 0) -> CommitChunk:
    return CommitChunk(0, 100, (ChunkSpan(TOPIC, 0, start, items),))


def commit_offsets(
    partition: int = 0, offset: int = 0, leader_epoch: int = 0, metadata: str = ""
) -> CommitOffsets:
    committed = CommittedOffset(TOPIC, partition, offset, leader_epoch, metadata)
    return CommitOffsets("g", "", -1, (committed,))


def one_expiry(topic_id: TopicId, producer_id: int) -> ExpireProducers:
    return ExpireProducers(0, (PartitionProducers(topic_id, 0, (producer_id,)),))


def test_there_is_a_command_of_every_kind_here():
    assert {type(command) for command in COMMANDS} == {*get_args(Command)}


@every_command
def test_every_command_comes_back(command: Command):
    assert decode_entry(encode_entry(entry(command))) == entry(command)


@every_command
def test_an_entry_is_as_long_as_its_commands_and_a_bounded_head(command: Command):
    alone = encoded_size(command)
    assert len(encode_entry(entry(command, command))) <= 2 * alone + ENTRY_OVERHEAD_BYTES_MAX


def test_commands_encoded_one_by_one_make_the_same_entry():
    joined = join_entry(
        incarnation=INCARNATION,
        n=5,
        clock_ms=1_700_000_000_123,
        commands=[encode_command(command) for command in COMMANDS],
    )
    assert joined == encode_entry(entry(*COMMANDS))


def test_a_batch_that_goes_on_with_the_sequence_costs_few_bytes():
    items = tuple(Item(0, 900, 20, 1_000, 7, 0, 20 * index) for index in range(100))
    one = CommitChunk(0, 90_000, (ChunkSpan(TOPIC, 0, 0, items[:1]),))
    all_of_them = CommitChunk(0, 90_000, (ChunkSpan(TOPIC, 0, 0, items),))
    assert encoded_size(all_of_them) <= encoded_size(one) + 4 * 99


@pytest.mark.parametrize("instance", [OF_EPOCH, 3])
def test_a_run_of_batches_in_a_transaction_costs_no_more_than_one_outside(instance: int):
    def sized(count: int, instance: int) -> int:
        items = tuple(Item(0, 900, 20, 1_000, 7, 0, 20 * at, instance) for at in range(count))
        return encoded_size(CommitChunk(0, 90_000, (ChunkSpan(TOPIC, 0, 0, items),)))

    outside = sized(100, NO_TRANSACTION) - sized(1, NO_TRANSACTION)
    assert sized(100, instance) - sized(1, instance) == outside
    assert sized(1, instance) - sized(1, NO_TRANSACTION) == (0 if instance == OF_EPOCH else 1)


def test_a_thousand_partitions_are_added_in_little_space():
    places = tuple((TOPIC, partition) for partition in range(1000))
    assert encoded_size(AddToTransaction("orders", 1000, 3, 7, 42, places, ())) < 1100


def test_an_entry_of_a_newer_version_is_refused():
    with pytest.raises(CodecError, match="format version 2; known is 1"):
        decode_entry(sealed(encode_entry(entry(Tick()))[5:], version=2))


def test_a_commit_of_a_hundred_partitions_costs_less_than_ten_bytes_each():
    offsets = tuple(
        CommittedOffset(TOPIC, partition, 40_000_000_000 + 977 * partition**3, 0, "")
        for partition in range(100)
    )
    member_id = "consumer-billing-1-6f1d9c5e-0d1f-4c6c-9a55-5b7f3c1f7a11"
    assert encoded_size(CommitOffsets("billing", member_id, 12, offsets)) < 10 * 100


def test_every_flipped_bit_is_noticed():
    data = encode_entry(entry(*COMMANDS[:4], GROUP_COMMANDS[0]))
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CodecError):
            decode_entry(bytes(flipped))


def test_every_truncation_with_a_good_checksum_is_refused():
    body = encode_entry(entry(*COMMANDS))[5:]
    for length in range(len(body)):
        with pytest.raises(CodecError):
            decode_entry(sealed(body[:length]))


def test_bytes_after_the_end_are_refused():
    with pytest.raises(CodecError, match="1 bytes after"):
        decode_entry(sealed(encode_entry(entry(Tick()))[5:] + b"\0"))


def test_an_unknown_kind_of_command_is_refused():
    body = bytearray(encode_entry(entry(Tick()))[5:])
    assert body[-1] == 3
    body[-1] = 200
    with pytest.raises(CodecError, match="kind 200"):
        decode_entry(sealed(bytes(body)))


def test_a_string_that_is_not_utf8_is_refused():
    body = bytearray(encode_entry(entry(Unpin("aa")))[5:])
    body[-1] = 0xFF
    with pytest.raises(CodecError, match="UTF-8"):
        decode_entry(sealed(bytes(body)))


@pytest.mark.parametrize(
    ("command", "ends"),
    [
        (DeleteGroup("g", only_without_offsets=True), b"\x02"),
        (SetGroupConfigs("g", (("k", None),)), b"\x02"),
        (ChangeGroup("g", GroupKind.CLASSIC, 0, 0, b"", (), ()), b"\x03\0\0\0\0\0"),
        (DeleteOffsets("g", ((TOPIC, 0),)), b"\x01\x01\0"),
        (DeleteOffsets("g", ((TOPIC, 0),)), b"\0\x01\x01"),
        (ClaimShards((63,)), b"\x02"),
        (commit_offsets(), b"\x05\0\0"),
        (commit_offsets(offset=2**63 - 1, leader_epoch=-1), b"\xfe" + b"\xff" * 8 + b"\x03"),
        (commit_offsets(leader_epoch=2**31 - 1), b"\x80\x80\x80\x80\x10"),
        (CommitOffsets("g", "", 2**31 - 1, ()), b"\x80\x80\x80\x80\x10\0\0"),
        (InitProducer("x", 1, -1, 2**15 - 1), b"\x80\x80\x04"),
        (EndTransaction("x", 1, 0, commit=True, proof=None), b"\x08\x01x\x02\0"),
        (EndTransaction("x", 1, 0, commit=True, proof=None), b"\x05\x01x\x02\0"),
        (GiveUpTransaction("x", 1, 0, 1, timed_out=True), b"\x02\x01x\x02\0\x01"),
        (one_expiry(TOPIC, 0), b"\x01\0\x01\0\0"),
        (one_expiry(TOPIC, 0), b"\x02" + TOPIC + b"\0\x01\0"),
        (one_expiry(TOPIC, 0), b"\x01" + TOPIC + b"\0\x01\x01"),
    ],
    ids=[
        "neither yes nor no",
        "null or not",
        "kind",
        "topic",
        "partition -1",
        "shard 64",
        "partition -1 of an offset",
        "offset",
        "leader epoch",
        "epoch",
        "producer epoch",
        "flags of an end",
        "a challenge without a proof",
        "flags of a giving up",
        "a partition of no topic",
        "a topic or none",
        "producer -1",
    ],
)
def test_values_out_of_bounds_are_not_decoded(command: Command, ends: bytes):
    body = encode_entry(entry(command))[5:]
    with pytest.raises(CodecError):
        decode_entry(sealed(body[: -len(ends)] + ends))


@pytest.mark.parametrize("flags", [0x10, 0x20, 0x80, 0x0C, 0x18, 0x34, 0x44])
def test_unknown_flags_of_an_item_are_refused(flags: int):
    body = bytearray(encode_entry(entry(commit(Item(0, 9, 9, 0))))[5:])
    assert body[-3:] == b"\0\x09\x09"
    body[-3] = flags
    with pytest.raises(CodecError):
        decode_entry(sealed(bytes(body) + bytes(8)))


def test_an_item_that_continues_nothing_is_refused():
    body = bytearray(encode_entry(entry(commit(Item(0, 9, 9, 0))))[5:])
    body[-3] = 8
    with pytest.raises(CodecError, match="flags 0x8"):
        decode_entry(sealed(bytes(body)))


@pytest.mark.parametrize(
    "command",
    [
        commit(),
        commit(Item(0, 0, 1, 0)),
        commit(Item(0, 1, 0, 0)),
        commit(Item(-1, 1, 1, 0)),
        commit(Item(0, 2**32, 1, 0)),
        commit(Item(0, 1, 2**63, 0)),
        commit(Item(0, 1, 2**31, 0, 5, 0, 0)),
        commit(Item(0, 1, 1, 2**63)),
        commit(Item(0, 1, 1, 0), start=2**32),
        commit(Item(0, 1, 1, 0, 5, 2**15, 0)),
        commit(Item(0, 1, 1, 0, 5, 0, 2**31)),
        CommitChunk(-1, 0, ()),
        CommitChunk(0, 2**32, ()),
        DeleteTopic(TopicId(b"short")),
        Unpin("x" * (STRING_BYTES_MAX + 1)),
        Unpin("\ud800"),
        CreateTopic("t", 1, (("k", "v"),) * 1001),
        Close(Incarnation(-1), 0),
        ClaimShards((64,)),
        ClaimShards((-1,)),
        ClaimShards((3, 3)),
        ClaimShards((4, 3)),
        ReleaseShards((), Incarnation(-1)),
        DeleteGroup("x" * (STRING_BYTES_MAX + 1), only_without_offsets=False),
        ChangeGroup("g", GroupKind.CLASSIC, 0, 2**31, b"", (), ()),
        ChangeGroup("g", GroupKind.CLASSIC, 0, 0, b"", (GroupMember("m", -(2**31) - 1, b""),), ()),
        CommitOffsets("g", "", 2**31, ()),
        commit_offsets(partition=-1),
        commit_offsets(partition=2**31),
        commit_offsets(offset=2**63),
        commit_offsets(leader_epoch=2**31),
        commit_offsets(metadata="x" * (STRING_BYTES_MAX + 1)),
        DeleteOffsets("g", ((TOPIC, -1),)),
        DeleteOffsets("g", ((TopicId(b"short"), 1),)),
        ExpireOffsets("g", -1, ()),
        SetGroupConfigs("g", (("k", "v"),) * 1001),
        SetTopicConfigs(TOPIC, (("k", None),) * 1001),
        commit(Item(0, 1, 1, 0, 5, 0, 0, -3)),
        commit(Item(0, 1, 1, 0, 5, 0, 0, 2**63)),
        InitProducer("x", 2**63, -1, -1),
        InitProducer("x", 1, -1, 2**15),
        AddToTransaction("x", 2**63, 0, 1, 0, (), ()),
        AddToTransaction("x", 1, 0, -1, 0, (), ()),
        AddToTransaction("x", 1, 0, 1, -1, (), ()),
        AddToTransaction("x", 1, 0, 1, 0, ((TOPIC, -1),), ()),
        CommitTransactionOffsets("g", "", 2**31, 1, 0, OF_EPOCH, ()),
        CommitTransactionOffsets("g", "", -1, 1, 0, 2**63, ()),
        EndTransaction("x", 1, 0, True, ClientProof(-1, 0, Position(0), False)),
        EndTransaction("x", 1, 0, True, ClientProof(0, 0, Position(-1), False)),
        GiveUpTransaction("x", 1, 0, -1, timed_out=True),
        ExpireTransactionalIds(-1, ()),
        ExpireProducers(-1, ()),
        one_expiry(TOPIC, -1),
        one_expiry(TopicId(b"short"), 0),
    ],
)
def test_values_out_of_bounds_are_not_encoded(command: Command):
    with pytest.raises(CodecError):
        encode_entry(entry(command))


@pytest.mark.parametrize(("producer_id", "epoch", "sequence"), [(-1, 0, 0), (-9, 3, 7)])
def test_what_needs_a_producer_id_is_left_out_without_one(
    producer_id: int, epoch: int, sequence: int
):
    sent = commit(Item(0, 1, 1, 0, producer_id, epoch, sequence, OF_EPOCH))
    assert decode_entry(encode_entry(entry(sent))) == entry(commit(Item(0, 1, 1, 0)))


def test_an_entry_over_the_limit_is_not_encoded():
    spans = tuple(ChunkSpan(TOPIC, index, 0, (Item(0, 9, 9, 0),)) for index in range(10_000))
    with pytest.raises(CodecError, match=f"at most {ENTRY_BYTES_MAX}"):
        encode_entry(entry(CommitChunk(0, 9, spans)))


def test_a_count_that_lies_costs_nothing():
    body = bytes.fromhex("0000008f80808080") + b"\x03"
    with pytest.raises(CodecError):
        decode_entry(sealed(body))


commands = st.one_of(
    any_plain_command,
    any_group_command,
    any_transaction_command,
    any_job_command,
    any_table_command,
)
entries = st.builds(
    Entry,
    incarnation=st.integers(0, 2**63 - 1),
    n=st.integers(0, 2**63 - 1),
    clock_ms=st.integers(-(2**63), 2**63 - 1),
    commands=st.lists(commands, max_size=4).map(tuple),
)


@given(entries)
def test_any_entry_comes_back(any_entry: Entry):
    data = encode_entry(any_entry)
    assert decode_entry(data) == any_entry
    sizes = sum(encoded_size(command) for command in any_entry.commands)
    assert len(data) <= sizes + ENTRY_OVERHEAD_BYTES_MAX


@given(st.binary(max_size=200))
def test_any_bytes_are_an_entry_or_refused(data: bytes):
    with pytest.raises(CodecError):
        decode_entry(data)


@given(st.binary(max_size=60))
def test_any_body_with_a_good_checksum_is_an_entry_or_refused(body: bytes):
    # The head of an entry, then anything.
    one = b"\x01\x01\x00\x01"
    of_kind = [one + bytes([kind]) + b"\x01g" for kind in READERS]
    for prefix in (b"", one, one + b"\x08\x01\x7f\x00", *of_kind):
        try:
            found = decode_entry(sealed(prefix + body))
        except CodecError:
            continue
        assert decode_entry(encode_entry(found)) == found


@given(entries, st.data())
def test_a_damaged_body_with_a_good_checksum_is_an_entry_or_refused(
    any_entry: Entry, data: st.DataObject
):
    body = bytearray(encode_entry(any_entry)[5:])
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    try:
        found = decode_entry(sealed(bytes(body)))
    except CodecError:
        return
    assert decode_entry(encode_entry(found)) == found
