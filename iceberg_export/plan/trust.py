"""Whose word counts for where store and schema registry are: whoever names an endpoint gets its credentials.

An agent on this machine, or behind https, is believed. What answers over plain HTTP from elsewhere
could be anybody: then the store's address and its endpoint have to be set (`store.url`,
`store.endpoint`), and an agent that says another address is refused in any case. A schema registry may be on an agent's own host,
whoever says so; it gets credentials there only where nobody else can answer for it. Pure.
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
_HERE = "localhost"
_REGISTRY_SECRETS = (
    "schema.registry.basic.auth.user.info",
    "schema.registry.bearer.auth.token",
    "schema.registry.bearer.auth.token.file",
)


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
    host = _host_of(address)
    return host == _HERE or (host != "" and address.startswith("https://"))


def _host_of(address: str) -> str:
    """Returns the host of a URL, `localhost` for all names of this machine; "" when it is no URL."""
    found = _URL.fullmatch(address)
    if found is None:
        return ""
    host = (found[2] or found[3]).lower()
    try:
        return _HERE if ipaddress.ip_address(host).is_loopback else host
    except ValueError:
        return host


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


def told_registry(settings: Mapping[str, str], agents: Sequence[str], topic: str, told: str) -> str:
    """Returns the URL of the schema registry that an agent tells, for a topic that needs schemas; it
    is asked for only where `schema.registry.url` is not set.

    Raises SettingsError where only that setting can say it, PlanError for what is no URL.
    """
    if not told:
        raise SettingsError(
            f"topic {topic} needs schemas, and no agent tells where a schema registry is: set "
            "schema.registry.url, or the agents' schema.registry.listeners or "
            "schema.registry.advertised.url"
        )
    host = _host_of(told)
    if not host:
        raise PlanError(f"the agent says that its schema registry is at {told!r}, which is no URL")
    is_agents = host in map(_host_of, agents)
    stranger = next((agent for agent in agents if not is_believed(agent)), None)
    # This machine is an agent's host, too, where one runs here; a stranger has no say over its ports.
    if stranger is not None and (not is_agents or host == _HERE):
        raise SettingsError(
            f"agent {stranger} says over plain HTTP that the schema registry is elsewhere, which "
            f"anybody between could say (topic {topic} needs schemas); set schema.registry.url={told} "
            "if that is right, or name the agent by https or on this machine"
        )
    secret = next((name for name in _REGISTRY_SECRETS if settings[name]), None)
    if secret is not None and not (is_agents and is_believed(told)):
        raise SettingsError(
            f"{secret} is sent to no schema registry that only an agent names, but over https or on "
            f"this machine, and on an agent's own host (topic {topic} needs schemas); set "
            f"schema.registry.url={told} if it is to have it"
        )
    return told
