"""A cluster of real processes on links that can be cut, and what befalls them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.faults.drawn.link import Link, Network
from tests.faults.drawn.plan import CLIENTS, STORE, Fault, Stage, link
from tests.parts.process import Child
from tests.parts.servers import Etcd, Frazil, FrazilCluster, MinioServer

SETTINGS = (
    *("lease.ttl.ms=3000", "session.deadline.ms=2000", "session.read.ms=500"),
    "group.initial.rebalance.delay.ms=0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
    # Of the default, 10, clients would get that many transactions a second.
    "puts.per.second=1000",
)


class Part(Protocol):
    """A process that listens: a member of etcd, or the store."""

    port: int
    child: Child


class LinkedCluster:
    """Agents, and all that they and their clients reach, by links."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        etcd: Etcd,
        members: Mapping[str, Part],
        minio: MinioServer,
        stage: Stage,
    ) -> None:
        """`members`: of etcd, by name; they and the store run already."""
        self.stage = stage
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
        front = self._links[link(CLIENTS, name)] = network.link(agent.port)
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
        agent.child.argv += ["--set", f"advertise={here}:{front.port}"]

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
            case _:
                self._links[fault.target].befall(fault.kind, fault.amount)

    def heal(self, fault: Fault) -> None:
        """What it was is over; who was killed is on its way."""
        match fault.kind:
            case "kill":
                self._killed.discard(fault.target)
                self._child(fault).start(lambda: True)
            case "pause":
                self._child(fault).resume()
            case _:
                self._links[fault.target].heal()

    def _child(self, fault: Fault) -> Child:
        return self._parts[fault.target].child

    def ended(self) -> list[str]:
        """Processes that are no more though nobody killed them; they are started again."""
        found = []
        for name, part in self._parts.items():
            if name not in self._killed and not part.child.running:
                found.append(f"{name} ended by itself:\n{part.child.tail(5)}")
                part.child.start(lambda: True)
        return found

    @property
    def damaged(self) -> dict[str, int]:
        """How many pieces of answers were torn, and lost."""
        links = self._links.values()
        return {
            "answers torn": sum(each.torn for each in links),
            "answers lost": sum(each.lost for each in links),
        }
