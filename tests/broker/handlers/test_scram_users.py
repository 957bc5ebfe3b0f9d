"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554), and what they never let out."""

import pytest

from broker.reports.log_lines import describe, lines
from broker.sasl.scram_keys import credential_of, salted_password
from coordinator.commands.codec import decode_entry
from coordinator.commands.credential_commands import ScramMechanism
from coordinator.commands.rights_commands import RIGHTS_LEVEL
from coordinator.snapshot.snapshot import dump
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

SHA_256, SHA_512 = ScramMechanism
SALT = b"salt of alice"
NONE = ErrorCode.NONE
TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "


def upsertion(name="alice", mechanism=SHA_512, iterations=4096, *, salt=SALT, password="secret"):
    salted = b"salted"
    if mechanism in {*ScramMechanism}:
        salted = salted_password(mechanism, password, salt=salt, iterations=4096)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def deletion(name="alice", mechanism=SHA_512):
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(agent, *changes):
    """What each user is told: its error and the sentence."""
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    answer = await agent.call(apis.ALTER_USER_SCRAM_CREDENTIALS, request)
    return {row.user: (row.error_code, row.error_message) for row in answer.results}


async def describe_users(agent, *names):
    users = [UserName(name=name) for name in names] if names else None
    request = DescribeUserScramCredentialsRequest(users=users)
    return await agent.call(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, request)


async def described(agent, *names):
    answer = await describe_users(agent, *names)
    assert answer.error_code == NONE
    return {
        row.user: [(info.mechanism, info.iterations) for info in row.credential_infos]
        for row in answer.results
    }


async def test_users_are_made_on_one_agent_and_described_on_another(world):
    async with world.agents("one", "two") as (one, two):
        assert await alter(one, upsertion(), upsertion("bob", SHA_256, 8192)) == {
            "alice": (NONE, None),
            "bob": (NONE, None),
        }
        assert await described(two) == {"alice": [(2, 4096)], "bob": [(1, 8192)]}
        assert await described(two, "bob") == {"bob": [(1, 8192)]}


async def test_users_have_a_credential_for_each_mechanism(world):
    async with world.agents("one") as (one,):
        await alter(one, upsertion())
        await alter(one, upsertion(mechanism=SHA_256))
        assert await described(one) == {"alice": [(1, 4096), (2, 4096)]}
        await alter(one, deletion())
        assert await described(one) == {"alice": [(1, 4096)]}


@pytest.mark.parametrize(
    "changes",
    [
        (upsertion(), upsertion(mechanism=SHA_256)),
        (deletion(), upsertion()),
        (deletion(), deletion(mechanism=SHA_256)),
        (upsertion(), upsertion()),
    ],
    ids=["two mechanisms", "deleted and made", "two deletions", "the same"],
)
async def test_a_user_who_is_named_twice_is_left_alone_and_others_are_not(changes, world):
    async with world.agents("one") as (one,):
        told = await alter(one, *changes, upsertion("bob"))
        assert told == {
            "alice": (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            ),
            "bob": (NONE, None),
        }
        assert await described(one) == {"bob": [(2, 4096)]}


@pytest.mark.parametrize(
    ("change", "code", "sentence"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (deletion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (deletion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            deletion("nobody"),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
async def test_a_refusal_is_the_users_alone_and_says_what_kafkas_does(
    change, code, sentence, world
):
    async with world.agents("one") as (one,):
        told = await alter(one, change, upsertion("bob"))
        assert told == {change.name: (code, sentence), "bob": (NONE, None)}
        assert await described(one) == {"bob": [(2, 4096)]}


async def test_an_empty_salt_is_refused(world):
    async with world.agents("one") as (one,):
        told = await alter(one, upsertion(salt=b""))
        assert told["alice"][0] == ErrorCode.UNACCEPTABLE_CREDENTIAL


async def test_users_that_do_not_exist_or_are_named_twice_are_told_apart(world):
    async with world.agents("one") as (one,):
        await alter(one, upsertion())
        answer = await describe_users(one, "alice", "bob", "alice")
        assert [(row.user, row.error_code, row.error_message) for row in answer.results] == [
            (
                "alice",
                ErrorCode.DUPLICATE_RESOURCE,
                f"{TWICE}alice",
            ),
            (
                "bob",
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to describe a user credential that does not exist: bob",
            ),
        ]


async def test_where_there_are_no_users_none_are_described(world):
    async with world.agents("one") as (one,):
        assert await described(one) == {}


async def test_beside_an_older_agent_no_user_is_made(world):
    async with world.agents("one") as (one,):
        (row,) = one.machine.incarnations
        row.feature_level_max = RIGHTS_LEVEL - 1
        told = await alter(one, upsertion())
        assert told["alice"][0] == ErrorCode.UNSUPPORTED_VERSION


async def test_neither_password_nor_salted_password_is_anywhere_behind_the_handler(world):
    """In the log, in what people are shown of it, in the snapshot, in what a value looks like."""
    async with world.agents("one") as (one,):
        change = upsertion()
        await alter(one, change)
        salted = change.salted_password
        command = credential_of("alice", SHA_512, salted, salt=SALT, iterations=4096)
        entries = [entry.payload for entry in world.cluster.entries]
        snapshot = b"".join(dump(one.machine))
        everything = b"".join([*entries, snapshot])
        assert command.stored_key in everything
        assert salted not in everything
        assert b"secret" not in everything
        shown = [repr(change), repr(command), repr(one.machine.credentials.of_user("alice"))]
        for payload in entries:
            entry = decode_entry(payload)
            shown += [repr(entry), *lines(describe(one.machine.position, 0, entry))]
        for secret in (salted, command.stored_key, command.server_key):
            for text in shown:
                assert secret.hex() not in text
                assert repr(secret)[2:-1] not in text
