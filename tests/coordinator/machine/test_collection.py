"""When an object may be deleted: the rules of docs/design/bounded.md §7, one by one."""

import pytest

from coordinator.commands.entries import DONE, Close, Pin, Rejected, Tick, Unpin
from coordinator.commands.job_commands import (
    JOB_OBJECTS_MAX,
    DoomObjects,
    ForgetObjects,
    JobKind,
    ObjectsDoomed,
    ReleaseJobs,
    Trim,
    TrimLogs,
)
from coordinator.machine import job_applier
from protocol.types import Incarnation
from storage.formats.spans import ObjectId, ObjectKind
from tests.coordinator.machine.job_story import JobStory
from tests.coordinator.machine.story import plain, span


def doom(story: JobStory, *objects: ObjectId, grace_ms: int = 0) -> tuple[ObjectId, ...]:
    outcome = story.do(story.agent, DoomObjects(grace_ms, objects))
    assert isinstance(outcome, ObjectsDoomed)
    return outcome.objects


def forget(story: JobStory, *objects: ObjectId) -> None:
    assert story.do(story.agent, ForgetObjects(objects)) == DONE


def let_go() -> tuple[JobStory, ObjectId]:
    """A story with a chunk that nothing points at any more."""
    story = JobStory(10, 10)
    story.do(story.agent, TrimLogs((Trim(story.topic_id, 0, 10),)))
    return story, ObjectId(story.agent, 0)


def collectable() -> tuple[JobStory, ObjectId]:
    """The same with two snapshots since."""
    story, chunk = let_go()
    story.snapshot()
    story.snapshot()
    return story, chunk


@pytest.mark.promise("P14")
def test_an_object_goes_when_two_snapshots_know_that_nothing_points_at_it():
    story, chunk = let_go()
    for _ in range(2):
        assert doom(story, chunk) == ()
        story.snapshot()
    assert doom(story, chunk) == (chunk,)
    assert [*story.machine.objects.doomed()] == [chunk]
    assert [*story.machine.objects.unreferenced()] == []
    forget(story, chunk)
    assert [*story.machine.objects.doomed()] == []


def test_a_snapshot_that_was_begun_before_does_not_count():
    story = JobStory(10, 10)
    story.snapshot()
    story.do(story.agent, TrimLogs((Trim(story.topic_id, 0, 10),)))
    story.snapshot()
    assert doom(story, ObjectId(story.agent, 0)) == ()


def test_an_object_that_something_points_at_stays():
    story, _ = collectable()
    assert doom(story, ObjectId(story.agent, 1)) == ()


def test_a_chunk_that_only_a_page_names_stays():
    story = JobStory(10, 10)
    story.spill(0, 2)
    story.snapshot()
    story.snapshot()
    index = ObjectId(story.agent, 0, ObjectKind.INDEX)
    assert doom(story, ObjectId(story.agent, 0), ObjectId(story.agent, 1), index) == ()


def test_grace_is_counted_in_the_machines_time():
    story, chunk = collectable()
    ((_, _, since_ms),) = story.machine.objects.unreferenced()
    story.clock_ms = since_ms + 4_980
    assert doom(story, chunk, grace_ms=5_000) == ()
    assert doom(story, chunk, grace_ms=5_000) == (chunk,)


@pytest.mark.promise("P6")
def test_one_wild_clock_dooms_nothing():
    story, chunk = collectable()
    other = story.open("agent-1", clock_ms=story.clock_ms)
    story.do(other, Tick(), clock_ms=10**15)
    assert doom(story, chunk, grace_ms=5_000) == ()


@pytest.mark.promise("P14")
def test_what_a_pin_can_reach_stays_until_the_pin_is_gone():
    story = JobStory(10, 10)
    story.do(story.agent, Pin("export", 60_000))
    story.do(story.agent, TrimLogs((Trim(story.topic_id, 0, 10),)))
    story.snapshot()
    story.snapshot()
    chunk = ObjectId(story.agent, 0)
    assert doom(story, chunk) == ()
    story.do(story.agent, Unpin("export"))
    assert doom(story, chunk) == (chunk,)


