"""Kafka's wire by hand: one request, its answer, and nothing of a client's patience in between."""

import socket
import struct
from types import TracebackType
from typing import Self

from protocol.records import Record, build_batch

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
PRODUCE_VERSION = 7


def request(key: int, version: int, body: bytes) -> bytes:
    """A whole frame, with correlation id 7 and no client id."""
    header = struct.pack(">hhih", key, version, 7, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def batch() -> bytes:
    """A record batch of one record."""
    return bytes(build_batch([Record(0, 1_700_000_000_000, b"key", b"value" * 20, ())]))


class Wire:
    """One connection to an agent."""

    def __init__(self, port: int, *, seconds: float = 60.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """The next answer, behind its correlation id."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)[4:]

    def is_closed(self) -> bool:
        """Wait for what comes; is it the end?"""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "the agent closed the connection"
            data += more
        return data


def produce_error(port: int, topic: str, records: bytes, *, timeout_ms: int = 30_000) -> int:
    """The error code that a Produce of these bytes to partition 0 is answered with."""
    name = topic.encode()
    body = struct.pack(">hhiih", -1, -1, timeout_ms, 1, len(name)) + name
    body += struct.pack(">iii", 1, 0, len(records)) + records
    with Wire(port) as wire:
        wire.send(request(PRODUCE, PRODUCE_VERSION, body))
        answer = wire.receive()
    error, base_offset = struct.unpack_from(">hq", answer, 4 + 2 + len(name) + 4 + 4)
    assert (base_offset == -1) == (error != 0), "a failed produce answers base_offset -1 (P2)"
    return error
