"""A TCP proxy before the peer port of an etcd member: the network between it and the others.

What is cut is silent, as where a cable was pulled: connections stay, and what was sent arrives when
the cable is back. Members say who they are at the beginning of their connections (`X-Server-From`);
a few short ones that carry no message of raft do not, and pass unless the member itself is cut.
"""

import contextlib
import re
import socket
import threading
from collections.abc import Callable

from tests.parts.process import free_port

SENDER = re.compile(rb"\r\nX-Server-From: ([0-9a-f]+)\r\n", re.IGNORECASE)
HEAD_BYTES_MAX = 1 << 14


class PeerProxy:
    """Forwards from its own port to `target`, a port of loopback; `close` ends it."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._changed = threading.Condition()
        self._cut = False
        self._cut_from: str | None = None
        self._closed = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._spawn(self._accept)

    def cut(self, sender: str | None = None) -> None:
        """Silence with the member of this id, or with all of them."""
        self._set(cut=sender is None, sender=sender)

    def mend(self) -> None:
        self._set(cut=False, sender=None)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            sockets = [self._listener, *self._sockets]
        for end in sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _set(self, *, cut: bool, sender: str | None) -> None:
        with self._changed:
            self._cut, self._cut_from = cut, sender
            self._changed.notify_all()

    def _spawn(self, run: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._changed:
                    self._sockets.append(client)
                self._spawn(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        """Of a connection, what its opener says; and first who that is."""
        head = b""
        with contextlib.suppress(OSError):
            while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES_MAX:
                more = client.recv(65536)
                if not more:
                    break
                head += more
            found = SENDER.search(head)
            sender = found[1].decode() if found else None
            with contextlib.suppress(OSError):
                server = socket.create_connection(("127.0.0.1", self._target))
                with self._changed:
                    self._sockets.append(server)
                self._spawn(self._pump, server, client, sender)
                self._pump(client, server, sender, head)
        client.close()

    def _pump(
        self, source: socket.socket, sink: socket.socket, sender: str | None, head: bytes = b""
    ) -> None:
        data = head
        with contextlib.suppress(OSError):
            while data or not head:
                if data and self._until_open(sender):
                    sink.sendall(data)
                data = source.recv(65536)
                if not data:
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _until_open(self, sender: str | None) -> bool:
        """Wait while this connection is cut; may it go on?"""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closed
                    or not (self._cut or (sender is not None and sender == self._cut_from))
                )
            )
            return not self._closed
