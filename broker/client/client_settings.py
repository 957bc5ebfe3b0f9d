"""Kafka's settings of clients, as `--command-config` of the tools takes them. Pure.

A file has what Kafka's own tools take: `security.protocol`, `ssl.*`, `sasl.*`, `bootstrap.servers`. What
has a meaning here is taken; all other names are told once, in one sentence; a value that cannot be used
is a mistake. No sentence repeats a secret.

Left out: reading files (`broker.cli.arguments` does), and certificates (`broker.client.client_tls`).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.config import values
from broker.config.config_row import ConfigRow, Kind, value_of
from broker.config.listener_table import LISTENER_TABLE
from broker.config.listeners import SecurityProtocol, StoreSettings, store_contradictions
from broker.sasl.client import MECHANISM, PROTOCOL, Login, login_of

BOOTSTRAP: Final = "bootstrap.servers"
NAMES_CHECK: Final = "ssl.endpoint.identification.algorithm"
SUITES: Final = "ssl.cipher.suites"
JAAS_CONFIG: Final = "sasl.jaas.config"

_STORES: Final = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
_OF_TLS: Final = (*_STORES, "ssl.enabled.protocols", SUITES)
"""They mean for a client what they mean for a listener."""
TAKEN: Final = (BOOTSTRAP, PROTOCOL, MECHANISM, JAAS_CONFIG, NAMES_CHECK, *_OF_TLS)

_PROVIDER: Final = re.compile(r"\$\{[A-Za-z0-9_.-]+:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """A client's `ssl.*`, as they were written."""

    keystore: StoreSettings
    """What the client shows, if it is `given`."""
    truststore: StoreSettings
    """Whom it trusts; whomever the system trusts, if it is not `given`."""
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    checks_names: bool
    """Whether the certificate must be for the host that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How a tool reaches a cluster."""

    bootstrap: str | None = None
    """`bootstrap.servers` as written."""
    tls: ClientTls | None = None
    """None: without TLS."""
    login: Login | None = None
    """None: without SASL."""
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
        login = login_of(given)
    except ValueError as error:
        mistakes.append(str(error))
    word = given.get(PROTOCOL, "PLAINTEXT").strip().upper()
    if word in SecurityProtocol.__members__ and SecurityProtocol[word].has_tls:
        tls = _tls(given, mistakes)
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return ClientSettings(
        bootstrap=given.get(BOOTSTRAP) or None,
        tls=tls,
        login=login,
        warnings=tuple(_strangers(name for name in given if name not in TAKEN)),
    )


def _strangers(names: Iterable[str]) -> list[str]:
    """One sentence about all names that mean nothing here; none if there are none."""
    told = [f"{name}{values.did_you_mean(name, TAKEN)}" for name in sorted(names)]
    return [f"settings that have no effect: {', '.join(told)}"] if told else []


def _tls(given: Mapping[str, str], mistakes: list[str]) -> ClientTls | None:
    before = len(mistakes)
    for name in _OF_TLS:
        _check(LISTENER_TABLE[name], given, mistakes)
    keystore, truststore = _store("keystore", given), _store("truststore", given)
    mistakes += store_contradictions(keystore, truststore)
    algorithm = given.get(NAMES_CHECK, "https").strip().lower()
    if algorithm not in ("", "https"):
        mistakes.append(f'{NAMES_CHECK}: "{algorithm}" is neither https nor empty')
    protocols = _items("ssl.enabled.protocols", given)
    if not protocols:
        mistakes.append("ssl.enabled.protocols is empty")
    if len(mistakes) > before:
        return None
    return ClientTls(
        keystore=keystore,
        truststore=truststore,
        protocols=protocols,
        cipher_suites=_items(SUITES, given),
        checks_names=algorithm == "https",
    )


def _check(row: ConfigRow, given: Mapping[str, str], mistakes: list[str]) -> None:
    """A setting alone."""
    if row.name not in given:
        return
    try:
        value_of(row, given[row.name])
    except ValueError as error:
        secret = row.kind is Kind.PASSWORD
        mistakes.append(f"{row.name}: {'the value is not usable' if secret else error}")


def _store(which: str, given: Mapping[str, str]) -> StoreSettings:
    """`which`: keystore or truststore."""

    def filled(name: str) -> str | None:
        return given.get(f"ssl.{which}.{name}") or None

    shows = which == "keystore"
    return StoreSettings(
        type=(filled("type") or LISTENER_TABLE[f"ssl.{which}.type"].default_text).upper(),
        location=filled("location"),
        password=filled("password"),
        certificates=filled("certificate.chain" if shows else "certificates"),
        key=filled("key") if shows else None,
        key_password=(given.get("ssl.key.password") or None) if shows else None,
    )


def _items(name: str, given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get(name, LISTENER_TABLE[name].default or "")
    return tuple(item.strip() for item in text.split(",") if item.strip())
