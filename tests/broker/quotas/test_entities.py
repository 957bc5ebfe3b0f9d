"""Which quota holds for a client: Kafka's eight precedences, and with whom it is shared."""

import pytest

from broker.quotas.entities import Holder, address_quota, quota_of, told_name
from coordinator.commands.config_commands import (
    AlterClientQuotas,
    EntityPart,
    EntityType,
    Quota,
    QuotaChange,
)
from coordinator.commands.entries import DONE
from coordinator.tables.administration.client_quotas import ClientQuotas
from protocol.types import Position

RATE = Quota.PRODUCER_BYTE_RATE
NO, DEFAULT = object(), None


def entity(user=NO, client_id=NO):
    parts = ((EntityType.USER, user), (EntityType.CLIENT_ID, client_id))
    return tuple(EntityPart(kind, name) for kind, name in parts if name is not NO)


BY_PRECEDENCE = [
    (entity("alice", "app"), Holder("alice", "app")),
    (entity("alice", DEFAULT), Holder("alice", "app")),
    (entity("alice"), Holder("alice", "")),
    (entity(DEFAULT, "app"), Holder("alice", "app")),
    (entity(DEFAULT, DEFAULT), Holder("alice", "app")),
    (entity(DEFAULT), Holder("alice", "")),
    (entity(client_id="app"), Holder("", "app")),
    (entity(client_id=DEFAULT), Holder("", "app")),
]
"""The most specific one first, and who uses it up together when it holds."""


def table(*rows, quota=RATE):
    quotas = ClientQuotas()
    changes = tuple(QuotaChange(each, quota, float(limit)) for each, limit in rows)
    assert quotas.apply(AlterClientQuotas(changes), Position(1)) == DONE
    return quotas


@pytest.mark.parametrize("first", range(len(BY_PRECEDENCE)))
def test_of_all_entities_of_a_client_the_most_specific_one_with_the_quota_holds(first):
    rows = [(each, 100 + index) for index, (each, _) in enumerate(BY_PRECEDENCE)]
    found = quota_of(table(*rows[first:]), RATE, user="alice", client_id="app")
    assert (found.limit, found.entity, found.holder) == (100 + first, *BY_PRECEDENCE[first])


@pytest.mark.parametrize(
    "other",
    [entity("bob"), entity("bob", "app"), entity("alice", "tool"), entity(client_id="tool")],
)
def test_quotas_of_others_hold_for_nobody_else(other):
    assert quota_of(table((other, 1)), RATE, user="alice", client_id="app") is None


def test_each_kind_of_quota_is_looked_up_by_itself():
    quotas = table((entity("alice", "app"), 1), quota=Quota.CONSUMER_BYTE_RATE)
    change = QuotaChange(entity(DEFAULT), RATE, 7.0)
    quotas.apply(AlterClientQuotas((change,)), Position(2))
    assert quota_of(quotas, RATE, user="alice", client_id="app").limit == 7


def test_an_address_has_its_own_rate_or_the_default_counted_for_itself():
    kind = Quota.CONNECTION_CREATION_RATE
    one, rest = (EntityPart(EntityType.IP, "10.0.0.1"),), (EntityPart(EntityType.IP, None),)
    quotas = table((one, 5), (rest, 2), quota=kind)
    assert address_quota(quotas, "10.0.0.1").limit == 5
    found = address_quota(quotas, "10.0.0.2")
    assert (found.limit, found.holder) == (2, Holder("10.0.0.2", ""))
    assert address_quota(table((one, 5), quota=kind), "10.0.0.2") is None


def test_a_client_id_is_known_by_as_much_as_an_entitys_name_may_have():
    assert told_name(None) == ""
    assert told_name("a" * 30_000) == "a" * 1_024
