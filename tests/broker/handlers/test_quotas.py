"""DescribeClientQuotas and AlterClientQuotas (KIP-546): what is set, what is found, what is refused.

Beside Apache Kafka: tests.clients.test_quotas_kafka, with the tables of this module.
"""

import math

import pytest

from coordinator.commands.config_commands import CONFIG_LEVEL
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

BYTES, PERCENT = "producer_byte_rate", "request_percentage"
CONNECTIONS = "connection_creation_rate"
ALICE, ANY_IP = (("user", "alice"),), (("ip", None),)
EXACT, DEFAULT, SPECIFIED = range(3)


def entry(entity, *ops):
    """`ops`: key and value; None: it is removed."""
    return AlterClientQuotasEntry(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[
            OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
            for key, value in ops
        ],
    )


def altering(*entries, validate_only=False):
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def describing(*components, strict=False):
    return DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )


def told(answer):
    """What each entity is told."""
    return [
        (
            [(part.entity_type, part.entity_name) for part in row.entity],
            row.error_code,
            row.error_message,
        )
        for row in answer.entries
    ]


def found(answer):
    """Quotas by entity, or the refusal."""
    if answer.error_code:
        return answer.error_code, answer.error_message
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in row.entity)): {
            each.key: each.value for each in row.values
        }
        for row in answer.entries
    }


SAME_IN_KAFKA = {
    "an entity without parts": [entry((), (BYTES, 1))],
    "an unknown type of entity": [entry((("planet", "mars"),), (BYTES, 1))],
    "a type that is named twice": [entry((("user", "a"), ("user", "b")), (BYTES, 1))],
    "an address beside a user": [entry((("user", "a"), ("ip", "1.2.3.4")), (BYTES, 1))],
    "no address": [entry((("ip", "1.2.3.400"),), (CONNECTIONS, 1))],
    "all addresses": [entry(ANY_IP, (CONNECTIONS, 7))],
    "an empty name": [entry((("user", ""),), (BYTES, 1))],
    "an unknown key": [entry(ALICE, ("x", 1))],
    "a key of addresses for a user": [entry(ALICE, (CONNECTIONS, 1))],
    "a key of users for an address": [entry(ANY_IP, (BYTES, 1))],
    "nothing": [entry(ALICE, (BYTES, 0))],
    "less than nothing": [entry(ALICE, (PERCENT, -1))],
    "a fraction of a byte": [entry(ALICE, (BYTES, 1.5))],
    "nearly a whole byte": [entry(ALICE, (BYTES, 5.0000001))],
    "a fraction of a connection": [entry(ANY_IP, (CONNECTIONS, 1.5))],
    "too many connections": [entry(ANY_IP, (CONNECTIONS, 3e9))],
    "too many bytes": [entry(ALICE, (BYTES, 1e30))],
    "what is not there is removed": [entry((("user", "zoe"),), (BYTES, None))],
    "what cannot be there is removed": [entry((("user", "zoe"),), ("bogus", None))],
    "nothing is asked for": [entry((("user", "zoe"),))],
    "a key twice": [entry((("user", "kim"),), (BYTES, 1), (BYTES, 2))],
    "an entity twice": [
        entry((("user", "a"), ("client-id", "c")), (BYTES, 1)),
        entry((("user", "a"), ("client-id", "c")), ("consumer_byte_rate", 2)),
    ],
    "a good entity beside a bad one": [
        entry((("user", "good"),), (BYTES, 1)),
        entry((("user", "bad"),), ("x", 2)),
    ],
    "a good key beside a bad one": [entry((("user", "both"),), (BYTES, 1), ("x", 2))],
    "a client id": [
        entry((("client-id", "app"),), (PERCENT, 12.5), ("controller_mutation_rate", 2.5))
    ],
}
"""Requests that are answered word for word as by Kafka."""
FILTERS = {
    "an empty type": describing(("", EXACT, "x")),
    "a type twice": describing(("user", EXACT, "x"), ("user", DEFAULT, None)),
    "an unknown type": describing(("planet", EXACT, "x")),
    "no name": describing(("user", EXACT, None)),
    "a name for the default": describing(("user", DEFAULT, "x")),
    "a name for any": describing(("user", SPECIFIED, "x")),
    "an unknown match": describing(("user", 7, None)),
    "an address beside a user": describing(("ip", SPECIFIED, None), ("user", SPECIFIED, None)),
    "everything": describing(),
    "nothing": describing(strict=True),
    "users": describing(("user", SPECIFIED, None)),
    "users alone": describing(("user", SPECIFIED, None), strict=True),
    "a user with a client id": describing(("user", EXACT, "a"), ("client-id", SPECIFIED, None)),
    "all addresses": describing(("ip", DEFAULT, None), strict=True),
}


async def alter(agent, *entries, **more):
    answer = await agent.call(apis.ALTER_CLIENT_QUOTAS, altering(*entries, **more))
    return told(answer)


async def described(agent, request=None):
    return found(await agent.call(apis.DESCRIBE_CLIENT_QUOTAS, request or describing()))


