"""`python -m tests.bench.floor PORT`: what a broker in CPython cannot go below.

It keeps none of the promises, and does what no broker can leave out: one read and one unpack a
request, a checksum and an offset a batch, chunks that a thread writes and syncs, one answer a
connection and chunk; fetches of at most 4 MiB, of views of what was received. Any topic that a
client asks for exists, with 64 partitions, and they all are the same one. It speaks as much of the
protocol as librdkafka's plain producer and assigned consumer ask for. What is older than the newest
`KEPT_BYTES_MAX` is forgotten, so a load may be of any length.
"""

import asyncio
import bisect
import contextlib
import ctypes
import os
import queue
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, cast

import crc32c
import uvloop

PARTITIONS: Final = 64
KEPT_BYTES_MAX: Final = 256 << 20
FILE_BYTES_MAX: Final = 64 << 20
"""Then it is written over: fresh pages of the page cache cost more than the copy."""
RECEIVED_BYTES: Final = 256 << 10
ANSWER_BYTES_MAX: Final = 4 << 20
VECTORS_MAX: Final = 500
"""Of one write: writev takes 1024."""
EMPTY_AFTER_S: Final = 0.1

REQUEST = struct.Struct(">hhih")
BATCH = struct.Struct(">qiiBIhiqqqhii")
FETCH_PARTITION = struct.Struct(">iqi")
FETCHED = struct.Struct(">ihqqii")
PRODUCED = struct.Struct(">ihqqq")
INT16, INT32, INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
CRC_FROM: Final = 21
BATCH_HEAD: Final = 12
"""The base offset, and the length of what follows."""
APIS = ((0, 3, 7), (1, 4, 4), (2, 1, 1), (3, 1, 1), (18, 0, 2))


class Partition:
    """Offsets, and the newest batches."""

    def __init__(self) -> None:
        self.end = 0
        self._bases: list[int] = []
        self._batches: list[memoryview] = []

    def append(self, batch: memoryview, count: int) -> int:
        base = self.end
        INT64.pack_into(batch, 0, base)
        self._bases.append(base)
        self._batches.append(batch)
        self.end = base + count
        return base

    def forget_half(self) -> int:
        """The bytes that are left."""
        half = len(self._bases) // 2
        del self._bases[:half], self._batches[:half]
        return sum(map(len, self._batches))

    def read(self, offset: int, bytes_max: int) -> tuple[list[memoryview], int]:
        """Whole batches from the one that holds the offset on, and their bytes."""
        if offset >= self.end or not self._bases:
            return [], 0
        first = at = max(0, bisect.bisect_right(self._bases, offset) - 1)
        size = 0
        while at < len(self._batches):
            length = len(self._batches[at])
            if size and size + length > bytes_max:
                break
            size += length
            at += 1
        return self._batches[first:at], size


class Waiting(NamedTuple):
    connection: "Connection"
    answer: bytes
    batches: list[memoryview]


class Chunks:
    """What waits for the disk: all of it is one chunk as soon as the one before is written."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._descriptor, name = tempfile.mkstemp(prefix="frazil-floor-")
        Path(name).unlink()
        self._waiting: list[Waiting] = []
        self._busy = False
        self._closed: queue.SimpleQueue[list[Waiting]] = queue.SimpleQueue()
        threading.Thread(target=self._write, daemon=True).start()

    def add(self, waiting: Waiting) -> None:
        self._waiting.append(waiting)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._close)

    def _close(self) -> None:
        self._closed.put(self._waiting)
        self._waiting = []

    def _write(self) -> None:
        file, size = self._descriptor, 0
        while True:
            chunk = self._closed.get()
            views = [batch for each in chunk for batch in each.batches]
            for at in range(0, len(views), VECTORS_MAX):
                size += os.writev(file, views[at : at + VECTORS_MAX])
            os.fdatasync(file)
            if size > FILE_BYTES_MAX:
                size = os.lseek(file, 0, os.SEEK_SET)
            self._loop.call_soon_threadsafe(self._done, chunk)

    def _done(self, chunk: list[Waiting]) -> None:
        answers: dict[Connection, list[bytes]] = {}
        for connection, answer, _ in chunk:
            answers.setdefault(connection, []).append(answer)
        for connection, each in answers.items():
            connection.transport.write(b"".join(each))
        if self._waiting:
            self._close()
        else:
            self._busy = False


class Floor:
    """All that connections share."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.port = port
        self.loop = loop
        self.partitions = [Partition() for _ in range(PARTITIONS)]
        self.chunks = Chunks(loop)
        self.kept_bytes = 0

    def keep(self, size: int) -> None:
        self.kept_bytes += size
        if self.kept_bytes > KEPT_BYTES_MAX:
            self.kept_bytes = sum(partition.forget_half() for partition in self.partitions)


