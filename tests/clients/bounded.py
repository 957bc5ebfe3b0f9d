"""Clusters whose jobs run when a test asks for it, and what their admin listeners tell."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from broker.cli.admin_client import AgentPlace, ask
from broker.cli.command_result import ToolError
from broker.cli.log import log_tail
from tests.parts.servers import FrazilCluster
from tests.parts.topics import patiently

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


def ended_rounds(agent: AgentPlace, job: str, *, after: int) -> int:
    """Rounds of a job that were reported behind this position of the log, as those that are asked for always are.
    Times of reports do not tell them apart: the log's time may stand still between two."""
    entries = map(json.loads, log_tail.tail(agent, after=after, follow=False, as_json=True))
    commands = [command for entry in entries for command in entry["commands"]]
    reports = [row for row in commands if row["command"] == "ReportJob"]
    return sum(row["job"] == job.upper() and not row["running"] for row in reports)


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
        self._asked(f"/jobs/{job}/run", method="POST")

    def run_through(self, job: str, *, seconds: float = SOON_S) -> None:
        """Have a round of a job, and wait for its end: one that goes on, or one that is asked for beside
        it, would meddle with what the test does next."""
        begun = self._asked("/jobs")["position"]
        self.run(job)
        deadline = time.monotonic() + seconds
        while not ended_rounds(AgentPlace(self.agent), job, after=begun):
            row = next(each for each in self._asked("/jobs")["jobs"] if each["job"] == job)
            assert time.monotonic() < deadline, f"no end of the round: {row}"
            # What was asked for before somebody held the job is not answered.
            if row["claimed"] > row["requested"]:
                self.run(job)
            time.sleep(0.05)

    def _asked(self, path: str, *, method: str = "GET") -> dict[str, Any]:
        """What the agent answers, again when it refuses: for a moment it may have no session, or have stood still."""
        return patiently(partial(ask, AgentPlace(self.agent), path, method=method), ToolError)

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
        found = self._asked(f"/topics/{topic}?from={index}")
        row: dict[str, int] = found["partitions"][0]
        return row


def until(tell: Callable[[], T], right: Callable[[T], bool], *, seconds: float = SOON_S) -> T:
    """What `tell` tells as soon as that is right."""
    deadline = time.monotonic() + seconds
    while not right(told := tell()):
        assert time.monotonic() < deadline, f"still {told}"
        time.sleep(0.1)
    return told
