"""Clusters whose jobs run when a test asks for it, and what their admin listeners tell."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeVar

from broker.cli.admin_client import AgentPlace, ask
from tests.parts.servers import FrazilCluster

T = TypeVar("T")

SOON_S = 90.0
"""For what a job does; most of it is waiting for its turn."""
EAGER = (
    "merge.age.ms=0",
    "spill.age.ms=0",
    "spill.rows=1000",
    "puts.per.second=1000",
    "merge.interval.ms=3600000",
    "spill.interval.ms=3600000",
    "log.cleaner.backoff.ms=3600000",
    "log.retention.check.interval.ms=3600000",
)
"""Settings under which jobs find something to do when they are asked to, and only then."""


class Bounded(NamedTuple):
    """A cluster: where its clients connect, and where one of its agents is asked."""

    bootstrap: str
    http_port: int

    @property
    def agent(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @classmethod
    def of(cls, cluster: FrazilCluster) -> Self:
        return cls(cluster.bootstrap, cluster.agents[0].http_port)

    def run(self, job: str) -> None:
        """Ask for a round of a job."""
        ask(AgentPlace(self.agent), f"/jobs/{job}/run", method="POST")

    def run_through(self, job: str, *, seconds: float = SOON_S) -> None:
        """Have a round of a job, and wait for its end: one that goes on, or one that is asked for beside
        it, would meddle with what the test does next."""
        before = self._job(job)["reported_ms"]
        self.run(job)
        deadline = time.monotonic() + seconds
        while (row := self._job(job))["running"] or row["reported_ms"] in (0, before):
            assert time.monotonic() < deadline, f"no end of the round: {row}"
            # What was asked for before somebody held the job is not answered.
            if row["claimed"] > row["requested"]:
                self.run(job)
            time.sleep(0.05)

    def _job(self, job: str) -> dict[str, Any]:
        view = ask(AgentPlace(self.agent), "/jobs")
        row: dict[str, Any] = next(each for each in view["jobs"] if each["job"] == job)
        return row

    def run_until(
        self,
        job: str,
        topic: str,
        right: Callable[[dict[str, int]], bool],
        *,
        seconds: float = SOON_S,
    ) -> dict[str, int]:
        """Have rounds of a job, one after the other, until the first partition of a topic is as it should
        be: another job may have been there first, and then a round comes to nothing."""
        deadline = time.monotonic() + seconds
        while not right(row := self.partition(topic)):
            left = deadline - time.monotonic()
            assert left > 0, f"still {row}"
            self.run_through(job, seconds=left)
        return row

    def partition(self, topic: str, index: int = 0) -> dict[str, int]:
        """Where the records of a partition lie."""
        found: dict[str, Any] = ask(AgentPlace(self.agent), f"/topics/{topic}?from={index}")
        row: dict[str, int] = found["partitions"][0]
        return row


def until(tell: Callable[[], T], right: Callable[[T], bool], *, seconds: float = SOON_S) -> T:
    """What `tell` tells as soon as that is right."""
    deadline = time.monotonic() + seconds
    while not right(told := tell()):
        assert time.monotonic() < deadline, f"still {told}"
        time.sleep(0.1)
    return told
