"""What an agent's pages ask it goes the way of clients' requests, and leaves nothing behind."""

import asyncio
from dataclasses import replace

import pytest

from broker.api import Hot
from broker.calls.local_calls import LocalCallError
from broker.calls.requester import Requester
from broker.edge.local_calls import CLIENT_ID, FIRST_NUMBER, DispatchedCalls
from broker.handlers import SERVED
from protocol import apis
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    DescribeClientQuotasRequest,
    MetadataRequest,
)
from tests.broker.agents import World
from tests.broker.handlers.test_quotas import altering, entry
from tests.kit import requests

ANN = Requester("User:ann", "10.0.0.1")
RIGHTS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}


async def test_an_answer_is_that_of_the_handler_for_whoever_asks() -> None:
    async with World().with_topic() as (one,), asyncio.TaskGroup() as tasks:
        calls = DispatchedCalls(one.node, SERVED, tasks)
        request = MetadataRequest(topics=None)
        answer = await calls.ask(ANN, apis.METADATA, 9, request, seconds=5)
        assert [each.name for each in answer.topics] == ["logs"]


async def test_who_has_waited_long_enough_leaves_no_call_that_waits() -> None:
    async with World().with_topic() as (one,), asyncio.TaskGroup() as tasks:
        seen, dropped = [], []

        def start(node, call) -> None:
            seen.append(call)
            call.on_drop = lambda: dropped.append(call)

        served = SERVED | {apis.FETCH: replace(SERVED[apis.FETCH], handler=Hot(start, None))}
        calls = DispatchedCalls(one.node, served, tasks)
        with pytest.raises(LocalCallError, match="did not answer within 3 s"):
            await calls.ask(ANN, apis.FETCH, 12, requests.fetch({("logs", 0): 0}), seconds=3)
        (call,) = seen
        assert call.abandoned
        assert dropped == seen
        connection = call.connection
        assert (connection.requester, connection.peer) == (ANN, "10.0.0.1:0")
        assert (call.client_id, connection.number) == (CLIENT_ID, FIRST_NUMBER)


async def test_a_handler_that_closes_the_connection_is_no_answer() -> None:
    async with World().with_topic() as (one,), asyncio.TaskGroup() as tasks:

        def closing(node, call) -> None:
            call.close("for a reason")

        def raising(node, call) -> None:
            raise ProtocolError("malformed")

        for handler, said in ((closing, "for a reason"), (raising, "malformed")):
            served = SERVED | {apis.FETCH: replace(SERVED[apis.FETCH], handler=Hot(handler, None))}
            calls = DispatchedCalls(one.node, served, tasks)
            with pytest.raises(LocalCallError, match=said):
                await calls.ask(ANN, apis.FETCH, 12, requests.fetch({("logs", 0): 0}), seconds=3)


def creating(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=-1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=3_000)


async def test_whose_role_is_the_right_needs_no_acl_and_is_audited_once_by_their_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "frazil.audit")
    async with World().with_topic(**RIGHTS) as (one,), asyncio.TaskGroup() as tasks:
        calls = DispatchedCalls(one.node, SERVED, tasks)

        async def create(name: str, **how: bool) -> int:
            answer = await calls.ask(ANN, apis.CREATE_TOPICS, 7, creating(name), seconds=5, **how)
            (row,) = answer.topics
            return row.error_code

        assert await create("a") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        caplog.clear()
        assert await create("a", by_role=True) == ErrorCode.NONE
        (told,) = [each.message for each in caplog.records if each.name == "frazil.audit"]
        assert '"event": "change"' in told
        assert '"principal": "User:ann"' in told
        assert '"names": ["a"], "errors": []' in told
        # That was for one call; nobody else, and no later call, is a super user for it.
        assert await create("b") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert {each.name for each in one.machine.topics} == {"logs", "a"}


async def test_quotas_count_calls_of_clients_and_not_those_by_a_role() -> None:
    async with World().with_topic() as (one,), asyncio.TaskGroup() as tasks:
        calls = DispatchedCalls(one.node, SERVED, tasks)
        slow = entry((("client-id", CLIENT_ID),), ("controller_mutation_rate", 0.001))
        await one.call(apis.ALTER_CLIENT_QUOTAS, altering(slow))

        async def create(name: str, **how: bool) -> int:
            answer = await calls.ask(ANN, apis.CREATE_TOPICS, 7, creating(name), seconds=5, **how)
            (row,) = answer.topics
            return row.error_code

        codes = [await create(f"by-acl-{each}") for each in range(3)]
        assert ErrorCode.THROTTLING_QUOTA_EXCEEDED in codes
        codes = [await create(f"by-role-{each}", by_role=True) for each in range(3)]
        assert codes == [ErrorCode.NONE] * 3
        every = DescribeClientQuotasRequest(components=[], strict=False)
        told = await calls.ask(ANN, apis.DESCRIBE_CLIENT_QUOTAS, 1, every, seconds=5, by_role=True)
        assert len(told.entries) == 1
