"""Who may ask the admin listener for what. Pure.

Every route needs a role. Health is for whoever reaches the port, since probes ask it; metrics are,
until `http.roles.metrics` names somebody. All else says what is in the cluster or changes it, and is for

* whoever has the role, once it is known who asks: by `http.token`, which is an operator's, or as one of
  the users whom `http.roles.…` names;
* whoever is on this machine, where neither is set and the listener is bound to loopback (`frazil dev`);
* nobody, where neither is set and others can reach the listener.

The address that is bound decides, never the peer's: behind a proxy or a sidecar every peer is on this
machine. Left out: how it is found out who asks (`broker.http.logins`), web pages and malformed
requests, which no HTTP listener lets in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.calls.requester import ANONYMOUS
from broker.config.addresses import is_loopback
from broker.config.settings import Settings

TOKEN_PRINCIPAL: Final = "Token:http.token"  # noqa: S105 - A name.
"""Whoever says http.token; no user has a principal of this type."""


class Role(Enum):
    """What a route needs."""

    ANYBODY = "anybody"
    METRICS = "metrics"
    EXPORTER = "exporter"
    VIEWER = "viewer"
    READER = "reader"
    OPERATOR = "operator"


_ENOUGH: Final = {
    Role.METRICS: (Role.METRICS, Role.OPERATOR),
    Role.EXPORTER: (Role.EXPORTER, Role.OPERATOR),
    Role.VIEWER: (Role.VIEWER, Role.READER, Role.OPERATOR),
    Role.READER: (Role.READER, Role.OPERATOR),
    Role.OPERATOR: (Role.OPERATOR,),
}
"""An operator may do what exporters do, and see what Prometheus, viewers and readers see; a reader sees records, too."""

SHUT: Final = (
    "this agent answers health and metrics only, since others can reach its http listener and nobody"
    " is named who may ask more: set http.token, http.token.file or http.roles.operator, or bind http"
    " to 127.0.0.1"
)
UNTOLD: Final = (
    "this needs the agent's token (http.token), or that of a user of http.roles.{role}: send it as"
    " 'Authorization: Bearer …'; frazil's commands take --token-file or FRAZIL_HTTP_TOKEN, the exporter"
    " agent.token or agent.token.file"
)


@dataclass(frozen=True, slots=True)
class Access:
    """What the listener asks for."""

    holders: Mapping[Role, frozenset[str]]
    """Principals by the role that they were given."""
    is_local: bool
    """Bound to loopback."""

    @property
    def is_shut(self) -> bool:
        """Nobody is let in but to health and metrics."""
        return not self._names_somebody and not self.is_local

    @property
    def _names_somebody(self) -> bool:
        return any(self.holders.values())

    def is_open(self, role: Role) -> bool:
        """Nobody is asked who they are for what needs this role."""
        if role is Role.ANYBODY:
            return True
        if role is Role.METRICS:
            return not self.holders.get(Role.METRICS)
        return not self._names_somebody and self.is_local

    def objection(self, role: Role, principal: str) -> tuple[int, str] | None:
        """Status and sentence; None: the request may go on."""
        if self.is_open(role):
            return None
        if self.is_shut:
            return 403, SHUT
        if any(principal in self.holders.get(each, ()) for each in _ENOUGH[role]):
            return None
        if principal == ANONYMOUS:
            return 401, UNTOLD.format(role=role.value)
        return 403, f"{principal} is not among those of http.roles.{role.value}"


def access_of(settings: Settings) -> Access:
    """What the settings say."""
    operators = settings.http_roles_operator
    if settings.http_token is not None or settings.http_token_file is not None:
        operators |= {TOKEN_PRINCIPAL}
    holders = {
        Role.METRICS: settings.http_roles_metrics,
        Role.EXPORTER: settings.http_roles_exporter,
        Role.VIEWER: settings.http_roles_viewer,
        Role.READER: settings.http_roles_reader,
        Role.OPERATOR: operators,
    }
    return Access(holders, settings.http is not None and is_loopback(settings.http.host))
