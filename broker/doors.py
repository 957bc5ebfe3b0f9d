"""The ports of an agent: bound first, ajar for a moment, then open, or shut until it can serve.

    bound ─▶ ajar ─▶ open ─▶ closed
              └─▶ shut ─▶ open

A port that is bound is nobody else's, so one that is taken is found at once. While a door is *ajar* the
kernel takes connections and what they send, and nobody reads it. An agent that was killed and starts again
would else refuse its clients a few times, and they wait longer each time before they come back (librdkafka
twice as long, up to ten seconds): most of the gap that they see would be theirs. So a process *reserves* its
ports before it imports what it needs to serve (`reserve`).

What holds: a door that is shut refuses connections, so clients look elsewhere; whoever waited behind
it is turned away. How long a door may be ajar, and that nobody waits behind one for long (P17), is
the agent's business (`broker.agent`).

Left out: who is behind a door (`broker.edge`, `broker.http`).
"""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Final, NamedTuple

from protocol.fault_codes import FaultCode, FaultError

Factory = Callable[[], asyncio.BaseProtocol]


class Reserved(NamedTuple):
    """Ports that are ajar already."""

    sockets: Mapping[tuple[str, int], socket.socket]
    """By host and port."""
    since_ms: int
    """Boot-time clock."""


IS_LINUX: Final = sys.platform == "linux"
"""Only there a socket can stop listening without giving its port up."""


class DoorError(FaultError):
    """A port cannot be had; the sentence says why and what to do."""


class Door:
    """What one address is bound to; of `localhost` both of its addresses."""

    def __init__(
        self,
        *,
        backlog: int,
        setting: str,
        shared: bool = False,
        reserved: Reserved | None = None,
    ) -> None:
        """`setting` names the address. `shared`: other processes listen there, too. `reserved`: by
        this process, some of this address maybe."""
        self._shared = shared
        self._reserved = {} if reserved is None else dict(reserved.sockets)
        self._factory: Factory | None = None
        self._backlog = backlog
        self._setting = setting
        self._servers: dict[tuple[str, int], asyncio.Server] = {}
        self._is_known = False
        """Clients may know the port from before."""
        self._is_ajar = False
        self._closed = False

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Have the port; what was bound. Raises DoorError."""
        self._is_known = port != 0
        first, *others = _hosts(host)
        bound = await self._bind(first, port)
        for other in others:
            with suppress(DoorError):
                await self._bind(other, bound[1])
        return bound

    async def _bind(self, host: str, port: int) -> tuple[str, int]:
        loop, backlog = asyncio.get_running_loop(), self._backlog
        try:
            if (found := self._reserved.pop((host, port), None)) is not None:
                server = await loop.create_server(
                    self._protocol, sock=found, backlog=backlog, start_serving=False
                )
            else:
                server = await loop.create_server(
                    self._protocol,
                    host,
                    port,
                    backlog=backlog,
                    reuse_port=self._shared or None,
                    start_serving=False,
                )
        except OSError as error:
            raise self._cannot_listen(host, port, error) from error
        bound: int = server.sockets[0].getsockname()[1]
        self._servers[host, bound] = server
        return host, bound

    def set_ajar(self) -> None:
        """Let the kernel take connections. Where the port is taken meanwhile, `open` says so.

        Nothing is done about a port that the system chose just now, which nobody knows, and where
        the door could not be shut.
        """
        if self._is_known and IS_LINUX:
            self._is_ajar = True
            for server in self._servers.values():
                with suppress(OSError):
                    self._listen(server)

    def shut(self) -> None:
        """Turn those away who wait, and whoever comes; the port stays bound."""
        if not self._is_ajar:
            return
        self._is_ajar = False
        for server in self._servers.values():
            for bound in server.sockets:
                # A socket that does not listen (any more) says that it is not connected.
                with suppress(OSError), bound.dup() as same:
                    same.shutdown(socket.SHUT_RD)

    def turn_away(self) -> None:
        """Those who wait; whoever comes then waits, if the door is ajar."""
        if self._is_ajar:
            self.shut()
            self.set_ajar()

    async def open(self, factory: Factory) -> None:
        """Let in who waits, and whoever comes; `factory` makes their protocols. Raises DoorError."""
        self._factory = factory
        self._is_ajar = False
        for (host, port), server in self._servers.items():
            if self._closed:
                return
            try:
                # uvloop does not tell that it cannot listen, so the socket is asked first.
                self._listen(server)
                await server.start_serving()
            except OSError as error:
                raise self._cannot_listen(host, port, error) from error

    def close(self) -> None:
        """Give the ports back."""
        self._closed = True
        for server in self._servers.values():
            server.close()

    def _protocol(self) -> asyncio.BaseProtocol:
        assert self._factory is not None
        return self._factory()

    def _listen(self, server: asyncio.Server) -> None:
        for bound in server.sockets:
            with bound.dup() as same:
                same.listen(self._backlog)

    def _cannot_listen(self, host: str, port: int, error: OSError) -> DoorError:
        # Numbers of failed name lookups are negative, and not the system's.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
        return DoorError(
            f"cannot listen on {host}:{port} ({reason}):"
            f" end what uses it, or set another address ({self._setting})",
            fault=fault_of_address(error),
        )


def fault_of_address(error: OSError) -> FaultCode:
    """An address that is not taken is not to be had: none of this machine's, or a port for which one needs a right."""
    return FaultCode.PORT_TAKEN if error.errno == errno.EADDRINUSE else FaultCode.WRONG_VALUE


def reserve(addresses: Iterable[tuple[str, int]], *, backlog: int, now_ms: int) -> Reserved:
    """Have ports ajar, for a process that is starting; those that cannot be had are left out.

    Names of hosts are not looked up, which may take long. An agent takes them, or they are given back
    with the process.
    """
    found = {}
    for given, port in addresses if IS_LINUX else ():
        for host in _hosts(given) if port else ():
            with suppress(OSError, ValueError):
                is_v6 = ip_address(host).version == 6
                each = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if is_v6:
                    each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    each.bind((host, port))
                    each.listen(backlog)
                except OSError:
                    each.close()
                    raise
                found[host, port] = each
    return Reserved(found, now_ms)


def _hosts(host: str) -> list[str]:
    """What is bound; "localhost" may be either address to a client."""
    if host == "localhost":
        return ["127.0.0.1", "::1"]
    return ["0.0.0.0" if host in ("", "*") else host]  # noqa: S104 - Asked for.
