"""The load of the benchmarks: a raw client that costs little, the same bytes for both brokers.

Requests are encoded before the clock starts and sent with several in flight on one connection;
answers are only looked at as far as needed to see that they are right. So what is measured is
the broker, not a client library. Batches are plain (no producer id), records of 1 KiB, as in
Kafka's own perf tools; incompressible bytes, so that nobody gains by compressing them.
"""

import os
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.records import Record, build_batch
from tests.parts.secured import Identity, connected

RECORD_BYTES = 1024
PRODUCE, FETCH, METADATA, CREATE_TOPICS = 0, 1, 3, 19
PRODUCE_VERSION = 8
FETCH_VERSION = 11


@dataclass
class Measured:
    """What one run of a load saw, on the client's side."""

    bytes: int = 0
    """Of record batches."""
    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Connection:
    """One connection; requests are answered in order."""

    def __init__(self, port: int, who: Identity | None = None) -> None:
        """`who`: logs in, over TLS."""
        self._socket: socket.socket = connected(port, who)
        self._correlation = 0
        self._buffer = bytearray(1 << 20)

    def send(self, key: int, version: int, body: Sequence[bytes | memoryview]) -> None:
        self._correlation += 1
        header = struct.pack(">hhih5s", key, version, self._correlation, 5, b"bench")
        length = len(header) + sum(len(part) for part in body)
        self._send_all([struct.pack(">i", length) + header, *body])

    def _send_all(self, parts: list[bytes | memoryview]) -> None:
        for part in parts:
            self._socket.sendall(part)

    def receive(self) -> memoryview:
        """The body of the next answer, behind its correlation id; valid until the next call."""
        self._read_into(memoryview(self._buffer)[:4])
        (length,) = struct.unpack_from(">i", self._buffer)
        if length > len(self._buffer):
            self._buffer = bytearray(length)
        view = memoryview(self._buffer)[:length]
        self._read_into(view)
        return view[4:]

    def _read_into(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            count = self._socket.recv_into(view[at:])
            assert count > 0, "the broker closed the connection"
            at += count

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def shrink(self) -> None:
        """Need no memory while nothing is asked."""
        self._buffer = bytearray(4)

    def close(self) -> None:
        self._socket.close()


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def create_topic(port: int, name: str, partitions: int) -> None:
    connection = Connection(port)
    topic = struct.pack(">i", 1) + _string(name) + struct.pack(">ihii", partitions, 1, 0, 0)
    connection.send(CREATE_TOPICS, 4, [topic, struct.pack(">ib", 30_000, 0)])
    connection.receive()
    connection.close()
    # Kafka answers before its broker leads the partitions; let it.
    time.sleep(1.0)


def batch_of(size: int) -> bytes:
    """A record batch of about `size` bytes, its records of now: Kafka deletes old ones soon."""
    count = max(1, size // (RECORD_BYTES + 16))
    now_ms = int(time.time() * 1000)
    records = [Record(index, now_ms, None, os.urandom(RECORD_BYTES), ()) for index in range(count)]
    return bytes(build_batch(records))


def produce_body(topic: str, batches: list[tuple[int, bytes]]) -> list[bytes]:
    head = struct.pack(">hhi", -1, -1, 30_000) + struct.pack(">i", 1) + _string(topic)
    parts = [head + struct.pack(">i", len(batches))]
    for partition, batch in batches:
        parts += [struct.pack(">ii", partition, len(batch)), batch]
    return parts


def _check_produced(answer: memoryview, topic: str) -> None:
    at = 4 + 2 + len(topic)
    (count,) = struct.unpack_from(">i", answer, at)
    (error,) = struct.unpack_from(">h", answer, at + 8)
    assert count > 0
    assert error == 0, f"produce failed with error {error}"


def produce(
    port: int,
    topic: str,
    *,
    partitions: int,
    batch_bytes: int,
    seconds: float,
    bytes_max: int,
    in_flight: int = 5,
    who: Identity | None = None,
) -> Measured:
    """Full speed for `seconds` or `bytes_max`: `in_flight` requests of about 1 MiB each.

    As the Java client does: five in flight, a request holds at most one batch of a partition.
    """
    batch = batch_of(batch_bytes)
    per_request = max(1, min(partitions, (1 << 20) // len(batch)))
    bodies = [
        produce_body(topic, [((first + k) % partitions, batch) for k in range(per_request)])
        for first in range(0, partitions, per_request)
    ]
    measured = Measured()
    connection = Connection(port, who)
    sent: deque[float] = deque()
    index = 0
    count_max = -(-bytes_max // (per_request * len(batch)))
    start = time.perf_counter()
    while True:
        goes_on = index < count_max and time.perf_counter() - start < seconds
        if not goes_on and not sent:
            break
        if goes_on and len(sent) < in_flight:
            connection.send(PRODUCE, PRODUCE_VERSION, bodies[index % len(bodies)])
            sent.append(time.perf_counter())
            index += 1
            continue
        _check_produced(connection.receive(), topic)
        measured.latencies_ms.append((time.perf_counter() - sent.popleft()) * 1000)
        measured.bytes += per_request * len(batch)
    measured.seconds = time.perf_counter() - start
    connection.close()
    return measured


def produce_paced(port: int, topic: str, *, per_second: int, seconds: float) -> Measured:
    """One record a request at a fixed rate, one in flight: what an acknowledgement takes."""
    batch = batch_of(RECORD_BYTES)
    body = produce_body(topic, [(0, batch)])
    measured = Measured()
    connection = Connection(port)
    start = time.perf_counter()
    for tick in range(int(per_second * seconds)):
        time.sleep(max(0.0, start + tick / per_second - time.perf_counter()))
        begun = time.perf_counter()
        connection.send(PRODUCE, PRODUCE_VERSION, body)
        _check_produced(connection.receive(), topic)
        measured.latencies_ms.append((time.perf_counter() - begun) * 1000)
        measured.bytes += len(batch)
    measured.seconds = time.perf_counter() - start
    connection.close()
    return measured


def _fetch_body(topic: str, offsets: dict[int, int], *, bytes_max: int = 50 << 20) -> bytes:
    body = struct.pack(">iiiibii", -1, 500, 1, bytes_max, 0, 0, -1)
    body += struct.pack(">i", 1) + _string(topic) + struct.pack(">i", len(offsets))
    for partition, offset in offsets.items():
        body += struct.pack(">iiqqi", partition, -1, offset, -1, 1 << 20)
    return body + struct.pack(">i", 0) + _string("")


def _advance(answer: memoryview, topic: str, offsets: dict[int, int], ends: dict[int, int]) -> int:
    """Move the offsets behind the whole batches of an answer, and note where partitions end.

    Returns the bytes of the batches.
    """
    at = 4 + 2 + 4 + 4 + 2 + len(topic)
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    total = 0
    for _ in range(count):
        partition, error, end_offset = struct.unpack_from(">ihq", answer, at)
        ends[partition] = end_offset
        assert error == 0, f"fetch failed with error {error}"
        (aborted,) = struct.unpack_from(">i", answer, at + 30)
        at += 34 + 16 * max(0, aborted) + 4
        (length,) = struct.unpack_from(">i", answer, at)
        at += 4
        end = at + max(0, length)
        while end - at >= 61:
            base, size = struct.unpack_from(">qi", answer, at)
            if at + 12 + size > end:
                break
            (delta,) = struct.unpack_from(">i", answer, at + 23)
            offsets[partition] = base + delta + 1
            total += 12 + size
            at += 12 + size
        at = end
    return total


def fetch(
    port: int,
    topic: str,
    *,
    partitions: int,
    bytes_max: int,
    newest: bool = False,
    who: Identity | None = None,
) -> Measured:
    """Read all partitions to their ends: from the beginning `bytes_max` at most, or the newest.

    One request in flight, limits as the Java consumer's: 1 MiB a partition, 50 MiB in all.
    """
    offsets = dict.fromkeys(range(partitions), 0)
    ends: dict[int, int] = {}
    connection = Connection(port, who)
    if newest:  # One batch, for the sake of the ends that come with it.
        connection.send(FETCH, FETCH_VERSION, [_fetch_body(topic, offsets, bytes_max=1)])
        _advance(connection.receive(), topic, offsets, ends)
        records = bytes_max // partitions // RECORD_BYTES
        offsets = {partition: max(0, end - records) for partition, end in ends.items()}
    measured = Measured()
    start = time.perf_counter()
    while measured.bytes < bytes_max:
        begun = time.perf_counter()
        connection.send(FETCH, FETCH_VERSION, [_fetch_body(topic, offsets)])
        answer = connection.receive()
        measured.latencies_ms.append((time.perf_counter() - begun) * 1000)
        got = _advance(answer, topic, offsets, ends)
        measured.bytes += got
        if all(offsets[partition] >= end for partition, end in ends.items()):
            break
        assert got, "a fetch brought nothing although there is more"
    measured.seconds = time.perf_counter() - start
    connection.close()
    return measured
