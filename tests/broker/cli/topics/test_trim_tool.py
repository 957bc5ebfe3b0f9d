"""`frazil topic trim`: which records it deletes, and what it says of the others."""

from collections.abc import Callable

import pytest

from broker.cli.command_result import CommandResult, ToolError
from broker.cli.kafka_client import KafkaClient
from broker.cli.topics import topic_tool, trim_tool
from broker.cli.topics.requests import SET
from broker.cli.topics.topic_tool import Alteration
from broker.cli.topics.trim_tool import TrimRule, TrimTarget
from protocol import apis, messages
from protocol.errors import ErrorCode
from tests.broker.cli.topics.topics_kit import Losing, client_of, with_topic
from tests.broker.fake_cluster import HANG_UP, on_cluster, per_partition

real_loop = pytest.mark.real_loop

ALL = TrimTarget(TrimRule.ALL)


async def trimmed(
    client: KafkaClient, target: TrimTarget, partitions: set[int] | None = None
) -> CommandResult:
    return await trim_tool.trim(client, "t", partitions, target)


def firsts(said: CommandResult) -> dict[int, int]:
    """The first offset of each partition, as it is printed."""
    return {int(line.split()[1]): int(line.split()[2]) for line in said.lines[1:]}


def trimming(answer_of: Callable[[int, int], tuple[int, int]]) -> Callable[[object], object]:
    """An agent's answers: first offset and error by partition and offset."""

    def answer(request: messages.DeleteRecordsRequest) -> messages.DeleteRecordsResponse:
        def row(
            asked: messages.DeleteRecordsPartition,
        ) -> messages.DeleteRecordsPartitionResult:
            first, error = answer_of(asked.partition_index, asked.offset)
            return messages.DeleteRecordsPartitionResult(
                partition_index=asked.partition_index, low_watermark=first, error_code=error
            )

        topics = per_partition(request.topics, messages.DeleteRecordsTopicResult, row)
        return messages.DeleteRecordsResponse(topics=topics)

    return answer


@real_loop
async def test_records_before_an_offset_are_deleted_where_it_was_said() -> None:
    async with with_topic(2) as (running, _), client_of(running) as client:
        said = await trimmed(client, TrimTarget(TrimRule.OFFSET, 2), {0})
        assert [line.split() for line in said.lines] == [
            ["TOPIC", "PARTITION", "FIRST"],
            ["t", "0", "2"],
        ]


@real_loop
async def test_all_records_are_deleted_from_all_partitions() -> None:
    async with with_topic(2) as (running, _), client_of(running) as client:
        assert firsts(await trimmed(client, ALL)) == {0: 3, 1: 0}


@real_loop
async def test_records_that_are_deleted_already_stay_so() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        await trimmed(client, TrimTarget(TrimRule.OFFSET, 2))
        assert firsts(await trimmed(client, TrimTarget(TrimRule.OFFSET, 1))) == {0: 2}


@real_loop
async def test_an_offset_beyond_the_end_is_a_failure_and_other_partitions_are_trimmed() -> None:
    async with with_topic(2) as (running, _), client_of(running) as client:
        said = await trimmed(client, TrimTarget(TrimRule.OFFSET, 1))
        assert firsts(said) == {0: 1}
        assert said.failures == ["t:1 is not trimmed: its records end before that offset"]


@real_loop
async def test_records_of_a_topic_that_is_only_compacted_are_not_deleted() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        compacted = Alteration(SET, "cleanup.policy", "compact")
        await topic_tool.alter(client, ["t"], [compacted], dry_run=False)
        (failure,) = (await trimmed(client, ALL)).failures
        assert failure.startswith("t:0 is not trimmed: the topic is compacted, and nothing else")


@real_loop
@pytest.mark.parametrize(
    ("topic", "partitions", "sentence"),
    [
        ("none", None, 'topic "none": there is no such topic'),
        ("a b", None, 'topic "a b": that is not the name of a topic'),
        ("t", {0, 2, 7}, 'topic "t" has no partition 2, 7, but 0 to 1'),
    ],
)
async def test_what_there_is_not_cannot_be_trimmed(
    topic: str, partitions: set[int] | None, sentence: str
) -> None:
    async with with_topic(2) as (running, _), client_of(running) as client:
        with pytest.raises(ToolError, match=sentence):
            await trim_tool.trim(client, topic, partitions, ALL)


@real_loop
async def test_a_trim_whose_answer_was_lost_deletes_no_record_that_came_since() -> None:
    async with with_topic() as (running, _):
        other = await running.connect()

        async def meanwhile() -> None:
            await other.produce("t", [b"new"])

        async with Losing.requests_of(running, apis.DELETE_RECORDS, meanwhile) as client:
            assert firsts(await trimmed(client, ALL)) == {0: 3}


@pytest.mark.parametrize(("at_time", "first"), [(7, 7), (-1, 20)], ids=["within", "all older"])
async def test_a_time_is_the_offset_of_the_first_record_from_then_on(
    at_time: int, first: int
) -> None:
    async with on_cluster() as (client, cluster):
        cluster.at_time = at_time
        cluster.answers[apis.DELETE_RECORDS] = trimming(lambda _, offset: (offset, 0))
        said = await trim_tool.trim(client, "orders", None, TrimTarget(TrimRule.TIME, 1_000))
        assert firsts(said) == {0: first, 1: first}


async def test_a_partition_whose_leader_moves_is_asked_for_again_and_others_are_not() -> None:
    async with on_cluster(agents=2) as (client, cluster):
        cluster.answers[apis.DELETE_RECORDS] = trimming(lambda _, offset: (offset, 0))
        moved = trimming(lambda _partition, _offset: (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        left = [moved, HANG_UP]

        def answer(request: object) -> object:
            chosen = left.pop(0) if left else cluster.answers[apis.DELETE_RECORDS]
            return chosen(request) if callable(chosen) else chosen

        cluster.agents[2].answers[apis.DELETE_RECORDS] = answer
        said = await trim_tool.trim(client, "orders", None, ALL)
        assert (firsts(said), said.failures) == ({0: 20, 1: 20}, [])
    assert cluster.agents[1].count(apis.DELETE_RECORDS) == 1
    assert cluster.agents[2].count(apis.DELETE_RECORDS) == 3


async def test_partitions_of_which_it_is_not_known_are_told() -> None:
    async with on_cluster(agents=2, timeout_ms=1_500) as (client, cluster):
        cluster.answers[apis.DELETE_RECORDS] = trimming(lambda _, offset: (offset, 0))
        slow = trimming(lambda _partition, _offset: (-1, ErrorCode.REQUEST_TIMED_OUT))
        cluster.agents[2].answers[apis.DELETE_RECORDS] = slow
        said = await trim_tool.trim(client, "orders", None, ALL)
        assert firsts(said) == {0: 20}
        (failure,) = said.failures
        assert failure.startswith(
            'it is not known whether partition 1 of topic "orders" is trimmed: orders:1 ('
            "REQUEST_TIMED_OUT); tried for 1.5 s"
        )
