"""What clients see of an agent that is killed and started again at once: `python -m tests.bench.bench_restart`.

One agent on etcd and MinIO (`--dev`: one that has all embedded), a librdkafka producer that goes on
all the time; `kill -9`, and another process under the same name in the same moment. Prints the longest
time between two acknowledgements around each kill, what CPU the new process had used by the first one
(seen every 50 ms), and when it said that it serves; minimum, median and maximum of all. `--beside FOLDER` measures another checkout
in turns. No test: it measures, it does not judge.
"""

import argparse
import itertools
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.cpu import cpu_seconds
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, FrazilDev, MinioServer

TOPIC = "restarts"
BEFORE_S = 2.0
AFTER_S = 5.0
SETTLED_S = 0.1
"""Acknowledgements that were under way at the kill are heard of by then."""


class Acks:
    """A producer that sends steadily, and when it heard of what."""

    def __init__(self, bootstrap: str, per_second: int) -> None:
        config = {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
        self._producer = Producer(config)
        self._pause_s = 1 / per_second
        self._ended = threading.Event()
        self.times_s: list[float] = []
        self.failed = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._producer.produce(TOPIC, bytes(1000), on_delivery=self._heard)
            self._producer.poll(self._pause_s)
        self._producer.flush(30)

    def _heard(self, error: object, _message: Message) -> None:
        if error is None:
            self.times_s.append(time.monotonic())
        else:
            self.failed += 1

    def gap_s(self, since_s: float) -> float:
        """The longest time without one, since then."""
        times = [since_s, *(each for each in self.times_s if each > since_s)]
        return max(after - before for before, after in itertools.pairwise(times))

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


class Restart:
    """An agent that is killed again and again."""

    def __init__(self, title: str, agent: Frazil, per_second: int) -> None:
        self.title = title
        self._agent = agent
        self._per_second = per_second
        self.gaps_s: list[float] = []
        self.serving_s: list[float] = []
        self.cpu_s: list[float] = []
        agent.start()
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()

    def once(self) -> None:
        child = self._agent.child
        acks = Acks(self._agent.bootstrap, self._per_second)
        time.sleep(BEFORE_S)
        told = child.log.stat().st_size
        child.signal(signal.SIGKILL)
        killed_s = time.monotonic()
        child.wait(seconds=10)

        acked_cpu_s: list[float] = []

        def serves() -> bool:
            if not acked_cpu_s and acks.times_s[-1] > killed_s + SETTLED_S:
                acked_cpu_s.append(cpu_seconds(child.pid))
            with child.log.open("rb") as log:
                log.seek(told)
                said = b"\n" + log.read()
            return bool(acked_cpu_s) and (b"\nserving " in said or b"Frazil is running" in said)

        child.start(serves)
        self.serving_s.append(time.monotonic() - killed_s)
        self.cpu_s += acked_cpu_s
        time.sleep(AFTER_S)
        self.gaps_s.append(acks.gap_s(killed_s - BEFORE_S / 2))
        acks.end()
        assert acks.failed == 0, f"{acks.failed} records were not acknowledged"
        print(
            f"  {self.title}: gap {self.gaps_s[-1]:.2f} s; {self.cpu_s[-1]:.2f} CPU s by the first ack;"
            f" serving after {self.serving_s[-1]:.2f} s",
            flush=True,
        )

    def tell(self) -> None:
        for what, figures in (
            ("gap between acks, s", self.gaps_s),
            ("said that it serves after, s", self.serving_s),
            ("CPU by the first ack, s", self.cpu_s),
        ):
            print(
                f"{self.title}: {what}: min {min(figures):.2f}, median"
                f" {statistics.median(figures):.2f}, max {max(figures):.2f} (n = {len(figures)})"
            )

    def stop(self) -> None:
        self._agent.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--rate", type=int, default=200, help="records a second")
    parser.add_argument("--dev", action="store_true", help="an embedded agent")
    parser.add_argument("--beside", type=Path, help="another checkout, in turns with this one")
    options = parser.parse_args()
    checkouts = {"this": Path.cwd()}
    if options.beside is not None:
        checkouts["other"] = options.beside
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        etcd, minio = EtcdServer(folder / "etcd"), MinioServer(folder / "minio")
        if not options.dev:
            etcd.start()
            minio.start()
        sides = []
        try:
            for title, checkout in checkouts.items():
                if options.dev:
                    agent: Frazil = FrazilDev(folder / title, "--set", "logs.level=info")
                else:
                    (agent,) = FrazilCluster(folder / title, etcd, minio, agents=1).agents
                agent.child.env["PYTHONPATH"] = str(checkout)
                sides.append(Restart(title, agent, options.rate))
            for _ in range(options.times):
                for side in sides:
                    side.once()
            for side in sides:
                side.tell()
        finally:
            for side in sides:
                side.stop()
            minio.stop()
            etcd.stop()


if __name__ == "__main__":
    sys.exit(main())
