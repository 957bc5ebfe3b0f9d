"""Rights of subjects: which topic's ACLs they are, and what each route asks for."""

import json

import pytest

from broker.registry import rest, rest_rules
from broker.registry.errors import FORBIDDEN, RegistryError
from broker.registry.subject_rights import (
    CHANGES,
    Asker,
    Need,
    Scope,
    of_cluster,
    of_subject,
    topic_of,
)
from broker.rights.authorizer import Authorizer
from broker.rights.rights import Rights
from coordinator.commands.rights_commands import CreateAcls
from coordinator.tables.administration.acls import Acls
from protocol.acls import Operation, ResourceType
from protocol.types import Position
from tests.broker.rights.acls import BOB, acl

ROUTES = (*rest.ROUTES, *rest_rules.ROUTES)
NEEDS = list(
    dict.fromkeys(
        route.need for route in ROUTES if route.need.scope in (Scope.SUBJECT, Scope.CLUSTER)
    )
)
ENOUGH = {
    Operation.DESCRIBE: {
        Operation.DESCRIBE,
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.ALL,
    },
    Operation.DESCRIBE_CONFIGS: {
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.ALL,
    },
    Operation.WRITE: {Operation.WRITE, Operation.ALL},
    Operation.DELETE: {Operation.DELETE, Operation.ALL},
    Operation.ALTER_CONFIGS: {Operation.ALTER_CONFIGS, Operation.ALL},
}
"""What Bob may be allowed, for him to do this (KIP-11)."""


def acls_of(*bindings) -> Acls:
    acls = Acls()
    acls.apply(CreateAcls(bindings), Position(1))
    return acls


def bob(acls: Acls, lines: list[str] | None = None) -> Asker:
    write = [].append if lines is None else lines.append
    rights = Rights(Authorizer(acls), write=write, now_ms=lambda: 7, boot_ms=lambda: 7)
    return Asker(rights, lambda: acls, BOB, "Registry POST /subjects")


def may(asker: Asker, need: Need, subject: str = "orders-value") -> bool:
    try:
        asker.require(need, subject)
    except RegistryError as refused:
        return refused.code != FORBIDDEN
    return True


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("orders-key", "orders"),
        ("orders-value", "orders"),
        ("orders-value-key", "orders-value"),
        ("shop.Order", "shop.Order"),
        ("-value", "-value"),
        ("orders-values", "orders-values"),
    ],
)
def test_a_subject_belongs_to_the_topic_that_it_is_named_after(subject: str, topic: str) -> None:
    assert topic_of(subject, acls_of()) == topic


def test_an_acl_of_the_very_name_of_a_subject_counts_instead() -> None:
    acls = acls_of(acl(Operation.WRITE, name="orders"), acl(Operation.READ, name="orders-value"))
    asker = bob(acls)
    assert may(asker, of_subject(Operation.WRITE), "orders-key")
    assert not may(asker, of_subject(Operation.WRITE), "orders-value")
    assert may(asker, of_subject(Operation.DESCRIBE), "orders-value")


def test_acls_of_prefixes_and_of_all_topics_are_those_of_the_topic() -> None:
    for acls in (
        acls_of(acl(Operation.WRITE, name="ord", prefix=True)),
        acls_of(acl(Operation.WRITE)),
    ):
        assert topic_of("orders-value", acls) == "orders"
        assert may(bob(acls), of_subject(Operation.WRITE))


@pytest.mark.parametrize("need", NEEDS, ids=str)
@pytest.mark.parametrize("allowed", [each for each in Operation if each >= Operation.ALL])
def test_each_route_asks_for_what_kafka_would_ask_for(need: Need, allowed: Operation) -> None:
    for resource in (ResourceType.TOPIC, ResourceType.CLUSTER):
        acls = acls_of(acl(allowed, resource, "orders"))
        is_of = ResourceType.TOPIC if need.scope is Scope.SUBJECT else ResourceType.CLUSTER
        expected = resource is is_of and allowed in ENOUGH[need.operation]
        assert may(bob(acls), need) is expected


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_that_names_a_subject_asks_for_a_right_to_it(route) -> None:
    assert ("{subject}" in route.path) is (route.need.scope is Scope.SUBJECT)
    if route.method in ("PUT", "DELETE"):
        assert route.need.operation in CHANGES


def test_without_an_authorizer_everybody_may_do_everything() -> None:
    asker = Asker(None, acls_of, BOB, "")
    assert all(may(asker, route.need) for route in ROUTES)
    assert asker.sees("orders-value")
    assert asker.sees_one([])


def test_a_schema_is_seen_by_who_sees_one_of_its_subjects() -> None:
    asker = bob(acls_of(acl(Operation.READ, name="orders")))
    assert asker.sees_one(["bills-value", "orders-value"])
    assert not asker.sees_one(["bills-value"])
    assert asker.refuse_schema(7).code == FORBIDDEN


def test_refusals_and_changes_are_told() -> None:
    lines: list[str] = []
    asker = bob(acls_of(acl(Operation.DELETE, name="orders")), lines)
    assert not may(asker, of_subject(Operation.WRITE))
    assert not may(asker, of_cluster(Operation.ALTER_CONFIGS), "")
    asker.changed(of_subject(Operation.DELETE), "orders-value", 200)
    asker.changed(of_subject(Operation.DELETE), "orders-value", 404)
    asker.changed(of_subject(Operation.WRITE), "orders-value", 200)
    refused, of_all, deleted, missing = map(json.loads, lines)
    assert (refused["event"], refused["operation"], refused["name"]) == (
        "refused",
        "WRITE",
        "orders",
    )
    assert of_all["resource"] == "CLUSTER"
    assert (deleted["event"], deleted["names"], deleted["errors"]) == (
        "change",
        ["orders-value"],
        [],
    )
    assert missing["errors"] == [404]
