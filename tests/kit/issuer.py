"""An issuer of tokens over HTTPS: its keys, and tokens for an id and a secret (RFC 6749, section 4.4)."""

import http.server
import json
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from typing_extensions import override

from tests.kit.certificates import Authority

CLIENT_ID, CLIENT_SECRET = "the tool", "the tool's secret"


class Answer(NamedTuple):
    """What is told to somebody who asks for a token."""

    status: int
    body: bytes
    location: str = ""


class IssuerServer:
    """On loopback, until it is stopped."""

    def __init__(self, folder: Path, keys: bytes = b"") -> None:
        authority = Authority()
        self.trusted = folder / "authority.pem"
        self.trusted.write_text(authority.pem)
        own = folder / "issuer.pem"
        own.write_text(authority.sign("issuer").pem)
        self.keys = keys
        """A JWK Set."""
        self.asked = 0
        """How often it was."""
        self.issue: Callable[[], dict[str, Any]] = dict
        """What is answered to who has the secret."""
        self.takes_s = 0.0
        """Before a token is given out."""
        self.answers: list[Answer] = []
        """They go out first, one for each question for a token."""
        self.forms: list[dict[str, list[str]]] = []
        """All questions for a token, and the header Authorization of the newest one."""
        self.authorization = ""
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        at = f"https://127.0.0.1:{self._server.server_port}"
        self.keys_url, self.tokens_url = f"{at}/keys", f"{at}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                self._answer(Answer(200, outer.keys))

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.forms.append(parse_qs(form))
                outer.authorization = self.headers["Authorization"]
                time.sleep(outer.takes_s)
                self._answer(outer.answers.pop(0) if outer.answers else outer.answer())

            def _answer(self, told: Answer) -> None:
                self.send_response(told.status)
                self.send_header("Content-Length", str(len(told.body)))
                if told.location:
                    self.send_header("Location", told.location)
                self.end_headers()
                self.wfile.write(told.body)

            @override
            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def answer(self) -> Answer:
        """To the newest question, by who asks."""
        said = b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if self.authorization != f"Basic {said}":
            return Answer(401, b'{"error":"invalid_client","error_description":"the word was it"}')
        return Answer(200, json.dumps(self.issue()).encode())