def test_a_pin_that_is_younger_or_has_expired_holds_nothing_back():
    story, chunk = collectable()
    story.do(story.agent, Pin("export", 60_000))
    assert doom(story, chunk) == (chunk,)
    story = JobStory(10, 10)
    story.do(story.agent, Pin("export", 20))
    story.do(story.agent, TrimLogs((Trim(story.topic_id, 0, 10),)))
    story.snapshot()
    story.snapshot()
    assert doom(story, chunk) == (chunk,)


def test_a_doomed_object_is_told_again_until_it_is_forgotten():
    story, chunk = collectable()
    doom(story, chunk)
    assert doom(story, chunk, chunk) == (chunk,)
    assert story.machine.objects.doomed_count == 1
    forget(story, chunk)
    assert story.machine.objects.doomed_count == 0


@pytest.mark.parametrize("kind", ObjectKind)
def test_a_number_that_may_still_be_committed_is_left_alone(kind: ObjectKind):
    story = JobStory(10, 10)
    story.merge(0, 2)
    story.spill(0, 1)
    row = story.machine.incarnations.get(story.agent)
    assert row is not None
    assert doom(story, ObjectId(story.agent, row.newest(kind) + 1, kind)) == ()


def test_a_number_that_was_left_out_goes():
    story = JobStory(1)
    story.chunks += 2
    story.produce(1)
    lost = [ObjectId(story.agent, number) for number in (1, 2)]
    ahead = ObjectId(story.agent, 4)
    committed = [ObjectId(story.agent, number) for number in (0, 3)]
    assert doom(story, *committed, *lost, ahead) == tuple(lost)


def test_what_a_dead_incarnation_never_committed_goes():
    story = JobStory()
    other = story.open("agent-1")
    story.commit(other, span(story.topic_id, plain()))
    lost = ObjectId(other, 900, ObjectKind.SEGMENT)
    assert doom(story, lost) == ()
    story.do(story.agent, Close(other, 1))
    assert doom(story, lost, ObjectId(other, 0)) == (lost,)
    forget(story, lost)
    assert [*story.machine.objects.doomed()] == []


@pytest.mark.parametrize("incarnation", [0, 2**62])
def test_objects_of_incarnations_that_never_were_are_left_alone(incarnation: int):
    """They may be of one that opens later, or of another cluster."""
    assert doom(JobStory(), ObjectId(Incarnation(incarnation), 0)) == ()


def test_an_incarnation_that_is_forgotten_and_comes_up_again_is_dead():
    story = JobStory()
    other = story.open("agent-1")
    story.do(story.agent, Close(other, 0))
    orphan = ObjectId(other, 5)
    assert doom(story, orphan) == (orphan,)
    forget(story, orphan)
    assert doom(story, orphan) == (orphan,)


def test_a_late_object_is_not_committed_under_a_doomed_number():
    story = JobStory(1)
    story.chunks += 1
    story.produce(1)
    assert doom(story, ObjectId(story.agent, 1)) == (ObjectId(story.agent, 1),)
    story.chunks = 1
    late = story.chunk(span(story.topic_id, plain()))
    assert isinstance(story.do(story.agent, late), Rejected)


def test_no_more_objects_are_doomed_than_may_wait(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_applier, "DOOMED_MAX", 3)
    story = JobStory(1)
    story.chunks += 5
    story.produce(1)
    lost = [ObjectId(story.agent, number) for number in range(1, 6)]
    assert doom(story, *lost) == tuple(lost[:3])
    assert doom(story, *lost) == tuple(lost[:3])
    forget(story, *lost)
    assert doom(story, *lost[3:]) == tuple(lost[3:])


def test_a_command_has_a_bounded_number_of_objects():
    story = JobStory()
    objects = tuple(ObjectId(story.agent, number) for number in range(JOB_OBJECTS_MAX + 1))
    for command in (DoomObjects(0, objects), ForgetObjects(objects)):
        assert isinstance(story.do(story.agent, command), Rejected)


def test_a_job_that_was_given_away_dooms_nothing():
    story, chunk = collectable()
    other = story.open("agent-1")
    story.do(story.agent, ReleaseJobs((JobKind.COLLECT,), other))
    assert isinstance(story.do(story.agent, DoomObjects(0, (chunk,))), Rejected)
