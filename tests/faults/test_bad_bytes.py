"""Broken frames and lying lengths: answered or closed as Kafka does, and the agent lives on."""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from protocol.errors import ErrorCode
from tests.faults.wire import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    Wire,
    batch,
    produce_error,
    request,
)
from tests.parts.servers import FrazilDev
from tests.parts.topics import PATIENCE_S, create_topic

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    # It takes none of a busy machine's pauses for a stall, in which it would refuse what is good and bad alike.
    patient = ("--set", "stall.ms=60000")
    with FrazilDev(tmp_path_factory.mktemp("bad-bytes"), *patient) as agent:
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        create_topic(admin, "bad", 1)
        yield agent
        assert agent.stop() == 0


def _is_closed_by(agent: FrazilDev, data: bytes) -> bool:
    """Was the connection closed without an answer after these bytes?"""
    with Wire(agent.port, seconds=10) as wire:
        wire.send(data)
        return wire.is_closed()


def _produces(agent: FrazilDev) -> None:
    """It takes a record: the first that it is sent, unless it stood still on a busy machine."""
    deadline = time.monotonic() + PATIENCE_S
    while (error := produce_error(agent.port, "bad", batch())) != ErrorCode.NONE:
        assert error == ErrorCode.NOT_ENOUGH_REPLICAS
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", -5) + b"negative",
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(range(256)) * 300,
        request(9999, 0, b""),
        request(METADATA, 99, b""),
        request(METADATA, 9, b"\xff\xff\xff\xff\x7f"),
        request(PRODUCE, 7, b"\x00"),
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
    assert _is_closed_by(agent, data)
    assert agent.child.running
    _produces(agent)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(agent: FrazilDev) -> None:
    # From v3 on a header ends with tagged fields (here none); what follows is not understood.
    with Wire(agent.port) as wire:
        wire.send(request(API_VERSIONS, 99, b"\0nonsense"))
        error, count, key, low, high = struct.unpack_from(">hihhh", wire.receive())
    assert error == ErrorCode.UNSUPPORTED_VERSION
    assert (count, key, low, high) == (1, API_VERSIONS, 0, 4)


def test_a_wrong_checksum_is_a_corrupt_message(agent: FrazilDev) -> None:
    records = bytearray(batch())
    records[-1] ^= 1
    assert produce_error(agent.port, "bad", bytes(records)) == ErrorCode.CORRUPT_MESSAGE


def test_a_truncated_batch_is_no_batch_at_all(agent: FrazilDev) -> None:
    # As in Kafka: what is not there to its end does not count, and one batch is what is wanted.
    for length in (len(batch()) - 10, 61, 13, 1):
        error = produce_error(agent.port, "bad", batch()[:length])
        assert error == ErrorCode.INVALID_RECORD


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
    _produces(agent)
    grown_mib = (resident_kib() - before) / 1024
    for connection in promises:
        connection.close()
    assert grown_mib < 40
