"""Broken frames and lying lengths: answered or closed as Kafka does, and the agent lives on."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.records import Record, build_batch
from tests.bench.load import Connection, create_topic
from tests.parts.servers import FrazilDev

pytestmark = pytest.mark.integration

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    agent = FrazilDev(tmp_path_factory.mktemp("bad-bytes"))
    agent.start()
    create_topic(agent.port, "bad", 1)
    yield agent
    assert agent.stop() == 0


def _closed(agent: FrazilDev, data: bytes) -> bool:
    """Was the connection closed without an answer after these bytes?"""
    with socket.create_connection(("127.0.0.1", agent.port), timeout=10) as connection:
        connection.sendall(data)
        try:
            return connection.recv(100) == b""
        except ConnectionResetError:
            return True


def _request(key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", key, version, 7, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", -5) + b"negative",
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(range(256)) * 4,
        _request(9999, 0, b""),
        _request(METADATA, 99, b""),
        _request(METADATA, 9, b"\xff\xff\xff\xff\x7f"),
        _request(PRODUCE, 7, b"\x00"),
    ],
    ids=[
        "2 GB length",
        "negative length",
        "too short",
        "HTTP",
        "garbage",
        "unknown API",
        "unknown version",
        "lying count",
        "truncated body",
    ],
)
def test_what_is_not_kafka_closes_the_connection_and_no_other(
    agent: FrazilDev, data: bytes
) -> None:
    assert _closed(agent, data)
    assert agent.child.running
    assert _produce_error(agent, _batch()) == ErrorCode.NONE


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(agent: FrazilDev) -> None:
    connection = Connection(agent.port)
    connection.send(API_VERSIONS, 99, [b"nonsense"])
    error, count, key, low, high = struct.unpack_from(">hihhh", connection.receive())
    connection.close()
    assert error == ErrorCode.UNSUPPORTED_VERSION
    assert (count, key, low, high) == (1, API_VERSIONS, 0, 4)


def _batch() -> bytes:
    return bytes(build_batch([Record(0, 1_700_000_000_000, b"key", b"value" * 20, ())]))


def _produce_error(agent: FrazilDev, batch: bytes) -> int:
    """The error code that a Produce v7 of these bytes to partition 0 is answered with."""
    body = struct.pack(">hhiih3siii", -1, -1, 30_000, 1, 3, b"bad", 1, 0, len(batch)) + batch
    connection = Connection(agent.port)
    connection.send(PRODUCE, 7, [body])
    answer = connection.receive()
    connection.close()
    error, base_offset = struct.unpack_from(">hq", answer, 4 + 2 + 3 + 4 + 4)
    assert (base_offset == -1) == (error != ErrorCode.NONE)
    return error


def test_a_wrong_checksum_is_a_corrupt_message(agent: FrazilDev) -> None:
    batch = bytearray(_batch())
    batch[-1] ^= 1
    assert _produce_error(agent, bytes(batch)) == ErrorCode.CORRUPT_MESSAGE


def test_a_truncated_batch_is_refused(agent: FrazilDev) -> None:
    error = _produce_error(agent, _batch()[:-10])
    assert error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_memory_stays_flat_under_lying_lengths(agent: FrazilDev) -> None:
    def resident_kib() -> int:
        status = Path(f"/proc/{agent.child.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    before = resident_kib()
    # 100 connections that promise 90 MB each and send a little of it.
    promises = []
    for _ in range(100):
        connection = socket.create_connection(("127.0.0.1", agent.port), timeout=10)
        connection.sendall(struct.pack(">i", 90 << 20) + b"x" * 1000)
        promises.append(connection)
    assert _produce_error(agent, _batch()) == ErrorCode.NONE
    grown_mib = (resident_kib() - before) / 1024
    for connection in promises:
        connection.close()
    assert grown_mib < 200
