"""A Kafka client's end of a connection of TLS, without sockets: `tests.kit.client`, in ciphertext.

What lies in the "kernel" are records. `send` and `answer` speak Kafka; `sealed` makes records of
bytes, for tests that cut and hold them: `feed(sealed(frame)[:20])`.
"""

import ssl
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from typing_extensions import override

from broker.config.listeners import listeners_of
from broker.edge.server import KafkaServer
from broker.edge.tls_listener import TlsListener
from broker.node import EdgeStats
from tests.kit.certificates import Authority, Signed
from tests.kit.client import Client, settle


def listener_of(
    signed: Signed, stats: EdgeStats, *, authority: Authority | None = None, **given: str
) -> TlsListener:
    """A listener SSL whose certificate stands in its settings."""
    named = {f"ssl.{name.replace('_', '.')}": text for name, text in given.items()}
    stores = {
        "listeners": "SSL://:1",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": signed.certificate_pem,
        "ssl.keystore.key": signed.key_pem(),
    }
    if authority is not None:
        stores |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem}
    parsed = listeners_of(stores | named)
    assert parsed.mistakes == []
    return TlsListener(parsed.listeners[0], stats)


def client_context(authority: Authority, own: Signed | None = None) -> ssl.SSLContext:
    """Of a client that trusts the authority, and shows a certificate if it has one."""
    context = ssl.create_default_context(cadata=authority.pem)
    if own is not None:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "own.pem"
            file.write_text(own.pem)
            context.load_cert_chain(file)
    return context


class TlsClient(Client):
    """One connection, seen from the client."""

    def __init__(
        self,
        server: KafkaServer,
        context: ssl.SSLContext,
        listener: str = "SSL",
        *,
        address: str = "127.0.0.1",
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.plain = bytearray()
        """Answers, decrypted."""
        self._taken = 0
        super().__init__(server, listener, address=address)

    @property
    def kafka(self) -> Any:
        """What speaks Kafka at the agent's end."""
        return cast("Any", self.protocol)._above

    async def shake(self) -> None:
        """Do the handshake. Raises ssl.SSLError when it cannot be."""
        for _ in range(50):
            if self.step():
                await settle()
                return
            await settle()
            assert not self.closed or len(self.transport.writes) > self._taken, "closed"
        raise AssertionError("no handshake")

    def step(self) -> bool:
        """Take what the agent has sent, and go on; whether the handshake is done."""
        self._take()
        try:
            self.tls.do_handshake()
            return True
        except ssl.SSLWantReadError:
            return False
        finally:
            data = self._outgoing.read()
            if data:
                self.feed(data)

    def sealed(self, *parts: bytes) -> bytes:
        """The parts as ciphertext, in a record each, or more when they are large."""
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[self.tls.write(view) :]
        return self._outgoing.read()

    @override
    def send(self, api_key: int, version: int, request: Any = None, **more: Any) -> None:
        self.feed(self.sealed(self.frame(api_key, version, request, **more)))

    @override
    def frames(self) -> list[bytes]:
        self._take()
        try:
            while True:
                data = self.tls.read(1 << 16)
                if not data:
                    break
                self.plain += data
        except ssl.SSLWantReadError:
            pass
        frames, data = [], bytes(self.plain)
        while len(data) >= 4 and len(data) >= 4 + struct.unpack_from(">i", data)[0]:
            (length,) = struct.unpack_from(">i", data)
            frames.append(data[4 : 4 + length])
            data = data[4 + length :]
        return frames

    def _take(self) -> None:
        for data in self.transport.writes[self._taken :]:
            self._incoming.write(data)
        self._taken = len(self.transport.writes)
