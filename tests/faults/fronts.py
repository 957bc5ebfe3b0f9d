"""Links before agents: what lies between them and all their clients."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults.drawn.link import Link, Network
from tests.parts.servers import Frazil, FrazilCluster

ONE_IN = 5
"""Of the pieces of answers, lost: enough for some of every API's, and few enough to go on."""


def front(network: Network, agent: Frazil) -> Link:
    """The way on which clients reach an agent that has not been started yet, since it names no other."""
    link = network.link(agent.port)
    agent.child.argv += ["--set", f"advertise=127.0.0.1:{link.port}"]
    return link


@contextmanager
def fronted(cluster: FrazilCluster) -> Iterator[list[Link]]:
    """The cluster runs, and each of its agents is reached by its link."""
    with Network() as network:
        links = [front(network, agent) for agent in cluster.agents]
        with cluster:
            yield links


@contextmanager
def losing_answers(links: list[Link]) -> Iterator[None]:
    """What clients ask for is done, and often they hear nothing of it: they ask for it again."""
    for link in links:
        link.befall("lost", ONE_IN)
    yield
    for link in links:
        link.heal()
        assert link.lost
