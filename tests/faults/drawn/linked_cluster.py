"""A cluster of real processes on links that can be cut, and what befalls them."""

import re
import signal
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from tests.faults.disaster import planned, position_now, recover, settings_of
from tests.faults.drawn.link import Link, Network
from tests.faults.drawn.plan import CLIENTS, STORE, Fault, Stage, link
from tests.faults.fronts import front
from tests.parts.etcd_cluster import EtcdCluster
from tests.parts.process import Child
from tests.parts.servers import Etcd, Frazil, FrazilCluster, MinioServer, at_once, get_text
from tests.parts.small_disk import SmallDisk
from tests.parts.wall_clock import WallClock
from tests.releases.agents import ReleaseOf

SETTINGS = (
    *("lease.ttl.ms=3000", "session.deadline.ms=2000", "session.read.ms=500"),
    "group.initial.rebalance.delay.ms=0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
    # Of the default, 10, clients would get that many transactions a second.
    "puts.per.second=1000",
    # A clock that runs ahead is to have all chances to end a transaction, and to delete records.
    "transaction.max.timeout.ms=86400000",
    "log.retention.check.interval.ms=1000",
    # The log is archived from the beginning.
    "jobs.start.delay.ms=0",
)
START_S_MAX = 20.0
"""So long after a start an agent may still be at it."""
CLOCK_SKEW = "[clock-skew]"
"""How the last line ends of an agent that does not start since its clock is wrong."""


ARCHIVED_S_MAX = 90.0
"""So long after the last fault the store may lack something of the log."""


class Part(Protocol):
    """A process that listens: a member of etcd, or the store."""

    port: int
    child: Child


