"""A process that has no descriptor left for a connection: its listener lives, and the loop rests."""

import asyncio
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.environment import loop_factory

pytestmark = pytest.mark.integration

CLIENT = """
import contextlib, socket, sys
def connect():
    peer = socket.socket()
    peer.settimeout(60)
    peer.connect(("127.0.0.1", int(sys.argv[1])))
    return peer
def echo(peer):
    with contextlib.suppress(OSError):
        peer.send(b"x")
        return peer.recv(1) == b"x"
peers = []
sys.stdin.readline()
with contextlib.suppress(OSError):
    for _ in range(45):
        peers.append(connect())
sys.stdin.readline()
print(sum(1 for peer in peers[:5] if echo(peer)), flush=True)
for peer in peers:
    peer.close()
sys.stdin.readline()
print(echo(connect()), flush=True)
"""


class Echo(asyncio.Protocol):
    made = 0
    alive = 0

    def connection_made(self, transport) -> None:
        Echo.made += 1
        Echo.alive += 1
        self.transport = transport

    def connection_lost(self, exc) -> None:
        Echo.alive -= 1

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def full_and_free_again() -> tuple[float, bytes, bytes]:
    """CPU seconds of one second at the limit, and what the client tells then and afterwards."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=50, start_serving=False)
    port = server.sockets[0].getsockname()[1]
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, str(port)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    try:
        await server.start_serving()
        # Who connected before would be refused.
        client.stdin.write(b"\n")
        while Echo.made < 10:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        began = time.process_time()
        await asyncio.sleep(1)
        spent = time.process_time() - began
        told = []
        for _ in range(2):
            client.stdin.write(b"\n")
            told.append(await client.stdout.readline())
            while not told[1:] and Echo.alive:
                await asyncio.sleep(0.01)
        return spent, *told
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.stdin.close()
        await client.wait()
        server.close()


def test_a_listener_without_descriptors_neither_dies_nor_spins() -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        spent, while_full, afterwards = runner.run(full_and_free_again())
    assert spent < 0.3
    assert while_full.strip() == b"5"
    assert afterwards.strip() == b"True"
