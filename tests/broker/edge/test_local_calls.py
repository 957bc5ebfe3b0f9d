"""What an agent's pages ask it goes the way of clients' requests, and leaves nothing behind."""

import asyncio
from dataclasses import replace

import pytest

from broker.api import Hot
from broker.calls.local_calls import LocalCallError
from broker.calls.requester import Requester
from broker.edge.dispatch import Dispatcher
from broker.edge.local_calls import CLIENT_ID, FIRST_NUMBER, DispatchedCalls
from broker.handlers import SERVED
from protocol import apis
from protocol.errors import ProtocolError
from protocol.messages import MetadataRequest
from tests.broker.agents import World
from tests.kit import requests

ANN = Requester("User:ann", "10.0.0.1")


async def test_an_answer_is_that_of_the_handler_for_whoever_asks() -> None:
    async with World().with_topic() as (one,), asyncio.TaskGroup() as tasks:
        calls = DispatchedCalls(one.node, Dispatcher(one.node, SERVED), tasks)
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
        calls = DispatchedCalls(one.node, Dispatcher(one.node, served), tasks)
        with pytest.raises(LocalCallError, match="did not answer within 3 s"):
            await calls.ask(ANN, apis.FETCH, 12, requests.fetch({("logs", 0): 0}), seconds=3)
        (call,) = seen
        assert call.abandoned
        assert dropped == seen
        connection = call.connection
        assert (connection.requester, connection.peer) == (ANN, "10.0.0.1")
        assert (call.client_id, connection.number) == (CLIENT_ID, FIRST_NUMBER)


async def test_a_handler_that_closes_the_connection_is_no_answer() -> None:
    async with World().with_topic() as (one,), asyncio.TaskGroup() as tasks:

        def closing(node, call) -> None:
            call.close("for a reason")

        def raising(node, call) -> None:
            raise ProtocolError("malformed")

        for handler, said in ((closing, "for a reason"), (raising, "malformed")):
            served = SERVED | {apis.FETCH: replace(SERVED[apis.FETCH], handler=Hot(handler, None))}
            calls = DispatchedCalls(one.node, Dispatcher(one.node, served), tasks)
            with pytest.raises(LocalCallError, match=said):
                await calls.ask(ANN, apis.FETCH, 12, requests.fetch({("logs", 0): 0}), seconds=3)
