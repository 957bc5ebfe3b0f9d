"""What every API must do, whatever it is: one matrix over all declarations, so a new one has it for free.

Bytes that are damaged, versions that nobody knows, a stall (P17), no session (P5), a log whose tail
stands still (P4). The requests are drawn from the shapes: one of everything a request can name.
"""

import asyncio
import dataclasses
import types
import typing

import pytest

from broker.handlers import SERVED
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import hot
from tests.broker.edge.wire import settle
from tests.broker.edge.world import run

EVERY_API = pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
WHAT_CHANGES = pytest.mark.parametrize(
    "api", [api for api in SERVED.values() if api.changes], ids=lambda api: api.name
)
SECONDS_MAX = 120.0
"""Within which everything is answered, or its connection closed; virtual."""

GIVEN = {"acks": -1, "timeout_ms": 1_000, "replication_factor": 1, "num_partitions": 1, "count": 3}
WORDS = {"client_software_name": "a-client", "client_software_version": "1"}


def element(hint):
    """`X` of `X | None`; `None` of a list's hint unless asked for its element."""
    if isinstance(hint, types.UnionType):
        return next(each for each in typing.get_args(hint) if each is not types.NoneType)
    return hint


def sample(kind):
    """A value of a field's type; of a shape, with one of everything in its lists."""
    kind = element(kind)
    if typing.get_origin(kind) is list:
        return [sample(typing.get_args(kind)[0])]
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        values = {}
        for name, hint in hints.items():
            if name in GIVEN | WORDS:
                values[name] = (GIVEN | WORDS)[name]
            elif (
                typing.get_origin(element(hint)) is list
                or element(hint) is str
                or dataclasses.is_dataclass(element(hint))
            ):
                values[name] = sample(hint)
        return kind(**values)
    return "t" if kind is str else 0 if kind is int else kind()


def request_of(api):
    name = f"{api.name}Request"
    return sample(getattr(messages, name, None) or getattr(hot, name))


def versions(api):
    row = apis.APIS[api.key]
    known = range(row.min_version, row.max_version + 1)
    return [version for version in known if apis.is_served(api.key, version)]


def errors(value):
    """Every error code that a response carries."""
    if isinstance(value, list):
        return [code for each in value for code in errors(each)]
    if not dataclasses.is_dataclass(value):
        return []
    found = []
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        found += [inner] if field.name.endswith("error_code") else errors(inner)
    return found


async def told(agent, api, version=None):
    """The answer to the sample, or None when the connection was closed instead."""
    peer = agent.peer()
    latest = max(versions(api)) if version is None else version
    peer.send(api.key, latest, request_of(api))
    for _ in range(int(SECONDS_MAX * 10)):
        if peer.frames():
            return await peer.answer()
        if peer.closed:
            return None
        await asyncio.sleep(0.1)
    raise AssertionError(f"{api.name} was neither answered nor closed")


async def lives(agent):
    answer = await agent.ask(apis.API_VERSIONS, request_of(SERVED[apis.API_VERSIONS]))
    assert answer.error_code == 0


def scene(play):
    async def scenario(world):
        async with world.agents("one") as (one,):
            await one.create_topic("t", 2)
            await play(world, one)

    run(scenario)


@EVERY_API
def test_a_request_that_ends_early_closes_its_connection_and_no_other(api):
    async def play(world, one):
        head = world.cluster.head()
        for version in versions(api):
            body = bytes(messages.encode_request(api.key, version, request_of(api)))
            if not body:
                continue  # Nothing is asked for in so old a version.
            peer = one.peer()
            peer.send(api.key, version, body=body[:-1])
            await settle()
            assert peer.closed, f"v{version}"
            assert peer.frames() == []
        assert world.cluster.head() == head
        await lives(one)

    scene(play)


@EVERY_API
def test_a_version_that_nobody_knows_closes_the_connection(api):
    async def play(world, one):
        peer = one.peer()
        peer.send(api.key, apis.APIS[api.key].max_version + 1, body=bytes(4))
        await settle()
        if api.key == apis.API_VERSIONS:  # KIP-511: answered in version 0.
            assert len(peer.frames()) == 1
        else:
            assert peer.closed
            assert peer.frames() == []
        await lives(one)

    scene(play)


@pytest.mark.promise("P17")
@WHAT_CHANGES
def test_after_a_stall_whatever_changes_something_is_refused_as_its_clients_understand(api):
    async def play(world, one):
        peer = one.peer()
        head = world.cluster.head()
        real = one.node.boot_ms
        one.node.boot_ms = lambda: real() + 5_000
        peer.send(api.key, max(versions(api)), request_of(api))
        answer = await peer.answer()
        assert api.unavailable in errors(answer)
        assert one.node.stats.refused_stale == 1
        assert world.cluster.head() == head

    scene(play)


@EVERY_API
def test_whatever_changes_nothing_is_not_refused_after_a_stall(api):
    async def play(world, one):
        real = one.node.boot_ms
        one.node.boot_ms = lambda: real() + 5_000
        await told(one, api)
        assert one.node.stats.refused_stale == (1 if api.changes else 0)

    scene(play)


@pytest.mark.promise("P5")
@WHAT_CHANGES
def test_without_a_session_nothing_is_changed_and_the_client_hears_of_it(api):
    async def play(world, one):
        await one.lose_session()
        head = world.cluster.head()
        answer = await told(one, api)
        assert answer is None or any(code != ErrorCode.NONE for code in errors(answer))
        assert world.cluster.head() == head

    scene(play)


@EVERY_API
def test_without_a_log_every_request_is_answered_or_its_connection_closed(api):
    async def play(world, one):
        await one.lose_session()
        await told(one, api)

    scene(play)


@EVERY_API
def test_while_the_tail_of_the_log_stands_still_nothing_waits_for_ever(api):
    """What is proposed is in the log, and this agent does not see it: its fate is open (P4)."""

    async def play(world, one):
        one.lag()
        await told(one, api)
        one.catch_up()

    scene(play)
