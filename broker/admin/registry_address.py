"""Where an exporter finds the embedded schema registry: a URL made for whoever asks. Pure.

What holds: nobody is told an address that only this machine reaches but who asks from it, and no
address is one that the caller sent, but for the name by which it calls this agent.

Left out: whose requests are answered (`broker.admin.access`), and which of them tell it
(`broker.admin.listener`).
"""

import re
from typing import Final, NamedTuple

from broker.config.addresses import WILDCARD_HOSTS, Address, is_loopback

_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::[0-9]{0,5})?")


class Caller(NamedTuple):
    """A request's way to the agent."""

    host: str
    """By the Host header, without a port; "" when it has none."""
    remote: str
    """Address that it comes from."""
    local: str
    """Address of this machine that it came to."""


def host_of(header: str) -> str:
    """Returns the name or the address in a Host header, without brackets; "" when there is none."""
    found = _HOST.fullmatch(header.strip().lower())
    return "" if found is None else found[1] or found[2]


def registry_url(listener: Address, caller: Caller) -> str | None:
    """Returns the URL of the registry's listener, whose port is bound; None: that caller has none."""
    if is_loopback(listener.host):
        if not is_loopback(caller.remote):
            return None
        host = listener.host
    elif listener.host in WILDCARD_HOSTS or listener.host == caller.local:
        host = caller.host or caller.local
    else:
        host = listener.host
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if listener.secure else 'http'}://{shown}:{listener.port}"
