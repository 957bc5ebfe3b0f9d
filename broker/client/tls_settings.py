"""A client's `ssl.*`: towards a cluster, and towards who issues its tokens. Pure.

Left out: the files that they name, and OpenSSL (`broker.client.client_tls`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.config.config_row import ConfigRow, Kind, value_of
from broker.config.listener_table import LISTENER_TABLE
from broker.config.listeners import StoreSettings, store_contradictions

NAMES_CHECK: Final = "ssl.endpoint.identification.algorithm"
SUITES: Final = "ssl.cipher.suites"

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
_OF_LISTENERS: Final = (*_STORES, "ssl.enabled.protocols", SUITES)
"""They mean for a client what they mean for a listener."""
TAKEN: Final = (NAMES_CHECK, *_OF_LISTENERS)


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


def tls_of(given: Mapping[str, str], mistakes: list[str]) -> ClientTls | None:
    """What the settings say; None where that is a mistake, of which a sentence is added."""
    before = len(mistakes)
    for name in _OF_LISTENERS:
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
