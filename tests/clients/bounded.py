"""Clusters whose jobs run when a test asks for it, and what their admin listeners tell."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from broker.admin_client import ask

T = TypeVar("T")

SOON_S = 40.0
"""For what a job does; most of it is waiting for its turn."""
EAGER = (
    "merge.age.ms=0",
    "spill.age.ms=0",
    "spill.rows=1000",
    "puts.per.second=1000",
)
"""Settings under which a job that is asked for finds something to do at once."""


class Bounded(NamedTuple):
    """A cluster: where its clients connect, and where one of its agents is asked."""

    bootstrap: str
    http_port: int

    @property
    def agent(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def run(self, job: str) -> None:
        """Ask for a round of a job; it comes soon, and not before."""
        ask(self.agent, f"/jobs/{job}/run", method="POST")

    def partition(self, topic: str, index: int = 0) -> dict[str, int]:
        """Where the records of a partition lie."""
        found: dict[str, Any] = ask(self.agent, f"/topics/{topic}?from={index}")
        row: dict[str, int] = found["partitions"][0]
        return row


def until(tell: Callable[[], T], right: Callable[[T], bool], *, seconds: float = SOON_S) -> T:
    """What `tell` tells as soon as that is right."""
    deadline = time.monotonic() + seconds
    while not right(told := tell()):
        assert time.monotonic() < deadline, f"still {told}"
        time.sleep(0.1)
    return told
