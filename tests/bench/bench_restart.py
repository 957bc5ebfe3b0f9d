"""What clients see of an agent that is killed and started again at once: `python -m tests.bench.bench_restart`.

One agent on etcd and MinIO (`--dev`: one that has all embedded; `--agents N`: one of several, with partitions at
each), a librdkafka producer that goes on all the time; `kill -9` (`--leave`: SIGTERM, and the process leaves), and
another process under the same name in the same moment. Prints the longest time between two acknowledgements of a
partition around each, what CPU the new process had used by the first one (seen every 50 ms), and when it said
that it serves; minimum, median and maximum of all. `--beside FOLDER` measures another checkout in turns. No test:
it measures, it does not judge.
"""

import argparse
import itertools
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.cpu import cpu_seconds
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, FrazilDev, MinioServer

TOPIC = "restarts"
PARTITIONS_EACH = 4
"""Of each agent, where there are several."""
BEFORE_S = 2.0
AFTER_S = 5.0
SETTLED_S = 0.1
"""Acknowledgements that were under way at the kill are heard of by then."""


class Acks:
    """A producer that sends steadily to all partitions in turn, and when it heard of what."""

    def __init__(self, bootstrap: str, per_second: int, partitions: int) -> None:
        config = {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
        self._producer = Producer(config)
        self._pause_s = 1 / per_second
        self._ended = threading.Event()
        self.times_s: list[list[float]] = [[] for _ in range(partitions)]
        self.failed = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for partition in itertools.cycle(range(len(self.times_s))):
            if self._ended.is_set():
                break
            self._producer.produce(TOPIC, bytes(1000), partition=partition, on_delivery=self._heard)
            self._producer.poll(self._pause_s)
        self._producer.flush(30)

    def _heard(self, error: object, message: Message) -> None:
        if error is None:
            self.times_s[message.partition() or 0].append(time.monotonic())
        else:
            self.failed += 1

    def all_heard_since(self, since_s: float) -> bool:
        """Something of each partition was acknowledged after that."""
        return all(times and times[-1] > since_s for times in self.times_s)

    def gap_s(self, since_s: float) -> float:
        """The longest time without one in a partition, since then."""
        return max(_longest([since_s, *times], since_s) for times in self.times_s)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def _longest(times_s: Sequence[float], since_s: float) -> float:
    late = [each for each in times_s if each >= since_s]
    return max(after - before for before, after in itertools.pairwise(late))


class Restart:
    """An agent that is killed, or told to leave, again and again; others stay as they are."""

    def __init__(
        self, title: str, agents: Sequence[Frazil], per_second: int, *, by: signal.Signals
    ) -> None:
        self.title = title
        self._agent, *self._others = agents
        self._by = by
        self._per_second = per_second
        self._partitions = PARTITIONS_EACH * len(agents) if self._others else 1
        self.gaps_s: list[float] = []
        self.serving_s: list[float] = []
        self.cpu_s: list[float] = []
        for agent in agents:
            agent.start()
        admin = AdminClient({"bootstrap.servers": self._agent.bootstrap})
        admin.create_topics([NewTopic(TOPIC, self._partitions, 1)])[TOPIC].result()

    def once(self) -> None:
        child = self._agent.child
        acks = Acks(self._agent.bootstrap, self._per_second, self._partitions)
        time.sleep(BEFORE_S)
        told = child.log.stat().st_size
        child.signal(self._by)
        killed_s = time.monotonic()
        child.wait(seconds=10)
        ended_s = time.monotonic()

        acked_cpu_s: list[float] = []

        def serves() -> bool:
            if not acked_cpu_s and acks.all_heard_since(ended_s + SETTLED_S):
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
        for agent in (self._agent, *self._others):
            agent.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--rate", type=int, default=200, help="records a second")
    parser.add_argument("--dev", action="store_true", help="an embedded agent")
    parser.add_argument("--agents", type=int, default=1, help="on etcd; one is restarted")
    parser.add_argument("--leave", action="store_true", help="SIGTERM, not SIGKILL")
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
                agents: Sequence[Frazil]
                if options.dev:
                    agents = [FrazilDev(folder / title, "--set", "logs.level=info")]
                else:
                    count = options.agents
                    agents = FrazilCluster(folder / title, etcd, minio, agents=count).agents
                for agent in agents:
                    agent.child.env["PYTHONPATH"] = str(checkout)
                by = signal.SIGTERM if options.leave else signal.SIGKILL
                sides.append(Restart(title, agents, options.rate, by=by))
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
    main()
