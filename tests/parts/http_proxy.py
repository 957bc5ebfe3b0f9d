"""An HTTP proxy on loopback through which some requests meet a fate that a test has set for them.

A server may carry a request out though its answer is lost, or an error is answered in its place; or
refuse it. A fate says which: whether the server gets the request, and what the client hears.
"""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

SILENCE = 0


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes


class Fate(NamedTuple):
    """What befalls a request."""

    lands: bool
    """The server gets it and carries it out."""
    status: int | None
    """That the client hears; None: its connection ends without an answer. SILENCE: it stays."""
    body: bytes = b""

    def __str__(self) -> str:
        heard = "no answer" if not self.status else str(self.status)
        return f"{'carried out' if self.lands else 'not carried out'}, {heard}"


class FatefulProxy:
    """Forwards from its own port to `target`, a port of loopback."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._wanted: Callable[[Request], bool] = lambda _request: False
        self._fates: list[Fate] = []
        self._ended = threading.Event()
        self.requests: list[Request] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body are two packets; without this the second waits 40 ms for the client's word.
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                proxy._serve(self)

            do_POST = do_DELETE = do_HEAD = do_PUT = do_GET

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def befall(self, wanted: Callable[[Request], bool], *fates: Fate) -> None:
        """The next requests that are wanted meet these fates, in this order."""
        with self._lock:
            self._wanted, self._fates = wanted, list(fates)

    @property
    def befell(self) -> bool:
        """Has every fate met its request?"""
        return not self._fates

    def _fate(self, request: Request) -> Fate | None:
        with self._lock:
            self.requests.append(request)
            if not self._fates or not self._wanted(request):
                return None
            return self._fates.pop(0)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Request(handler.command, handler.path, headers, body)
        fate = self._fate(request)
        status, answer = 0, b""
        if fate is None or fate.lands:
            status, answer = self._forward(request)
        if fate is not None:
            if fate.status == SILENCE:
                self._ended.wait()
            if not fate.status:
                handler.close_connection = True
                with contextlib.suppress(OSError):
                    handler.connection.shutdown(socket.SHUT_RDWR)
                return
            status, answer = fate.status, fate.body
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        if status != http.client.NO_CONTENT:
            handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        if request.method != "HEAD":
            handler.wfile.write(answer)

    def _forward(self, request: Request) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._target, timeout=60)
        try:
            headers = {
                name: value
                for name, value in request.headers.items()
                if name not in {"host", "connection", "accept-encoding"}
            }
            connection.request(request.method, request.path, request.body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
