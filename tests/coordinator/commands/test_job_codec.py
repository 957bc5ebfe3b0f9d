"""Commands of jobs as bytes: what is out of bounds, and what they cost."""

import pytest

from coordinator.commands.codec import (
    ENTRY_BYTES_MAX,
    ENTRY_OVERHEAD_BYTES_MAX,
    CodecError,
    decode_entry,
    encode_command,
    encode_entry,
    encoded_size,
)
from coordinator.commands.entries import Command, Entry
from coordinator.commands.job_commands import (
    JOB_OBJECTS_MAX,
    PAGE_BYTES_MAX,
    ClaimJobs,
    DoomObjects,
    DropRows,
    ExpireRecords,
    Expiry,
    ForgetObjects,
    JobKind,
    NewPage,
    NewSpan,
    PublishSnapshot,
    RecallPage,
    ReleaseJobs,
    Replacement,
    ReplaceRows,
    ReportJob,
    RequestJob,
    SpillRows,
    Trim,
    TrimLogs,
)
from protocol.types import Incarnation, Position
from storage.formats.spans import ObjectId
from tests.coordinator.commands.group_values import INCARNATION, TOPIC
from tests.coordinator.commands.job_values import DIGEST
from tests.coordinator.commands.test_codec import entry, sealed

FOREVER = 2**63 - 1
"""What people set as retention.ms when they want no limit."""


def replaced(**changes: object) -> ReplaceRows:
    whole = Replacement(TOPIC, 0, 10, 40, 5, DIGEST, (NewSpan(8, 700, 10, 0),))
    return ReplaceRows(JobKind.MERGE, 0, 1000, (whole._replace(**changes),))


def spilled(**changes: object) -> SpillRows:
    whole = NewPage(TOPIC, 0, 10, 40, 5, 0, 100, DIGEST)
    return SpillRows(0, 1000, (whole._replace(**changes),))


@pytest.mark.parametrize(
    "command",
    [
        ClaimJobs((JobKind.MERGE, JobKind.SNAPSHOT)),
        ClaimJobs((JobKind.MERGE, JobKind.MERGE)),
        ReleaseJobs((), Incarnation(-1)),
        ReportJob(JobKind.MERGE, done=-1, total=0, running=True, note=""),
        ReportJob(JobKind.MERGE, done=0, total=2**63, running=True, note=""),
        PublishSnapshot(Position(1), b"short", "key"),
        PublishSnapshot(Position(-1), DIGEST, "key"),
        TrimLogs((Trim(TOPIC, -1, 0),)),
        TrimLogs((Trim(TOPIC, 2**31, 0),)),
        TrimLogs((Trim(TOPIC, 0, 2**63),)),
        ExpireRecords(Position(-1), ()),
        ExpireRecords(Position(1), (Expiry(TOPIC, 0, -1, 5, 5),)),
        ExpireRecords(Position(1), (Expiry(TOPIC, 0, 1, 2**63, 5),)),
        DropRows(((TOPIC, -1),)),
        replaced(base_offset=-1),
        replaced(next_offset=10),
        replaced(next_offset=2**63),
        replaced(rows=-1),
        replaced(digest=b""),
        replaced(clean_to=-2),
        replaced(spans=(NewSpan(-1, 700, 10, 0),)),
        replaced(spans=(NewSpan(8, 0, 10, 0),)),
        replaced(spans=(NewSpan(8, 2**32, 10, 0),)),
        replaced(spans=(NewSpan(8, 700, -1, 0),)),
        replaced(spans=(NewSpan(8, 700, 2**63, 0),)),
        replaced(spans=(NewSpan(8, 700, 10, 2**63),)),
        ReplaceRows(JobKind.MERGE, 2**32, 0, ()),
        ReplaceRows(JobKind.MERGE, 0, 2**32, ()),
        spilled(length=0),
        spilled(start=2**32),
        spilled(digest=bytes(15)),
        spilled(next_offset=9),
        RecallPage(TOPIC, 0, -1, b""),
        DoomObjects(-1, ()),
        ForgetObjects((ObjectId(Incarnation(-1), 0),)),
        ForgetObjects((ObjectId(INCARNATION, 2**32),)),
        ForgetObjects((ObjectId(INCARNATION, -1),)),
    ],
)
def test_values_out_of_bounds_are_not_encoded(command: Command):
    with pytest.raises(CodecError):
        encode_entry(entry(command))


@pytest.mark.parametrize(
    ("command", "ends"),
    [
        (RequestJob(JobKind.SNAPSHOT), b"\0"),
        (RequestJob(JobKind.SNAPSHOT), bytes([max(JobKind) + 1])),
        (ClaimJobs((JobKind.SNAPSHOT,)), b"\x01"),
        (ReportJob(JobKind.MERGE, done=1, total=2, running=True, note=""), b"\x02\x01\x02\0"),
        (spilled(), b"\0\x01\x64" + DIGEST),
        (replaced(), b"\x15\0\0"),
        (ForgetObjects((ObjectId(INCARNATION, 0),)), b"\x03\x01\0"),
        (ForgetObjects((ObjectId(INCARNATION, 0),)), b"\x01"),
        (ForgetObjects((ObjectId(INCARNATION, 2**32 - 1),)), b"\x82\x80\x80\x80\x20"),
    ],
    ids=[
        "job 0",
        "a job that is not there",
        "a bit that is no job",
        "neither yes nor no",
        "bytes before an object",
        "a span before offset 0",
        "a kind of object",
        "object -1",
        "object 2**32",
    ],
)
def test_values_out_of_bounds_are_not_decoded(command: Command, ends: bytes):
    body = encode_entry(entry(command))[5:]
    assert decode_entry(sealed(body)) == entry(command)
    with pytest.raises(CodecError):
        decode_entry(sealed(body[: -len(ends)] + ends))


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
