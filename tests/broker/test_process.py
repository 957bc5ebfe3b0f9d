"""`frazil dev` as a process: signals, kill -9, used ports, and the ports it prints."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parent.parent.parent
TALKATIVE = ("--set", "logs.level=info")


class Dev:
    """A running `frazil dev --port 0`."""

    def __init__(
        self, data: Path, *more: str, hangups: signal.Handlers = signal.SIG_DFL, **of_process: Any
    ) -> None:
        """`hangups`: what its parent left of SIGHUP, which may not be what these tests were started with."""
        self.log = data.with_suffix(".log").open("w+")
        command = [sys.executable, "-m", "broker", "dev", "--port", "0", "--data", str(data), *more]
        out = {"stdout": self.log, "stderr": self.log} | of_process
        out["preexec_fn"] = partial(signal.signal, signal.SIGHUP, hangups)
        self.child = subprocess.Popen(command, cwd=ROOT, **out)

    @property
    def printed(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def port(self) -> int:
        """The port that it printed."""
        deadline = time.monotonic() + 120
        while (found := re.search(r"Kafka clients +localhost:(\d+)", self.printed)) is None:
            assert self.child.poll() is None, self.printed
            assert time.monotonic() < deadline, self.printed
            time.sleep(0.05)
        return int(found[1])

    def ended(self, number: int) -> int:
        self.child.send_signal(number)
        return self.child.wait(60)


@contextmanager
def dev(
    data: Path, *more: str, hangups: signal.Handlers = signal.SIG_DFL, **of_process: Any
) -> Iterator[Dev]:
    agent = Dev(data, *more, hangups=hangups, **of_process)
    try:
        yield agent
    finally:
        agent.child.kill()
        agent.child.wait(10)
        agent.log.close()


def produce(port: int, count: int, *, first: int = 0) -> None:
    """Write numbers; on return all are acknowledged."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": f"localhost:{port}", "acks": "all"})
    for number in range(first, first + count):
        producer.produce(
            "t",
            str(number).encode(),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert failed == []


def consume(port: int, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": f"localhost:{port}",
            "group.id": "none",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[int] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.2):
            assert message.error() is None, message.error()
            values.append(int(message.value()))
    consumer.close()
    return values


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_clean_and_the_data_stays(tmp_path: Path, number: int) -> None:
    with dev(tmp_path / "data") as agent:
        produce(agent.port(), 10)
        assert agent.ended(number) == 0
        assert "Traceback" not in agent.printed
        assert "WARNING" not in agent.printed
    with dev(tmp_path / "data") as agent:
        assert consume(agent.port(), 10) == list(range(10))


def test_a_terminal_that_ends_and_says_so_twice_to_all_has_it_leave_in_order(
    tmp_path: Path,
) -> None:
    with dev(tmp_path / "data", *TALKATIVE, start_new_session=True) as agent:
        agent.port()
        _until(agent, "the jobs have a replica")
        for _ in range(2):
            os.killpg(agent.child.pid, signal.SIGHUP)
            time.sleep(0.05)
        assert agent.child.wait(60) == 0
        assert "SIGHUP: leaving" in agent.printed
        assert "WARNING" not in agent.printed


def test_who_was_started_by_nohup_goes_on_when_its_terminal_ends(tmp_path: Path) -> None:
    with dev(tmp_path / "data", hangups=signal.SIG_IGN) as agent:
        port = agent.port()
        agent.child.send_signal(signal.SIGHUP)
        produce(port, 10)
        assert agent.ended(signal.SIGTERM) == 0
        assert "SIGHUP" not in agent.printed


def test_who_cannot_say_that_it_serves_since_the_disk_is_full_serves_all_the_same(
    tmp_path: Path,
) -> None:
    with (
        Path("/dev/full").open("w") as full,
        dev(tmp_path / "data", *TALKATIVE, stdout=full) as agent,
    ):
        _until(agent, "the jobs have a replica")
        assert agent.child.poll() is None
        assert agent.ended(signal.SIGTERM) == 0
        assert "Traceback" not in agent.printed


@pytest.mark.parametrize(
    ("number", "code"), [(1, 128 + signal.SIGTERM), (2, -signal.SIGTERM)], ids=["first", "other"]
)
def test_the_first_process_of_a_container_ends_by_a_signal_while_it_starts(
    number: int, code: int
) -> None:
    """The kernel would keep from it what it does not handle; others end as ever."""
    program = f"""
import os, signal, sys
own = os.getpid()
os.getpid = lambda: {number}
from broker import __main__ as entry
from broker.cli import main
main.main = lambda: os.kill(own, signal.SIGTERM) or signal.pause()
sys.exit(entry.main())
"""
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=60)
    assert found.returncode == code


def _until(agent: Dev, said: str) -> None:
    """It has said this."""
    deadline = time.monotonic() + 60
    while said not in agent.printed:
        assert agent.child.poll() is None, agent.printed
        assert time.monotonic() < deadline, agent.printed
        time.sleep(0.05)


def test_after_kill_9_everything_acknowledged_is_there(tmp_path: Path) -> None:
    with dev(tmp_path / "data") as agent:
        produce(agent.port(), 500)
        agent.ended(signal.SIGKILL)
    with dev(tmp_path / "data") as agent:
        produce(agent.port(), 10, first=500)
        assert consume(agent.port(), 510) == list(range(510))


@pytest.mark.fault_code("data-folder-in-use")
def test_a_second_agent_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with dev(tmp_path / "data") as agent:
        agent.port()
        with dev(tmp_path / "data") as second:
            assert second.child.wait(120) == 1
            assert "in use by another process" in second.printed
            assert second.printed.endswith(" [data-folder-in-use]\n")
            assert "Traceback" not in second.printed


@pytest.mark.fault_code("port-taken")
def test_a_used_port_is_told(tmp_path: Path) -> None:
    with dev(tmp_path / "data") as agent:
        listen = f"listen=127.0.0.1:{agent.port()}"
        with dev(tmp_path / "other", "--set", listen) as second:
            assert second.child.wait(120) == 1
            assert "Address already in use" in second.printed
            assert second.printed.endswith(" [port-taken]\n")
            assert second.printed.count("\n") == 1
