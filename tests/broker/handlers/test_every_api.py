"""What every API must do, whatever it is: one matrix over all declarations, so a new one has it for free.

Bytes that are damaged, versions that nobody knows, a stall (P17), no session (P5), a log whose tail
stands still (P4), a topic of which the agent has not heard yet (P8). The requests are drawn from the shapes: one of everything a request can name.
"""

import asyncio
import contextlib
import dataclasses
import types
import typing

import pytest

from broker.handlers import SERVED
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import hot
from tests.broker.agents import lapse
from tests.kit.agents import Agent
from tests.kit.client import settle

EVERY_API = pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
WHAT_CHANGES = pytest.mark.parametrize(
    "api", [api for api in SERVED.values() if api.changes], ids=lambda api: api.name
)
SECONDS_MAX = 120.0
"""Within which everything is answered, or its connection closed; virtual."""

GIVEN = {"acks": -1, "timeout_ms": 1_000, "replication_factor": 1, "num_partitions": 1, "count": 3}
GIVEN |= {"transaction_timeout_ms": 1_000, "resource_type": 2}
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
    client = agent.connect()
    latest = max(versions(api)) if version is None else version
    client.send(api.key, latest, request_of(api))
    for _ in range(int(SECONDS_MAX * 10)):
        if client.frames():
            return await client.answer()
        if client.closed:
            return None
        await asyncio.sleep(0.1)
    raise AssertionError(f"{api.name} was neither answered nor closed")


async def lives(agent):
    answer = await agent.call(apis.API_VERSIONS, request_of(SERVED[apis.API_VERSIONS]))
    assert answer.error_code == 0


def stall(agent) -> None:
    """Its loop stood still until now."""
    real = agent.node.boot_ms
    agent.node.boot_ms = lambda: real() + 5_000


@contextlib.asynccontextmanager
async def one_with_a_topic(world):
    async with world.agents("one") as (one,):
        await one.create_topic("t", 2)
        yield one


AT_COORDINATOR = {
    apis.OFFSET_COMMIT,
    apis.JOIN_GROUP,
    apis.LEAVE_GROUP,
    apis.SYNC_GROUP,
    apis.TXN_OFFSET_COMMIT,
    apis.DELETE_GROUPS,
    apis.OFFSET_DELETE,
    apis.CONSUMER_GROUP_HEARTBEAT,
}
"""Without a session an agent coordinates no group."""
OF_ACLS = {apis.CREATE_ACLS, apis.DELETE_ACLS}
"""Without an authorizer there are none; with one: tests.broker.handlers.test_acls."""
OF_TOKENS = {
    apis.CREATE_DELEGATION_TOKEN,
    apis.RENEW_DELEGATION_TOKEN,
    apis.EXPIRE_DELEGATION_TOKEN,
}
"""Nobody may ask who does not say who it is; who does: tests.broker.handlers.test_delegation_tokens."""
ANSWERED_ANYHOW = {
    apis.FETCH,
    apis.METADATA,
    apis.FIND_COORDINATOR,
    apis.HEARTBEAT,
    apis.SASL_HANDSHAKE,
    apis.API_VERSIONS,
    apis.SASL_AUTHENTICATE,
    apis.LIST_PARTITION_REASSIGNMENTS,
    apis.DESCRIBE_CLIENT_QUOTAS,
    apis.GET_TELEMETRY_SUBSCRIPTIONS,
    apis.PUSH_TELEMETRY,
    apis.LIST_CONFIG_RESOURCES,
    apis.DESCRIBE_ACLS,
    apis.DESCRIBE_DELEGATION_TOKEN,
}
"""They have answers, or errors, of their own where there is no log."""
WHAT_NEEDS_THE_LOG = pytest.mark.parametrize(
    "api",
    [api for api in SERVED.values() if not (api.changes or api.key in ANSWERED_ANYHOW)],
    ids=lambda api: api.name,
)


