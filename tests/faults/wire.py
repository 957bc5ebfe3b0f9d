"""Kafka's wire by hand: one request, its answer, and nothing of a client's patience in between."""

import socket
import struct
import time
from types import TracebackType
from typing import Self

from protocol.records import Record, batch_positions, build_batch, iterate
from tests.parts.secured import Identity, connected

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION = 7, 4, 1
LATEST = -1
FETCH_BYTES = 1 << 20


def request(key: int, version: int, body: bytes) -> bytes:
    """A whole frame, with correlation id 7 and no client id."""
    header = struct.pack(">hhih", key, version, 7, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def batch() -> bytes:
    """A record batch of one record, of now."""
    now_ms = int(time.time() * 1000)
    return bytes(build_batch([Record(0, now_ms, b"key", b"value" * 20, ())]))


class Wire:
    """One connection to an agent."""

    def __init__(self, port: int, *, seconds: float = 60.0, who: Identity | None = None) -> None:
        self._socket: socket.socket = connected(port, who, seconds=seconds)

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
            if not more:
                raise ConnectionError("the agent closed the connection")
            data += more
        return data


def produce_error(
    port: int,
    topic: str,
    records: bytes,
    *,
    timeout_ms: int = 30_000,
    who: Identity | None = None,
) -> int:
    """The error code that a Produce of these bytes to partition 0 is answered with."""
    head = struct.pack(">hhi", -1, -1, timeout_ms)
    asked = struct.pack(">i", len(records)) + records
    answer = _ask(port, PRODUCE, PRODUCE_VERSION, head, topic, 0, asked, who)
    error, base_offset = struct.unpack_from(">hq", answer, _answered_at(topic))
    assert (base_offset == -1) == (error != 0), "a failed produce answers base_offset -1 (P2)"
    return error


def end_offset(port: int, topic: str, partition: int, *, who: Identity | None = None) -> int:
    """What this agent, led by itself or not, says of the end."""
    head, asked = struct.pack(">i", -1), struct.pack(">q", LATEST)
    answer = _ask(port, LIST_OFFSETS, LIST_OFFSETS_VERSION, head, topic, partition, asked, who)
    error, _, offset = struct.unpack_from(">hqq", answer, _answered_at(topic))
    assert error == 0, f"ListOffsets: error {error}"
    return offset


def read(
    port: int, topic: str, partition: int, *, end: int, who: Identity | None = None
) -> list[Record]:
    """All records below `end`, served by this agent."""
    found: list[Record] = []
    offset = 0
    while offset < end:
        head = struct.pack(">iiiib", -1, 500, 1, FETCH_BYTES, 0)
        asked = struct.pack(">qi", offset, FETCH_BYTES)
        answer = _ask(port, FETCH, FETCH_VERSION, head, topic, partition, asked, who)
        at = 4 + _answered_at(topic)
        error, _, _, aborted = struct.unpack_from(">hqqi", answer, at)
        assert error == 0, f"Fetch at {offset} of {end}: error {error}"
        at += 22 + 16 * max(0, aborted)
        (length,) = struct.unpack_from(">i", answer, at)
        data = memoryview(answer)[at + 4 : at + 4 + length]
        starts, _ = batch_positions(data)
        assert len(starts) > 0, f"nothing at {offset}, though the end is {end} (P7)"
        for start in starts:
            found += [record for record in iterate(data, start) if record.offset >= offset]
        offset = found[-1].offset + 1
    return found


def _ask(
    port: int,
    key: int,
    version: int,
    head: bytes,
    topic: str,
    partition: int,
    asked: bytes,
    who: Identity | None,
) -> bytes:
    """A request about one partition, on a connection of its own; its answer."""
    name = topic.encode()
    body = head + struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">ii", 1, partition) + asked
    with Wire(port, who=who) as wire:
        wire.send(request(key, version, body))
        return wire.receive()


def _answered_at(topic: str) -> int:
    """Where the first partition's error code is, when nothing precedes the topics."""
    return 4 + 2 + len(topic.encode()) + 4 + 4
