"""Commands of jobs for the tests of codecs: one of each kind, and any there may be."""

from hypothesis import strategies as st

from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    DoomObjects,
    DropRows,
    ExpireRecords,
    Expiry,
    ForgetObjects,
    JobCommand,
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
from protocol.types import INCARNATION_NONE, Incarnation, Position, TopicId, position
from storage.formats.spans import ObjectId, ObjectKind
from tests.coordinator.commands.group_values import INCARNATION, OTHER, TOPIC, any_places

DIGEST = bytes(range(100, 116))
NOW_MS = 1_700_000_000_000

JOB_COMMANDS: tuple[JobCommand, ...] = (
    ClaimJobs((JobKind.SNAPSHOT, JobKind.MERGE, JobKind.COLLECT)),
    ReleaseJobs((JobKind.RETENTION,), INCARNATION_NONE),
    ReleaseJobs((JobKind.SPILL, JobKind.COMPACT), INCARNATION),
    ReportJob(JobKind.MERGE, done=70_000, total=0, running=True, note="bytes"),
    ReportJob(JobKind.COMPACT, done=3, total=9, running=False, note=""),
    RequestJob(JobKind.SNAPSHOT),
    BeginSnapshot(),
    PublishSnapshot(position(1, 900), DIGEST, "snapshots/0001/manifest"),
    TrimLogs((Trim(TOPIC, 0, 5), Trim(TOPIC, 3, -1), Trim(OTHER, 1, 2**40))),
    ExpireRecords(
        position(1, 800),
        (Expiry(TOPIC, 0, 100, 604_800_000, -1), Expiry(OTHER, 9, 7, -1, 1 << 30)),
    ),
    DropRows(((TOPIC, 0), (TOPIC, 1), (OTHER, 4))),
    ReplaceRows(
        JobKind.MERGE,
        4,
        9000,
        (
            Replacement(TOPIC, 0, 10, 40, 5, DIGEST, (NewSpan(8, 700, 10, NOW_MS),)),
            Replacement(
                OTHER,
                2,
                0,
                2**40,
                600,
                DIGEST,
                (NewSpan(708, 90, 0, -1), NewSpan(798, 8000, 50, NOW_MS)),
            ),
        ),
    ),
    ReplaceRows(
        JobKind.COMPACT,
        5,
        80,
        (Replacement(TOPIC, 1, 5, 9, 2, DIGEST, (NewSpan(8, 61, 5, NOW_MS),), clean_to=9),),
        seen=position(1, 790),
    ),
    SpillRows(
        0,
        5000,
        (
            NewPage(TOPIC, 0, 0, 40, 64, 20, 900, DIGEST),
            NewPage(TOPIC, 1, 7, 10_000, 1000, 920, 4000, DIGEST),
        ),
    ),
    RecallPage(TOPIC, 1, 7, b"the body of a page"),
    DoomObjects(
        60_000,
        (
            ObjectId(INCARNATION, 3),
            ObjectId(INCARNATION, 4),
            ObjectId(INCARNATION, 1, ObjectKind.SEGMENT),
            ObjectId(Incarnation(77), 2**32 - 1, ObjectKind.INDEX),
        ),
    ),
    ForgetObjects((ObjectId(INCARNATION, 3), ObjectId(INCARNATION, 4))),
)

_jobs = st.sampled_from(JobKind)
_some_jobs = st.sets(_jobs).map(lambda jobs: tuple(sorted(jobs)))
_u32, _u63 = st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1)
_i64 = st.integers(-(2**63), 2**63 - 1)
_incarnations = _u63.map(Incarnation)
_positions = _u63.map(Position)
_topic_ids = st.binary(min_size=16, max_size=16).map(TopicId) | st.sampled_from([TOPIC, OTHER])
_partitions = st.integers(0, 5) | st.integers(0, 2**31 - 1)
_digests = st.binary(min_size=16, max_size=16)
_limits = st.integers(-1, 2**63 - 2)
_lengths = st.integers(1, 2**32 - 1)
_ranges = st.tuples(_u63, _u63).filter(lambda ends: ends[0] != ends[1]).map(sorted)
_objects = st.builds(ObjectId, _incarnations, _u32, st.sampled_from(ObjectKind))
_some_objects = st.lists(_objects, max_size=5).map(tuple)
_trims = st.builds(Trim, _topic_ids, _partitions, _i64)
_expiries = st.builds(Expiry, _topic_ids, _partitions, _u63, _i64, _i64)
_spans = st.builds(NewSpan, _u32, _lengths, _u63, _i64)


@st.composite
def _replacements(draw: st.DrawFn) -> Replacement:
    base, following = draw(_ranges)
    return Replacement(
        draw(_topic_ids),
        draw(_partitions),
        base,
        following,
        draw(_u32),
        draw(_digests),
        tuple(draw(st.lists(_spans, max_size=4))),
        draw(_limits),
    )


@st.composite
def _pages(draw: st.DrawFn) -> NewPage:
    base, following = draw(_ranges)
    return NewPage(
        draw(_topic_ids),
        draw(_partitions),
        base,
        following,
        draw(_u32),
        draw(_u32),
        draw(_lengths),
        draw(_digests),
    )


def _some(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(values, max_size=4).map(tuple)


any_job_command: st.SearchStrategy[JobCommand] = st.one_of(
    st.builds(ClaimJobs, _some_jobs),
    st.builds(ReleaseJobs, _some_jobs, _incarnations),
    st.builds(
        ReportJob,
        _jobs,
        done=_u63,
        total=_u63,
        running=st.booleans(),
        note=st.text(max_size=9),
    ),
    st.builds(RequestJob, _jobs),
    st.just(BeginSnapshot()),
    st.builds(PublishSnapshot, _positions, _digests, st.text(max_size=9)),
    st.builds(TrimLogs, _some(_trims)),
    st.builds(ExpireRecords, _positions, _some(_expiries)),
    st.builds(DropRows, any_places),
    st.builds(ReplaceRows, _jobs, _u32, _u32, _some(_replacements())),
    st.builds(SpillRows, _u32, _u32, _some(_pages())),
    st.builds(RecallPage, _topic_ids, _partitions, _u63, st.binary(max_size=50)),
    st.builds(DoomObjects, _u63, _some_objects),
    st.builds(ForgetObjects, _some_objects),
)
