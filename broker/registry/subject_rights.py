"""Who may do what to subjects, by the ACLs of topics. Pure.

A subject belongs to the topic that it is named after, `<topic>-key` or `<topic>-value`; any other is
taken for a topic's name itself. So whoever may write a topic may register its schemas, and whoever may
describe it may read them. Where an ACL of a topic is about the very name of the subject, that counts
instead.

A schema by its id may be read by whoever may read a subject that has it. What is about all subjects
needs a right to the cluster. Subjects that may not be described are left out of lists, and refused
alike whether they are there or not. Without an authorizer everybody may do everything.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple

from broker.calls.requester import Requester
from broker.registry.errors import FORBIDDEN, RegistryError
from broker.rights.audit import told
from broker.rights.rights import Rights
from coordinator.tables.administration.acls import Acls
from protocol.acls import CLUSTER_NAME, Operation, ResourceType

SUFFIXES: Final = ("-key", "-value")
"""Of subjects, by Confluent's TopicNameStrategy."""


class Scope(Enum):
    """What a route asks a right for."""

    NOTHING = "nothing"
    SUBJECT = "the subject that its path names"
    CLUSTER = "the cluster"
    LEFT_OUT = "what its answer shows, and leaves out the rest"


class Need(NamedTuple):
    """What it takes to ask for a route."""

    scope: Scope
    operation: Operation = Operation.DESCRIBE


NOTHING: Final = Need(Scope.NOTHING)
LEFT_OUT: Final = Need(Scope.LEFT_OUT)
CHANGES: Final = frozenset({Operation.DELETE, Operation.ALTER_CONFIGS})
"""An administrator's, which the audit tells of."""


def of_subject(operation: Operation) -> Need:
    return Need(Scope.SUBJECT, operation)


def of_cluster(operation: Operation) -> Need:
    return Need(Scope.CLUSTER, operation)


def topic_of(subject: str, acls: Acls) -> str:
    """The topic whose ACLs are a subject's."""
    if not acls.names(ResourceType.TOPIC, subject):
        for suffix in SUFFIXES:
            topic = subject.removesuffix(suffix)
            if topic not in ("", subject):
                return topic
    return subject


class Asker:
    """Who asks, in one request."""

    def __init__(
        self,
        rights: Rights | None,
        acls: Callable[[], Acls],
        requester: Requester,
        api: str,
    ) -> None:
        """`api`: what is asked, for the audit."""
        self.requester = requester
        self._rights = rights
        self._acls = acls
        self._api = api

    def sees(self, subject: str) -> bool:
        """Whether the subject may be described; of a refusal nothing is told."""
        return self._rights is None or self._rights.allows(
            self.requester, Operation.DESCRIBE, ResourceType.TOPIC, topic_of(subject, self._acls())
        )

    def sees_one(self, subjects: Iterable[str]) -> bool:
        """Whether one of these may be described."""
        return self._rights is None or any(self.sees(each) for each in subjects)

    def require(self, need: Need, subject: str) -> None:
        """Raises RegistryError when the right is not there. `subject`: that the path names, or ""."""
        if need.scope is Scope.SUBJECT:
            topic = topic_of(subject, self._acls())
            self._require(need.operation, ResourceType.TOPIC, topic, f"subject {told(subject)}")
        elif need.scope is Scope.CLUSTER:
            self._require(need.operation, ResourceType.CLUSTER, CLUSTER_NAME, "the registry")

    def _require(self, operation: Operation, resource: ResourceType, name: str, what: str) -> None:
        if self._rights is None:
            return
        if not self._rights.permits(self.requester, self._api, operation, resource, name):
            raise self.refusal(operation, what)

    def refuse_schema(self, schema_id: int) -> RegistryError:
        """To be raised: none of the subjects that have a schema may be described."""
        if self._rights is not None:
            name = f"schema {schema_id}"
            self._rights.refused(
                self.requester, self._api, Operation.DESCRIBE, ResourceType.TOPIC, name
            )
        return self.refusal(Operation.DESCRIBE, f"the subjects of schema {schema_id}")

    def refusal(self, operation: Operation, what: str) -> RegistryError:
        """With the code that Confluent's clients know."""
        who = told(self.requester.principal)
        return RegistryError(FORBIDDEN, f"{who} is denied operation {operation.name} on {what}")

    def changed(self, need: Need, subject: str, status: int) -> None:
        """Tell of a change by an administrator, whatever became of it."""
        if self._rights is None or need.operation not in CHANGES:
            return
        is_of_subject = need.scope is Scope.SUBJECT
        fields = {
            "operations": [need.operation.name],
            "resources": ["TOPIC" if is_of_subject else "CLUSTER"],
            "names": [told(subject)] if is_of_subject else [],
            "errors": [] if status < 400 else [status],
        }
        self._rights.changed(self.requester, self._api, fields)
