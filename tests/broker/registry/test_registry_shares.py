"""Shares of the registry: one address registers nearly all, and another still gets in."""

from broker.calls.shares import Owner
from broker.registry import registry_shares
from broker.registry.errors import RegistryError
from broker.registry.registry_shares import RegistryShares
from coordinator.commands.table_commands import RegisterSchema, SchemaKind, SetSubjectRules
from coordinator.tables.schemas import Schemas
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
            newness = self.shares.require(owner, command)
        except RegistryError:
            return False
        self._position += 1
        outcome = self.table.apply(command, Position(self._position))
        self.shares.note(owner, command, outcome, newness)
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
