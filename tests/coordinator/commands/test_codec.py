"""Entries as bytes: what is pinned, what is refused, and that nothing else can happen.

Of every command that is declared: values come back, are as long as is said, and are refused out of
their bounds (`tests.coordinator.values`).
"""

from struct import pack

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.commands.codec import (
    ENTRY_BYTES_MAX,
    ENTRY_OVERHEAD_BYTES_MAX,
    FORMAT_VERSION,
    CodecError,
    decode_entry,
    encode_command,
    encode_entry,
    encoded_size,
    join_entry,
)
from coordinator.commands.declaration import DECLARATIONS, READERS
from coordinator.commands.entries import ChunkSpan, Command, CommitChunk, Entry, Tick, Unpin
from coordinator.commands.group_commands import (
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    GroupKind,
    SetGroupConfigs,
)
from coordinator.commands.job_commands import (
    JOB_OBJECTS_MAX,
    PAGE_BYTES_MAX,
    ClaimJobs,
    ExpireRecords,
    Expiry,
    ForgetObjects,
    JobKind,
    NewPage,
    NewSpan,
    RecallPage,
    Replacement,
    ReplaceRows,
    ReportJob,
    RequestJob,
    SpillRows,
)
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    EndTransaction,
    ExpireProducers,
    GiveUpTransaction,
    InitProducer,
    PartitionProducers,
)
from protocol.types import Incarnation, Position
from storage.formats.spans import Item, ObjectId
from tests.coordinator.golden import entry_of as entry
from tests.coordinator.golden.samples import COMMANDS
from tests.coordinator.values import DIGEST, INCARNATION, TOPIC, any_entry, any_of, beyond
from txn.transactions import NO_TRANSACTION, OF_EPOCH

FOREVER = 2**63 - 1
"""What people set as retention.ms when they want no limit."""
END = EndTransaction("x", 1, 0, commit=True, proof=None)
EXPIRY = ExpireProducers(0, (PartitionProducers(TOPIC, 0, (0,)),))
every_kind = pytest.mark.parametrize("kind", DECLARATIONS, ids=lambda kind: kind.__name__)


def sealed(body: bytes, version: int = FORMAT_VERSION) -> bytes:
    """A body with a good checksum."""
    head = bytes([version])
    return head + pack("<I", crc32c(head + body)) + body


def commit(*items: Item, start: int = 0) -> CommitChunk:
    return CommitChunk(0, 100, (ChunkSpan(TOPIC, 0, start, items),))


def commit_offsets(offset: int = 0, leader_epoch: int = 0) -> CommitOffsets:
    return CommitOffsets("g", "", -1, (CommittedOffset(TOPIC, 0, offset, leader_epoch, ""),))


def replaced(next_offset: int = 40) -> ReplaceRows:
    row = Replacement(TOPIC, 0, 10, next_offset, 5, DIGEST, (NewSpan(8, 700, 10, 0),))
    return ReplaceRows(JobKind.MERGE, 0, 1000, (row,))


def spilled(next_offset: int = 40) -> SpillRows:
    return SpillRows(0, 1000, (NewPage(TOPIC, 0, 10, next_offset, 5, 0, 100, DIGEST),))


def objects(number: int) -> ForgetObjects:
    return ForgetObjects((ObjectId(INCARNATION, number),))


# Every command.


@every_kind
@settings(max_examples=30)
@given(st.data())
def test_any_command_comes_back_and_is_as_long_as_is_said(kind: type, data: st.DataObject):
    command = data.draw(any_of(kind))
    encoded = encode_entry(entry(command, command))
    assert decode_entry(encoded) == entry(command, command)
    assert len(encoded) <= 2 * encoded_size(command) + ENTRY_OVERHEAD_BYTES_MAX


@every_kind
def test_a_command_with_one_value_out_of_its_bounds_is_not_encoded(kind: type):
    for sample in COMMANDS:
        if type(sample) is not kind:
            continue
        encode_command(sample)
        for wrong in beyond(kind, sample):
            with pytest.raises(CodecError):
                encode_command(wrong)


def test_commands_encoded_one_by_one_make_the_same_entry():
    joined = join_entry(
        incarnation=INCARNATION,
        n=5,
        clock_ms=1_700_000_000_123,
        commands=[encode_command(command) for command in COMMANDS],
    )
    assert joined == encode_entry(entry(*COMMANDS))


@given(any_entry)
def test_any_entry_comes_back(any_entry: Entry):
    data = encode_entry(any_entry)
    assert decode_entry(data) == any_entry
    sizes = sum(encoded_size(command) for command in any_entry.commands)
    assert len(data) <= sizes + ENTRY_OVERHEAD_BYTES_MAX


# What commands cost.


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


def test_a_commit_of_a_hundred_partitions_costs_less_than_ten_bytes_each():
    offsets = tuple(
        CommittedOffset(TOPIC, partition, 40_000_000_000 + 977 * partition**3, 0, "")
        for partition in range(100)
    )
    member_id = "consumer-billing-1-6f1d9c5e-0d1f-4c6c-9a55-5b7f3c1f7a11"
    assert encoded_size(CommitOffsets("billing", member_id, 12, offsets)) < 10 * 100


def test_no_limit_as_people_write_it_can_be_said():
    command = ExpireRecords(Position(1), (Expiry(TOPIC, 0, 5, FOREVER, FOREVER),))
    assert decode_entry(encode_entry(entry(command))) == entry(command)


def test_the_greatest_page_fits_into_an_entry():
    command = RecallPage(TOPIC, 2**31 - 1, FOREVER, bytes(PAGE_BYTES_MAX))
    longest = Entry(Incarnation(FOREVER), FOREVER, FOREVER, (command,))
    assert len(encode_entry(longest)) <= ENTRY_BYTES_MAX