async def test_quotas_that_one_agent_sets_are_described_by_another(world):
    async with world.agents("one", "two") as (one, two):
        assert await alter(one, entry(ALICE, (BYTES, 1000), (PERCENT, 12.5))) == [
            ([("user", "alice")], ErrorCode.NONE, None)
        ]
        assert await described(two) == {ALICE: {BYTES: 1000, PERCENT: 12.5}}
        await alter(two, entry(ALICE, (PERCENT, None)))
        assert await described(one) == {ALICE: {BYTES: 1000}}
        await alter(two, entry(ALICE, (BYTES, None)))
        assert await described(one) == {}


async def test_what_is_only_validated_is_not_set(world):
    async with world.agents("one") as (one,):
        rows = await alter(
            one, entry(ALICE, (BYTES, 1)), entry(ANY_IP, ("x", 1)), validate_only=True
        )
        assert [code for _, code, _ in rows] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert await described(one) == {}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("an entity without parts", "Invalid empty client quota entity"),
        ("an unknown type of entity", "Unhandled client quota entity type: planet"),
        ("no address", "1.2.3.400 is not a valid IP or resolvable host."),
        ("an empty name", "Empty user not supported"),
        ("an unknown key", "Invalid configuration key x"),
        ("a key of addresses for a user", f"Invalid configuration key {CONNECTIONS}"),
        ("a key of users for an address", f"Invalid configuration key {BYTES}"),
        ("nothing", f"Quota {BYTES} must be greater than 0"),
        ("less than nothing", f"Quota {PERCENT} must be greater than 0"),
        ("a fraction of a byte", f"{BYTES} cannot be a fractional value."),
        ("too many connections", f"Proposed value for {CONNECTIONS} is too large for an INT."),
        ("too many bytes", f"Proposed value for {BYTES} is too large for a LONG."),
        ("a key twice", "Ignoring duplicate entity ClientQuotaEntity(entries={user=kim})"),
        ("a good key beside a bad one", "Invalid configuration key x"),
    ],
)
async def test_a_refusal_says_what_kafkas_does_and_nothing_is_set(name, sentence, world):
    async with world.agents("one") as (one,):
        ((_, code, message),) = await alter(one, *SAME_IN_KAFKA[name])
        assert (code, message) == (ErrorCode.INVALID_REQUEST, sentence)
        assert await described(one) == {}


@pytest.mark.parametrize("value", [math.inf, math.nan])
async def test_a_quota_is_a_number_unlike_in_kafka(value, world):
    async with world.agents("one") as (one,):
        ((_, code, _),) = await alter(one, entry(ALICE, (PERCENT, value)))
        assert code == ErrorCode.INVALID_REQUEST
        assert await described(one) == {}


async def test_an_address_is_kept_in_the_spelling_that_connections_have_it_in(world):
    async with world.agents("one") as (one,):
        ((named, code, _),) = await alter(one, entry((("ip", "::0001"),), (CONNECTIONS, 3)))
        assert (named, code) == ([("ip", "::0001")], ErrorCode.NONE)
        for spelling in ("::1", "0:0::1"):
            request = describing(("ip", EXACT, spelling), strict=True)
            assert await described(one, request) == {(("ip", "::1"),): {CONNECTIONS: 3}}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (FILTERS["everything"], {"alice", "alice with app", "any user", "app"}),
        (FILTERS["nothing"], set()),
        (FILTERS["users"], {"alice", "alice with app", "any user"}),
        (FILTERS["users alone"], {"alice", "any user"}),
        (describing(("user", EXACT, "alice")), {"alice", "alice with app"}),
        (describing(("user", EXACT, "alice"), strict=True), {"alice"}),
        (describing(("user", DEFAULT, None)), {"any user"}),
        (describing(("user", SPECIFIED, None), ("client-id", EXACT, "app")), {"alice with app"}),
        (describing(("client-id", EXACT, "app"), strict=True), {"app"}),
    ],
)
async def test_a_filter_finds_what_it_describes(request_, expected, world):
    entities = {
        "alice": ALICE,
        "alice with app": (("client-id", "app"), ("user", "alice")),
        "any user": (("user", None),),
        "app": (("client-id", "app"),),
    }
    async with world.agents("one") as (one,):
        await alter(one, *(entry(each, (BYTES, 1)) for each in entities.values()))
        assert set(await described(one, request_)) == {entities[name] for name in expected}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("an empty type", ErrorCode.INVALID_REQUEST),
        ("a type twice", ErrorCode.INVALID_REQUEST),
        ("an unknown type", ErrorCode.UNSUPPORTED_VERSION),
        ("no name", ErrorCode.INVALID_REQUEST),
        ("a name for the default", ErrorCode.INVALID_REQUEST),
        ("a name for any", ErrorCode.INVALID_REQUEST),
        ("an unknown match", ErrorCode.INVALID_REQUEST),
        ("an address beside a user", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_filter_that_kafka_does_not_take_is_refused(name, code, world):
    async with world.agents("one") as (one,):
        answer = await one.call(apis.DESCRIBE_CLIENT_QUOTAS, FILTERS[name])
        assert (answer.error_code, answer.entries) == (code, None)
        assert answer.error_message


async def test_beside_an_older_agent_no_quota_is_set(world):
    async with world.agents("one") as (one,):
        for row in one.node.log_client.machine.incarnations:
            row.feature_level_max = CONFIG_LEVEL - 1
        ((_, code, _),) = await alter(one, entry(ALICE, (BYTES, 1)))
        assert code == ErrorCode.UNSUPPORTED_VERSION
