"""Links between real processes can be cut, silent, slow, and lose or tear what is answered."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.drawn.link import Link, Network


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(4096):
                        connection.sendall(data)
                except OSError:
                    return

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=[connection], daemon=True).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join(10)


@pytest.fixture
def link(echo: int) -> Iterator[Link]:
    with Network() as network:
        yield network.link(echo)


def connect(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout=10)


def answer(connection: socket.socket, data: bytes = b"1234") -> bytes:
    """What comes back; nothing when the connection broke."""
    try:
        connection.sendall(data)
        return connection.recv(4096)
    except ConnectionError:
        return b""


def test_what_is_cut_breaks_and_can_be_made_anew_when_it_is_over(link: Link) -> None:
    with connect(link) as before:
        assert answer(before) == b"1234"
        link.befall("cut")
        assert answer(before) == b""
        with connect(link) as meanwhile:
            assert answer(meanwhile) == b""
    link.heal()
    with connect(link) as after:
        assert answer(after) == b"1234"


def test_what_was_sent_into_silence_arrives_when_it_is_over(link: Link) -> None:
    with connect(link) as connection:
        assert answer(connection) == b"1234"
        link.befall("half-open")
        connection.sendall(b"late")
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(4)
        link.heal()
        connection.settimeout(10)
        assert connection.recv(4) == b"late"


def test_what_is_slow_takes_that_long_each_way(link: Link) -> None:
    with connect(link) as connection:
        link.befall("slow", 0.05)
        began_s = time.monotonic()
        assert answer(connection) == b"1234"
        assert time.monotonic() - began_s >= 0.1


def test_one_of_so_many_answers_is_torn_in_the_middle(link: Link) -> None:
    link.befall("torn", 2)
    with connect(link) as connection:
        assert answer(connection) == b"1234"
        assert answer(connection) == b"12"
        assert answer(connection) == b""
    assert link.torn == 1


def test_one_of_so_many_answers_is_lost(link: Link) -> None:
    link.befall("lost", 1)
    with connect(link) as connection:
        assert answer(connection) == b""
    assert link.lost == 1
    link.heal()
    with connect(link) as connection:
        assert answer(connection) == b"1234"


def test_where_nobody_listens_the_connection_breaks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Network() as network, connect(network.link(port)) as connection:
        assert answer(connection) == b""
