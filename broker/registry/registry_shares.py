"""Shares of what the registry keeps, by client address: subjects, versions, bytes of schemas. Pure.

apply bounds them (`coordinator.tables.schemas`); here who asks for more than his share is refused
before (`broker.calls.shares`).
"""

from collections.abc import Hashable
from typing import NamedTuple, TypeVar

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
ThingT = TypeVar("ThingT", bound=Hashable)


class Newness(NamedTuple):
    """What a command brings that the registry does not have: what was there stays who made it's."""

    subject: bool
    body: bool


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

    def require(self, owner: Owner, command: RegistryCommand) -> Newness:
        """What the command brings that is new. Raises RegistryError when the owner has no share
        left for it."""
        if isinstance(command, DeleteSubject):
            return Newness(subject=False, body=False)
        subject = not self._table.has_subject(command.subject)
        body = False
        if subject:
            _require(self._subjects, owner, 1)
        if isinstance(command, RegisterSchema):
            _require(self._versions, owner, 1)
            body = self._table.by_fingerprint(command.fingerprint) is None
            if body:
                _require(self._bytes, owner, len(command.body))
        return Newness(subject=subject, body=body)

    def note(
        self, owner: Owner, command: RegistryCommand, outcome: Outcome, newness: Newness
    ) -> None:
        """What has become of it."""
        if newness.subject and not isinstance(outcome, Rejected):
            self._subjects.note(owner, command.subject)
        if isinstance(outcome, SchemaRegistered):
            self._versions.note(owner, (command.subject, outcome.version))
            if newness.body:
                self._bytes.note(owner, outcome.schema_id)

    def _bytes_of(self, schema_id: int) -> int:
        row = self._table.by_id(schema_id)
        return 0 if row is None else len(row.body)


def _require(ledger: Ledger[ThingT], owner: Owner, wanted: int) -> None:
    if not ledger.admits(owner, wanted):
        raise RegistryError(NOT_PERMITTED, ledger.refusal(owner))
