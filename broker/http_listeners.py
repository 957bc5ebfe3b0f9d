"""The HTTP listeners of an agent, opened and closed: the admin endpoints' and the schema registry's.

    settings ─▶ access, tokens ─▶ bound ─▶ opened with TLS, users and names ─▶ files looked at again ─▶ closed

What holds: a listener is opened with what its files had at the start, and files that change count
without a restart, certificates as on Kafka's listeners (`broker.edge.tls_listener`).

Left out: what the endpoints do (`broker.http_composition`), and when listeners are opened
(`broker.agent`). aiohttp is not imported before that.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from broker.admin.access import SHUT, TOKEN_PRINCIPAL, access_of
from broker.composition import Parts, audit_logger
from broker.config.addresses import WILDCARD_HOSTS, Address
from broker.config.listeners import HTTP_LISTENERS
from broker.config.settings import Settings, http_listener_of
from broker.config.values import SettingsError
from broker.doors import Door, DoorError
from broker.edge.tls_transport import Shaker, TlsTransport
from broker.http.admission import HostNames
from broker.http.connections import HttpLimits
from broker.http.logins import Logins
from broker.http.passwords import KEY_BITS, Passwords
from broker.http.tokens import Tokens
from broker.node import Node
from broker.rights.rights import AuditTrail
from broker.sasl.plain import PLAIN, PlainUsers
from broker.sasl.rules import rules_of
from broker.sasl.scram_keys import BY_NAME
from protocol.fault_codes import FaultError

if TYPE_CHECKING:
    from aiohttp import web

    from broker.edge.tls_listener import TlsListener
    from broker.http.listener import HttpListener, Secure

logger = logging.getLogger(__name__)

BACKLOG = 100
"""Connections that the kernel keeps for a listener."""


class HttpListenerError(FaultError):
    """A listener cannot be opened; the sentence says why and what to do."""


class HttpListeners:
    """Those of one agent. `aclose` is called once, whatever was opened."""

    def __init__(
        self, settings: Settings, parts: Parts, *, host_name: str, shared: bool = False
    ) -> None:
        """Reads tokens. Raises HttpListenerError. `host_name`: this machine's. `shared`: other
        agents of this machine listen at the same ports."""
        self._settings = settings
        self._parts = parts
        self._host_name = host_name
        self._shared = shared
        self.access = access_of(settings)
        trail = AuditTrail(write=audit_logger.info, now_ms=parts.now_ms, boot_ms=parts.boot_ms)
        self.audit = trail.tell
        try:
            self._tokens = {"http": _admin_tokens(settings), "registry": _registry_tokens(settings)}
            self._rules = {name: _rules(settings, name) for name in HTTP_LISTENERS}
        except SettingsError as error:
            raise HttpListenerError.of(error) from error
        self.listeners: list[HttpListener] = []
        self._doors: list[tuple[str, Address, Door]] = []
        """Of which listener, as it is set."""
        self._tls: dict[str, TlsListener] = {}
        self._passwords: list[Passwords] = []
        self._shaker: Shaker | None = None

    async def bind(self) -> dict[str, tuple[str, int]]:
        """Have the ports, by name of the listener; of several of a registry's the first is told of.

        Raises HttpListenerError.
        """
        admin = self._settings.http
        wanted = [] if admin is None else [("http", admin)]
        wanted += [("registry", each) for each in self._settings.registry_listen]
        found: dict[str, tuple[str, int]] = {}
        for name, address in wanted:
            door = Door(backlog=BACKLOG, setting=HTTP_LISTENERS[name], shared=self._shared)
            self._doors.append((name, address, door))
            try:
                bound, port = await door.bind(address.host, address.port)
            except DoorError as error:
                raise HttpListenerError.of(error) from error
            found.setdefault(
                name, (bound if address.host in WILDCARD_HOSTS else address.host, port)
            )
        return found

    @property
    def are_wanted(self) -> bool:
        """Whether there is anything to open."""
        return bool(self._doors)

    async def open(
        self, admin: "web.Application", registry: Callable[[], "web.Application"]
    ) -> None:
        """Answer at all ports that are bound. Raises HttpListenerError."""
        if self._settings.http is not None and self.access.is_shut:
            logger.warning("%s", SHUT)
        for name, address, door in self._doors:
            app = admin if name == "http" else registry()
            await self._open(app, address, name, door)

    def prepare(self, node: Node) -> None:
        """Read certificates. Raises HttpListenerError."""
        for name in HTTP_LISTENERS:
            secured = http_listener_of(self._settings, name).secured
            if secured is not None:
                from broker.edge.key_stores import TlsError
                from broker.edge.tls_listener import TlsListener

                try:
                    self._tls[name] = TlsListener(secured, node.stats)
                except TlsError as error:
                    raise HttpListenerError(f"listener {name}: {error}") from error
        if self._tls:
            self._shaker = Shaker(
                node.stats,
                boot_ms=node.boot_ms,
                clock=lambda: node.log_client.machine.position,
            )

    def logins(self, name: str, node: Node) -> Logins:
        """Who may log in to a listener."""
        rules = self._rules[name]
        passwords = Passwords(
            plain=rules.plain,
            mechanisms=rules.scram,
            credentials=lambda: node.log_client.machine.credentials,
            # Only SCRAM's are remembered.
            key=node.rng.getrandbits(KEY_BITS).to_bytes(KEY_BITS // 8, "big")
            if rules.scram
            else b"",
        )
        self._passwords.append(passwords)
        tls = self._tls.get(name)
        return Logins(
            self._tokens[name],
            passwords,
            by_certificate=tls is not None and tls.asks_clients,
            for_browsers=name == "http",
            delay_ms=self._settings.kafka.connection_failed_authentication_delay_ms,
            count=node.stats.count_authentication,
        )

    def watch(self, tasks: asyncio.TaskGroup) -> None:
        """Look at files that may change, until the tasks are cancelled."""
        for tls in self._tls.values():
            tls.tell(self._parts.now_ms())
            tasks.create_task(tls.run(), name="certificates of HTTP")
        for tokens in self._tokens.values():
            if tokens.has_files:
                tasks.create_task(tokens.run(), name="tokens")

    async def aclose(self) -> None:
        for _, _, door in self._doors:
            door.close()
        for listener in self.listeners:
            await listener.aclose()
        for passwords in self._passwords:
            passwords.close()
        if self._shaker is not None:
            self._shaker.close()

    async def _open(self, app: "web.Application", address: Address, name: str, door: Door) -> None:
        from broker.http.listener import HttpListener

        limits = HttpLimits(connections_max=self._settings.http_connections_max)
        listener = HttpListener(app, names=self._host_names(), limits=limits)
        self.listeners.append(listener)
        secure = self._secure(name) if address.secure else None
        try:
            await door.open(await listener.start(secure))
        except DoorError as error:
            raise HttpListenerError.of(error) from error

    def _secure(self, name: str) -> "Secure":
        tls, shaker = self._tls[name], self._shaker
        assert shaker is not None
        return lambda connection: TlsTransport(tls, shaker, connection)

    def _host_names(self) -> HostNames:
        """By which HTTP clients may call this agent."""
        settings = self._settings
        names = [self._host_name, *settings.http_hosts]
        names += [each.host for each in (*settings.listen, *settings.advertise)]
        names += [each.host for name in HTTP_LISTENERS for each in settings.http_addresses(name)]
        return HostNames(name for name in names if name not in WILDCARD_HOSTS)


class _Rules:
    """Whose passwords count on a listener."""

    def __init__(self, plain: PlainUsers, mechanisms: Sequence[str]) -> None:
        self.plain = plain
        self.scram = tuple(BY_NAME[each] for each in mechanisms if each in BY_NAME)


def _rules(settings: Settings, name: str) -> _Rules:
    """Raises SettingsError."""
    mechanisms = http_listener_of(settings, name).mechanisms
    plain = PlainUsers({})
    spoken: Sequence[str] = ()
    strange = [each for each in mechanisms if each not in (PLAIN, *BY_NAME)]
    if strange:
        said = f"HTTP clients have passwords of PLAIN and SCRAM, not {', '.join(strange)}"
        raise SettingsError([f"listener {name}: {said}"])
    if mechanisms:
        try:
            rules = rules_of(mechanisms)
        except ValueError as error:
            raise SettingsError(
                [f"listener {name}: {line}" for line in str(error).splitlines()]
            ) from error
        plain, spoken = rules.plain_users, rules.mechanisms
    if name == "registry" and settings.registry_users:
        own = PlainUsers.of(dict(settings.registry_users))
        plain = PlainUsers(dict(plain.digests) | dict(own.digests))
    return _Rules(plain, spoken)


def _admin_tokens(settings: Settings) -> Tokens:
    """Raises SettingsError."""
    tokens = Tokens(_read)
    if settings.http_token is not None:
        tokens.add(TOKEN_PRINCIPAL, settings.http_token)
    if settings.http_token_file is not None:
        tokens.add_file(TOKEN_PRINCIPAL, "http.token.file", settings.http_token_file)
    for user, file in settings.http_tokens:
        tokens.add_file(f"User:{user}", "http.tokens", file)
    return tokens


def _registry_tokens(settings: Settings) -> Tokens:
    """Raises SettingsError."""
    tokens = Tokens(_read)
    for user, file in settings.registry_tokens:
        tokens.add_file(f"User:{user}", "schema.registry.tokens", file)
    return tokens


def _read(location: str) -> str:
    return Path(location).read_text(encoding="utf-8")
