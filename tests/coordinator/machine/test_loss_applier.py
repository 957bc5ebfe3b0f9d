"""What is declared lost: offsets without records take the place of just those rows, or nothing happens."""

from dataclasses import replace

import pytest

from coordinator.commands.entries import DONE, DeleteTopic, Rejected
from coordinator.commands.job_commands import JOB_ROWS_MAX, ReleaseJobs
from coordinator.commands.loss_commands import DeclareLost
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, restore
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE
from storage.formats.page import digest_of_rows
from storage.formats.spans import ObjectId, ObjectKind, Page, Row, Span
from tests.coordinator.machine.job_story import SPAN_BYTES, JobStory

LENGTH = 61


def losing(story: JobStory, run: list[Row], **changes: object) -> DeclareLost:
    """These rows, by a segment of the story's agent."""
    command = DeclareLost(
        story.topic_id,
        0,
        run[0].base_offset,
        run[-1].next_offset,
        len(run),
        digest_of_rows(run),
        b"",
        story.next(ObjectKind.SEGMENT),
        200,
        16,
        LENGTH,
    )
    return replace(command, **changes)


def declare(story: JobStory, run: list[Row], **changes: object) -> object:
    return story.do(story.agent, losing(story, run, **changes))


def refused(outcome: object, error: ErrorCode) -> bool:
    return isinstance(outcome, Rejected) and outcome.error is error


def test_one_span_without_records_takes_the_place_of_rows_and_their_objects_are_let_go():
    story = JobStory(3, 4, 5, 6)
    run = story.rows(1, 2)
    assert declare(story, run) == DONE
    object_id = ObjectId(story.agent, 0, ObjectKind.SEGMENT)
    first, lost, last = story.rows()
    assert lost == Span(object_id, 16, LENGTH, 3, 9, 500)
    assert (first.next_offset, last.base_offset) == (3, 12)
    assert (story.row.end_offset, story.row.last_stable) == (18, 18)
    assert story.row.data_bytes == 2 * SPAN_BYTES + LENGTH
    gone = {each.object_id for each in story.machine.objects.unreferenced()}
    assert gone == {row.object_id for row in run}
    assert story.machine.objects.length(object_id) == 200


def test_it_takes_no_job_to_say_so():
    story = JobStory(3, 4)
    story.do(story.agent, ReleaseJobs((), INCARNATION_NONE))
    other = story.open("other")
    (row,) = story.rows(0, 1)
    assert story.do(other, losing(story, [row], number=0)) == DONE


def test_said_twice_it_changes_nothing_the_second_time():
    story = JobStory(3, 4, 5)
    run = story.rows(1, 1)
    assert declare(story, run) == DONE
    rows = story.rows()
    assert refused(declare(story, run), ErrorCode.INVALID_UPDATE_VERSION)
    assert story.rows() == rows
    # Its segment counts as written, so that collection takes it.
    second = ObjectId(story.agent, 1, ObjectKind.SEGMENT)
    assert second in {each.object_id for each in story.machine.objects.unreferenced()}
    assert story.next(ObjectKind.SEGMENT) == 2


def test_rows_that_a_job_has_moved_meanwhile_are_left_alone():
    story = JobStory(3, 4, 5)
    run = story.rows(1, 1)
    command = losing(story, run)
    story.merge(0, 3)
    outcome = story.do(story.agent, replace(command, number=story.next(ObjectKind.SEGMENT)))
    assert refused(outcome, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert len(story.rows()) == 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"digest": bytes(16)}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"rows": 2}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"rows": 0}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"base_offset": 4}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"next_offset": 8}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"base_offset": 3, "next_offset": 3}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"rows": JOB_ROWS_MAX + 1}, ErrorCode.INVALID_REQUEST),
        ({"span_length": 0}, ErrorCode.INVALID_REQUEST),
        ({"start": 200}, ErrorCode.INVALID_REQUEST),
        ({"page": b"a body"}, ErrorCode.INVALID_UPDATE_VERSION),
    ],
    ids=str,
)
def test_what_makes_no_sense_changes_no_row(changes, error):
    story = JobStory(3, 4, 5)
    rows, bytes_before = story.rows(), story.row.data_bytes
    assert refused(declare(story, rows[1:2], **changes), error)
    assert (story.rows(), story.row.data_bytes) == (rows, bytes_before)


