"""How many connections an HTTP listener has, how long they may take, how much they may hold."""

import asyncio
from typing import Any

from typing_extensions import override

from broker.http.connections import HttpConnection, HttpConnections, HttpLimits


class Transport(asyncio.Transport):
    """Remembers what was done to it."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.written = b""
        self.is_closed = False
        self.protocol: asyncio.Protocol

    @override
    def write(self, data: Any) -> None:
        self.written += data

    @override
    def close(self) -> None:
        self.abort()

    @override
    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Scene:
    """Connections over transports without sockets."""

    def __init__(self, **limits: Any) -> None:
        self.connections = HttpConnections(
            HttpLimits(**{"connections_max": 3} | limits), asyncio.Protocol
        )

    def connect(self, address: str = "a") -> tuple[HttpConnection, Transport]:
        transport = Transport(address)
        transport.protocol = connection = self.connections.factory()
        connection.connection_made(transport)
        return connection, transport


async def test_a_head_that_does_not_come_ends_its_connection_however_it_trickles() -> None:
    scene = Scene()
    connection, transport = scene.connect()
    for _ in range(9):
        await asyncio.sleep(1)
        connection.data_received(b"x")
        assert not transport.is_closed
    await asyncio.sleep(1.1)
    assert transport.is_closed
    assert len(scene.connections) == 0
    assert scene.connections.held_bytes == 0


async def test_a_request_that_is_served_takes_as_long_as_it_takes() -> None:
    scene = Scene()
    connection, transport = scene.connect()
    connection.data_received(b"a request")
    connection.begin()
    connection.serve()
    await asyncio.sleep(1000)
    assert not transport.is_closed


async def test_after_an_answer_a_connection_waits_for_the_next_request_and_not_for_ever() -> None:
    scene = Scene()
    connection, transport = scene.connect()
    connection.begin()
    connection.end()
    await asyncio.sleep(74)
    assert not transport.is_closed
    await asyncio.sleep(2)
    assert transport.is_closed


async def test_the_head_of_a_second_request_has_no_more_time_than_that_of_the_first() -> None:
    scene = Scene()
    connection, transport = scene.connect()
    connection.begin()
    connection.end()
    await asyncio.sleep(1)
    connection.data_received(b"x")
    await asyncio.sleep(11)
    assert transport.is_closed


async def test_an_answer_that_nobody_takes_ends_its_connection() -> None:
    scene = Scene()
    connection, transport = scene.connect()
    connection.begin()
    connection.pause_writing()
    await asyncio.sleep(29)
    connection.resume_writing()
    await asyncio.sleep(60)
    assert not transport.is_closed
    connection.pause_writing()
    await asyncio.sleep(31)
    assert transport.is_closed


async def test_a_full_listener_makes_room_at_the_cost_of_whoever_has_most_and_waits_longest() -> (
    None
):
    scene = Scene()
    _, honest = scene.connect("honest")
    await asyncio.sleep(1)
    _, first = scene.connect("hostile")
    await asyncio.sleep(1)
    _, second = scene.connect("hostile")
    _, third = scene.connect("hostile")
    assert [each.is_closed for each in (honest, first, second, third)] == [
        False,
        True,
        False,
        False,
    ]
    assert len(scene.connections) == 3


async def test_a_body_that_is_on_its_way_keeps_nobody_else_out() -> None:
    scene = Scene()
    hostile = [scene.connect("hostile") for _ in range(3)]
    for connection, _ in hostile:
        connection.begin()
    _, honest = scene.connect("honest")
    assert not honest.is_closed
    assert [transport.is_closed for _, transport in hostile] == [True, False, False]


async def test_a_listener_full_of_one_addresss_requests_has_room_for_another_address() -> None:
    scene = Scene()
    hostile = [scene.connect("hostile") for _ in range(3)]
    for connection, _ in hostile:
        connection.begin()
        connection.serve()
    honest, transport = scene.connect("honest")
    honest.serve()
    assert not transport.is_closed
    assert [each.is_closed for _, each in hostile] == [False, False, True]
    # Now each of the two has its share, and neither takes from the other.
    for address in ("honest", "hostile"):
        assert scene.connect(address)[1].is_closed


async def test_a_listener_full_of_requests_that_are_served_refuses_one_more_in_words() -> None:
    scene = Scene()
    for address in ("a", "b", "c"):
        scene.connect(address)[0].serve()
    _, transport = scene.connect("other")
    head, _, body = transport.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"try again" in body
    assert transport.is_closed
    assert len(scene.connections) == 3


async def test_over_the_bound_of_bytes_the_connection_that_holds_most_is_closed() -> None:
    scene = Scene(held_bytes_max=100)
    one, one_transport = scene.connect()
    other, other_transport = scene.connect()
    one.data_received(bytes(60))
    other.data_received(bytes(30))
    other.data_received(bytes(20))
    assert (one_transport.is_closed, other_transport.is_closed) == (True, False)
    assert scene.connections.held_bytes == 50


async def test_what_is_answered_is_held_no_more() -> None:
    scene = Scene(held_bytes_max=100)
    connection, transport = scene.connect()
    for _ in range(10):
        connection.data_received(bytes(60))
        connection.begin()
        connection.end()
    assert not transport.is_closed
    assert scene.connections.held_bytes == 0


async def test_a_connection_that_was_closed_counts_once() -> None:
    scene = Scene()
    connection, transport = scene.connect()
    connection.abort()
    connection.abort()
    connection.data_received(b"late")
    await asyncio.sleep(100)
    assert transport.is_closed
    assert len(scene.connections) == 0
    assert scene.connections.held_bytes == 0
