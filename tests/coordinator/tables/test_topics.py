"""Topics: names, ids, limits, deletion and the purge of what is left."""

import pytest

from coordinator.commands.entries import CreateTopic, DeleteTopic, Done, PurgePartitions, Rejected
from coordinator.tables.partitions import PURGE_ROWS_MAX
from coordinator.tables.topics import PARTITIONS_MAX, TOPIC_PARTITIONS_MAX
from protocol.errors import ErrorCode
from protocol.types import TopicId
from tests.coordinator.machine.story import Story, batch, begun, plain, span, with_agents


def refusal(story: Story, command: object) -> ErrorCode:
    incarnation = next(iter(story.machine.incarnations)).incarnation
    outcome = story.do(incarnation, command)
    assert isinstance(outcome, Rejected)
    assert outcome.message
    return outcome.error


def test_a_topic_is_found_by_name_and_by_id():
    story, agent = with_agents()
    story.do(agent, CreateTopic("events", 3, (("retention.ms", "5"),)))
    topic = story.machine.topics.by_name("events")
    assert topic is not None
    assert story.machine.topics.by_id(topic.topic_id) is topic
    assert (topic.partition_count, topic.configs) == (3, {"retention.ms": "5"})
    assert topic.created == story.machine.position


def test_topics_are_in_order_of_creation():
    story, agent = with_agents()
    for name in ("zebra", "ant", "bee"):
        story.topic(agent, name)
    assert [topic.name for topic in story.machine.topics] == ["zebra", "ant", "bee"]
    assert len(story.machine.topics) == 3


def test_topics_of_one_entry_have_different_ids():
    story, agent = with_agents()
    story.do_all(agent, CreateTopic("a", 1, ()), CreateTopic("b", 1, ()))
    assert len({topic.topic_id for topic in story.machine.topics}) == 2


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "a\n", "x" * 250])
def test_a_name_that_kafka_does_not_allow_is_refused(name: str):
    story = Story()
    story.open()
    assert refusal(story, CreateTopic(name, 1, ())) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "...", "A-b_c.9", "x" * 249])
def test_a_name_that_kafka_allows_is_accepted(name: str):
    story = Story()
    story.topic(story.open(), name)
    assert story.machine.topics.by_name(name) is not None


def test_a_name_that_is_taken_is_refused():
    story = Story()
    story.topic(story.open(), "a.b")
    assert refusal(story, CreateTopic("a.b", 1, ())) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_names_that_differ_only_in_dots_and_underscores_collide():
    story = Story()
    story.topic(story.open(), "a.b_c")
    assert refusal(story, CreateTopic("a_b.c", 1, ())) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("partitions", [-1, 0, TOPIC_PARTITIONS_MAX + 1])
def test_a_number_of_partitions_out_of_bounds_is_refused(partitions: int):
    story = Story()
    story.open()
    assert refusal(story, CreateTopic("a", partitions, ())) is ErrorCode.INVALID_PARTITIONS