def test_a_thousand_objects_in_the_order_of_their_numbers_cost_little():
    objects = tuple(ObjectId(INCARNATION, 7 * number) for number in range(JOB_OBJECTS_MAX))
    assert encoded_size(ForgetObjects(objects)) < 1100


def test_a_thousand_replacements_fit_into_an_entry():
    rows = tuple(
        Replacement(
            TOPIC,
            partition,
            10**10 + 977 * partition**2,
            10**10 + 977 * partition**2 + 4_000,
            4,
            DIGEST,
            (NewSpan(32_000 * partition, 32_000, 10**10 + 977 * partition**2, 1_700_000_000_000),),
        )
        for partition in range(1000)
    )
    command = ReplaceRows(JobKind.MERGE, 0, 32_000_000, rows)
    assert len(encode_command(command)) <= ENTRY_BYTES_MAX - ENTRY_OVERHEAD_BYTES_MAX


# What is refused.


def test_an_entry_of_a_newer_version_is_refused():
    with pytest.raises(CodecError, match="format version 2; known is 1"):
        decode_entry(sealed(encode_entry(entry(Tick()))[5:], version=2))


def test_every_flipped_bit_is_noticed():
    data = encode_entry(entry(*COMMANDS[:4], ClaimShards((0, 5, 63))))
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


NOT_DECODED: dict[str, tuple[Command, bytes]] = {
    "neither yes nor no": (DeleteGroup("g", only_without_offsets=True), b"\x02"),
    "null or not": (SetGroupConfigs("g", (("k", None),)), b"\x02"),
    "kind": (ChangeGroup("g", GroupKind.CLASSIC, 0, 0, b"", (), ()), b"\x03\0\0\0\0\0"),
    "topic": (DeleteOffsets("g", ((TOPIC, 0),)), b"\x01\x01\0"),
    "partition -1": (DeleteOffsets("g", ((TOPIC, 0),)), b"\0\x01\x01"),
    "shard 64": (ClaimShards((63,)), b"\x02"),
    "partition -1 of an offset": (commit_offsets(), b"\x05\0\0"),
    "offset": (commit_offsets(2**63 - 1, -1), b"\xfe" + b"\xff" * 8 + b"\x03"),
    "leader epoch": (commit_offsets(0, 2**31 - 1), b"\x80\x80\x80\x80\x10"),
    "epoch": (CommitOffsets("g", "", 2**31 - 1, ()), b"\x80\x80\x80\x80\x10\0\0"),
    "producer epoch": (InitProducer("x", 1, -1, 2**15 - 1), b"\x80\x80\x04"),
    "flags of an end": (END, b"\x08\x01x\x02\0"),
    "a challenge without a proof": (END, b"\x05\x01x\x02\0"),
    "flags of a giving up": (
        GiveUpTransaction("x", 1, 0, 1, timed_out=True),
        b"\x02\x01x\x02\0\x01",
    ),
    "a partition of no topic": (EXPIRY, b"\x01\0\x01\0\0"),
    "a topic or none": (EXPIRY, b"\x02" + TOPIC + b"\0\x01\0"),
    "producer -1": (EXPIRY, b"\x01" + TOPIC + b"\0\x01\x01"),
    "job 0": (RequestJob(JobKind.SNAPSHOT), b"\0"),
    "a job that is not there": (RequestJob(JobKind.SNAPSHOT), bytes([max(JobKind) + 1])),
    "a bit that is no job": (ClaimJobs((JobKind.SNAPSHOT,)), b"\x01"),
    "running or not": (
        ReportJob(JobKind.MERGE, done=1, total=2, running=True, note=""),
        b"\x02\x01\x02\0",
    ),
    "bytes before an object": (spilled(), b"\0\x01\x64" + DIGEST),
    "a span before offset 0": (replaced(), b"\x15\0\0"),
    "a kind of object": (objects(0), b"\x03\x01\0"),
    "object -1": (objects(0), b"\x01"),
    "object 2**32": (objects(2**32 - 1), b"\x82\x80\x80\x80\x20"),
}
"""What is decoded, and ends of it that are out of bounds."""


@pytest.mark.parametrize(
    ("command", "ends"),
    [*NOT_DECODED.values()],
    ids=[*NOT_DECODED],
)
def test_values_out_of_bounds_are_not_decoded(command: Command, ends: bytes):
    body = encode_entry(entry(command))[5:]
    assert decode_entry(sealed(body)) == entry(command)
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
        commit(Item(-1, 1, 1, 0)),
        commit(Item(2**32, 1, 1, 0)),
        commit(Item(0, 0, 1, 0)),
        commit(Item(0, 2**32, 1, 0)),
        commit(Item(0, 1, 0, 0)),
        commit(Item(0, 1, 2**63, 0)),
        commit(Item(0, 1, 2**31, 0, 5, 0, 0)),
        commit(Item(0, 1, 1, 2**63)),
        commit(Item(0, 1, 1, 0, 2**63, 0, 0)),
        commit(Item(0, 1, 1, 0, 5, 2**15, 0)),
        commit(Item(0, 1, 1, 0, 5, 0, 2**31)),
        commit(Item(0, 1, 1, 0, 5, 0, 0, -3)),
        commit(Item(0, 1, 1, 0, 5, 0, 0, 2**63)),
        ClaimShards((3, 3)),
        ClaimShards((4, 3)),
        ClaimJobs((JobKind.MERGE, JobKind.SNAPSHOT)),
        ClaimJobs((JobKind.MERGE, JobKind.MERGE)),
        replaced(next_offset=10),
        spilled(next_offset=9),
    ],
)
def test_values_that_do_not_fit_each_other_are_not_encoded(command: Command):
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


@given(any_entry, st.data())
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
