"""A server on the loopback that answers what an object says: agents and registries of tests."""

import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol

from typing_extensions import override

POLL_S = 0.005
"""How long the end of a server takes."""


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Respondent(Protocol):
    def respond(self, asked: Asked) -> tuple[int, Any]:
        """Status and body: bytes or text as they are, anything else as JSON."""


def body_of(found: Any) -> bytes:
    if isinstance(found, bytes):
        return found
    return (found if isinstance(found, str) else json.dumps(found)).encode()


@contextmanager
def served(respondent: Respondent) -> Iterator[str]:
    """Serves on a free port; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked = Asked(self.command, self.path, self.rfile.read(length), dict(self.headers))
            status, found = respondent.respond(asked)
            body = body_of(found)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if 300 <= status < 400:
                self.send_header("Location", body.decode())
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_DELETE = do_GET

        @override
        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def killed_while_it_answers(body: bytes, sent: int) -> Iterator[str]:
    """An agent whose process ends when so many bytes of its answer have left it."""

    class Handler(socketserver.StreamRequestHandler):
        @override
        def handle(self) -> None:
            while self.rfile.readline() != b"\r\n":
                pass
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            self.wfile.write(head + body[:sent])

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
