"""An agent under more and more load: what it can bear, what becomes of more, and how it recovers.

    start ─▶ unloaded ─▶ how much it bears ─▶ a quarter of that … ten times that ─▶ until all is as before

Beside the load a canary keeps its own small account, the probes of Kubernetes are asked as often as
they would be in a cluster of many, and the agent's memory is looked at. The agent has a core to
itself where there are two.
"""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.harm.canary import Account
from tests.harm.overload.load import Crowd, Step
from tests.parts.process import Child
from tests.parts.servers import (
    EtcdServer,
    Frazil,
    FrazilCluster,
    FrazilDev,
    MinioServer,
    get_text,
)

LADDER = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
SETTINGS = ("cache.bytes=64MiB",)
"""So that old data is not in memory."""
PROBE_S, PROBE_TIMEOUT_S = 0.25, 3.0
"""The latter is the chart's, of readiness."""
MEMORY_S = 0.1
UNLOADED_S, LAP_S = 4.0, 1.0
RECOVERY_S_MAX = 30.0
SETTLED_S_MAX = 5.0
RAMP = (250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000)
RAMP_S = 2.0
BORNE = 0.95
"""Of what is offered, served in time: then it can bear that."""
MiB = 1 << 20
GAUGES = ("frazil_request_memory_bytes", "frazil_produce_waiting_bytes")
"""Memory that load takes; it is given back when load ends."""


@dataclass(kw_only=True)
class Probes:
    """Answers to /health/ready and /health/live; times in ms."""

    count: int = 0
    p50: float = 0.0
    longest: float = 0.0
    failed: dict[str, int] = field(default_factory=dict)
    """No answer in time, or another status than 200: how often."""
    overloaded: list[str] = field(default_factory=list)
    """What was said of it."""


@dataclass(kw_only=True)
class Seen:
    """One step. Rates are requests a second, of all kinds together."""

    factor: float
    offered: float
    offered_bytes: float
    served: float
    kinds: dict[str, Any]
    canary: Account
    probes: Probes
    memory: int
    """Bytes: resident memory, the most."""
    stall_ms: float
    agent_busy: float
    """Of a core."""
    agent_waited: float
    """Likewise: it could have run, and another process did."""
    load_busy: float
    drained_s: float

    @property
    def errors(self) -> dict[str, int]:
        return {
            f"{kind}: {what}": count
            for kind, told in self.kinds.items()
            for what, count in told["errors"].items()
        }


@dataclass(kw_only=True)
class Run:
    """All that was seen of one agent."""

    name: str
    connections: int
    addresses: int
    bears: float
    """Produce requests a second."""
    unloaded: Account
    memory_before: int
    memory_bound: int | None
    """That the agent tells; None: it tells none."""
    steps: list[Seen]
    recovered_s: float | None
    """From the end of the load until all was as before; None: it never was."""
    recovery: list[dict[str, Any]]


@contextlib.contextmanager
def agent_of(parts: str, folder: Path, settings: Sequence[str]) -> Iterator[Frazil]:
    """`dev`: everything embedded; `etcd+s3`: one agent over real servers."""
    with contextlib.ExitStack() as stack:
        if parts == "dev":
            flags = [each for setting in settings for each in ("--set", setting)]
            agent: Frazil = FrazilDev(folder, *flags)
        else:
            etcd, minio = EtcdServer(folder / "etcd"), MinioServer(folder / "minio")
            for server in (etcd, minio):
                stack.callback(server.stop)
                server.start()
            (agent,) = FrazilCluster(folder / "one", etcd, minio, *settings, agents=1).agents
        stack.callback(agent.child.kill)
        with _on_core(0):
            agent.start()
        with _on_core(1):
            yield agent


