"""Who may ask the admin listener for what. Pure.

Health and metrics are for whoever reaches the port: probes and Prometheus ask them. All else says what
is in the cluster or changes it, and is for

* whoever says the token (`Authorization: Bearer …`), where `http.token` is set;
* whoever is on this machine, where it is not and the listener is bound to loopback (`frazil dev`);
* nobody, where it is not and others can reach the listener.

The address that is bound decides, never the peer's: behind a proxy or a sidecar every peer is on this
machine. Left out: web pages and malformed requests, which no HTTP listener lets in.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from broker.config.settings import Settings, token_of

FOR_ALL: Final = frozenset({"/metrics", "/health/live", "/health/ready"})
_PREFIX: Final = "Bearer "

SHUT: Final = (
    "this agent answers health and metrics only, since others can reach its http listener and no"
    " token is set: set http.token or http.token.file, or bind http to 127.0.0.1"
)
UNTOLD: Final = (
    "this needs the agent's token (http.token): send it as 'Authorization: Bearer …'; frazil's"
    " commands take --token-file or FRAZIL_HTTP_TOKEN, the exporter agent.token or agent.token.file"
)


@dataclass(frozen=True, slots=True)
class Access:
    """What the listener asks for."""

    token: str | None = field(repr=False)
    is_local: bool
    """Bound to loopback."""

    @property
    def is_shut(self) -> bool:
        """Nobody is let in but to health and metrics."""
        return self.token is None and not self.is_local

    def objection(self, path: str, authorization: str) -> tuple[int, str] | None:
        """Status and sentence; None: the request may go on."""
        if path in FOR_ALL:
            return None
        if self.token is None:
            return None if self.is_local else (403, SHUT)
        said = authorization.removeprefix(_PREFIX) if authorization.startswith(_PREFIX) else ""
        # As long for a wrong token as for the right one: time would tell it letter by letter.
        if hmac.compare_digest(said.encode(errors="replace"), self.token.encode()):
            return None
        return 401, UNTOLD


def access_of(settings: Settings, read: Callable[[str], str]) -> Access:
    """`read` gives the text of a file. Raises SettingsError, and OSError when there is none."""
    token = token_of(settings, read)
    return Access(token, settings.http is not None and _is_loopback(settings.http.host))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
