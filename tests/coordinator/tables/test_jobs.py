"""Claims of jobs, what they say of themselves, and the two newest snapshots."""

import pytest

from coordinator.commands.entries import DONE, Close, Rejected, Tick
from coordinator.commands.job_commands import (
    JOB_NOTE_MAX,
    BeginSnapshot,
    ClaimJobs,
    DoomObjects,
    DropRows,
    ExpireRecords,
    ForgetObjects,
    JobCommand,
    JobKind,
    JobsClaimed,
    PublishSnapshot,
    RecallPage,
    ReleaseJobs,
    ReplaceRows,
    ReportJob,
    RequestJob,
    RowsMoved,
    SpillRows,
)
from coordinator.tables.snapshots import Published
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Incarnation, Position, TopicId
from tests.coordinator.machine.job_story import JobStory
from tests.coordinator.machine.story import with_agents

MERGE, SPILL = JobKind.MERGE, JobKind.SPILL


def report(job: JobKind = MERGE, *, note: str = "spans") -> ReportJob:
    return ReportJob(job, done=3, total=9, running=True, note=note)


def test_a_job_is_held_by_the_first_that_claims_it():
    story, a, b = with_agents("a", "b")
    assert story.do(a, ClaimJobs((MERGE,))) == JobsClaimed((MERGE,))
    assert story.do(b, ClaimJobs((MERGE, SPILL))) == JobsClaimed((SPILL,))
    assert story.do(a, ClaimJobs((MERGE, SPILL))) == JobsClaimed((MERGE,))
    jobs = story.machine.jobs
    assert (jobs.get(MERGE).holder, jobs.get(SPILL).holder) == (a, b)
    assert jobs.get(JobKind.COLLECT).holder == INCARNATION_NONE
    assert jobs.held_by(a) == (MERGE,)


def test_a_claim_again_does_not_make_it_younger():
    story, agent = with_agents()
    story.do(agent, ClaimJobs((MERGE,)))
    claimed = story.machine.position
    story.do(agent, ClaimJobs((MERGE,)))
    assert story.machine.jobs.get(MERGE).claimed == claimed


def test_jobs_of_an_incarnation_that_ends_are_free():
    story, a, b = with_agents("a", "b")
    story.do(a, ClaimJobs((MERGE,)))
    story.do(b, Close(a, 1))
    assert story.machine.jobs.get(MERGE).holder == INCARNATION_NONE
    assert story.do(b, ClaimJobs((MERGE,))) == JobsClaimed((MERGE,))


def test_jobs_of_an_agent_that_comes_back_are_free():
    story, before = with_agents("a")
    story.do(before, ClaimJobs((MERGE,)))
    story.open("a")
    assert story.machine.jobs.get(MERGE).holder == INCARNATION_NONE


def test_a_job_is_handed_to_a_live_successor_and_to_nobody_else():
    story, a, b = with_agents("a", "b")
    story.do(a, ClaimJobs((MERGE, SPILL)))
    story.do(b, ReleaseJobs((MERGE,), b))
    assert story.machine.jobs.get(MERGE).holder == a
    assert story.do(a, ReleaseJobs((MERGE,), b)) == DONE
    assert story.do(a, ReleaseJobs((SPILL,), Incarnation(999))) == DONE
    jobs = story.machine.jobs
    assert (jobs.get(MERGE).holder, jobs.get(MERGE).claimed) == (b, story.log[-2][0])
    assert (jobs.get(SPILL).holder, jobs.get(SPILL).claimed) == (INCARNATION_NONE, POSITION_ZERO)


def test_a_report_is_kept_until_the_job_changes_hands():
    story, a, b = with_agents("a", "b")
    story.do(a, ClaimJobs((MERGE,)))
    story.do(b, Tick(), clock_ms=5_000)
    assert story.do(a, report(), clock_ms=5_000) == DONE
    row = story.machine.jobs.get(MERGE)
    assert (row.done, row.total, row.running, row.note) == (3, 9, True, "spans")
    assert row.reported_ms == 5_000
    story.do(a, ReleaseJobs((MERGE,), b))
    row = story.machine.jobs.get(MERGE)
    assert (row.done, row.total, row.running, row.note, row.reported_ms) == (0, 0, False, "", 0)


def test_the_note_of_a_report_is_bounded():
    story = JobStory()
    assert story.do(story.agent, report(note="x" * JOB_NOTE_MAX)) == DONE
    outcome = story.do(story.agent, report(note="x" * (JOB_NOTE_MAX + 1)))
    assert isinstance(outcome, Rejected)
    assert outcome.error is ErrorCode.INVALID_REQUEST


