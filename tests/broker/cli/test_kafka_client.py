"""The tools' client: what becomes of connections when it does not come to asking."""

import asyncio
import gc
import socket
import ssl
import threading
from pathlib import Path

import pytest

from broker.cli.kafka_client import Address, ClientError, KafkaClient
from tests.kit.certificates import Authority

pytestmark = pytest.mark.real_loop


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's, and that of who trusts it."""
    authority = Authority()
    signed = authority.sign("localhost")
    (tmp_path / "server.pem").write_text(signed.certificate_pem + signed.key_pem())
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "server.pem")
    return server, ssl.create_default_context(cadata=authority.pem)


def nonsense(listener: socket.socket, context: ssl.SSLContext, over: threading.Event) -> None:
    """One connection: an answer that is none, and then nothing, not even TLS's leave."""
    raw, _ = listener.accept()
    with context.wrap_socket(raw, server_side=True) as connection:
        connection.recv(4)
        connection.sendall(b"\xff\xff\xff\xff")
        over.wait()


async def asked(port: int, trusting: ssl.SSLContext) -> None:
    with pytest.raises(ClientError, match="does not speak Kafka's protocol"):
        async with KafkaClient([Address("localhost", port)], timeout_ms=10_000, tls=trusting):
            raise AssertionError("it was entered")


@pytest.mark.real_loop
async def test_a_listener_without_tls_is_told_of_to_who_speaks_it(contexts) -> None:
    """As a broker, which hangs up on what it does not understand."""
    _, trusting = contexts

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with await asyncio.start_server(serve, "localhost", 0, family=socket.AF_INET) as server:
        port = server.sockets[0].getsockname()[1]
        client = KafkaClient([Address("127.0.0.1", port)], timeout_ms=10_000, tls=trusting)
        with pytest.raises(
            ClientError, match=r"ended TLS; does it speak it\? \(security.protocol\)"
        ):
            async with client:
                raise AssertionError("it was entered")


def test_a_client_that_is_not_entered_leaves_no_connection_open(contexts) -> None:
    server, trusting = contexts
    over = threading.Event()
    with socket.create_server(("localhost", 0)) as listener:
        thread = threading.Thread(target=nonsense, args=(listener, server, over))
        thread.start()
        try:
            asyncio.run(asked(listener.getsockname()[1], trusting))
            gc.collect()  # What is not closed is told when it goes, and a warning is an error here.
        finally:
            over.set()
            thread.join()
