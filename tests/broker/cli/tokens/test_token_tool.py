"""`frazil token`: what it asks a cluster, and what it tells, also of refusals.

The cluster is faked (`fake_cluster`). Tokens of Kafka and of Frazil are in tests/clients/test_secured_commands.py.
"""

import json

import pytest

from broker.cli.command_result import ToolError
from broker.cli.tokens import token_tool
from broker.cli.tokens.token_tool import NewToken, Principal
from protocol import apis, messages
from protocol.errors import ErrorCode
from tests.broker.fake_cluster import HANG_UP, FakeCluster, on_cluster, once

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HMAC = b"\xfb" * 64
HMAC_TEXT = "+/v7" * 21 + "+w=="
OWN = NewToken(None, (), -1)
CREATED = messages.CreateDelegationTokenResponse(
    principal_type="User",
    principal_name="alice",
    token_requester_principal_type="User",
    token_requester_principal_name="carol",
    issue_timestamp_ms=1_790_000_000_000,
    expiry_timestamp_ms=1_790_086_400_000,
    max_timestamp_ms=1_790_604_800_000,
    token_id="an-id",
    hmac=HMAC,
)
AS_OBJECT = {
    "token_id": "an-id",
    "owner": "User:alice",
    "requester": "User:carol",
    "renewers": ["User:bob"],
    "issued_ms": 1_790_000_000_000,
    "expires_ms": 1_790_086_400_000,
    "max_ms": 1_790_604_800_000,
}


def shown(token):
    return token_tool.shown(token, as_json=True)


def described(*token_ids: str) -> messages.DescribeDelegationTokenResponse:
    renewer = messages.DescribedDelegationTokenRenewer(principal_type="User", principal_name="bob")
    return messages.DescribeDelegationTokenResponse(
        tokens=[
            messages.DescribedDelegationToken(
                principal_type="User",
                principal_name="alice",
                token_requester_principal_type="User",
                token_requester_principal_name="carol",
                issue_timestamp=1_790_000_000_000,
                expiry_timestamp=1_790_086_400_000,
                max_timestamp=1_790_604_800_000,
                token_id=each,
                hmac=HMAC,
                renewers=[renewer],
            )
            for each in token_ids
        ]
    )


async def test_a_token_is_made_as_it_is_asked_for() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.CREATE_DELEGATION_TOKEN] = CREATED
        (line,) = (await token_tool.create(client, NewToken(ALICE, (BOB,), 60_000), shown)).lines
        assert json.loads(line) == AS_OBJECT | {"hmac": HMAC_TEXT}
        (asked,) = cluster.requests[apis.CREATE_DELEGATION_TOKEN]
        assert (asked.owner_principal_type, asked.owner_principal_name) == ALICE
        assert [(each.principal_type, each.principal_name) for each in asked.renewers] == [BOB]
        assert asked.max_lifetime_ms == 60_000


async def test_no_owner_is_named_who_is_the_one_that_asks() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.CREATE_DELEGATION_TOKEN] = CREATED
        await token_tool.create(client, OWN, shown)
        (asked,) = cluster.requests[apis.CREATE_DELEGATION_TOKEN]
        assert asked.owner_principal_name is None


async def test_a_cluster_that_makes_none_for_others_is_not_asked_for_one() -> None:
    def prepare(cluster: FakeCluster) -> None:
        cluster.agents[1].ranges[apis.CREATE_DELEGATION_TOKEN] = (1, 2)
        cluster.answers[apis.CREATE_DELEGATION_TOKEN] = CREATED

    async with on_cluster(prepare=prepare) as (client, cluster):
        with pytest.raises(ToolError, match="UNSUPPORTED_VERSION"):
            await token_tool.create(client, OWN._replace(owner=ALICE), shown)
        assert apis.CREATE_DELEGATION_TOKEN not in cluster.requests


async def test_tokens_are_listed_without_what_logs_in_by_them_unless_that_is_asked_for() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DESCRIBE_DELEGATION_TOKEN] = described("an-id")
        said = await token_tool.list_tokens(client, (), with_hmac=False, as_json=False)
        assert [line.split() for line in said.lines] == [
            ["TOKEN-ID", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "MAX"],
            [
                *("an-id", "User:alice", "User:carol", "User:bob"),
                *("2026-09-21T14:13:20Z", "2026-09-22T14:13:20Z", "2026-09-28T14:13:20Z"),
            ],
        ]
        (line,) = (await token_tool.list_tokens(client, (), with_hmac=False, as_json=True)).lines
        assert json.loads(line) == [AS_OBJECT]
        (line,) = (await token_tool.list_tokens(client, (), with_hmac=True, as_json=True)).lines
        assert json.loads(line) == [AS_OBJECT | {"hmac": HMAC_TEXT}]
        assert {one.owners for one in cluster.requests[apis.DESCRIBE_DELEGATION_TOKEN]} == {None}