class Connection(asyncio.BufferedProtocol):
    transport: asyncio.Transport

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._received = bytearray(RECEIVED_BYTES)
        self._count = 0
        self._large: bytearray | None = None
        """A frame that does not fit, received in its own place."""
        self._handlers: dict[int, Callable[[bytearray, int, int], None]] = {
            0: self._produce,
            1: self._fetch,
            2: self._list_offsets,
            3: self._metadata,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its bases.

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._large or self._received)[self._count :]

    def buffer_updated(self, nbytes: int) -> None:
        self._count += nbytes
        if self._large is not None:
            if self._count == len(self._large):
                frame, self._large, self._count = self._large, None, 0
                self._take(frame)
            return
        view, at, count = memoryview(self._received), 0, self._count
        while count - at >= 4:
            (size,) = INT32.unpack_from(view, at)
            if count - at - 4 < size:
                break
            self._take(bytearray(view[at + 4 : at + 4 + size]))
            at += 4 + size
        rest = bytes(view[at:count])
        self._count = len(rest)
        if len(rest) >= 4 and size + 4 > RECEIVED_BYTES:
            self._large = bytearray(size)
            self._large[: len(rest) - 4] = rest[4:]
            self._count -= 4
        else:
            self._received[: len(rest)] = rest

    def _take(self, frame: bytearray) -> None:
        key, version, correlation, client = REQUEST.unpack_from(frame)
        if key == 18:
            self._api_versions(correlation, version)
        else:
            self._handlers[key](frame, correlation, REQUEST.size + max(0, client))

    def _send(self, correlation: int, body: bytes) -> None:
        self.transport.write(struct.pack(">ii", 4 + len(body), correlation) + body)

    def _api_versions(self, correlation: int, version: int) -> None:
        if version > 2:
            self._send(correlation, struct.pack(">hi", 35, 0))
            return
        rows = b"".join(struct.pack(">hhh", *api) for api in APIS)
        throttle = bytes(4) if version else b""
        self._send(correlation, struct.pack(">hi", 0, len(APIS)) + rows + throttle)

    def _metadata(self, frame: bytearray, correlation: int, at: int) -> None:
        (count,) = INT32.unpack_from(frame, at)
        host, at = b"127.0.0.1", at + 4
        brokers = struct.pack(">iih", 1, 0, len(host)) + host + struct.pack(">i", self._floor.port)
        answer = [brokers, struct.pack(">hii", -1, 0, max(0, count))]
        rows = (struct.pack(">hiiiiii", 0, n, 0, 1, 0, 1, 0) for n in range(PARTITIONS))
        partitions = INT32.pack(PARTITIONS) + b"".join(rows)
        for _ in range(count):
            name, at = _string(frame, at)
            answer += [struct.pack(">h", 0), name, b"\0", partitions]
        self._send(correlation, b"".join(answer))

    def _list_offsets(self, frame: bytearray, correlation: int, at: int) -> None:
        (topics,) = INT32.unpack_from(frame, at + 4)
        answer, at = [INT32.pack(topics)], at + 8
        for _ in range(topics):
            name, at = _string(frame, at)
            (count,) = INT32.unpack_from(frame, at)
            answer += [name, INT32.pack(count)]
            at += 4
            for _ in range(count):
                number, time_ms = struct.unpack_from(">iq", frame, at)
                at += 12
                offset = 0 if time_ms == -2 else self._floor.partitions[number].end
                answer.append(struct.pack(">ihqq", number, 0, -1, offset))
        self._send(correlation, b"".join(answer))

    def _produce(self, frame: bytearray, correlation: int, at: int) -> None:
        at += 2 + max(0, INT16.unpack_from(frame, at)[0]) + 6  # Transactional id, acks, timeout.
        (topics,) = INT32.unpack_from(frame, at)
        at += 4
        view, batches = memoryview(frame), list[memoryview]()
        answer = [b"", INT32.pack(correlation), INT32.pack(topics)]
        for _ in range(topics):
            name, at = _string(frame, at)
            (count,) = INT32.unpack_from(frame, at)
            answer += [name, INT32.pack(count)]
            at += 4
            for _ in range(count):
                number, length = struct.unpack_from(">ii", frame, at)
                at += 8
                batch = view[at : at + length]
                at += length
                header = BATCH.unpack_from(batch)
                assert header[1] == length - BATCH_HEAD
                assert header[3] == 2
                assert header[4] == crc32c.crc32c(batch[CRC_FROM:])
                base = self._floor.partitions[number].append(batch, header[12])
                batches.append(batch)
                answer.append(PRODUCED.pack(number, 0, base, -1, 0))
        answer.append(bytes(4))
        answer[0] = INT32.pack(sum(map(len, answer)))
        self._floor.chunks.add(Waiting(self, b"".join(answer), batches))
        self._floor.keep(len(frame))

    def _fetch(self, frame: bytearray, correlation: int, at: int) -> None:
        (topics,) = INT32.unpack_from(frame, at + 17)
        at += 21
        answer: list[bytes | memoryview] = [b"", struct.pack(">ii", 0, topics)]
        left = ANSWER_BYTES_MAX
        for _ in range(topics):
            name, at = _string(frame, at)
            (count,) = INT32.unpack_from(frame, at)
            answer += [name, INT32.pack(count)]
            at += 4
            for _ in range(count):
                number, offset, bytes_max = FETCH_PARTITION.unpack_from(frame, at)
                at += FETCH_PARTITION.size
                partition = self._floor.partitions[number]
                batches, size = (
                    partition.read(offset, min(bytes_max, left)) if left > 0 else ([], 0)
                )
                left -= size
                answer.append(FETCHED.pack(number, 0, partition.end, partition.end, 0, size))
                answer += batches
        answer[0] = struct.pack(">ii", 4 + sum(map(len, answer)), correlation)
        if left == ANSWER_BYTES_MAX and topics:
            self._floor.loop.call_later(EMPTY_AFTER_S, self._send_late, b"".join(answer))
        elif len(answer) > VECTORS_MAX:
            self.transport.write(b"".join(answer))
        else:
            self.transport.writelines(answer)

    def _send_late(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)


def _string(frame: bytearray, at: int) -> tuple[bytes, int]:
    """The string with its length, and where it ends."""
    end = at + 2 + INT16.unpack_from(frame, at)[0]
    return bytes(frame[at:end]), end


def keep_memory() -> None:
    """Freed memory stays the process's, as an agent's does: glibc's M_MMAP_THRESHOLD and
    M_TRIM_THRESHOLD, where they are."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 32 << 20)
        mallopt(-1, (1 << 31) - 1)


async def serve(port: int) -> None:
    floor = Floor(port, asyncio.get_running_loop())
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(floor), "127.0.0.1", port
    )
    await server.serve_forever()


if __name__ == "__main__":
    keep_memory()
    uvloop.run(serve(int(sys.argv[1])))
