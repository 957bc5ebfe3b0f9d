"""CreateTopics and DeleteTopics: what is refused, by whom, and what may still happen (P4)."""

import pytest

from broker.upkeep import deleted_topics
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.coordinator.support import Writer
from tests.kit.batches import batch
from tests.kit.client import caught_up
from tests.kit.faults import lost


def create(*topics: CreatableTopic, **more) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), **({"timeout_ms": 10_000} | more))


def new(name: str, partitions: int = 1, factor: int = 1, **configs) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def assigned(*brokers: list[int], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    return CreatableTopic(
        name="assigned",
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(brokers)
        ],
    )


def delete(*names: str, **more) -> DeleteTopicsRequest:
    states = [DeleteTopicState(name=name) for name in names]
    return DeleteTopicsRequest(topics=states, **({"timeout_ms": 10_000} | more))


async def refusals(agent, request) -> list[int]:
    return [row.error_code for row in (await agent.call(apis.CREATE_TOPICS, request)).topics]


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_created_in_every_version(version, world):
    async with world.agents("one") as (one,):
        asked = create(new("logs", 3, retention_ms="1000"))
        (row,) = (await one.call(apis.CREATE_TOPICS, asked, version=version)).topics
        topic = one.machine.topics.by_name("logs")
        assert (row.error_code, row.name) == (0, "logs")
        assert (topic.partition_count, topic.configs) == (3, {"retention.ms": "1000"})
        if version >= 5:
            assert (row.num_partitions, row.replication_factor) == (3, 1)
            configs = {each.name: (each.value, each.config_source) for each in row.configs}
            assert configs["retention.ms"] == ("1000", 1)
            assert configs["cleanup.policy"] == ("delete", 5)
        if version >= 7:
            assert row.topic_id == topic.topic_id


async def test_minus_one_stands_for_the_defaults(world):
    async with world.agents("one", num_partitions="6") as (one,):
        (row,) = (await one.call(apis.CREATE_TOPICS, create(new("logs", -1, -1)))).topics
        assert (row.error_code, row.num_partitions) == (0, 6)


