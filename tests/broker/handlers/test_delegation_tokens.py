"""The four APIs of delegation tokens (KIP-48, KIP-373): who may, what is refused, what never gets out."""

import asyncio
import json

import pytest

from broker.calls.requester import Requester
from broker.handlers import create_delegation_token
from broker.reports.log_lines import describe, lines
from broker.upkeep import token_expiration
from coordinator.commands.codec import decode_entry
from coordinator.commands.rights_commands import RIGHTS_LEVEL
from coordinator.commands.token_commands import RENEWERS_MAX
from coordinator.snapshot.snapshot import dump
from protocol import apis, messages
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from tests.broker.rights.acls import ADMIN, AUTHORIZED, BOB, acl, allow, ask
from tests.kit.agents import NOW_MS

NONE = ErrorCode.NONE
DAY_MS = 86_400_000
SECRET = "the secret of all agents"
SERVED = {"delegation_token_secret_key": SECRET}
ALICE = Requester("User:alice", "10.0.0.3")
CAROL = Requester("User:carol", "10.0.0.4")
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def create(agent, *renewers, who=ALICE, owner=None, max_ms=-1, kind="User"):
    request = messages.CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else kind,
        owner_principal_name=owner,
        renewers=[
            messages.CreatableRenewers(principal_type=kind, principal_name=each)
            for each in renewers
        ],
        max_lifetime_ms=max_ms,
    )
    return await ask(agent, apis.CREATE_DELEGATION_TOKEN, request, who=who)


async def renew(agent, hmac, *, who=ALICE, period_ms=-1):
    request = messages.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return await ask(agent, apis.RENEW_DELEGATION_TOKEN, request, who=who)


async def expire(agent, hmac, *, who=ALICE, period_ms=-1):
    request = messages.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return await ask(agent, apis.EXPIRE_DELEGATION_TOKEN, request, who=who)


async def described(agent, *owners, who=ALICE, everything=True):
    """Ids of the tokens; of all if no owners are named."""
    named = [
        messages.DescribeDelegationTokenOwner(principal_type="User", principal_name=each)
        for each in owners
    ]
    request = messages.DescribeDelegationTokenRequest(
        owners=None if everything and not owners else named
    )
    answer = await ask(agent, apis.DESCRIBE_DELEGATION_TOKEN, request, who=who)
    assert answer.error_code == NONE
    return answer.tokens


async def test_a_token_is_made_on_one_agent_and_described_on_another(world):
    async with world.agents("one", "two", **SERVED) as (one, two):
        made = await create(one, "bob", "carol")
        assert made.error_code == NONE
        assert (made.principal_type, made.principal_name) == ("User", "alice")
        assert made.token_requester_principal_name == "alice"
        assert made.issue_timestamp_ms >= NOW_MS
        assert made.expiry_timestamp_ms == made.issue_timestamp_ms + DAY_MS
        assert made.max_timestamp_ms == made.issue_timestamp_ms + 7 * DAY_MS
        assert len(made.hmac) == 64
        assert two.machine.delegation_tokens.get(made.token_id) is not None
        (token,) = await described(two)
        assert (token.token_id, token.hmac) == (made.token_id, made.hmac)
        assert (token.principal_type, token.principal_name) == ("User", "alice")
        assert token.expiry_timestamp == made.expiry_timestamp_ms
        assert [each.principal_name for each in token.renewers] == ["bob", "carol"]


async def test_a_token_lives_no_longer_than_was_asked(world):
    async with world.agents("one", **SERVED) as (one,):
        made = await create(one, max_ms=1_000)
        assert made.max_timestamp_ms == made.issue_timestamp_ms + 1_000
        assert made.expiry_timestamp_ms == made.max_timestamp_ms


async def test_ids_never_come_twice(world):
    async with world.agents("one", **SERVED) as (one,):
        made = [await create(one) for _ in range(5)]
        assert len({each.token_id for each in made}) == 5


