"""The Kafka listeners of an agent: names, addresses, protocols, and what TLS and SASL need to know. Pure.

Kafka's `listeners`, `advertised.listeners`, `listener.security.protocol.map`, `ssl.*` and `sasl.*` are
taken to the letter, also below `listener.name.<name>.` and `listener.name.<name>.<mechanism>.`; the
narrower name wins. Frazil's own `listen` and `advertise` mean PLAINTEXT, and do not go together with
Kafka's.

Frazil's own `frazil.nodes.per.agent` may be of one listener, too: `broker.cluster.nodes` says what it is for.

Left out: reading certificates (`broker.edge.tls`), and what the settings of a SASL mechanism mean.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from broker.config import values
from broker.config.addresses import NamedAddress, is_loopback
from broker.config.config_row import ConfigRow, Kind, Stance, value_of
from broker.config.listener_table import LISTENER_TABLE, MECHANISM_PREFIXES
from broker.config.sources import Given

LISTENERS_DEFAULT: Final = "PLAINTEXT://:9092"
MECHANISM_DEFAULT: Final = "GSSAPI"
"""Kafka's; Kerberos is not served, so it counts as none."""
HTTP_LISTENERS: Final = {"http": "http", "registry": "schema.registry.listeners"}
"""The HTTP listeners by the names below which Kafka's settings of TLS and of users are theirs, and
the setting that opens each."""
NODES_SETTING: Final = "frazil.nodes.per.agent"
NODES_DEFAULT: Final = "8"
NODES_MAX: Final = 64
"""Each is a connection and a thread of a client; and ids have room for no more than 2000."""
_PREFIX: Final = "listener.name."
_NODES: Final = re.compile(rf"listener\.name\.(?P<name>.+)\.{re.escape(NODES_SETTING)}")
_ENDPOINT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]*):(?P<port>[0-9]{1,5})"
)


