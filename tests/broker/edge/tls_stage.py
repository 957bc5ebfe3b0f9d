"""A stage whose server has a listener of TLS, and its clients."""

import asyncio
import contextlib
from functools import cache

from broker.edge.server import KafkaServer
from tests.broker.edge.stage import Stage
from tests.kit.certificates import Authority, Signed
from tests.kit.client import settle
from tests.kit.tls import TlsClient, client_context, listener_of


@cache
def authority() -> Authority:
    """One for all tests: keys take time."""
    return Authority()


@cache
def signed(name: str = "agent") -> Signed:
    return authority().sign(name)


class TlsStage(Stage):
    """`listener` is the one of TLS."""

    def __init__(self, loop, *, limits=None, **given: str) -> None:
        super().__init__(loop, limits=limits)
        trusted = authority() if "client_auth" in given else None
        self.listener = listener_of(signed(), self.node.stats, authority=trusted, **given)
        self.server = KafkaServer(
            self.node, self.server.dispatcher._served, limits=limits, tls={"SSL": self.listener}
        )

    def dial(self, *, own: Signed | None = None, trusts=None, address="127.0.0.1") -> TlsClient:
        """A connection that has sent nothing yet."""
        context = client_context(trusts or authority(), own)
        return TlsClient(self.server, context, address=address)

    async def shaken(self, **more) -> TlsClient:
        """A connection with its handshake done."""
        client = self.dial(**more)
        await client.shake()
        return client


@contextlib.asynccontextmanager
async def tls_staged(**more):
    """A stage whose server runs."""
    stage = TlsStage(asyncio.get_running_loop(), **more)
    server = asyncio.get_running_loop().create_task(stage.server.run())
    await settle()
    try:
        yield stage
    finally:
        server.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await server
        await settle()
    assert stage.node.stats.held_bytes == 0


@contextlib.asynccontextmanager
async def tls_connected(**more):
    """A stage whose server runs, and a client of it."""
    async with tls_staged(**more) as stage:
        yield stage, await stage.shaken()
