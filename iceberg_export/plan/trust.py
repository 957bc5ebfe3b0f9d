"""Whose word counts for where the store is, since whoever names an endpoint gets the store's credentials.

An agent on this machine, or behind https, is believed. What answers over plain HTTP from elsewhere
could be anybody: then the store's address and its endpoint have to be set (`store.url`,
`store.endpoint`), and an agent that says another address is refused in any case. Pure.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from iceberg_export.errors import PlanError, SettingsError
from iceberg_export.plan.splits import StoreAddress

_URL = re.compile(r"(https?)://(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9.-]+))(?::\d+)?(?:/[^@]*)?")
"""Without a user's name: what one parser takes for that another may take for the host."""
_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")
"""A region becomes part of a host's name."""


class PinnedStore(NamedTuple):
    """What the settings say of the store; empty: nothing."""

    url: str = ""
    endpoint: str = ""


NOT_PINNED = PinnedStore()


def pinned_store(settings: Mapping[str, str]) -> PinnedStore:
    """Returns what the exporter's settings say of the store."""
    return PinnedStore(settings["store.url"], settings["store.endpoint"])


def is_believed(address: str) -> bool:
    """Tells whether an agent at that URL is one that nobody else can answer for."""
    found = _URL.fullmatch(address)
    if found is None:
        return False
    scheme, *hosts = found.groups()
    host = next(filter(None, hosts)).lower()
    if scheme == "https" or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_store(told: StoreAddress, pinned: PinnedStore, agents: Sequence[str]) -> None:
    """Checks what an agent says of the store, before anything is asked of it.

    Raises SettingsError where only the settings can say it, PlanError where they say another store.
    """
    if told.region is not None and not _REGION.fullmatch(told.region):
        raise PlanError(
            f"the agent says that the store is in region {told.region!r}, which is none"
        )
    if pinned.url and pinned.url.rstrip("/") != told.url.rstrip("/"):
        raise PlanError(
            f"the agent says that its chunks are in {told.url}, store.url says {pinned.url}; set the "
            "one that is right, or agent to another cluster's"
        )
    strangers = [agent for agent in agents if not is_believed(agent)]
    if not strangers:
        return
    missing = [] if pinned.url else [f"store.url={told.url}"]
    if told.endpoint and not pinned.endpoint:
        missing.append(f"store.endpoint={told.endpoint}")
    if missing:
        raise SettingsError(
            f"agent {strangers[0]} says over plain HTTP where its chunks are, which anybody between "
            f"could say to get the store's credentials; set {' and '.join(missing)} if that is "
            "right, or name the agent by https or on this machine"
        )
