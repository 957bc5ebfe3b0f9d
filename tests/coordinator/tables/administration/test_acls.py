"""ACLs in the log: what is kept, what is refused, and that a snapshot has them."""

import pytest

from coordinator.commands.entries import DONE, Rejected
from coordinator.commands.rights_commands import (
    AclBinding,
    AclsDeleted,
    ConfirmRights,
    CreateAcls,
    DeleteAcls,
)
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, restore
from coordinator.tables.administration import acls
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from tests.coordinator.machine.story import Story

BINDING = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
PREFIX = BINDING._replace(pattern_type=PatternType.PREFIXED, name="pay")
OTHER = BINDING._replace(principal="User:bob")


@pytest.fixture
def story() -> Story:
    made = Story()
    made.agent = made.open()
    return made


def do(story: Story, command):
    return story.do(story.agent, command)


def test_an_acl_is_there_once_however_often_it_is_made(story):
    assert do(story, CreateAcls((BINDING, PREFIX, BINDING))) == DONE
    made = story.machine.acls.version
    assert do(story, CreateAcls((PREFIX,))) == DONE
    assert [*story.machine.acls] == [BINDING, PREFIX]
    assert story.machine.acls.version == made


def test_deleting_says_which_were_there(story):
    do(story, CreateAcls((BINDING, PREFIX)))
    assert do(story, DeleteAcls((OTHER, PREFIX))) == AclsDeleted((False, True))
    assert [*story.machine.acls] == [BINDING]
    assert story.machine.acls.version == story.machine.position


def test_a_name_is_named_by_its_own_acls_alone(story):
    everything = BINDING._replace(name="*")
    do(story, CreateAcls((BINDING, PREFIX, everything)))
    names = story.machine.acls.names
    assert names(ResourceType.TOPIC, "orders")
    for other in ("pay", "payments", "*", "bills"):
        assert not names(ResourceType.TOPIC, other)
    assert not names(ResourceType.GROUP, "orders")
    do(story, DeleteAcls((BINDING,)))
    assert not names(ResourceType.TOPIC, "orders")


def test_what_applies_to_a_name_is_its_own_acls_the_wildcard_and_prefixes(story):
    every = BINDING._replace(name="*")
    do(story, CreateAcls((BINDING, OTHER, PREFIX, every)))
    table = story.machine.acls

    def found(name: str) -> list[AclBinding]:
        patterns = table.matching(ResourceType.TOPIC, name)
        return [each for principals in patterns for some in principals.values() for each in some]

    assert found("orders") == [BINDING, OTHER, every]
    assert found("payments") == [every, PREFIX]
    assert found("p") == [every]
    assert table.matching(ResourceType.GROUP, "orders") == []
    do(story, DeleteAcls((BINDING, OTHER, PREFIX, every)))
    assert found("payments") == []
    assert vars(table) | {"version": 0} == vars(acls.Acls())


@pytest.mark.parametrize(
    "wrong",
    [
        BINDING._replace(resource_type=ResourceType.ANY),
        BINDING._replace(pattern_type=PatternType.MATCH),
        BINDING._replace(operation=Operation.ANY),
        BINDING._replace(permission=Permission.UNKNOWN),
        BINDING._replace(name=""),
        BINDING._replace(name="x" * (acls.RESOURCE_NAME_MAX + 1)),
        BINDING._replace(principal=""),
        BINDING._replace(host="h" * (acls.HOST_MAX + 1)),
    ],
)
def test_what_is_no_acl_is_refused_with_all_of_its_command(story, wrong):
    outcome = do(story, CreateAcls((BINDING, wrong)))
    assert isinstance(outcome, Rejected)
    assert outcome.error is ErrorCode.INVALID_REQUEST
    assert len(story.machine.acls) == 0


@pytest.mark.parametrize(("bound", "most"), [("BINDINGS_MAX", 2), ("TEXT_MAX", 35)])
def test_there_are_no_more_acls_than_a_cluster_keeps(story, bound, most, monkeypatch):
    monkeypatch.setattr(acls, bound, most)
    assert do(story, CreateAcls((BINDING, PREFIX))) == DONE
    refused = do(story, CreateAcls((OTHER,)))
    assert isinstance(refused, Rejected)
    assert refused.error is ErrorCode.POLICY_VIOLATION
    do(story, DeleteAcls((PREFIX,)))
    assert do(story, CreateAcls((OTHER,))) == DONE


def test_a_confirmation_changes_nothing(story):
    do(story, CreateAcls((BINDING,)))
    before = story.machine.acls.version
    assert do(story, ConfirmRights(before)) == DONE
    assert story.machine.acls.version == before


@pytest.mark.parametrize("with_schemas", [False, True])
def test_a_snapshot_has_the_acls_behind_everything_else(story, with_schemas):
    from coordinator.commands.table_commands import SetSubjectRules

    if with_schemas:
        do(story, SetSubjectRules("", "FULL", None))
    do(story, CreateAcls((BINDING, PREFIX, OTHER)))
    do(story, DeleteAcls((BINDING,)))
    restored = Machine()
    restore(restored, dump(story.machine))
    assert vars(restored.acls) == vars(story.machine.acls)
    assert dump(restored) == dump(story.machine)


def test_a_machine_that_had_acls_has_those_of_the_snapshot_alone(story):
    without = dump(story.machine)
    do(story, CreateAcls((BINDING,)))
    restore(story.machine, without)
    assert len(story.machine.acls) == 0
    assert dump(story.machine) == without