async def test_the_replication_factor_told_is_the_number_of_replicas_in_metadata(world):
    async with world.agents("one@a", "two@b") as (one, _):
        (row,) = (await one.call(apis.CREATE_TOPICS, create(new("logs", 1, 3)))).topics
        assert row.replication_factor == 2


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (new("a", 0), ErrorCode.INVALID_PARTITIONS),
        (new("a", -2), ErrorCode.INVALID_PARTITIONS),
        (new("a", 1_000_000), ErrorCode.INVALID_PARTITIONS),
        (new("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("a", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("a", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (new("a", no_such_config="1"), ErrorCode.INVALID_CONFIG),
        (new("a", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (assigned([0], partitions=1), ErrorCode.INVALID_REQUEST),
        (assigned([0], factor=1), ErrorCode.INVALID_REQUEST),
        (assigned([0, 0]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([0], []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([77]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_what_kafka_refuses_is_refused_alike(topic, code, validate_only, world):
    async with world.agents("one") as (one,):
        assert await refusals(one, create(topic, validate_only=validate_only)) == [code]
        assert len(one.machine.topics) == 0


async def test_a_sound_assignment_is_taken(world):
    async with world.agents("one") as (one,):
        assert await refusals(one, create(assigned([0], [0]))) == [0]
        assert one.machine.topics.by_name("assigned").partition_count == 2


async def test_a_name_that_is_asked_for_twice_is_refused_once(world):
    async with world.agents("one") as (one,):
        asked = create(new("twice"), new("good"), new("twice", 2))
        answer = await one.call(apis.CREATE_TOPICS, asked)
        rows = {row.name: row.error_code for row in answer.topics}
        assert rows == {"twice": ErrorCode.INVALID_REQUEST, "good": 0}
        assert len(answer.topics) == 2


async def test_a_name_that_is_taken_is_refused_by_the_log(world):
    async with world.with_topic() as (one,):
        await one.create_topic("a.b")
        codes = await refusals(one, create(new("logs"), new("a_b")))
        assert codes == [
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]


@pytest.mark.parametrize("validate_only", [False, True])
async def test_that_a_topic_exists_is_said_before_what_else_is_wrong_with_it(validate_only, world):
    async with world.with_topic("one", "lagging") as (one, lagging):
        await one.create_topic("assigned")
        wrong = [new("logs", 0), new("logs", 1, 0), new("logs", retention_ms="x")]
        wrong += [new("logs", nonsense="1"), assigned([77]), assigned([0], [])]
        for topic in wrong:
            asked = create(topic, new("free", 0), validate_only=validate_only)
            codes = await refusals(one, asked)
            assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS]
        lagging.lag()
        await one.call(apis.DELETE_TOPICS, delete("logs"))
        asked = refusals(lagging, create(new("logs", 0), validate_only=validate_only))
        assert await caught_up(lagging, asked) == [ErrorCode.INVALID_PARTITIONS]


async def test_a_lagging_agent_does_not_refuse_a_name_that_was_deleted_meanwhile(world):
    async with world.with_topic("one", "lagging") as (one, lagging):
        lagging.lag()
        await one.call(apis.DELETE_TOPICS, delete("logs"))
        assert await caught_up(lagging, refusals(lagging, create(new("logs")))) == [0]


async def test_validation_alone_creates_nothing_and_knows_what_other_agents_did(world):
    async with world.agents("one", "lagging") as (one, lagging):
        lagging.lag()
        await one.create_topic("taken")
        asked = refusals(lagging, create(new("taken"), new("free"), validate_only=True))
        assert await caught_up(lagging, asked) == [ErrorCode.TOPIC_ALREADY_EXISTS, 0]
        assert len(one.machine.topics) == 1


async def test_what_may_still_happen_is_said_to_have_timed_out(world):
    """P4: the append has no answer, so nobody knows."""
    async with world.agents("one", "two") as (one, two):
        one.log.after["append"] = lost()
        one.lag()
        assert await refusals(one, create(new("logs"), timeout_ms=500)) == [
            ErrorCode.REQUEST_TIMED_OUT
        ]
        await two.log_client.barrier()
        assert two.machine.topics.by_name("logs") is not None


async def test_a_lagging_agent_does_not_refuse_a_replica_on_an_agent_that_has_just_come(world):
    async with world.agents("one") as (one,):
        one.lag()
        newcomer = Writer(world.cluster)
        await newcomer.open("two")
        asked = refusals(one, create(assigned([0, 1]), timeout_ms=30_000))
        assert await caught_up(one, asked) == [0]


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_topic_is_deleted_in_every_version(version, world):
    async with world.with_topic() as (one,):
        asked = delete("logs") if version >= 6 else DeleteTopicsRequest(topic_names=["logs"])
        asked.timeout_ms = 10_000
        (row,) = (await one.call(apis.DELETE_TOPICS, asked, version=version)).responses
        assert (row.error_code, row.name) == (0, "logs")
        assert len(one.machine.topics) == 0


async def test_a_topic_is_deleted_by_its_id(world):
    async with world.agents("one") as (one,):
        topic = await one.create_topic("logs")
        states = [DeleteTopicState(topic_id=topic.topic_id)]
        asked = DeleteTopicsRequest(topics=states, timeout_ms=10_000)
        (row,) = (await one.call(apis.DELETE_TOPICS, asked)).responses
        assert (row.error_code, row.name, row.topic_id) == (0, "logs", topic.topic_id)
        (row,) = (await one.call(apis.DELETE_TOPICS, asked)).responses
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_lagging_agent_deletes_what_it_does_not_know_yet(world):
    async with world.agents("one", "lagging") as (one, lagging):
        lagging.lag()
        await one.create_topic("logs")
        answer = await caught_up(
            lagging, lagging.call(apis.DELETE_TOPICS, delete("logs", "nothing"))
        )
        rows = [row.error_code for row in answer.responses]
        assert rows == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_doubtful_deletions_are_refused(world):
    async with world.agents("one") as (one,):
        topic = await one.create_topic("logs")
        states = [
            DeleteTopicState(name="logs", topic_id=topic.topic_id),
            DeleteTopicState(),
            DeleteTopicState(name="twice"),
            DeleteTopicState(name="twice"),
        ]
        answer = await one.call(apis.DELETE_TOPICS, DeleteTopicsRequest(topics=states))
        assert {row.error_code for row in answer.responses} == {ErrorCode.INVALID_REQUEST}
        assert len(one.machine.topics) == 1


async def test_a_topic_that_is_named_and_told_by_its_id_at_once_is_not_deleted(world):
    async with world.agents("one") as (one,):
        topic = await one.create_topic("logs")
        await one.create_topic("other")
        states = [
            DeleteTopicState(name="logs"),
            DeleteTopicState(topic_id=topic.topic_id),
            DeleteTopicState(name="other"),
        ]
        answer = await one.call(apis.DELETE_TOPICS, DeleteTopicsRequest(topics=states))
        refused = ErrorCode.INVALID_REQUEST
        assert [row.error_code for row in answer.responses] == [refused, refused, 0]
        assert one.machine.topics.by_name("logs") == topic


async def test_nothing_is_deleted_when_deletion_is_disabled(world):
    async with world.with_topic(delete_topic_enable="false") as (one,):
        (row,) = (await one.call(apis.DELETE_TOPICS, delete("logs"))).responses
        assert row.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert len(one.machine.topics) == 1


async def test_rows_of_a_deleted_topic_are_purged_by_one_agent_and_resumed_by_another(world):
    async with world.with_topic("one", "two", partitions=3) as (one, two):
        for partition in range(3):
            await one.produce("logs", batch(b"x"), partition=partition)
        await one.call(apis.DELETE_TOPICS, delete("logs"))
        await two.log_client.barrier()
        assert two.machine.next_purge() is not None
        await deleted_topics.purge(two.log_client)
        assert two.machine.next_purge() is not None, "it is the oldest agent's turn"
        await one.log_client.leave()
        await two.log_client.barrier()
        await deleted_topics.purge(two.log_client)
        assert two.machine.next_purge() is None
        assert len(two.machine.partitions) == 0
