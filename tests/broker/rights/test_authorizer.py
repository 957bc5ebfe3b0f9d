"""Decisions as Kafka's StandardAuthorizer makes them: a table of cases, and a slow model beside it."""

import dataclasses
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.calls.requester import Requester
from broker.rights.authorizer import CACHED_MAX, Authorizer
from coordinator.commands.rights_commands import AclBinding, CreateAcls, DeleteAcls
from coordinator.tables.administration.acls import BINDINGS_MAX, Acls
from protocol.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from protocol.types import Position

ALICE = Requester("User:alice", "10.0.0.1")
BOB = Requester("User:bob", "10.0.0.2")
TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALLOWED = AclBinding(TOPIC, LITERAL, "orders", "User:alice", WILDCARD, READ, ALLOW)
DENIED = ALLOWED._replace(permission=DENY)


def table(*bindings: AclBinding) -> Acls:
    acls = Acls()
    acls.apply(CreateAcls(bindings), Position(7))
    return acls


def allows(*bindings: AclBinding, who: Requester = ALICE, operation=READ, name="orders", **more):
    return Authorizer(table(*bindings), **more).allows(who, operation, TOPIC, name)


def test_without_any_acl_everybody_is_refused_unless_the_setting_says_otherwise():
    assert not allows()
    assert allows(allow_everyone=True)


def test_an_acl_of_somebody_else_ends_what_everybody_may_without_acls():
    assert not allows(ALLOWED, who=BOB, allow_everyone=True)
    assert allows(ALLOWED, who=BOB, name="payments", allow_everyone=True)


def test_a_super_user_may_do_what_is_denied_to_everybody():
    denied = DENIED._replace(principal=WILDCARD_PRINCIPAL, operation=Operation.ALL)
    assert allows(denied, super_users=["User:alice"])
    assert not allows(denied)


def test_who_is_denied_is_refused_whatever_is_allowed_besides():
    assert not allows(ALLOWED, DENIED._replace(name="ord", pattern_type=PREFIXED))
    assert not allows(DENIED, ALLOWED._replace(operation=Operation.ALL))


@pytest.mark.parametrize(
    ("pattern_type", "pattern", "name", "fits"),
    [
        (LITERAL, "orders", "orders", True),
        (LITERAL, "orders", "orders2", False),
        (LITERAL, "ord", "orders", False),
        (LITERAL, "*", "orders", True),
        (PREFIXED, "ord", "orders", True),
        (PREFIXED, "orders", "orders", True),
        (PREFIXED, "orders2", "orders", False),
        (PREFIXED, "*", "orders", False),
        (PREFIXED, "*", "*orders", True),
    ],
)
def test_a_pattern_fits_its_name_all_names_or_what_begins_with_it(
    pattern_type, pattern, name, fits
):
    assert allows(ALLOWED._replace(pattern_type=pattern_type, name=pattern), name=name) is fits


@pytest.mark.parametrize(
    ("principal", "host", "fits"),
    [
        ("User:alice", "*", True),
        ("User:alice", "10.0.0.1", True),
        ("User:alice", "10.0.0.2", False),
        ("User:*", "10.0.0.1", True),
        ("User:alic", "*", False),
        ("Group:alice", "*", False),
    ],
)
def test_an_acl_is_for_a_principal_at_a_host(principal, host, fits):
    assert allows(ALLOWED._replace(principal=principal, host=host)) is fits


@pytest.mark.parametrize("given_operation", [op for op in Operation if op > Operation.ANY])
def test_describe_is_implied_by_what_cannot_be_done_without_it(given_operation):
    implying = {"READ", "WRITE", "DELETE", "ALTER", "ALL", "DESCRIBE"}
    expected = given_operation.name in implying
    assert allows(ALLOWED._replace(operation=given_operation), operation=DESCRIBE) is expected


@pytest.mark.parametrize("given_operation", [op for op in Operation if op > Operation.ANY])
def test_describing_configs_is_implied_by_altering_them(given_operation):
    expected = given_operation.name in {"ALTER_CONFIGS", "DESCRIBE_CONFIGS", "ALL"}
    binding = ALLOWED._replace(operation=given_operation)
    assert allows(binding, operation=Operation.DESCRIBE_CONFIGS) is expected


def test_what_is_denied_implies_nothing():
    assert allows(DENIED, ALLOWED._replace(operation=WRITE), operation=DESCRIBE)
    assert not allows(DENIED, ALLOWED._replace(operation=WRITE), operation=READ)


def test_a_change_counts_from_the_next_question_on():
    acls = table(ALLOWED)
    authorizer = Authorizer(acls)
    assert authorizer.allows(ALICE, READ, TOPIC, "orders")
    acls.apply(CreateAcls((DENIED,)), Position(8))
    assert not authorizer.allows(ALICE, READ, TOPIC, "orders")
    acls.apply(DeleteAcls((DENIED,)), Position(9))
    assert authorizer.allows(ALICE, READ, TOPIC, "orders")
    assert authorizer.allows_some(ALICE, READ, TOPIC)
    acls.apply(DeleteAcls((ALLOWED,)), Position(10))
    assert not authorizer.allows(ALICE, READ, TOPIC, "orders")
    assert not authorizer.allows_some(ALICE, READ, TOPIC)


