"""A connection that comes in the turn in which its server is closed is closed, too."""

import asyncio
import gc
import socket

import pytest

pytestmark = pytest.mark.real_loop


async def test_a_connection_accepted_when_its_server_was_closed_is_closed_at_once() -> None:
    def protocol() -> asyncio.Protocol:
        """Called for what was accepted, before its transport is made."""
        server.close()
        return asyncio.Protocol()

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    client = await asyncio.to_thread(socket.create_connection, server.sockets[0].getsockname())
    with client:
        client.settimeout(10)
        assert await asyncio.to_thread(client.recv, 1) == b""
    # What was left open is found now, and not in another test.
    gc.collect()