@contextlib.contextmanager
def _on_core(number: int) -> Iterator[None]:
    """What is started meanwhile has that core, of two or more."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Conversation:
    """A process that is told something by lines and answers in JSON."""

    def __init__(self, *argv: str, nice: int = 0) -> None:
        self._process = subprocess.Popen(
            ["nice", "-n", str(nice), sys.executable, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it ended by itself"
        return json.loads(line)

    def end(self) -> None:
        self._process.kill()
        with self._process:
            self._process.wait()


class Watch:
    """Probes and memory of an agent, in threads, since `begin`."""

    def __init__(self, agent: Frazil) -> None:
        self._agent = agent
        self._times: list[float] = []
        self._failed: Counter[str] = Counter()
        self._overloaded: dict[str, None] = {}
        self._memory = 0
        self.overloaded_now: list[str] = []
        self._stopped = threading.Event()
        for work, pause_s in ((self._probe, PROBE_S), (self._weigh, MEMORY_S)):
            threading.Thread(target=self._again, args=(work, pause_s), daemon=True).start()

    def begin(self) -> None:
        self._times, self._failed, self._overloaded, self._memory = [], Counter(), {}, 0
        self._weigh()

    def told(self) -> tuple[Probes, int]:
        times = sorted(self._times) or [0.0]
        probes = Probes(
            count=len(self._times) + self._failed.total(),
            p50=round(times[len(times) // 2] * 1000, 1),
            longest=round(times[-1] * 1000, 1),
            failed=dict(self._failed),
            overloaded=[*self._overloaded],
        )
        return probes, self._memory

    def stop(self) -> None:
        self._stopped.set()

    def _again(self, work: Any, pause_s: float) -> None:
        while not self._stopped.wait(pause_s):
            work()

    def _probe(self) -> None:
        for path in ("/health/ready", "/health/live"):
            begun = time.monotonic()
            connection = http.client.HTTPConnection(
                "127.0.0.1", self._agent.http_port, timeout=PROBE_TIMEOUT_S
            )
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                said = json.loads(answer.read())
                wrong = "" if answer.status == 200 else f"{path} {answer.status}"
            except (OSError, http.client.HTTPException):
                said, wrong = {}, f"{path} in time"
            finally:
                connection.close()
            if wrong:
                self._failed[wrong] += 1
            else:
                self._times.append(time.monotonic() - begun)
            if path == "/health/ready" and not wrong:
                self.overloaded_now = said.get("overloaded", [])
                self._overloaded |= dict.fromkeys(_without_numbers(self.overloaded_now))

    def _weigh(self) -> None:
        self._memory = max(self._memory, resident(self._agent.child))


def _without_numbers(sentences: Sequence[str]) -> list[str]:
    """The same each time that it is said."""
    return [each.partition(":")[0] for each in sentences]


def resident(child: Child) -> int:
    """Bytes."""
    try:
        pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_s(child: Child) -> float:
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waited_s(child: Child) -> float:
    """How long its loop's thread waited for a core."""
    text = Path(f"/proc/{child.pid}/task/{child.pid}/schedstat").read_text()
    return int(text.split()[1]) / 1e9


def metrics_of(agent: Frazil) -> dict[str, float]:
    """By name, of those without labels."""
    text = get_text(agent.http_port, "/metrics")
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE)}