@EVERY_API
async def test_a_request_that_ends_early_closes_its_connection_and_no_other(api, world):
    async with one_with_a_topic(world) as one:
        head = world.cluster.head()
        for version in versions(api):
            body = bytes(messages.encode_request(api.key, version, request_of(api)))
            if not body:
                continue  # Nothing is asked for in so old a version.
            client = one.connect()
            client.send(api.key, version, body=body[:-1])
            await settle()
            assert client.closed, f"v{version}"
            assert client.frames() == []
        assert world.cluster.head() == head
        await lives(one)


@EVERY_API
async def test_a_version_that_nobody_knows_closes_the_connection(api, world):
    async with one_with_a_topic(world) as one:
        client = one.connect()
        client.send(api.key, apis.APIS[api.key].max_version + 1, body=bytes(4))
        await settle()
        if api.key == apis.API_VERSIONS:  # KIP-511: answered in version 0.
            assert len(client.frames()) == 1
        else:
            assert client.closed
            assert client.frames() == []
        await lives(one)


@pytest.mark.promise("P17")
@WHAT_CHANGES
async def test_after_a_stall_whatever_changes_something_is_refused_as_its_clients_understand(
    api, world
):
    async with one_with_a_topic(world) as one:
        client = one.connect()
        head = world.cluster.head()
        stall(one)
        client.send(api.key, max(versions(api)), request_of(api))
        answer = await client.answer()
        assert api.unavailable in errors(answer)
        assert one.node.stats.refused_stale == 1
        assert world.cluster.head() == head


@EVERY_API
async def test_whatever_changes_nothing_is_not_refused_after_a_stall(api, world):
    async with one_with_a_topic(world) as one:
        stall(one)
        await told(one, api)
        assert one.node.stats.refused_stale == (1 if api.changes else 0)


@pytest.mark.promise("P5")
@WHAT_CHANGES
@pytest.mark.parametrize("lose", [Agent.lose_session, lapse], ids=["cut off", "renewals lost"])
async def test_without_a_session_nothing_is_changed_and_the_client_hears_of_it(api, lose, world):
    async with one_with_a_topic(world) as one:
        await lose(one)
        head = world.cluster.head()
        expected = api.unavailable
        if api.key in AT_COORDINATOR:
            expected = ErrorCode.NOT_COORDINATOR
        elif api.key in OF_ACLS:
            expected = ErrorCode.SECURITY_DISABLED
        elif api.key in OF_TOKENS:
            expected = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        elif api.key == apis.PRODUCE:
            expected = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif api.key == apis.WRITE_TXN_MARKERS and lose is lapse:
            expected = ErrorCode.NONE  # The log says that nothing is open, so there is no change.
        assert expected in errors(await told(one, api))
        assert world.cluster.head() == head
        assert world.store.puts == []


@WHAT_NEEDS_THE_LOG
@pytest.mark.parametrize("lost", ["the log", "the session, too"])
async def test_without_a_log_nothing_is_told_that_another_agent_could_contradict(api, lost, world):
    async with one_with_a_topic(world) as one:
        one.log.down = True
        if lost == "the session, too":
            await one.lose_session()
        assert api.unavailable in errors(await told(one, api))


@EVERY_API
async def test_without_a_log_every_request_is_answered_or_its_connection_closed(api, world):
    async with one_with_a_topic(world) as one:
        await one.lose_session()
        await told(one, api)


@EVERY_API
async def test_while_the_tail_of_the_log_stands_still_nothing_waits_for_ever(api, world):
    """What is proposed is in the log, and this agent does not see it: its fate is open (P4)."""
    async with one_with_a_topic(world) as one:
        one.lag()
        await told(one, api)
        one.catch_up()


@pytest.mark.promise("P8")
@EVERY_API
async def test_a_lagging_agent_does_not_call_unknown_what_another_agent_has_made(api, world):
    async with world.agents("one", "lagging") as (one, lagging):
        lagging.lag()
        await one.create_topic("t", 2)
        asyncio.get_running_loop().call_later(1.0, lagging.catch_up)
        codes = errors(await told(lagging, api))
        # No topic of clients has a quorum.
        assert api.key == apis.DESCRIBE_QUORUM or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in codes