def test_a_number_that_is_behind_is_not_written_at_all():
    story = JobStory(3, 4)
    assert declare(story, story.rows(0, 1)) == DONE
    before = story.machine.objects.unreferenced_count
    assert refused(declare(story, story.rows(1, 1), number=0), ErrorCode.INVALID_REQUEST)
    assert story.machine.objects.unreferenced_count == before


def test_a_page_that_is_lost_goes_with_what_is_counted_of_it():
    story = JobStory(*[2] * 6)
    story.spill(1, 4)
    (page,) = [row for row in story.rows() if isinstance(row, Page)]
    assert declare(story, [page]) == DONE
    table = story.machine.partitions
    assert (table.page_count, table.paged_row_count, table.row_count) == (0, 0, 3)
    assert table.data_bytes == 2 * SPAN_BYTES + LENGTH
    assert not story.machine.objects.is_referenced(page.object_id)
    # Nobody can tell any more what lay in it.
    assert len(story.machine.objects) == 6 + 1


def test_of_a_page_that_can_be_read_the_other_rows_come_back():
    story = JobStory(*[2] * 6)
    run = story.rows(2, 2)
    others = [row for row in story.rows() if row not in run]
    story.spill(1, 4)
    (page,) = [row for row in story.rows() if isinstance(row, Page)]
    assert declare(story, run, page=story.bodies[2]) == DONE
    assert [row for row in story.rows() if row in others] == others
    assert len(story.rows()) == 5
    assert story.machine.partitions.page_count == 0
    assert not story.machine.objects.is_referenced(page.object_id)


def test_rows_behind_the_last_stable_offset_may_be_lost_too():
    story = JobStory(3)
    producer = story.producer(story.agent, "pay")
    assert producer
    assert declare(story, story.rows()) == DONE
    assert story.row.end_offset == 3


def test_a_partition_that_has_lost_something_is_said_to_have_holes():
    story = JobStory(3, 4)
    assert story.row.clean_to == 0
    declare(story, story.rows(0, 1))
    assert story.row.clean_to == 1


def test_a_deleted_topic_loses_nothing():
    story = JobStory(3)
    command = losing(story, story.rows())
    story.do(story.agent, DeleteTopic(story.topic_id))
    assert refused(story.do(story.agent, command), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_snapshot_behind_it_is_the_same_machine():
    story = JobStory(*[2] * 6)
    story.spill(1, 4)
    declare(story, story.rows(0, 1))
    declare(story, story.rows(1, 1))
    machine = Machine()
    restore(machine, dump(story.machine))
    assert dump(machine) == dump(story.machine)


def losses(story: JobStory) -> list[tuple[int, ...]]:
    return [tuple(each) for each in story.machine.losses.between((story.topic_id, 0), 0, 1 << 40)]


def test_what_was_declared_lost_is_remembered_with_its_time_and_neighbours_are_one():
    story = JobStory(*[2] * 6)
    declare(story, story.rows(0, 1))
    first_ms = story.machine.time_ms
    assert losses(story) == [(0, 2, first_ms)]
    declare(story, story.rows(4, 1))
    declare(story, story.rows(1, 1))
    now_ms = story.machine.time_ms
    assert [each[:2] for each in losses(story)] == [(0, 4), (8, 10)]
    assert losses(story)[0][2] == now_ms >= first_ms


def test_what_was_refused_is_not_remembered_as_lost():
    story = JobStory(2, 2)
    declare(story, story.rows(0, 1), digest=bytes(16))
    assert losses(story) == []


def test_losses_of_a_deleted_topic_are_forgotten():
    story = JobStory(2, 2)
    declare(story, story.rows(0, 1))
    story.do(story.agent, DeleteTopic(story.topic_id))
    assert story.machine.losses.rows == {}


def test_losses_are_in_a_snapshot():
    story = JobStory(2, 2)
    declare(story, story.rows(0, 1))
    machine = Machine()
    restore(machine, dump(story.machine))
    assert machine.losses.rows == story.machine.losses.rows != {}