@pytest.mark.parametrize("who", [ALICE, BOB], ids=["owner", "renewer"])
async def test_owner_and_renewers_renew_a_token(who, world):
    async with world.agents("one", "two", **SERVED) as (one, two):
        made = await create(one, "bob")
        await asyncio.sleep(100)
        renewed = await renew(two, made.hmac, who=who, period_ms=DAY_MS // 2)
        assert renewed.error_code == NONE
        expected_ms = made.issue_timestamp_ms + 100_000 + DAY_MS // 2
        assert 0 <= renewed.expiry_timestamp_ms - expected_ms < 10_000
        (token,) = await described(one)
        assert token.expiry_timestamp == renewed.expiry_timestamp_ms


@pytest.mark.parametrize("who", [ALICE, BOB], ids=["owner", "renewer"])
async def test_a_token_that_ends_at_once_is_gone_on_all_agents(who, world):
    async with world.agents("one", "two", **SERVED) as (one, two):
        made = await create(one, "bob")
        ended = await expire(one, made.hmac, who=who)
        assert ended.error_code == NONE
        assert two.machine.delegation_tokens.get(made.token_id) is None
        assert (await renew(one, made.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_a_token_may_end_in_a_while(world):
    async with world.agents("one", **SERVED) as (one,):
        made = await create(one)
        ended = await expire(one, made.hmac, period_ms=5_000)
        assert 0 <= ended.expiry_timestamp_ms - made.issue_timestamp_ms - 5_000 < 5_000
        await asyncio.sleep(11)
        for call in (renew, expire):
            answer = await call(one, made.hmac)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
            assert answer.expiry_timestamp_ms == -1


@pytest.mark.parametrize("call", [renew, expire])
async def test_who_is_neither_owner_nor_renewer_changes_nothing(call, world):
    async with world.agents("one", **SERVED) as (one,):
        made = await create(one, "bob")
        answer = await call(one, made.hmac, who=CAROL)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        (token,) = await described(one)
        assert token.expiry_timestamp == made.expiry_timestamp_ms


@pytest.mark.parametrize("call", [renew, expire])
async def test_an_hmac_that_no_token_has_is_not_found(call, world):
    async with world.agents("one", **SERVED) as (one,):
        await create(one)
        for hmac in (b"", bytes(64)):
            answer = await call(one, hmac)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


NOBODY = Requester(host="10.0.0.9")
BY_TOKEN = Requester("User:alice", "10.0.0.9", by_token=True)


@pytest.mark.parametrize("who", [NOBODY, BY_TOKEN], ids=["nobody", "by a token"])
@pytest.mark.parametrize("authorized", [{}, AUTHORIZED], ids=["open", "authorizer"])
async def test_who_is_nobody_or_came_by_a_token_may_not_ask(who, authorized, world):
    async with world.agents("one", **authorized) as (one,):
        answers = [
            await create(one, who=who),
            await renew(one, b"x", who=who),
            await expire(one, b"x", who=who),
            await ask(
                one,
                apis.DESCRIBE_DELEGATION_TOKEN,
                messages.DescribeDelegationTokenRequest(owners=None),
                who=who,
            ),
        ]
        assert [answer.error_code for answer in answers] == [NOT_ALLOWED] * 4


async def test_without_a_secret_tokens_are_not_served(world):
    async with world.agents("one") as (one,):
        disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        describe_all = messages.DescribeDelegationTokenRequest(owners=None)
        answers = [
            await create(one),
            await renew(one, b"x"),
            await expire(one, b"x"),
            await ask(one, apis.DESCRIBE_DELEGATION_TOKEN, describe_all, who=ALICE),
        ]
        assert [answer.error_code for answer in answers] == [disabled] * 4


async def test_only_users_own_and_renew_tokens(world):
    async with world.agents("one", **SERVED) as (one,):
        for answer in (
            await create(one, "bob", kind="Group"),
            await create(one, owner="bob", kind="Group"),
        ):
            assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        assert len(one.machine.delegation_tokens) == 0


async def test_more_renewers_than_a_token_has_room_for_are_refused(world):
    async with world.agents("one", **SERVED) as (one,):
        names = [f"user-{index}" for index in range(RENEWERS_MAX + 1)]
        assert (await create(one, *names)).error_code == ErrorCode.INVALID_REQUEST
        assert (await create(one, *names[1:])).error_code == NONE


async def test_nobody_takes_all_the_room_for_tokens(world, monkeypatch):
    monkeypatch.setattr(create_delegation_token, "OF_REQUESTER_MAX", 2)
    async with world.agents("one", **SERVED) as (one,):
        first = await create(one)
        assert (await create(one)).error_code == NONE
        assert (await create(one)).error_code == ErrorCode.POLICY_VIOLATION
        assert (await create(one, who=CAROL)).error_code == NONE
        await expire(one, first.hmac)
        assert (await create(one)).error_code == NONE


async def test_beside_an_older_agent_no_token_is_made(world):
    async with world.agents("one", **SERVED) as (one,):
        (row,) = one.machine.incarnations
        row.feature_level_max = RIGHTS_LEVEL - 1
        assert (await create(one)).error_code == ErrorCode.UNSUPPORTED_VERSION


# Rights.


async def test_a_token_for_another_owner_needs_the_right_to_make_it(world):
    async with world.agents("one", **SERVED, **AUTHORIZED) as (one,):
        made = await create(one, who=BOB, owner="alice")
        assert made.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        await allow(one, acl(Operation.CREATE_TOKENS, ResourceType.USER, "User:alice"))
        made = await create(one, who=BOB, owner="alice")
        assert made.error_code == NONE
        assert (made.principal_name, made.token_requester_principal_name) == ("alice", "bob")
        refused = await create(one, who=BOB, owner="carol")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (await create(one, who=BOB)).error_code == NONE


async def test_tokens_are_seen_by_whom_they_concern(world):
    async with world.agents("one", **SERVED, **AUTHORIZED) as (one,):
        mine = (await create(one, "bob")).token_id
        others = (await create(one, who=CAROL)).token_id
        assert [each.token_id for each in await described(one)] == [mine]
        assert [each.token_id for each in await described(one, who=BOB)] == [mine]
        assert [each.token_id for each in await described(one, who=CAROL)] == [others]
        assert [each.token_id for each in await described(one, who=ADMIN)] == [mine, others]


@pytest.mark.parametrize("of", ["the token", "its owner"])
async def test_who_may_describe_a_token_or_its_owners_tokens_sees_it(of, world):
    async with world.agents("one", **SERVED, **AUTHORIZED) as (one,):
        token_id = (await create(one)).token_id
        await create(one, who=CAROL)
        assert await described(one, who=BOB) == []
        right = acl(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id)
        if of == "its owner":
            right = acl(Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice")
        await allow(one, right)
        assert [each.token_id for each in await described(one, who=BOB)] == [token_id]


async def test_tokens_are_described_of_those_that_are_named_and_of_nobody_if_none_is(world):
    async with world.agents("one", **SERVED) as (one,):
        first = (await create(one, "bob")).token_id
        second = (await create(one, who=CAROL)).token_id
        assert [each.token_id for each in await described(one, "carol")] == [second]
        assert [each.token_id for each in await described(one, "bob")] == [first]
        assert [each.token_id for each in await described(one, "alice", "carol")] == [first, second]
        assert await described(one, everything=False) == []


# What becomes of them.


async def test_tokens_that_have_ended_are_swept_and_others_stay(world):
    async with world.agents("one", "two", **SERVED) as (one, two):
        await create(one, max_ms=1_000)
        kept = (await create(one)).token_id
        await asyncio.sleep(200)  # Until each agent has told its clock.
        for agent in (two, one):
            await token_expiration.sweep(agent.node)
        await one.log_client.barrier()
        assert [token.token_id for token in one.machine.delegation_tokens] == [kept]


@pytest.mark.promise("P6")
async def test_tokens_that_are_issued_after_a_clock_was_ahead_are_not_swept(world):
    """The machine's time is still where that clock was."""
    async with world.agents("one", **SERVED) as (one,):
        kept = (await create(one)).token_id
        one.machine.time_ms += 365 * 86_400_000
        await token_expiration.sweep(one.node)
        await one.log_client.barrier()
        assert [token.token_id for token in one.machine.delegation_tokens] == [kept]


async def test_the_hmac_is_in_no_log_no_snapshot_and_in_nothing_that_is_shown(world):
    async with world.agents("one", **SERVED) as (one,):
        made = await create(one)
        (token,) = await described(one)
        entries = [entry.payload for entry in world.cluster.entries]
        everything = b"".join([*entries, *dump(one.machine)])
        assert made.token_id.encode() in everything
        assert made.hmac not in everything
        assert SECRET.encode() not in everything
        shown = [repr(made), repr(token), repr(one.node.settings), repr(one.node.delegation)]
        for payload in entries:
            entry = decode_entry(payload)
            shown += [repr(entry), *lines(describe(one.machine.position, 0, entry))]
        for text in shown:
            assert SECRET not in text
            assert made.hmac.hex() not in text
            assert repr(made.hmac)[2:-1] not in text


async def test_the_audit_tells_of_tokens_and_never_of_their_hmacs(world, caplog):
    async with world.agents("one", **SERVED, **AUTHORIZED) as (one,):
        with caplog.at_level("INFO"):
            made = await create(one)
            await renew(one, made.hmac)
            await expire(one, made.hmac)
        told = [record.getMessage() for record in caplog.records]
        changes = [line for line in told if '"change"' in line]
        assert [json.loads(line)["api"] for line in changes] == [
            f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire")
        ]
        assert not any(made.hmac.hex() in line for line in told)
