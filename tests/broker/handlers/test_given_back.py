"""What a request takes of any bound it gives back, however it ends: one matrix over all APIs.

Each API has its request once short and once long (looked at in slices of the loop). It is answered; or
its client goes at once, or between two slices; or the log does not answer. In the end every counter of the
agent is what it was.
"""

import asyncio
import dataclasses

import pytest

from broker.calls.shares import Ledger
from protocol import apis
from tests.broker.agents import lapse
from tests.broker.handlers.test_every_api import (
    EVERY_API,
    lives,
    one_with_a_topic,
    request_of,
    versions,
)
from tests.kit.client import settle
from tests.kit.faults import lost

MANY = 700
"""Elements: more than a slice has."""
SECONDS_MAX = 400.0
"""Longer than sessions of members and transactions."""
ENDINGS = pytest.mark.parametrize(
    "ending",
    ["answered", "gone at once", "gone in between", "gone later", "log lost", "no session"],
)


WAITING = {
    "max_wait_ms": 30_000,
    "min_bytes": 1,
    "max_bytes": 1_000_000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
}
"""So that fetches are parked, and members wait for each other."""


def waiting(api):
    request = request_of(api)
    for name, value in WAITING.items():
        if hasattr(request, name):
            setattr(request, name, value)
    return request


def long(request):
    """The same with many elements in each of its lists of shapes."""
    for field in dataclasses.fields(request):
        value = getattr(request, field.name)
        if isinstance(value, list) and value and dataclasses.is_dataclass(value[0]):
            setattr(request, field.name, value * MANY)
    return request


def ledgers(agent) -> dict[str, Ledger]:
    node = agent.node
    fields = vars(node.transactions) | vars(node.groups.shares)
    found = {name: each for name, each in fields.items() if isinstance(each, Ledger)}
    return found | {"partitions": node.partition_shares, "configs": node.config_shares}


def taken(agent) -> dict[str, int]:
    """All that is counted while a request is under way, but for what is zero."""
    node = agent.node
    fetching, room = node.fetching, node.fetching._room
    counted = {name: ledger._begun for name, ledger in ledgers(agent).items()}
    counted |= {
        "elements of long requests": node.slices.held,
        "waiting for slices": bool(node.slices._line) + bool(node.slices._outside),
        "parked fetches": len(fetching.parked) + bool(fetching._woken),
        "watched partitions": fetching.parked.watches_count,
        "reads of the store": room._entered + room._used + len(room._queues),
        "requests that wait for groups": node.groups.runtime.stats.parked,
        "bytes of requests": node.stats.held_bytes,
        "bytes of batches": node.producing.stats.waiting_bytes,
        "topics being created": len(node.creations),
    }
    sessions = fetching.sessions
    there = sum(len(session.places) for session in sessions._sessions.values())
    counted["partitions in no fetch session"] = sessions.places_count - there
    return {name: count for name, count in counted.items() if count}


async def give_back(agent) -> None:
    for _ in range(int(SECONDS_MAX)):
        if not taken(agent):
            return
        await asyncio.sleep(1)
    raise AssertionError(f"still taken: {taken(agent)}")


@pytest.mark.promise("P15")
@EVERY_API
@ENDINGS
async def test_whatever_a_request_takes_is_given_back(api, ending, world):
    async with one_with_a_topic(world) as one:
        assert len(ledgers(one)) == 11
        assert not taken(one)
        version = 12 if api.key == apis.FETCH else max(versions(api))  # It names topics.
        for request in (waiting(api), long(waiting(api))):
            client = one.connect()
            if ending == "log lost":
                one.log.before["append"] = lost(3)
            elif ending == "no session":
                await lapse(one)
            client.send(api.key, version, request)
            if ending == "gone in between":
                await settle(3)
            elif ending == "gone later":
                await asyncio.sleep(0.02)
            elif ending != "gone at once":
                while not (client.frames() or client.closed):
                    await asyncio.sleep(0.1)
            if not client.closed:
                client.hang_up()
            await give_back(one)
            one.log.before.clear()
            await one.ready()
        await lives(one)
