"""Shares of the registry: one address registers nearly all, and another still gets in."""

import pytest

from broker.calls.shares import Owner
from broker.registry import registry_shares
from broker.registry.errors import RegistryError
from broker.registry.registry_shares import RegistryShares
from coordinator.commands.entries import Rejected
from coordinator.commands.table_commands import RegisterSchema, SchemaKind, SetSubjectRules
from coordinator.tables.schemas import Schemas
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position

GREEDY, OTHER = Owner("10.0.0.1"), Owner("10.0.0.2")


class _Registry:
    def __init__(self) -> None:
        self.table = Schemas()
        self.shares = RegistryShares(self.table)
        self._position = 0

    def ask(self, owner: Owner, command: RegisterSchema | SetSubjectRules) -> bool:
        """Whether the command was let through; apply then carries it out."""
        try:
            wanted = self.shares.require(owner, command)
        except RegistryError:
            return False
        self._position += 1
        self.shares.begin(wanted)
        outcome = self.table.apply(command, Position(self._position))
        self.shares.settle(wanted, outcome)
        return True


def _schema(subject: str, number: int, body: bytes = b"body") -> RegisterSchema:
    fingerprint = number.to_bytes(32)
    return RegisterSchema(subject, SchemaKind.AVRO, body, fingerprint, (), POSITION_ZERO)


def test_versions_are_shared(monkeypatch) -> None:
    monkeypatch.setattr(registry_shares, "SCHEMAS_MAX", 20)
    registry = _Registry()
    told = [registry.ask(GREEDY, _schema("s", number)) for number in range(20)]
    assert told == [True] * 18 + [False] * 2
    assert registry.ask(OTHER, _schema("other", 100))


def test_bytes_of_schemas_are_shared(monkeypatch) -> None:
    monkeypatch.setattr(registry_shares, "SCHEMA_BODIES_MAX", 100)
    registry = _Registry()
    assert registry.ask(GREEDY, _schema("s", 1, b"x" * 90))
    assert not registry.ask(GREEDY, _schema("s", 2))
    assert registry.ask(GREEDY, _schema("another", 1, b"x" * 90))
    assert registry.ask(OTHER, _schema("s", 3))


def test_subjects_that_have_only_rules_are_shared(monkeypatch) -> None:
    monkeypatch.setattr(registry_shares, "SCHEMAS_MAX", 20)
    registry = _Registry()
    told = [registry.ask(GREEDY, SetSubjectRules(f"s{at}", "NONE", None)) for at in range(20)]
    assert told == [True] * 18 + [False] * 2
    assert registry.ask(GREEDY, SetSubjectRules("s0", "FULL", None))
    assert registry.ask(OTHER, SetSubjectRules("other", "NONE", None))


@pytest.mark.promise("P15")
def test_what_is_on_its_way_counts_though_nothing_of_it_is_there_yet(monkeypatch) -> None:
    monkeypatch.setattr(registry_shares, "SCHEMAS_MAX", 20)
    registry = _Registry()
    for number in range(18):
        registry.shares.begin(registry.shares.require(GREEDY, _schema("s", number)))
    with pytest.raises(RegistryError):
        registry.shares.require(GREEDY, _schema("s", 18))
    assert registry.ask(OTHER, _schema("other", 100))


@pytest.mark.parametrize(
    "outcome", [None, Rejected(ErrorCode.INVALID_UPDATE_VERSION)], ids=["lost", "refused"]
)
def test_what_did_not_happen_is_given_back(outcome, monkeypatch) -> None:
    monkeypatch.setattr(registry_shares, "SCHEMAS_MAX", 20)
    registry = _Registry()
    for number in range(100):
        command = _schema(f"s{number}", number, b"x" * 1_000)
        wanted = registry.shares.require(GREEDY, command)
        registry.shares.begin(wanted)
        registry.shares.settle(wanted, outcome)
    shares = registry.shares
    for ledger in (shares._subjects, shares._versions, shares._bytes):
        assert ledger.held_by(GREEDY) == 0
        assert len(ledger._holdings) == 0
