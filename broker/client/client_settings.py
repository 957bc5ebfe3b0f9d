"""Kafka's settings of clients, as `--command-config` of the tools takes them. Pure.

A file has what Kafka's own tools take: `security.protocol`, `ssl.*`, `sasl.*`, `bootstrap.servers`; and what
Confluent's clients take about a schema registry (`broker.client.registry_settings`). What has a meaning here
is taken; all other names are told once, in one sentence; a value that cannot be used is a mistake. No
sentence repeats a secret.

Left out: reading files (`broker.cli.arguments` does), certificates (`broker.client.client_tls`), and
tokens (`broker.client.bearer_tokens`).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.client import registry_settings, tls_settings, token_settings
from broker.client.registry_settings import RegistrySettings, registry_settings_of
from broker.client.tls_settings import ClientTls, tls_of
from broker.client.token_settings import BearerLogin
from broker.config import values
from broker.config.listeners import SecurityProtocol
from broker.sasl.bearer_messages import OAUTHBEARER
from broker.sasl.client import (
    JAAS_CONFIG,
    MECHANISM,
    PROTOCOL,
    Login,
    login_of,
    needs_login,
)

BOOTSTRAP: Final = "bootstrap.servers"
TAKEN: Final = (
    *(BOOTSTRAP, PROTOCOL, MECHANISM, JAAS_CONFIG),
    *tls_settings.TAKEN,
    *token_settings.TAKEN,
    *registry_settings.TAKEN,
)

_PROVIDER: Final = re.compile(r"\$\{[A-Za-z0-9_.-]+:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How a tool reaches a cluster."""

    bootstrap: str | None = None
    """`bootstrap.servers` as written."""
    tls: ClientTls | None = None
    """None: without TLS."""
    login: Login | BearerLogin | None = None
    """None: without SASL."""
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    warnings: tuple[str, ...] = ()


def client_settings_of(given: Mapping[str, str]) -> ClientSettings:
    """What a file of a client's settings says. Raises ValueError with a sentence for each mistake,
    one a line."""
    mistakes = [
        f"{name}: providers of configs are not served"
        for name, text in given.items()
        if name in TAKEN and _PROVIDER.match(text)
    ]
    login, tls = None, None
    try:
        login = _login(given)
    except ValueError as error:
        mistakes.append(str(error))
    word = given.get(PROTOCOL, "PLAINTEXT").strip().upper()
    if word in SecurityProtocol.__members__ and SecurityProtocol[word].has_tls:
        tls = tls_of(given, mistakes)
    registry = registry_settings_of(given, login, mistakes)
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return ClientSettings(
        bootstrap=given.get(BOOTSTRAP) or None,
        tls=tls,
        login=login,
        registry=registry,
        warnings=tuple(_strangers(name for name in given if name not in TAKEN)),
    )


def _strangers(names: Iterable[str]) -> list[str]:
    """One sentence about all names that mean nothing here; none if there are none."""
    told = [f"{name}{values.did_you_mean(name, TAKEN)}" for name in sorted(names)]
    return [f"settings that have no effect: {', '.join(told)}"] if told else []


def _login(given: Mapping[str, str]) -> Login | BearerLogin | None:
    """Raises ValueError with a sentence for each mistake, one a line."""
    if given.get(MECHANISM, "").strip().upper() != OAUTHBEARER:
        return login_of(given)
    return token_settings.bearer_login_of(given) if needs_login(given) else None
