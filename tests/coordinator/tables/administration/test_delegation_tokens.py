"""Delegation tokens in the log: made, extended, removed, refused; and what snapshots keep of them."""

import pytest

from coordinator.commands.entries import DONE, Rejected
from coordinator.commands.token_commands import (
    CreateDelegationToken,
    ExtendDelegationToken,
    RemoveDelegationTokens,
)
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, restore
from coordinator.tables.administration import delegation_tokens as table_module
from coordinator.tables.administration.delegation_tokens import DelegationToken
from protocol.errors import ErrorCode
from tests.coordinator.machine.story import with_agents
from tests.coordinator.snapshot.compare import differences

ALICE, BOB, CAROL, DAVE = "User:alice", "User:bob", "User:carol", "User:dave"


def create(token_id="one", owner=ALICE, *, renewers=(BOB,), expires_ms=200, max_ms=1_000):
    return CreateDelegationToken(token_id, owner, CAROL, renewers, 100, expires_ms, max_ms)


def error(outcome) -> ErrorCode:
    return outcome.error if isinstance(outcome, Rejected) else ErrorCode.NONE


def ids(story) -> list[str]:
    return [token.token_id for token in story.machine.delegation_tokens]


def test_a_token_is_there_with_all_that_was_said_of_it():
    story, agent = with_agents()
    assert story.do(agent, create()) == DONE
    found = story.machine.delegation_tokens
    assert found.get("one") == DelegationToken("one", ALICE, CAROL, (BOB,), 100, 200, 1_000)
    assert found.get("two") is None
    assert found.version == story.machine.position


def test_a_token_concerns_its_owner_its_requester_and_its_renewers():
    story, agent = with_agents()
    story.do(agent, create())
    token = story.machine.delegation_tokens.get("one")
    assert [token.concerns(each) for each in (ALICE, BOB, CAROL, DAVE)] == [True, True, True, False]
    renewing = [token.may_be_renewed_by(each) for each in (ALICE, BOB, CAROL, DAVE)]
    assert renewing == [True, True, False, False]


def test_a_token_has_ended_when_its_time_is_over():
    story, agent = with_agents()
    story.do(agent, create(expires_ms=200))
    token = story.machine.delegation_tokens.get("one")
    assert [token.has_ended(now_ms) for now_ms in (199, 200, 201)] == [False, False, True]


@pytest.mark.parametrize("expires_ms", [150, 1_000])
def test_a_token_ends_sooner_or_later_than_before(expires_ms):
    story, agent = with_agents()
    story.do(agent, create())
    assert story.do(agent, ExtendDelegationToken("one", expires_ms)) == DONE
    assert story.machine.delegation_tokens.get("one").expires_ms == expires_ms


def test_no_token_lives_longer_than_its_longest_life():
    story, agent = with_agents()
    assert error(story.do(agent, create(expires_ms=1_001))) is ErrorCode.INVALID_REQUEST
    story.do(agent, create())
    before = story.machine.delegation_tokens.version
    refused = story.do(agent, ExtendDelegationToken("one", 1_001))
    assert error(refused) is ErrorCode.INVALID_REQUEST
    assert story.machine.delegation_tokens.version == before


def test_a_token_that_is_not_there_cannot_be_extended():
    story, agent = with_agents()
    refused = story.do(agent, ExtendDelegationToken("one", 150))
    assert error(refused) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_tokens_are_removed_that_have_ended_by_then_and_others_stay():
    story, agent = with_agents()
    for token_id, expires_ms in (("one", 200), ("two", 201), ("three", 200)):
        story.do(agent, create(token_id, expires_ms=expires_ms))
    assert story.do(agent, RemoveDelegationTokens(("one", "two", "four"), 200)) == DONE
    assert ids(story) == ["two", "three"]


@pytest.mark.parametrize(
    "command",
    [
        create(""),
        create("x" * 65),
        create(owner=""),
        create(owner="x" * 1_025),
        create(renewers=("",)),
    ],
)
def test_what_cannot_be_a_token_is_refused(command):
    story, agent = with_agents()
    assert error(story.do(agent, command)) is ErrorCode.INVALID_REQUEST
    assert ids(story) == []


def test_two_tokens_never_have_one_id():
    story, agent = with_agents()
    story.do(agent, create())
    assert error(story.do(agent, create(owner=DAVE))) is ErrorCode.INVALID_REQUEST
    assert story.machine.delegation_tokens.get("one").owner == ALICE


def test_there_are_no_more_tokens_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(table_module, "TOKENS_MAX", 2)
    story, agent = with_agents()
    for token_id in ("one", "two"):
        assert story.do(agent, create(token_id)) == DONE
    assert error(story.do(agent, create("three"))) is ErrorCode.POLICY_VIOLATION
    story.do(agent, RemoveDelegationTokens(("one",), 1_000))
    assert story.do(agent, create("three")) == DONE


def test_a_snapshot_keeps_tokens_and_their_order():
    story, agent = with_agents()
    for token_id in ("b", "a", "c"):
        story.do(agent, create(token_id))
    story.do(agent, RemoveDelegationTokens(("a",), 1_000))
    restored = Machine()
    restore(restored, dump(story.machine))
    assert differences(restored, story.machine) == []
    assert [token.token_id for token in restored.delegation_tokens] == ["b", "c"]


def test_a_snapshot_of_a_cluster_that_never_had_a_token_is_one_of_the_release_before():
    story, agent = with_agents()
    before = dump(story.machine)
    story.do(agent, RemoveDelegationTokens((), 0))
    assert len(b"".join(dump(story.machine))) > len(b"".join(before))
