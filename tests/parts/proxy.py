"""A TCP proxy on loopback that keeps back, for as long as a test likes, what a client sends.

What a network does to a connection that its client has given up: the bytes are on their way, and
arrive when nobody waits for the answer any more. Such a connection stays open at the server's side
after the client has closed its own.
"""

import contextlib
import socket
import threading
from typing import Self

from tests.parts.process import free_port


class HoldingProxy:
    """Forwards from its own port to `target`, a port of loopback."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._lock = threading.Lock()
        self._wanted: bytes | None = None
        self._release = threading.Event()
        self.arrived_late = threading.Event()
        """What was kept back has been sent on."""
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._spawn(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._release.set()
        for end in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in (self._listener, *self._sockets):
            end.close()

    def hold_next(self, key: int) -> None:
        """Keep back the next request of this API, and all that follows it on its connection.

        Clients send small requests at once, so that one begins where what is received begins.
        """
        self._release.clear()
        self.arrived_late.clear()
        self._wanted = key.to_bytes(2, "big")

    @property
    def holds(self) -> bool:
        """Has the request come?"""
        return self._wanted is None

    def release(self) -> None:
        self._release.set()

    def _spawn(self, run, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                self._spawn(self._up, client, server)
                self._spawn(self._down, client, server)

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        late = False
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._is_wanted(data):
                    late = True
                    self._release.wait()
                server.sendall(data)
                if late:
                    self.arrived_late.set()
        if not late:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)

    def _is_wanted(self, data: bytes) -> bool:
        with self._lock:
            if self._wanted is None or data[4:6] != self._wanted:
                return False
            self._wanted = None
            return True

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                # A client that has gone hears nothing; the server's side stays as it is.
                with contextlib.suppress(OSError):
                    client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
