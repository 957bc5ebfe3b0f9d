"""Shares of what the registry keeps, by client address: subjects, versions, bytes of schemas. Pure.

apply bounds them (`coordinator.tables.schemas`); here who asks for more than his share is refused
before (`broker.calls.shares`). What is on its way into the log counts as taken: clients ask on many
connections at once.
"""

from typing import Any, NamedTuple

from broker.calls.shares import Ledger, Owner
from broker.registry.errors import NOT_PERMITTED, RegistryError
from coordinator.commands.entries import Outcome, Rejected
from coordinator.commands.table_commands import (
    SCHEMA_BODIES_MAX,
    SCHEMAS_MAX,
    DeleteSubject,
    RegisterSchema,
    SchemaRegistered,
    SetSubjectRules,
)
from coordinator.tables.schemas import Schemas

RegistryCommand = RegisterSchema | DeleteSubject | SetSubjectRules


class Growth(NamedTuple):
    """By how much a command makes the registry grow: what was there stays who made
    it's."""

    owner: Owner
    command: RegistryCommand
    subjects: int = 0
    versions: int = 0
    byte_count: int = 0


class RegistryShares:
    """What each address has registered through this agent."""

    def __init__(self, table: Schemas) -> None:
        self._table = table
        self._subjects: Ledger[str] = Ledger(
            SCHEMAS_MAX,
            "subjects",
            size_of=table.has_subject,
            used=lambda: table.subject_count,
        )
        self._versions: Ledger[tuple[str, int]] = Ledger(
            SCHEMAS_MAX,
            "versions of schemas",
            size_of=lambda version: table.version(*version, deleted=True) is not None,
            used=lambda: table.version_count,
        )
        self._bytes: Ledger[int] = Ledger(
            SCHEMA_BODIES_MAX,
            "bytes of schemas",
            size_of=self._bytes_of,
            used=lambda: table.body_bytes,
        )

    def require(self, owner: Owner, command: RegistryCommand) -> Growth:
        """What the command brings. Raises RegistryError when the owner has no share left for it."""
        growth = self._growth(owner, command)
        for ledger, size in self._sizes(growth):
            if not ledger.admits(owner, size):
                raise RegistryError(NOT_PERMITTED, ledger.refusal(owner))
        return growth

    def begin(self, growth: Growth) -> None:
        """It is proposed, and counts until it is settled."""
        for ledger, size in self._sizes(growth):
            ledger.begin(growth.owner, size)

    def settle(self, growth: Growth, outcome: Outcome | None) -> None:
        """What has become of it; None: nothing."""
        owner, command = growth.owner, growth.command
        schema_id = version = 0
        if isinstance(outcome, SchemaRegistered):
            schema_id, version = outcome.schema_id, outcome.version
        made = schema_id != 0
        if growth.subjects:
            exists = outcome is not None and not isinstance(outcome, Rejected)
            self._subjects.settle(owner, command.subject, growth.subjects, made=exists)
        if growth.versions:
            this = (command.subject, version)
            self._versions.settle(owner, this, growth.versions, made=made)
        if growth.byte_count:
            self._bytes.settle(owner, schema_id, growth.byte_count, made=made)

    def _growth(self, owner: Owner, command: RegistryCommand) -> Growth:
        growth = Growth(owner, command)
        if isinstance(command, DeleteSubject):
            return growth
        if not self._table.has_subject(command.subject):
            growth = growth._replace(subjects=1)
        if isinstance(command, RegisterSchema):
            is_new = self._table.by_fingerprint(command.fingerprint) is None
            byte_count = len(command.body) if is_new else 0
            growth = growth._replace(versions=1, byte_count=byte_count)
        return growth

    def _sizes(self, growth: Growth) -> list[tuple[Ledger[Any], int]]:
        """What of each ledger it takes, where it is something."""
        sizes: list[tuple[Ledger[Any], int]] = [
            (self._subjects, growth.subjects),
            (self._versions, growth.versions),
            (self._bytes, growth.byte_count),
        ]
        return [(ledger, size) for ledger, size in sizes if size]

    def _bytes_of(self, schema_id: int) -> int:
        row = self._table.by_id(schema_id)
        return 0 if row is None else len(row.body)