def test_the_partitions_of_a_cluster_are_bounded():
    story, agent = with_agents()
    for index in range(PARTITIONS_MAX // TOPIC_PARTITIONS_MAX):
        story.topic(agent, f"t{index}", TOPIC_PARTITIONS_MAX)
    assert refusal(story, CreateTopic("more", 1, ())) is ErrorCode.INVALID_PARTITIONS
    story.do(agent, DeleteTopic(story.machine.topics.by_name("t0").topic_id))
    story.topic(agent, "more")


def test_a_deleted_topic_is_gone_at_once():
    story, agent, topic_id = begun("a")
    assert story.do(agent, DeleteTopic(topic_id)) == Done()
    assert story.machine.topics.by_name("a") is None
    assert story.machine.topics.by_id(topic_id) is None
    assert story.machine.partitions.get(topic_id, 0) is None


def test_a_topic_created_anew_has_another_id():
    story, agent = with_agents()
    first = story.topic(agent, "a.b")
    story.do(agent, DeleteTopic(first))
    assert story.topic(agent, "a_b") != first


def test_deleting_a_topic_that_is_not_there_is_refused():
    story, agent, topic_id = begun()
    story.do(agent, DeleteTopic(topic_id))
    assert refusal(story, DeleteTopic(topic_id)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert refusal(story, DeleteTopic(TopicId(bytes(16)))) is ErrorCode.UNKNOWN_TOPIC_ID


def test_records_for_a_deleted_topic_are_refused_and_their_chunk_is_unreferenced():
    story, agent, topic_id = begun()
    story.do(agent, DeleteTopic(topic_id))
    (result,) = story.commit(agent, span(topic_id, plain()))
    assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (result.base_offset, result.log_start) == (-1, -1)
    ((chunk, since, _),) = story.machine.objects.unreferenced()
    assert (chunk.incarnation, chunk.number, since) == (agent, 0, story.machine.position)


def test_a_topic_without_records_needs_no_purge():
    story, agent, topic_id = begun(partitions=10)
    assert story.machine.partitions.get(topic_id, 3) is not None
    story.do(agent, DeleteTopic(topic_id))
    assert story.machine.next_purge() is None
    assert len(story.machine.partitions) == 0


def purge_all(story: Story, agent: int) -> int:
    slices = 0
    while (command := story.machine.next_purge()) is not None:
        assert story.do(agent, command) == Done()
        slices += 1
        assert slices < 100
    return slices


def test_the_purge_lets_go_of_the_chunks():
    story, agent = with_agents()
    topic_id, other = story.topic(agent, "a", 3), story.topic(agent, "b")
    story.commit(agent, span(topic_id, plain(), partition=0), span(other, plain(), start=100))
    story.commit(agent, span(topic_id, plain(), partition=2))
    story.do(agent, DeleteTopic(topic_id))
    assert len(story.machine.objects) == 2
    assert story.machine.next_purge() == PurgePartitions(topic_id, 0, 3)
    assert purge_all(story, agent) == 1
    assert [number for (_, number, _), _, _ in story.machine.objects.unreferenced()] == [1]
    assert len(story.machine.objects) == 1
    assert len(story.machine.partitions) == 1


def test_a_purge_drops_a_bounded_number_of_rows_and_can_be_resumed():
    story, agent, topic_id = begun()
    for _ in range(5):
        items = [
            batch(producer, 0) for producer in range(story.chunks * 400, story.chunks * 400 + 400)
        ]
        story.commit(agent, span(topic_id, *items))
    for _ in range(500):
        story.commit(agent, span(topic_id, plain()))
    story.do(agent, DeleteTopic(topic_id))
    assert story.machine.partitions.row_count == 505
    assert story.machine.partitions.window_count == 2000
    # 505 spans and 2,000 windows, and the partition counted in every slice.
    assert purge_all(story, agent) == -(-2505 // (PURGE_ROWS_MAX - 1))
    assert len(story.machine.partitions) == 0
    assert story.machine.partitions.row_count == 0
    assert story.machine.partitions.window_count == 0
    assert len(story.machine.objects) == 0


def test_purging_what_is_gone_is_done_already():
    story, agent, topic_id = begun()
    story.commit(agent, span(topic_id, plain()))
    story.do(agent, DeleteTopic(topic_id))
    assert story.do(agent, PurgePartitions(topic_id, 0, 1)) == Done()
    assert story.do(agent, PurgePartitions(topic_id, 0, 1)) == Done()


def test_purging_a_topic_that_exists_is_refused():
    story = Story()
    topic_id = story.topic(story.open())
    assert refusal(story, PurgePartitions(topic_id, 0, 1)) is ErrorCode.INVALID_REQUEST


def test_a_slice_that_is_too_long_is_refused():
    story = Story()
    story.open()
    command = PurgePartitions(TopicId(bytes(16)), 0, PURGE_ROWS_MAX + 1)
    assert refusal(story, command) is ErrorCode.INVALID_REQUEST


def test_a_slice_beyond_the_last_partition_is_done():
    story, agent, topic_id = begun(partitions=2)
    story.commit(agent, span(topic_id, plain()))
    story.do(agent, DeleteTopic(topic_id))
    assert story.do(agent, PurgePartitions(topic_id, 1, 1000)) == Done()
    assert story.machine.next_purge() == PurgePartitions(topic_id, 0, 2)