class Experiment:
    """One agent, its load and its canary."""

    def __init__(self, agent: Frazil, crowd: Crowd) -> None:
        self.agent = agent
        self.crowd = crowd
        # Nice, so that canary and servers have their turns.
        self._load = Conversation("-m", "tests.harm.overload.load", nice=19)
        self._canary = Conversation("-m", "tests.harm.canary", str(agent.port), "canary")
        self._canary.say("begin")
        self._watch = Watch(agent)
        self.unloaded = Account()
        self.memory_before = 0
        self.memory_bound: int | None = None
        self._before: dict[str, float] = {}

    def begin(self) -> None:
        """Connect the load, and look at the canary beside it before it does anything."""
        agent = self.agent
        self._load.say(json.dumps(asdict(self.crowd)))
        assert self._load.hear() == "ready"
        time.sleep(1.5)
        self._canary.say("watch")
        time.sleep(UNLOADED_S)
        self.unloaded = self._lap()
        self._before = metrics_of(agent)
        self.memory_before = resident(agent.child)
        if "frazil_memory_bound_bytes" in self._before:
            self.memory_bound = int(self._before["frazil_memory_bound_bytes"])

    def close(self) -> None:
        self._watch.stop()
        self._load.end()
        self._canary.end()

    def _lap(self) -> Account:
        self._canary.say("lap")
        return Account(**self._canary.hear())

    def bears(self, ramp: Sequence[float]) -> float:
        """The most produce requests a second that were served, until some were not in time."""
        most = 1.0
        for rate in ramp:
            step = Step(produces_a_second=rate, background=1.0, seconds=RAMP_S)
            self._load.say(json.dumps(asdict(step)))
            told = self._load.hear()["kinds"]["produce"]
            served = told["served"] / RAMP_S
            most = max(most, served)
            if served < BORNE * rate:
                break
        return most

    def settle(self) -> None:
        """Wait until health has nothing to say of the load before."""
        deadline = time.monotonic() + SETTLED_S_MAX
        while True:
            time.sleep(2 * PROBE_S)
            if not self._watch.overloaded_now or time.monotonic() >= deadline:
                return

    def step(self, factor: float, *, bears: float, seconds: float) -> Seen:
        """Offer `factor` times what it bears."""
        step = Step(produces_a_second=factor * bears, background=factor, seconds=seconds)
        self._lap()
        self._watch.begin()
        cpu, waited = cpu_s(self.agent.child), waited_s(self.agent.child)
        begun = time.monotonic()
        self._load.say(json.dumps(asdict(step)))
        time.sleep(seconds)
        elapsed_s = time.monotonic() - begun
        busy = (cpu_s(self.agent.child) - cpu) / elapsed_s
        waited = (waited_s(self.agent.child) - waited) / elapsed_s
        canary = self._lap()
        probes, memory = self._watch.told()
        told = self._load.hear()
        kinds = told["kinds"]
        return Seen(
            factor=factor,
            offered=sum(each["offered"] for each in kinds.values()) / seconds,
            offered_bytes=sum(each["offered_bytes"] for each in kinds.values()) / seconds,
            served=sum(each["served"] for each in kinds.values()) / seconds,
            kinds=kinds,
            canary=canary,
            probes=probes,
            memory=memory,
            stall_ms=metrics_of(self.agent).get("frazil_loop_stall_longest_ms", 0.0),
            agent_busy=round(busy, 2),
            agent_waited=round(waited, 2),
            load_busy=told["busy"],
            drained_s=told["drained_s"],
        )

    def recovery(self, *, drained_s: float) -> tuple[float | None, list[dict[str, Any]]]:
        """Until the canary, memory that load takes, and health are as they were; `drained_s`: for
        how long the load has ended."""
        begun = time.monotonic() - drained_s
        laps: list[dict[str, Any]] = []
        latency_max = max(1.5 * self.unloaded.ack_p99, self.unloaded.ack_p99 + 20.0)
        self._lap()
        while (elapsed_s := time.monotonic() - begun) < RECOVERY_S_MAX:
            time.sleep(LAP_S)
            account = self._lap()
            now = metrics_of(self.agent)
            held = sum(now[name] - self._before[name] for name in GAUGES)
            overloaded = list(self._watch.overloaded_now)
            laps.append(
                {
                    "after_s": round(elapsed_s, 1),
                    "ack_p99": account.ack_p99,
                    "held_bytes": held,
                    "overloaded": overloaded,
                    "memory": resident(self.agent.child),
                }
            )
            if account.ack_p99 <= latency_max and held < MiB and not overloaded:
                return round(elapsed_s, 1), laps
        return None, laps


def run(
    name: str,
    agent: Frazil,
    crowd: Crowd,
    *,
    ladder: Sequence[float] = LADDER,
    seconds: float = 6.0,
    ramp: Sequence[float] = RAMP,
) -> Run:
    """The whole experiment on an agent that is ready."""
    experiment = Experiment(agent, crowd)
    try:
        experiment.begin()
        bears = experiment.bears(ramp)
        steps = []
        for factor in ladder:
            experiment.settle()
            steps.append(experiment.step(factor, bears=bears, seconds=seconds))
            _tell(steps[-1])
        recovered_s, laps = experiment.recovery(drained_s=steps[-1].drained_s)
        return Run(
            name=name,
            connections=crowd.producers,
            addresses=len(crowd.addresses),
            bears=round(bears),
            unloaded=experiment.unloaded,
            memory_before=experiment.memory_before,
            memory_bound=experiment.memory_bound,
            steps=steps,
            recovered_s=recovered_s,
            recovery=laps,
        )
    finally:
        experiment.close()


def _tell(seen: Seen) -> None:
    print(
        f"{seen.factor:5}x offered {seen.offered:7.0f}/s served {seen.served:6.0f}/s"
        f"  canary {seen.canary.ack_p50} / {seen.canary.ack_p99} ms"
        f"  probes {seen.probes.longest} ms {seen.probes.failed or ''}"
        f"  memory {seen.memory // MiB} MiB  agent {seen.agent_busy}, waited {seen.agent_waited},"
        f" load {seen.load_busy}  drained {seen.drained_s} s"
        f"  {seen.errors or ''} {seen.canary.lost or ''} {seen.probes.overloaded or ''}",
        file=sys.stderr,
        flush=True,
    )