def test_who_asks_for_ever_new_names_takes_no_more_memory():
    authorizer = Authorizer(table(ALLOWED))
    for number in range(CACHED_MAX + 10):
        authorizer.allows(ALICE, READ, TOPIC, f"t{number}")
    authorizer.allows(ALICE, READ, TOPIC, "t" * 1000)
    assert len(authorizer._decided) <= CACHED_MAX
    assert all(len(key[-1]) < 1000 for key in authorizer._decided)


# Some resource.


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ((), False),
        ((ALLOWED,), True),
        ((ALLOWED._replace(operation=Operation.ALL),), True),
        ((ALLOWED._replace(principal=WILDCARD_PRINCIPAL),), True),
        ((ALLOWED._replace(host="10.0.0.9"),), False),
        ((ALLOWED._replace(operation=WRITE),), False),
        ((ALLOWED, DENIED), False),
        ((ALLOWED, DENIED._replace(name=WILDCARD)), False),
        ((ALLOWED, DENIED._replace(name="or", pattern_type=PREFIXED)), False),
        ((ALLOWED, DENIED._replace(name="orders2", pattern_type=PREFIXED)), True),
        ((ALLOWED._replace(pattern_type=PREFIXED), DENIED), True),
        ((ALLOWED._replace(pattern_type=PREFIXED), DENIED._replace(pattern_type=PREFIXED)), False),
        ((ALLOWED._replace(name=WILDCARD), DENIED), True),
        ((ALLOWED, DENIED._replace(principal="User:bob")), True),
    ],
)
def test_something_may_be_done_to_some_resource_unless_all_that_allows_is_covered(
    bindings, expected
):
    assert Authorizer(table(*bindings)).allows_some(ALICE, READ, TOPIC) is expected


def test_what_others_may_do_takes_no_time_to_find_that_somebody_may_do_nothing():
    """A client without a transactional id asks it with its first request; the table is full."""
    acls = Acls()
    rows = tuple(
        ALLOWED._replace(name=f"t{number}", principal=f"User:{number % 5000}")
        for number in range(BINDINGS_MAX)
    )
    acls.apply(CreateAcls(rows), Position(7))
    authorizer = Authorizer(acls)
    begun = time.thread_time()
    assert not authorizer.allows_some(ALICE, READ, TOPIC)
    assert authorizer.allows_some(Requester("User:7", ""), READ, TOPIC)
    assert time.thread_time() - begun < 0.002


def test_authorized_operations_are_bits_of_those_that_the_type_has():
    authorizer = Authorizer(table(ALLOWED))
    assert authorizer.operations(ALICE, TOPIC, "orders") == 1 << READ | 1 << DESCRIBE
    everything = Authorizer(table(), super_users=["User:alice"])
    assert everything.operations(ALICE, TOPIC, "orders") == 0b1101_1111_1000
    assert everything.operations(ALICE, ResourceType.GROUP, "g") == 0b1101_0100_1000


# A slow model.

NAMES = ["a", "ab", "abc", "b", "*"]
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, ResourceType.GROUP]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(NAMES),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.ALL]),
    st.sampled_from([ALLOW, DENY]),
)


def modelled(bindings, who, operation, resource_type, name, *, allow_everyone):
    def fits(each):
        if each.pattern_type is PREFIXED:
            return name.startswith(each.name)
        return each.name in ("*", name)

    of_resource = [each for each in bindings if each.resource_type is resource_type and fits(each)]
    mine = [
        each
        for each in of_resource
        if each.principal in (who.principal, "User:*") and each.host in (who.host, "*")
    ]
    implying = {operation, Operation.ALL}
    if operation is DESCRIBE:
        implying |= {READ, WRITE}
    if any(each.permission is DENY and each.operation in (operation, 2) for each in mine):
        return False
    if any(each.permission is ALLOW and each.operation in implying for each in mine):
        return True
    return allow_everyone and not of_resource


@settings(max_examples=300, deadline=None)
@given(st.lists(BINDINGS, max_size=8), st.lists(BINDINGS, max_size=4), st.booleans())
def test_decisions_are_those_of_the_slow_model_whatever_came_and_went(made, gone, allow_everyone):
    acls = Acls()
    acls.apply(CreateAcls(tuple(made + gone)), Position(1))
    authorizer = Authorizer(acls, allow_everyone=allow_everyone)
    asked = [
        (dataclasses.replace(who, host=host), operation, resource_type, name)
        for who in (ALICE, BOB)
        for host in ("10.0.0.1", "10.0.0.3")
        for operation in (READ, DESCRIBE)
        for resource_type in (TOPIC, ResourceType.GROUP)
        for name in ("a", "abc", "c", "*")
    ]
    for _ in range(2):
        for question in asked:
            expected = modelled(list(acls), *question, allow_everyone=allow_everyone)
            assert authorizer.allows(*question) is expected, question
        acls.apply(DeleteAcls(tuple(gone)), Position(2))
