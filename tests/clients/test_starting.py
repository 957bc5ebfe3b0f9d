"""What clients see of agents that start: a port behind which they wait, and then one that serves; or a closed
one, where store or log are away. Real processes."""

import contextlib
import logging
import socket
import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.clients.bounded import until
from tests.parts.servers import EtcdServer, Frazil, http_ok

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
"""A whole request of version 0: length, API, version, correlation id, no client id."""


def serving(folder: Path, *settings: str) -> Frazil:
    """`frazil serve` on ports of its own; all else is by default."""
    agent = Frazil(folder, "serve")
    for setting in (
        f"listen=0.0.0.0:{agent.port}",
        "advertise=127.0.0.1",
        f"http=127.0.0.1:{agent.http_port}",
        *settings,
    ):
        agent.child.argv += ["--set", setting]
    return agent


def alone(folder: Path) -> Frazil:
    return serving(folder, f"store=file://{folder}/objects", f"log=sqlite://{folder}/log.db")


def start(agent: Frazil) -> None:
    """Without waiting for anything."""
    agent.child.start(lambda: True)


def first_served(agent: Frazil) -> int:
    """Connect again and again: how often it was refused, or turned away, before it was served."""
    refused = 0
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            door = socket.create_connection(("127.0.0.1", agent.port), timeout=PATIENCE_S)
        except ConnectionRefusedError:
            refused += 1
            assert time.monotonic() < deadline, agent.child.tail()
            continue
        answer = b""
        with door, contextlib.suppress(ConnectionResetError):
            door.sendall(API_VERSIONS)
            answer = door.recv(8, socket.MSG_WAITALL)
        if not answer:
            refused += 1
            continue
        assert struct.unpack(">ii", answer)[1] == 7
        return refused


def test_whoever_connects_while_an_agent_starts_waits_until_it_is_served(tmp_path: Path) -> None:
    agent = alone(tmp_path)
    for _ in range(2):
        start(agent)
        try:
            # Refused before the port was there, and then no more.
            first_served(agent)
            agent.until_ready()
        finally:
            agent.child.kill()


def test_what_is_printed_when_an_agent_serves_is_true_for_the_next_connection(
    tmp_path: Path,
) -> None:
    agent = alone(tmp_path)
    start(agent)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "\nserving PLAINTEXT=" not in agent.child.tail():
            assert time.monotonic() < deadline, agent.child.tail()
        assert first_served(agent) == 0
    finally:
        agent.stop()


def ended(lines: list[str]) -> list[str]:
    """What librdkafka said of connections that came to nothing, or to an end.

    It gives up its handle of a broker when it bootstraps anew: that is no end of a connection. And
    it says the code, "(_TRANSPORT)", only where an end is not like the one before.
    """
    failures = [line for line in lines if line.startswith("FAIL")]
    return [line for line in failures if not line.endswith("(_DESTROY_BROKER)")]


def test_librdkafka_that_waits_for_an_agent_finds_its_port_closed_and_then_goes_on(
    tmp_path: Path,
) -> None:
    lines: list[str] = []
    logger = logging.getLogger("librdkafka of test_starting")
    logger.propagate = False
    logger.addHandler(handler := logging.Handler())
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.setLevel(logging.DEBUG)
    etcd = EtcdServer(tmp_path / "etcd")
    log = f"etcd://{','.join(etcd.endpoints)}/frazil"
    agent = serving(tmp_path, f"store=file://{tmp_path}/objects", f"log={log}")
    often = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 10, "debug": "broker"}
    producer = Producer({"bootstrap.servers": agent.bootstrap, **often}, logger=logger)
    failed: list[object] = []
    producer.produce("t", b"x", on_delivery=lambda error, _: failed.append(error))
    agent.child.start(lambda: http_ok(agent.http_port, "/health/live"))
    try:
        # It waits for its log, and librdkafka for it.
        lines.clear()
        deadline = time.monotonic() + PATIENCE_S
        while len(ended(lines)) < 10:
            producer.poll(0.1)
            assert time.monotonic() < deadline, lines
        etcd.start()
        assert producer.flush(PATIENCE_S) == 0
        assert failed == [None]
        # Before it was known that the log is away, it waited behind the port, and was turned away.
        told = [line for line in ended(lines) if "APIVERSION_QUERY" not in line]
        assert [line for line in told if "Connection refused" not in line] == []
    finally:
        agent.stop()
        etcd.stop()


def test_agents_of_one_host_are_two_and_each_comes_back_as_itself(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    log = f"etcd://{','.join(etcd.endpoints)}{etcd.new_prefix()}"
    shared = (f"store=file://{tmp_path}/objects", f"log={log}", "cluster.id=two")
    one, two = (serving(tmp_path / name, *shared) for name in ("one", "two"))

    def brokers() -> dict[int, int]:
        """Ids by port."""
        admin = AdminClient({"bootstrap.servers": two.bootstrap})
        found = admin.list_topics(timeout=PATIENCE_S).brokers.values()
        return {broker.port: broker.id for broker in found}

    with one, two:
        both = brokers()
        assert set(both) == {one.port, two.port}
        one.child.kill()
        one.start()
        # What is asked hears a moment later of the one that is back.
        until(brokers, lambda found: found == both)
        one.until_ready()
        two.until_ready()