class SecurityProtocol(Enum):
    """What is spoken on a listener before Kafka is (Kafka's SecurityProtocol)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ClientAuth(Enum):
    """`ssl.client.auth`: whether clients show a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where a key and its certificates are, or trusted certificates: a file, or the text itself."""

    type: str
    """PEM, PKCS12 or JKS."""
    location: str | None
    password: str | None = field(repr=False)
    certificates: str | None = field(repr=False)
    """PEM, instead of a file."""
    key: str | None = field(default=None, repr=False)
    """PEM (PKCS#8), beside `certificates`."""
    key_password: str | None = field(default=None, repr=False)

    @property
    def given(self) -> bool:
        return self.location is not None or self.certificates is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """A listener's `ssl.*`, as they were written."""

    keystore: StoreSettings
    truststore: StoreSettings
    client_auth: ClientAuth
    protocols: tuple[str, ...]
    """Of TLSv1.2 and TLSv1.3."""
    cipher_suites: tuple[str, ...]
    """By their names in the standard; () are the library's."""
    principal_rules: str
    """`ssl.principal.mapping.rules`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """One listener."""

    name: str
    """In capitals, as clients are told of it in the log."""
    host: str
    """"" is every address."""
    port: int
    protocol: SecurityProtocol
    advertised: NamedAddress | None
    """What clients are told instead of host and port."""
    tls: TlsSettings | None
    """None without TLS."""
    mechanisms: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """By enabled SASL mechanism (`SCRAM-SHA-256`), its settings that were given, by their names
    without prefixes (`sasl.jaas.config`, `connections.max.reauth.ms`, …); {} without SASL."""

    @property
    def authenticates(self) -> bool:
        """Whether nobody comes in without saying who it is."""
        if self.protocol.has_sasl:
            return True
        return self.tls is not None and self.tls.client_auth is ClientAuth.REQUIRED


class HttpListenerSettings(NamedTuple):
    """Who an HTTP listener lets in, as Kafka's settings below `listener.name.<its name>.` say it."""

    secured: ListenerSettings | None
    """What TLS needs to know; None without TLS."""
    mechanisms: Mapping[str, Mapping[str, str]]
    """By which users are held against their passwords; {}: there are none."""

    @property
    def asks(self) -> bool:
        """Whether there is a way to say who one is."""
        tls = None if self.secured is None else self.secured.tls
        return bool(self.mechanisms) or (tls is not None and tls.client_auth is not ClientAuth.NONE)


class ParsedListeners(NamedTuple):
    listeners: tuple[ListenerSettings, ...]
    mistakes: list[str]
    warnings: list[str]


def names_listeners(given: Mapping[str, str]) -> bool:
    """Whether Kafka's settings say which listeners there are."""
    return "listeners" in given or "advertised.listeners" in given


def listeners_of(
    given: Mapping[str, str],
    *,
    listen: Sequence[NamedAddress] = (),
    advertise: Sequence[NamedAddress] = (),
) -> ParsedListeners:
    """The listeners that settings ask for.

    `given`: Kafka's settings by name, as text. `listen` and `advertise` count when Kafka's name no
    listeners. With mistakes, what is wrong is left out of `listeners`.
    """
    if not names_listeners(given):
        told = {address.name: address for address in advertise}
        plain = tuple(_plaintext(address, told.get(address.name)) for address in listen)
        return ParsedListeners(plain, [], _strange_names(given, [each.name for each in plain]))
    mistakes: list[str] = []
    warnings: list[str] = []
    own = _endpoints("listeners", given.get("listeners", LISTENERS_DEFAULT), mistakes)
    told = _endpoints("advertised.listeners", given.get("advertised.listeners", ""), mistakes)
    protocols = _protocols(given, mistakes)
    controllers = [name.upper() for name in _items(given.get("controller.listener.names", ""))]
    for name in controllers:
        if own.pop(name, None) is not None:
            warnings.append(f"listeners: {name} is not opened: there are no controllers here")
        told.pop(name, None)
    _check_advertised(own, told, mistakes)
    if not own and not mistakes:
        mistakes.append("listeners: there is none for clients (example: PLAINTEXT://:9092)")
    listeners = []
    for name, address in own.items():
        protocol = protocols.get(name)
        if protocol is None:
            mistakes.append(f"No security protocol defined for listener {name}")
            continue
        of_name = _OfListener(given, name)
        # Beside SASL, which says who a client is, Kafka asks for certificates only if told so there.
        auth_of_its_own = protocol.has_sasl
        tls = _tls(of_name, mistakes, auth_of_its_own=auth_of_its_own) if protocol.has_tls else None
        mechanisms = _mechanisms(of_name, mistakes, warnings) if protocol.has_sasl else {}
        listeners.append(
            ListenerSettings(
                name=name,
                host=address.host,
                port=address.port or 0,
                protocol=protocol,
                advertised=told.get(name),
                tls=tls,
                mechanisms=mechanisms,
            )
        )
    warnings += _strange_names(given, [*own, *controllers])
    return ParsedListeners(tuple(listeners), mistakes, warnings)


def http_listener(
    given: Mapping[str, str], name: str, *, secure: bool
) -> tuple[HttpListenerSettings, list[str]]:
    """An HTTP listener's share of Kafka's settings, and the mistakes in them.

    The certificate may be that of all listeners (`ssl.keystore.location`). What asks clients who they
    are counts only below the listener's own name: probes and Prometheus show no certificates.
    """
    mistakes: list[str] = []
    of_name = _OfListener(given, name)
    secured = None
    if secure:
        secured = ListenerSettings(
            name=name.upper(),
            host="",
            port=0,
            protocol=SecurityProtocol.SSL,
            advertised=None,
            tls=_tls(of_name, mistakes, auth_of_its_own=True),
        )
    enabled = [each.upper() for each in _items(of_name.own("sasl.enabled.mechanisms") or "")]
    mechanisms = {each: of_name.of_mechanism(each) for each in enabled}
    return HttpListenerSettings(secured, mechanisms), mistakes


def exposures(listeners: Sequence[ListenerSettings]) -> list[str]:
    """A sentence for each listener on which anybody on the network may do anything."""
    return [
        f"listener {each.name} ({each.protocol.value}) takes clients from the network without asking"
        " who they are: whoever reaches it may read, write and delete everything"
        for each in listeners
        if not each.authenticates and not is_loopback(each.host)
    ]


def row_of_listener(name: str, table: Mapping[str, ConfigRow]) -> ConfigRow | None:
    """The row of a name below `listener.name.`; None when it is not one.

    `table` has all settings of a broker by name.
    """
    rest = name.removeprefix(_PREFIX)
    if rest == name or "." not in rest:
        return None
    _, _, setting = rest.partition(".")
    for base in (setting, setting.partition(".")[2]):
        row = table.get(base)
        if row is not None and (base in LISTENER_TABLE or base.startswith(MECHANISM_PREFIXES)):
            return row._replace(name=name)
        if row is not None:
            reason = "single listeners have settings of TLS and SASL alone"
            return ConfigRow(name, row.kind, None, stance=Stance.NOT_YET, reason=reason)
    reason = "it is no setting of a listener"
    return ConfigRow(name, Kind.STRING, None, stance=Stance.NOTHING, reason=reason)


def node_count(text: str) -> int:
    """As how many nodes an agent is shown. Raises ValueError with the end of a sentence."""
    return values.whole_number(text, minimum=1, maximum=NODES_MAX)


def take_node_counts(given: dict[str, Given], mistakes: list[str]) -> dict[str, int]:
    """Those of single listeners, by the name of the listener; they are in `given` no more."""
    found = {}
    for name, item in list(given.items()):
        match = _NODES.fullmatch(name)
        if match is None:
            continue
        del given[name]
        try:
            found[match["name"].upper()] = node_count(item.text)
        except ValueError as error:
            mistakes.append(f"{name} (from {item.origin}): {error}")
    return found


def nobodys_node_counts(counts: Mapping[str, int], names: Sequence[str]) -> list[str]:
    """A mistake for each count of a listener that there is not."""
    return [
        f"{_PREFIX}{name.lower()}.{NODES_SETTING}: no listener is called {name};"
        f" there is {', '.join(names)}"
        for name in counts
        if names and name not in names
    ]


class _OfListener:
    """Settings as one listener sees them."""

    def __init__(self, given: Mapping[str, str], name: str) -> None:
        self.name = name
        self._given = given
        self._prefix = f"{_PREFIX}{name.lower()}."

    def text(self, name: str) -> str | None:
        """As it was given for the listener, else for all, else Kafka's default, else None."""
        for spelled in (self._prefix + name, name):
            if spelled in self._given:
                return self._given[spelled]
        row = LISTENER_TABLE.get(name)
        return None if row is None else row.default

    def own(self, name: str) -> str | None:
        """As it was given for the listener alone."""
        return self._given.get(self._prefix + name)

    def filled(self, name: str) -> str | None:
        """None also when it is empty."""
        return self.text(name) or None

    def items(self, name: str) -> tuple[str, ...]:
        return _items(self.text(name) or "")

    def of_mechanism(self, mechanism: str) -> dict[str, str]:
        """What was given of `sasl.*` and its like, the narrowest name first."""
        narrow = f"{self._prefix}{mechanism.lower()}."
        found: dict[str, str] = {}
        for prefix in ("", self._prefix, narrow):
            for name, text in self._given.items():
                setting = name.removeprefix(prefix)
                if not (name.startswith(prefix) and setting.startswith(MECHANISM_PREFIXES)):
                    continue
                # As in Kafka, which ignores a jaas.config that names no mechanism.
                if setting != "sasl.jaas.config" or prefix == narrow:
                    found[setting] = text
        return found


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _plaintext(address: NamedAddress, advertised: NamedAddress | None) -> ListenerSettings:
    return ListenerSettings(
        name=address.name,
        host=address.host,
        port=address.port or 0,
        protocol=SecurityProtocol.PLAINTEXT,
        advertised=advertised,
        tls=None,
    )


def _endpoints(setting: str, text: str, mistakes: list[str]) -> dict[str, NamedAddress]:
    """Addresses by name, in their order."""
    found: dict[str, NamedAddress] = {}
    for item in _items(text):
        match = _ENDPOINT.fullmatch(item)
        if match is None or int(match["port"]) > 65535:
            mistakes.append(f'{setting}: "{item}" is not NAME://host:port (example: SSL://:9093)')
            continue
        name = match["name"].upper()
        if name in found:
            mistakes.append(f"{setting}: two listeners are called {name}")
            continue
        found[name] = NamedAddress(name, match["host"].strip("[]"), int(match["port"]))
    if setting == "listeners":
        ports = [address.port for address in found.values() if address.port]
        hosts = {(address.host, address.port) for address in found.values() if address.port}
        if len(set(ports)) != len(ports) and len(hosts) != len(ports):
            mistakes.append("listeners: each must have a port of its own")
    return found


def _check_advertised(
    own: Mapping[str, NamedAddress], told: Mapping[str, NamedAddress], mistakes: list[str]
) -> None:
    for name, address in told.items():
        if name not in own:
            there = ", ".join(own)
            mistakes.append(
                f"advertised.listeners: no listener is called {name}; there are {there}"
            )
        if address.host in ("", "0.0.0.0", "::"):  # noqa: S104 - Compared with, not bound to.
            mistakes.append(f"advertised.listeners: {name} needs a host that clients can reach")
        if address.port == 0:
            mistakes.append(f"advertised.listeners: {name} needs a port, not 0")


def _protocols(given: Mapping[str, str], mistakes: list[str]) -> dict[str, SecurityProtocol]:
    """`listener.security.protocol.map`, by listener."""
    setting = "listener.security.protocol.map"
    found = {}
    for item in _items(given.get(setting) or LISTENER_TABLE[setting].default_text):
        name, colon, word = (part.strip().upper() for part in item.partition(":"))
        if not colon or word not in SecurityProtocol.__members__:
            words = ", ".join(SecurityProtocol.__members__)
            mistakes.append(f'{setting}: "{item}" is not NAME:PROTOCOL, one of {words}')
        elif name in found:
            mistakes.append(f"{setting}: {name} is there twice")
        else:
            found[name] = SecurityProtocol[word]
    return found


def _tls(of_name: _OfListener, mistakes: list[str], *, auth_of_its_own: bool) -> TlsSettings | None:
    """`auth_of_its_own`: `ssl.client.auth` counts as it was given for the listener alone."""
    before = len(mistakes)
    text, filled = of_name.text, of_name.filled
    _check_values(of_name, mistakes)
    if len(mistakes) > before:
        return None
    keystore = StoreSettings(
        type=(text("ssl.keystore.type") or "").upper(),
        location=filled("ssl.keystore.location"),
        password=filled("ssl.keystore.password"),
        certificates=filled("ssl.keystore.certificate.chain"),
        key=filled("ssl.keystore.key"),
        key_password=filled("ssl.key.password"),
    )
    truststore = StoreSettings(
        type=(text("ssl.truststore.type") or "").upper(),
        location=filled("ssl.truststore.location"),
        password=filled("ssl.truststore.password"),
        certificates=filled("ssl.truststore.certificates"),
    )
    client_auth = of_name.own if auth_of_its_own else text
    settings = TlsSettings(
        keystore=keystore,
        truststore=truststore,
        client_auth=ClientAuth((client_auth("ssl.client.auth") or "none").lower()),
        protocols=of_name.items("ssl.enabled.protocols"),
        cipher_suites=of_name.items("ssl.cipher.suites"),
        principal_rules=text("ssl.principal.mapping.rules") or "DEFAULT",
    )
    mistakes += [f"listener {of_name.name}: {each}" for each in _tls_contradictions(settings)]
    return settings


def _check_values(of_name: _OfListener, mistakes: list[str]) -> None:
    """Each setting alone."""
    for row in LISTENER_TABLE.values():
        text = of_name.text(row.name)
        if text is None:
            continue
        try:
            value_of(row, text)
        except ValueError as error:
            secret = row.kind is Kind.PASSWORD
            reason = "the value is not usable" if secret else str(error)
            mistakes.append(f"listener {of_name.name}: {row.name}: {reason}")


def store_contradictions(keystore: StoreSettings, truststore: StoreSettings) -> list[str]:
    """Settings of stores that are right one by one and wrong together, of agents as of clients."""
    found = []
    inline = keystore.certificates is not None or keystore.key is not None
    if keystore.location is not None and inline:
        found.append(
            "ssl.keystore.location does not go with ssl.keystore.certificate.chain and"
            " ssl.keystore.key: leave either out"
        )
    if (
        keystore.location is None
        and inline
        and (keystore.certificates is None or keystore.key is None)
    ):
        found.append("ssl.keystore.certificate.chain and ssl.keystore.key go together")
    if truststore.location is not None and truststore.certificates is not None:
        found.append("ssl.truststore.location and ssl.truststore.certificates: leave either out")
    for name, store in (("keystore", keystore), ("truststore", truststore)):
        if store.location is None and store.certificates is not None and store.type != "PEM":
            found.append(f"certificates in the settings are PEM: set ssl.{name}.type=PEM")
        if store.type == "PEM" and store.location is not None and store.password is not None:
            password = "ssl.key.password" if name == "keystore" else "leave it out"
            found.append(f"ssl.{name}.password is not for PEM files: {password}")
    return found


def _tls_contradictions(settings: TlsSettings) -> list[str]:
    """Of a listener: what goes wrong together, and what is needed and not there."""
    found = []
    keystore, truststore = settings.keystore, settings.truststore
    if keystore.location is None and keystore.certificates is None and keystore.key is None:
        found.append("TLS needs a certificate and its key: set ssl.keystore.location")
    found += store_contradictions(keystore, truststore)
    if settings.client_auth is not ClientAuth.NONE and not truststore.given:
        found.append(
            f"ssl.client.auth={settings.client_auth.value} needs certificates to trust:"
            " set ssl.truststore.location"
        )
    if not settings.protocols:
        found.append("ssl.enabled.protocols is empty")
    return found


def _mechanisms(
    of_name: _OfListener, mistakes: list[str], warnings: list[str]
) -> dict[str, Mapping[str, str]]:
    """The enabled mechanisms and their settings."""
    enabled = of_name.text("sasl.enabled.mechanisms")
    names = [name.upper() for name in _items(MECHANISM_DEFAULT if enabled is None else enabled)]
    if MECHANISM_DEFAULT in names and enabled is not None:
        warnings.append(f"listener {of_name.name}: Kerberos (GSSAPI) is not served")
    found: dict[str, Mapping[str, str]] = {
        name: of_name.of_mechanism(name) for name in names if name != MECHANISM_DEFAULT
    }
    if not found:
        mistakes.append(
            f"listener {of_name.name} speaks SASL without a mechanism: set sasl.enabled.mechanisms"
        )
    return found


def _strange_names(given: Mapping[str, str], listeners: Sequence[str]) -> list[str]:
    """Listeners that have settings and do not exist; Kafka says nothing of them."""
    there = {name.lower() for name in listeners}
    named = {
        name.removeprefix(_PREFIX).partition(".")[0] for name in given if name.startswith(_PREFIX)
    }
    return [
        f"{_PREFIX}{name}.…: there is no listener {name.upper()}"
        for name in sorted(named - there - HTTP_LISTENERS.keys())
    ]
