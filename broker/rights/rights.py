"""The rights of requests, as handlers ask for them: decisions, and lines about those that refuse. Pure.

`allows` decides; `permits` decides and has a refusal told. What is only left out of an answer (a
listing, a description) is no refusal, as in Kafka, and is not told.
"""

import copy
from collections.abc import Callable, Mapping

from broker.calls.requester import Requester
from broker.rights.audit import Audit, told
from broker.rights.authorizer import Authorizer
from coordinator.tables.administration.acls import Acls
from protocol.acls import Operation, ResourceType

TellOf = Callable[[str, Requester, Mapping[str, object]], None]
"""Tells of an event: which, who did it, and what there is to say."""


class AuditTrail:
    """Where events go as lines."""

    def __init__(
        self,
        *,
        write: Callable[[str], None],
        now_ms: Callable[[], int],
        boot_ms: Callable[[], int],
    ) -> None:
        """`write`: takes a line; `now_ms`: wall clock, `boot_ms`: one that nobody sets."""
        self._audit = Audit()
        self._write = write
        self._now_ms = now_ms
        self._boot_ms = boot_ms

    def tell(self, event: str, requester: Requester, fields: Mapping[str, object]) -> None:
        """Write what there is to say, unless too much was said of late."""
        who = {"principal": told(requester.principal), "host": requester.host}
        if requester.by_token:
            who["by"] = "delegation token"
        for line in self._audit.lines(
            event, who | dict(fields), time_ms=self._now_ms(), now_ms=self._boot_ms()
        ):
            self._write(line)


class Rights:
    """Of an agent that has an authorizer."""

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        write: Callable[[str], None],
        now_ms: Callable[[], int],
        boot_ms: Callable[[], int],
    ) -> None:
        """`write`: takes a line of the audit; `now_ms`: wall clock, `boot_ms`: one that nobody sets."""
        self.decide_by(authorizer)
        self._tell = AuditTrail(write=write, now_ms=now_ms, boot_ms=boot_ms).tell

    def decide_by(self, authorizer: Authorizer) -> None:
        """From now on."""
        self.authorizer = authorizer
        self.allows = authorizer.allows
        self.allows_some = authorizer.allows_some
        self.operations = authorizer.operations

    def of_super_user(self, principal: str) -> "Rights":
        """Those of somebody who may do everything, by what no ACL says; the audit is the same."""
        rights = copy.copy(self)
        rights.decide_by(Authorizer(Acls(), super_users=(principal,)))
        return rights

    def permits(
        self,
        requester: Requester,
        api: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """As `allows`, of a request of the API of this name; a refusal is told."""
        if self.allows(requester, operation, resource_type, name):
            return True
        self.refused(requester, api, operation, resource_type, name)
        return False

    def refused(
        self,
        requester: Requester,
        api: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """Tell of a refusal."""
        self._tell(
            "refused",
            requester,
            {
                "api": api,
                "operation": operation.name,
                "resource": resource_type.name,
                "name": told(name),
            },
        )

    def changed(self, requester: Requester, api: str, fields: Mapping[str, object]) -> None:
        """Tell of a change by an administrator, whatever became of it."""
        self._tell("change", requester, {"api": api} | dict(fields))
