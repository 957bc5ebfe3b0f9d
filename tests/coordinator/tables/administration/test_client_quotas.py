"""Client quotas in the log: set, removed, refused; and what snapshots keep of them."""

import pytest

from coordinator.commands.config_commands import (
    AlterClientQuotas,
    EntityPart,
    EntityType,
    Quota,
    QuotaChange,
)
from coordinator.commands.entries import DONE, Rejected
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, restore
from coordinator.tables.administration import client_quotas as table_module
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO
from tests.coordinator.machine.story import with_agents
from tests.coordinator.snapshot.compare import differences

ALICE = (EntityPart(EntityType.USER, "alice"),)
ANYBODY = (EntityPart(EntityType.USER, None),)
ALICE_AT = (*ALICE, EntityPart(EntityType.CLIENT_ID, "cli"))
ADDRESS = (EntityPart(EntityType.IP, "10.0.0.7"),)
PRODUCED, CONSUMED, CONNECTIONS = (
    Quota.PRODUCER_BYTE_RATE,
    Quota.CONSUMER_BYTE_RATE,
    Quota.CONNECTION_CREATION_RATE,
)


def alter(*changes: tuple) -> AlterClientQuotas:
    return AlterClientQuotas(tuple(QuotaChange(*change) for change in changes))


def error(outcome) -> ErrorCode:
    return outcome.error if isinstance(outcome, Rejected) else ErrorCode.NONE


def test_quotas_are_of_exactly_the_entity_that_they_were_set_for():
    story, agent = with_agents()
    assert story.do(agent, alter((ALICE, PRODUCED, 10.0), (ANYBODY, PRODUCED, 5.0))) == DONE
    quotas = story.machine.client_quotas
    assert [quotas.of(each) for each in (ALICE, ANYBODY, ALICE_AT)] == [
        {PRODUCED: 10.0},
        {PRODUCED: 5.0},
        {},
    ]
    assert quotas.version == story.machine.position


def test_a_quota_that_is_removed_leaves_the_entitys_others():
    story, agent = with_agents()
    story.do(agent, alter((ALICE, PRODUCED, 10.0), (ALICE, CONSUMED, 20.0)))
    story.do(agent, alter((ALICE, PRODUCED, None)))
    assert story.machine.client_quotas.of(ALICE) == {CONSUMED: 20.0}


def test_an_entity_without_a_quota_is_there_no_more():
    story, agent = with_agents()
    story.do(agent, alter((ALICE, PRODUCED, 10.0)))
    story.do(agent, alter((ALICE, PRODUCED, None)))
    assert [*story.machine.client_quotas] == []


def test_to_remove_what_is_not_there_is_no_error():
    story, agent = with_agents()
    assert story.do(agent, alter((ALICE, PRODUCED, None))) == DONE


@pytest.mark.parametrize(
    "change",
    [
        ((), PRODUCED, 1.0),
        ((*ALICE, *ALICE), PRODUCED, 1.0),
        (tuple(reversed(ALICE_AT)), PRODUCED, 1.0),
        ((*ALICE, *ADDRESS), PRODUCED, 1.0),
        ((EntityPart(EntityType.USER, ""),), PRODUCED, 1.0),
        ((EntityPart(EntityType.USER, "x" * 1_025),), PRODUCED, 1.0),
        (ADDRESS, PRODUCED, 1.0),
        (ALICE, CONNECTIONS, 1.0),
        (ALICE, PRODUCED, 0.0),
        (ALICE, PRODUCED, -1.0),
    ],
)
def test_what_cannot_be_a_quota_is_refused_and_nothing_beside_it_is_set(change):
    story, agent = with_agents()
    outcome = story.do(agent, alter((ALICE, CONSUMED, 1.0), change))
    assert error(outcome) == ErrorCode.INVALID_REQUEST
    assert len(story.machine.client_quotas) == 0
    assert story.machine.client_quotas.version == POSITION_ZERO


def test_entities_beyond_what_there_is_room_for_are_refused(monkeypatch):
    monkeypatch.setattr(table_module, "QUOTA_ENTITIES_MAX", 1)
    story, agent = with_agents()
    story.do(agent, alter((ALICE, PRODUCED, 1.0)))
    assert error(story.do(agent, alter((ANYBODY, PRODUCED, 1.0)))) == ErrorCode.POLICY_VIOLATION
    assert story.do(agent, alter((ALICE, CONSUMED, 1.0))) == DONE


def test_a_snapshot_has_the_quotas():
    story, agent = with_agents()
    story.do(agent, alter((ALICE_AT, PRODUCED, 10.5), (ADDRESS, CONNECTIONS, 3.0)))
    other = Machine()
    restore(other, dump(story.machine))
    assert not differences(story.machine, other)


def test_a_snapshot_restored_over_quotas_has_none_of_them():
    story, agent = with_agents()
    story.do(agent, alter((ALICE, PRODUCED, 10.0)))
    restore(story.machine, dump(Machine()))
    assert len(story.machine.client_quotas) == 0
