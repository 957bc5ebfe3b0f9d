"""The brokers that a benchmark compares: one process each, beside what it needs of other servers.

CPU and memory are the broker's process alone: not MinIO's, etcd's or the proxy's before it, and not
the worker's of an agent's jobs, which a cluster has once.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from tests.bench.cpu import cpu_seconds
from tests.bench.tree import processes
from tests.parts import install
from tests.parts.process import Child, answers, free_port
from tests.parts.servers import (
    EtcdServer,
    Frazil,
    FrazilCluster,
    FrazilDev,
    KafkaServer,
    MinioServer,
    get_text,
)
from tests.parts.slow_store import LEAST_MS, MEAN_MORE_MS, SlowStore

FLOOR, KAFKA, DEV, S3 = "floor", "Kafka", "frazil dev", "agent on etcd + S3"
BROKERS: Final = (KAFKA, DEV, S3)
ALL: Final = (FLOOR, *BROKERS)
OTHER: Final = "frazil dev of another checkout"
CALM_S: Final = 1.5
"""After a start, until what goes on then is over."""
COUNTED: Final = {
    "puts": "frazil_store_puts_total",
    "put_s": "frazil_store_put_seconds_total",
    "entries": "frazil_log_entries_appended_total",
    "append_s": "frazil_log_append_seconds_total",
}
"""What an agent is asked for before and after a turn."""


class Side(Protocol):
    """A broker that runs."""

    name: str
    port: int

    @property
    def pid(self) -> int: ...

    def restart(self) -> None:
        """Forget what is in memory, if that is what the broker would read from."""
        ...

    def counted(self) -> dict[str, float]:
        """Numbers that grow, by the names of `COUNTED`; empty where nothing counts."""
        ...


@dataclass
class Cost:
    """Of what happened between the beginning of `costing` and its end."""

    cpu_s: float = 0.0
    seconds: float = 0.0
    counted: dict[str, float] | None = None

    def mean_ms(self, seconds: str, count: str) -> float:
        """Of what is counted; 0 where nothing is, or nothing happened."""
        counted = self.counted or {}
        return 1000 * counted.get(seconds, 0.0) / max(1.0, counted.get(count, 0.0))


@contextmanager
def costing(side: Side) -> Iterator[Cost]:
    cost, before = Cost(), side.counted()
    cpu_s, begun = cpu_seconds(side.pid), time.perf_counter()
    yield cost
    cost.cpu_s, cost.seconds = cpu_seconds(side.pid) - cpu_s, time.perf_counter() - begun
    cost.counted = {name: value - before[name] for name, value in side.counted().items()}


def memory_mib(side: Side) -> float:
    """Resident now."""
    return processes()[side.pid].rss_bytes / (1 << 20)


class FloorSide:
    name = FLOOR

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        argv = [sys.executable, "-m", "tests.bench.floor", str(self.port)]
        self._child = Child(argv, log=folder / "floor.log")

    def start(self) -> None:
        self._child.start(lambda: answers(self.port))

    def stop(self) -> None:
        self._child.stop()

    @property
    def pid(self) -> int:
        return self._child.pid

    def restart(self) -> None:
        """It has nothing to read from but its memory."""

    def renew(self) -> None:
        """Forget the case before: all topics are the same one."""
        self.stop()
        self.start()

    def counted(self) -> dict[str, float]:
        return {}


class KafkaSide:
    name = KAFKA

    def __init__(self, folder: Path) -> None:
        # Its default: members that come at about the same time join at the same time.
        delay = "group.initial.rebalance.delay.ms=3000"
        self._server = KafkaServer(folder, delay, java=install.measured_jvm("1g"))
        self.port = self._server.port

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    @property
    def pid(self) -> int:
        return self._server.child.pid

    def restart(self) -> None:
        """It reads from the page cache, which a restart leaves as it is, and would be cold."""

    def counted(self) -> dict[str, float]:
        return {}


class AgentSide:
    """One agent of Frazil."""

    def __init__(self, name: str, agent: Frazil) -> None:
        self.name = name
        self._agent = agent
        self.port, self.http_port = agent.port, agent.http_port

    def start(self) -> None:
        self._agent.start()
        time.sleep(CALM_S)

    def stop(self) -> None:
        self._agent.stop()

    @property
    def pid(self) -> int:
        return self._agent.child.pid

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL, and another process in the same moment."""
        self._agent.child.kill()
        self._agent.start()

    def counted(self) -> dict[str, float]:
        text = get_text(self.http_port, "/metrics")
        found = {
            name: re.search(rf"^{series} (\S+)$", text, re.MULTILINE)
            for name, series in COUNTED.items()
        }
        return {name: float(each[1]) for name, each in found.items() if each is not None}


class Sides:
    """All brokers of a run, started when first asked for; stopped at the end."""

    def __init__(
        self,
        folder: Path,
        *,
        put_ms: tuple[float, float] = (LEAST_MS, MEAN_MORE_MS),
        beside: Path | None = None,
    ) -> None:
        """`put_ms`: what PUTs wait at least, and in the mean beyond; `beside`: the other checkout."""
        self._folder = folder
        self._put_ms = put_ms
        self._beside = beside
        self._running: dict[str, Side] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, name: str) -> tuple[Side, bool]:
        """The broker, and whether it is new."""
        if known := self._running.get(name):
            return known, False
        makers: dict[str, Callable[[], FloorSide | KafkaSide | AgentSide]] = {
            FLOOR: lambda: FloorSide(self._folder),
            KAFKA: lambda: KafkaSide(self._folder / "kafka"),
            DEV: lambda: AgentSide(DEV, FrazilDev(self._folder / "dev")),
            S3: self._on_s3,
            OTHER: self._of_other_checkout,
        }
        side = makers[name]()
        self._stack.callback(side.stop)
        side.start()
        self._running[name] = side
        return side, True

    def _of_other_checkout(self) -> AgentSide:
        assert self._beside is not None
        agent = FrazilDev(self._folder / "other")
        agent.child.env["PYTHONPATH"] = str(self._beside.resolve())
        return AgentSide(OTHER, agent)

    def _on_s3(self) -> AgentSide:
        folder = self._folder / "s3"
        # Synced, as it is in production.
        etcd = EtcdServer(folder / "etcd", "--unsafe-no-fsync=false")
        minio = MinioServer(folder / "minio")
        for server in (etcd, minio):
            self._stack.callback(server.stop)
            server.start()
        least_ms, more_ms = self._put_ms
        slow = SlowStore(folder, minio.port, least_ms=least_ms, more_ms=more_ms)
        self._stack.enter_context(slow)
        minio.endpoint = slow.endpoint
        (agent,) = FrazilCluster(folder / "cluster", etcd, minio, agents=1).agents
        return AgentSide(S3, agent)
