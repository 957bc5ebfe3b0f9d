"""An agent that cannot prove its session does nothing, even where the log would let it (P5)."""

import asyncio

import pytest

from coordinator.log.metadata_log import LogUnavailableError
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    InitProducerIdRequest,
)
from tests.kit.agents import Agent, World
from tests.kit.batches import batch, produce_request


async def _lapse(agent: Agent) -> None:
    """Renewals are lost, all else gets through: the lease lives on when the proof has ended."""

    async def lost(_session):
        raise LogUnavailableError("lost on the way")

    agent.log.keep_alive = lost
    while agent.log_client.incarnation() is not None:
        await asyncio.sleep(0.1)


@pytest.mark.promise("P5")
async def test_without_a_proven_session_nothing_is_written_or_given_though_the_log_answers(
    world: World,
) -> None:
    async with world.agents("one") as (one,):
        await one.create_topic("t")
        await one.call(apis.INIT_PRODUCER_ID, InitProducerIdRequest())
        await _lapse(one)
        head = world.cluster.head()

        answer = await one.call(apis.INIT_PRODUCER_ID, InitProducerIdRequest())
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)]
        )
        answer = await one.call(apis.CREATE_TOPICS, request)
        assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
        answer = await one.call(apis.DELETE_TOPICS, delete)
        assert answer.responses[0].error_code == ErrorCode.NOT_CONTROLLER
        answer = await one.call(apis.PRODUCE, produce_request("t", batch()), version=9)
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        assert world.cluster._leases, "the lease must live: the agent's own deadline counts"
        assert one.log_client.incarnation() is None
        assert world.cluster.head() == head
        assert world.store.puts == []
