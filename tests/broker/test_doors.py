"""Ports of an agent: who waits behind them, who is let in, and who is turned away."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from typing_extensions import override

from broker.doors import Door, DoorError, Reserved, reserve
from tests.parts.process import free_port

pytestmark = pytest.mark.real_loop

NewLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = [asyncio.SelectorEventLoop, uvloop.Loop]
HOST = "127.0.0.1"


class Echo(asyncio.Protocol):
    """Says what it hears."""

    @override
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Client:
    """Somebody who connects and says something at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        writer.write(b"hello")

    @classmethod
    async def connect(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection(HOST, port))

    async def answer(self) -> bytes:
        try:
            return await asyncio.wait_for(self._reader.readexactly(5), 10)
        finally:
            self._writer.close()


def on(loop: NewLoop, test: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(test())


async def bound_door(port: int, reserved: Reserved | None = None) -> Door:
    door = Door(backlog=10, setting="listen", reserved=reserved)
    await door.bind(HOST, port)
    return door


@pytest.mark.parametrize("loop", LOOPS)
def test_who_waits_behind_a_door_that_is_ajar_is_served_when_it_opens(loop: NewLoop) -> None:
    async def test() -> None:
        door = await bound_door(port := free_port())
        door.set_ajar()
        client = await Client.connect(port)
        await door.open(Echo)
        assert await client.answer() == b"hello"
        door.close()

    on(loop, test)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_door_that_is_shut_turns_everybody_away_and_can_be_opened(loop: NewLoop) -> None:
    async def test() -> None:
        door = await bound_door(port := free_port())
        door.set_ajar()
        client = await Client.connect(port)
        door.shut()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await client.answer()
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(port)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((HOST, port))
        await door.open(Echo)
        assert await (await Client.connect(port)).answer() == b"hello"
        door.close()

    on(loop, test)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_door_that_is_only_bound_refuses(loop: NewLoop) -> None:
    async def test() -> None:
        door = await bound_door(port := free_port())
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(port)
        door.close()

    on(loop, test)


async def test_a_port_that_the_system_chose_is_never_ajar() -> None:
    door = Door(backlog=10, setting="listen")
    _, port = await door.bind(HOST, 0)
    door.set_ajar()
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(port)
    door.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_who_came_before_there_was_a_loop_is_served_when_the_door_opens(loop: NewLoop) -> None:
    port = free_port()
    reserved = reserve([(HOST, port), ("a-name.invalid", port), (HOST, 0)], backlog=10, now_ms=7)
    assert list(reserved.sockets) == [(HOST, port)]
    early = socket.create_connection((HOST, port))

    async def test() -> None:
        client = Client(*await asyncio.open_connection(sock=early))
        door = await bound_door(port, reserved)
        door.set_ajar()
        await door.open(Echo)
        assert await client.answer() == b"hello"
        door.close()

    on(loop, test)


async def test_a_port_that_somebody_has_is_left_out_and_the_agent_says_so() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        reserved = reserve([(HOST, port)], backlog=10, now_ms=0)
        assert not reserved.sockets
        with pytest.raises(DoorError, match=r"in use\).*\(listen\)"):
            await bound_door(port, reserved)


@pytest.mark.promise("P17")
@pytest.mark.parametrize("loop", LOOPS)
def test_who_waited_for_long_is_turned_away_and_whoever_comes_then_waits(loop: NewLoop) -> None:
    async def test() -> None:
        door = await bound_door(port := free_port())
        door.set_ajar()
        before = await Client.connect(port)
        door.turn_away()
        after = await Client.connect(port)
        await door.open(Echo)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await before.answer()
        assert await after.answer() == b"hello"
        door.close()

    on(loop, test)


@pytest.mark.parametrize("loop", LOOPS)
def test_nobody_waits_behind_a_door_that_was_shut(loop: NewLoop) -> None:
    async def test() -> None:
        door = await bound_door(port := free_port())
        door.set_ajar()
        door.shut()
        door.turn_away()
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(port)
        door.close()

    on(loop, test)


HEAVY = ("aiohttp", "aiobotocore", "botocore", "cryptography", "joserfc")
"""A third of a start, or more, if they came before clients are served."""


def test_nothing_that_can_come_later_is_imported_before_an_agent_serves() -> None:
    modules = "broker.process, storage.stores.s3, coordinator.log.etcd, coordinator.log.sqlite"
    ask = f"import sys, broker.cli.main, {modules}; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True)
    assert {name for name in said.stdout.split() if name in HEAVY} == set()