class LinkedCluster:
    """Agents, and all that they and their clients reach, by links.

    An agent may end by itself at its start when its clock is wrong, if it says so; it is started again, as whatever
    looks after it would do, once the clock is right.
    """

    def __init__(
        self,
        folder: Path,
        network: Network,
        etcd: Etcd,
        members: Mapping[str, Part],
        minio: MinioServer,
        stage: Stage,
        clocks: Mapping[str, WallClock],
        disk: SmallDisk | None,
        older: Path | None,
    ) -> None:
        """`members`: of etcd, by name; they and the store run already. `clocks`: of agents, by name, if they can be
        set; `disk`: the store's, if it can be full; `older`: the unpacked release that agents are of at first, if
        it is not this one."""
        self.stage = stage
        self._etcd, self._clocks, self._disk, self._older = etcd, clocks, disk, older
        self._started_wrong: set[str] = set()
        """Agents whose clock was another when they started, or may have been."""
        self._started_s: dict[str, float] = {}
        self._refusals = 0
        self.cluster = FrazilCluster(
            folder / "cluster",
            etcd,
            minio,
            *SETTINGS,
            agents=stage.agents,
        )
        self.agents: dict[str, Frazil] = {
            stage.agent(index): agent for index, agent in enumerate(self.cluster.agents)
        }
        self._parts: dict[str, Part] = {**members, STORE: minio, **self.agents}
        self._links: dict[str, Link] = {}
        self._killed: set[str] = set()
        for name, agent in self.agents.items():
            self._lay(network, name, agent, members, minio)
            if clock := clocks.get(name):
                agent.child.env |= clock.env
        self._releases = {name: ReleaseOf(agent.child) for name, agent in self.agents.items()}
        self._are_older: set[str] = set()
        """Agents."""
        if older is not None:
            for name in self.agents:
                self._change_release(name)
        self._filler = ThreadPoolExecutor(1, "fills etcd")
        self._filling: Future[None] | None = None

    def _lay(
        self,
        network: Network,
        name: str,
        agent: Frazil,
        members: Mapping[str, Part],
        minio: MinioServer,
    ) -> None:
        """This agent's links, in its arguments."""
        here = "127.0.0.1"
        self._links[link(CLIENTS, name)] = front(network, agent)
        to_store = self._links[link(name, STORE)] = network.link(minio.port)
        ports = {minio.port: to_store.port}
        for member, part in members.items():
            to_member = self._links[link(name, member)] = network.link(part.port)
            ports[part.port] = to_member.port
        argv = agent.child.argv
        for at in range(len(argv)):
            if argv[at].startswith(("log=", "store.endpoint=")):
                for port, through in ports.items():
                    argv[at] = argv[at].replace(f"{here}:{port}", f"{here}:{through}")

    @property
    def bootstrap(self) -> str:
        """All agents, as clients reach them."""
        fronts = (self._links[link(CLIENTS, name)] for name in self.agents)
        return ",".join(f"127.0.0.1:{front.port}" for front in fronts)

    def befall(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                self._killed.add(fault.target)
                self._child(fault).kill()
            case "pause":
                self._child(fault).pause()
            case "ahead" | "behind":
                if time.monotonic() < self._started_s.get(fault.target, 0.0) + START_S_MAX:
                    self._started_wrong.add(fault.target)
                self._clocks[fault.target].set(fault.amount)
            case "drift":
                self._clocks[fault.target].drift(fault.amount)
            case "wrong-start":
                self._started_wrong.add(fault.target)
                self._child(fault).kill()
                self._clocks[fault.target].set(fault.amount)
                self._start(fault.target)
            case "full":
                assert self._disk is not None
                self._disk.fill()
            case "no-space":
                # It takes seconds, and others begin meanwhile.
                self._filling = self._filler.submit(self._fill)
            case "replace":
                self._killed.add(fault.target)
                self._child(fault).signal(signal.SIGTERM)
            case _:
                self._links[fault.target].befall(fault.kind, fault.amount)

    def heal(self, fault: Fault) -> None:
        """What it was is over; who was killed is on its way."""
        match fault.kind:
            case "kill":
                self._killed.discard(fault.target)
                self._start(fault.target)
            case "pause":
                self._child(fault).resume()
            case "ahead" | "behind" | "drift" | "wrong-start":
                self._clocks[fault.target].set(0.0)
            case "full":
                assert self._disk is not None
                self._disk.heal()
            case "no-space":
                assert self._filling is not None
                self._filling.result()
                self._members.empty()
            case "replace":
                self._child(fault).kill()  # If it has not left: it was given its time.
                self._killed.discard(fault.target)
                self._change_release(fault.target)
                self._start(fault.target)
            case _:
                self._links[fault.target].heal()

    @property
    def _members(self) -> EtcdCluster:
        assert isinstance(self._etcd, EtcdCluster)
        return self._etcd

    def _fill(self) -> None:
        """A member that was away may only be on its way back."""
        self._members.until_healthy()
        self._members.fill()

    def _change_release(self, name: str) -> None:
        """From its next start on it is of the other one."""
        self._are_older ^= {name}
        self._releases[name].be(self._older if name in self._are_older else None)

    def until_archived(self) -> None:
        """What agents have applied by now is in the store. Raises AssertionError if that does not come."""
        agents = self.agents.values()
        head = max(map(position_now, agents))
        deadline_s = time.monotonic() + ARCHIVED_S_MAX
        while max(metric(each.http_port, "archive_position") for each in agents) < head:
            assert time.monotonic() < deadline_s, f"nothing is archived up to {head}"
            time.sleep(0.1)

    def kill_all(self) -> None:
        at_once(lambda agent: agent.child.kill(), list(self.agents.values()))

    def lose_the_log(self) -> dict[str, Any]:
        """What etcd had is gone, and the log begins anew from the store; then all agents run. What recovering told."""
        self._etcd.begin_anew()
        agent = next(iter(self.agents.values()))
        told = planned(agent.child, *settings_of(agent))
        recover(agent.child, "--yes", *settings_of(agent))
        self.cluster.start()
        return told

    def _child(self, fault: Fault) -> Child:
        return self._parts[fault.target].child

    def ended(self) -> list[str]:
        """Processes that are no more and should be; they are started again."""
        found = []
        for name, part in self._parts.items():
            if name in self._killed or part.child.running:
                continue
            clock = self._clocks.get(name)
            said_why = clock is not None and part.child.tail(1).endswith(CLOCK_SKEW)
            if said_why and clock is not None and clock.ahead_s:
                continue
            if said_why:
                self._refusals += 1
            else:
                found.append(f"{name} ended by itself:\n{part.child.tail(5)}")
            self._start(name)
        return found

    def start_anew(self) -> None:
        """Agents that were started with a wrong clock, since what was believed then they believe for a day; and in the
        end all are of this release."""
        for name in self._started_wrong | self._are_older:
            self._parts[name].child.kill()
            if name in self._are_older:
                self._change_release(name)
            self._start(name)

    def close(self) -> None:
        """Agents and servers are others' to stop."""
        self._filler.shutdown()

    def _start(self, name: str) -> None:
        self._parts[name].child.start(lambda: True)
        self._started_s[name] = time.monotonic()

    @property
    def damaged(self) -> dict[str, int]:
        """How many pieces of answers were torn, and lost, and how often an agent said that its clock is wrong."""
        links = self._links.values()
        return {
            "answers torn": sum(each.torn for each in links),
            "answers lost": sum(each.lost for each in links),
            "starts refused for a wrong clock": self._refusals,
        }


def metric(http_port: int, name: str) -> float:
    """One of an agent's, without labels."""
    text = get_text(http_port, "/metrics")
    found = re.search(rf"^frazil_{name} (\S+)$", text, re.MULTILINE)
    assert found is not None, f"no metric {name}"
    return float(found[1])