async def test_tokens_of_some_owners_are_listed() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DESCRIBE_DELEGATION_TOKEN] = described()
        said = await token_tool.list_tokens(client, (ALICE, BOB), with_hmac=False, as_json=False)
        assert said.lines == ["there are no tokens that you may see"]
        (asked,) = cluster.requests[apis.DESCRIBE_DELEGATION_TOKEN]
        assert [(each.principal_type, each.principal_name) for each in asked.owners] == [ALICE, BOB]


async def test_a_token_is_renewed_and_ended() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.RENEW_DELEGATION_TOKEN] = messages.RenewDelegationTokenResponse(
            expiry_timestamp_ms=1_790_000_000_000
        )
        cluster.answers[apis.EXPIRE_DELEGATION_TOKEN] = messages.ExpireDelegationTokenResponse(
            expiry_timestamp_ms=1_790_000_000_000
        )
        renewed = await token_tool.renew(client, HMAC, period_ms=5, as_json=False)
        later = await token_tool.expire(client, HMAC, period_ms=5, as_json=False)
        assert [*renewed.lines, *later.lines] == ["the token ends at 2026-09-21T14:13:20Z"] * 2
        at_once = await token_tool.expire(client, HMAC, period_ms=-1, as_json=False)
        assert at_once.lines == ["the token is ended: nobody logs in by it any more"]
        told = await token_tool.expire(client, HMAC, period_ms=-1, as_json=True)
        assert told.lines == ['{"expires_ms": 1790000000000}']
        (asked,) = cluster.requests[apis.RENEW_DELEGATION_TOKEN]
        assert (asked.hmac, asked.renew_period_ms) == (HMAC, 5)
        assert [
            (each.hmac, each.expiry_time_period_ms)
            for each in cluster.requests[apis.EXPIRE_DELEGATION_TOKEN]
        ] == [(HMAC, 5), (HMAC, -1), (HMAC, -1)]


async def test_a_token_that_a_lost_answer_has_ended_is_ended() -> None:
    gone = messages.ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.EXPIRE_DELEGATION_TOKEN] = once(HANG_UP, gone)
        said = await token_tool.expire(client, HMAC, period_ms=-1, as_json=False)
        assert said.lines == ["the token is ended: nobody logs in by it any more"]
        with pytest.raises(ToolError, match="no token has this HMAC"):
            await token_tool.expire(client, HMAC, period_ms=-1, as_json=False)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key"),
        (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "frazil token list"),
        (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "neither its owner nor a renewer"),
        (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "has to log in, and not by a token"),
        (ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "CREATE_TOKENS"),
        (ErrorCode.DELEGATION_TOKEN_EXPIRED, "frazil token create"),
        (ErrorCode.INVALID_PRINCIPAL_TYPE, "User:alice"),
        (ErrorCode.POLICY_VIOLATION, "frazil token expire"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
async def test_a_refusal_says_what_happened_to_what_and_what_to_do(
    code: ErrorCode, sentence: str
) -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers |= {
            apis.CREATE_DELEGATION_TOKEN: messages.CreateDelegationTokenResponse(error_code=code),
            apis.DESCRIBE_DELEGATION_TOKEN: messages.DescribeDelegationTokenResponse(
                error_code=code
            ),
            apis.RENEW_DELEGATION_TOKEN: messages.RenewDelegationTokenResponse(error_code=code),
            apis.EXPIRE_DELEGATION_TOKEN: messages.ExpireDelegationTokenResponse(error_code=code),
        }
        for about, work in (
            ("no token is made: ", token_tool.create(client, OWN, shown)),
            (
                "tokens are not listed: ",
                token_tool.list_tokens(client, (), with_hmac=True, as_json=True),
            ),
            (
                "the token is not renewed: ",
                token_tool.renew(client, HMAC, period_ms=1, as_json=True),
            ),
            (
                "the token is not ended: ",
                token_tool.expire(client, HMAC, period_ms=1, as_json=True),
            ),
        ):
            with pytest.raises(ToolError) as refused:
                await work
            assert str(refused.value).startswith(about)
            assert sentence in str(refused.value)


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", ""])
def test_a_principal_has_a_type_and_a_name(text: str) -> None:
    assert Principal.of("User:CN=a:b") == Principal("User", "CN=a:b")
    with pytest.raises(ValueError, match="is not a principal"):
        Principal.of(text)


def test_a_token_is_shown_without_its_hmac() -> None:
    (token,) = [token_tool._described(row) for row in described("an-id").tokens]
    assert HMAC_TEXT not in repr(token)