def test_a_request_is_remembered_whoever_holds_the_job():
    story, a, b = with_agents("a", "b")
    assert story.do(b, RequestJob(MERGE)) == DONE
    requested = story.machine.position
    story.do(a, ClaimJobs((MERGE,)))
    assert story.machine.jobs.get(MERGE).requested == requested
    assert story.machine.jobs.get(SPILL).requested == POSITION_ZERO


TOPIC = TopicId(bytes(16))


@pytest.mark.parametrize(
    "command",
    [
        report(),
        BeginSnapshot(),
        PublishSnapshot(Position(1), bytes(16), "key"),
        ExpireRecords(POSITION_ZERO, ()),
        DropRows(()),
        ReplaceRows(JobKind.MERGE, 0, 0, ()),
        ReplaceRows(JobKind.COMPACT, 0, 0, ()),
        SpillRows(0, 0, ()),
        RecallPage(TOPIC, 0, 0, b""),
        DoomObjects(0, ()),
        ForgetObjects(()),
    ],
    ids=str,
)
def test_what_is_a_jobs_is_refused_of_whoever_does_not_hold_it(command: JobCommand):
    story, agent = with_agents()
    outcome = story.do(agent, command)
    assert isinstance(outcome, Rejected)
    assert outcome.error is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("job", [job for job in JobKind if job.name not in {"MERGE", "COMPACT"}])
def test_other_jobs_replace_no_rows(job: JobKind):
    story = JobStory()
    outcome = story.do(story.agent, ReplaceRows(job, 0, 0, ()))
    assert isinstance(outcome, Rejected)
    assert outcome.error is ErrorCode.INVALID_REQUEST
    assert story.do(story.agent, ReplaceRows(JobKind.COMPACT, 0, 0, ())) == RowsMoved(())


# Snapshots.


def test_a_snapshot_begins_with_the_digest_after_its_entry():
    story = JobStory()
    story.do_all(story.agent, BeginSnapshot(), Tick())
    begun = story.machine.snapshots.begun
    assert begun is not None
    assert begun.position == story.machine.position
    assert begun.digest == story.machine.digest()
    story.do(story.agent, Tick())
    assert story.machine.snapshots.begun == begun
    assert begun.digest != story.machine.digest()


def test_the_two_newest_snapshots_are_known():
    story = JobStory()
    assert story.machine.snapshots.older is None
    story.snapshot()
    (first,) = story.machine.snapshots.published
    assert story.machine.snapshots.older is None
    assert (first.key, first.published_at) == ("key", story.machine.position)
    story.snapshot()
    assert story.machine.snapshots.older == first
    story.snapshot()
    newest, older = story.machine.snapshots.published
    assert story.machine.snapshots.older == older
    assert first.position < older.position < newest.position


def published(story: JobStory, **changes: object) -> object:
    """What comes of a publication with something else than it should have."""
    begun = story.machine.snapshots.begun
    assert begun is not None
    values = {"position": begun.position, "digest": begun.digest, "key": "key", **changes}
    return story.do(story.agent, PublishSnapshot(**values))


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    "changes",
    [
        {"position": Position(5)},
        {"digest": bytes(16)},
        {"key": ""},
        {"key": "x" * 256},
    ],
    ids=str,
)
def test_a_snapshot_that_says_something_else_is_refused(changes: dict[str, object]):
    story = JobStory()
    story.do(story.agent, BeginSnapshot())
    outcome = published(story, **changes)
    assert isinstance(outcome, Rejected)
    assert outcome.error is ErrorCode.INVALID_REQUEST
    assert story.machine.snapshots.published == ()
    assert published(story) == DONE


def test_a_snapshot_that_is_published_twice_counts_once():
    story = JobStory()
    story.snapshot()
    before: tuple[Published, ...] = story.machine.snapshots.published
    assert published(story) == DONE
    assert story.machine.snapshots.published == before


def test_a_snapshot_is_not_published_when_another_was_begun_since():
    story = JobStory()
    story.do(story.agent, BeginSnapshot())
    begun = story.machine.snapshots.begun
    assert begun is not None
    story.do(story.agent, BeginSnapshot())
    late = PublishSnapshot(begun.position, begun.digest, "key")
    assert isinstance(story.do(story.agent, late), Rejected)


def test_nothing_is_published_in_the_entry_that_begins():
    story = JobStory()
    story.snapshot()
    begun = story.machine.snapshots.begun
    assert begun is not None
    publish = PublishSnapshot(begun.position, begun.digest, "key")
    _, outcome = story.do_all(story.agent, BeginSnapshot(), publish)
    assert isinstance(outcome, Rejected)
