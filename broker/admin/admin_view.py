"""What the admin listener reads: the parts of an agent, what it says of itself, and of the agents beside it.

Where several agents of one machine share an http port (`broker.workers`), each answers for all: `joined`
asks the others. Left out: routes and who may ask (`broker.admin.listener`, `broker.admin.access`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from broker.admin import metrics
from broker.admin.access import Access
from broker.admin.shares import PinShares
from broker.config.settings import Settings
from broker.http.logins import Logins
from broker.reports.cost_report import Metrics, metrics_of
from broker.reports.export_report import TableSource
from broker.rights.rights import TellOf
from coordinator.log.metadata_log import MetadataLog
from coordinator.log_client import LogClient
from protocol.fault_codes import fault_of
from protocol.types import TopicId
from storage.reader import Reader
from storage.stores.object_store import ObjectStore


class Joined(Protocol):
    """What several agents say together, this one among them."""

    async def metrics(self) -> bytes: ...

    async def readiness(self) -> dict[str, Any]: ...


@dataclass(slots=True, kw_only=True)
class AdminView:
    """The parts of the agent that endpoints read. Each is set when the agent has it."""

    settings: Settings
    store: ObjectStore
    log: MetadataLog
    access: Access
    audit: TellOf
    """Tells of refusals, and of changes by operators."""
    not_ready: Callable[[], list[str]]
    """Reasons why the agent should not be sent clients; none when it should."""
    notes: Callable[[], list[str]] = list
    """What is wrong and not this agent's doing."""
    overloaded: Callable[[], Sequence[str]] = list
    """By what the agent is overloaded."""
    logins: Logins | None = None
    """There when the listener is opened."""
    origin: str = ""
    """The life of the metadata log in its first era (`broker.store.identity`), once it is known."""
    log_client: LogClient | None = None
    bound: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Addresses by listener name (`Agent.listening`)."""
    reader: Reader | None = None
    """There when the log client is."""
    registry: CollectorRegistry | None = None
    numbers: Callable[[Collection[str]], Metrics] = lambda names: {}
    """Of the metrics of these names, this agent's numbers."""
    client_metrics: Callable[[], Iterable[bytes]] = list
    """What clients pushed, in Prometheus' text format, a slice of it at a time."""
    pins: PinShares = field(default_factory=PinShares)
    sources: dict[TopicId, TableSource] = field(default_factory=dict)
    """From what this agent was told last how far tables are."""
    dead_letters: dict[TopicId, Mapping[str, int]] = field(default_factory=dict)
    """Of topics' tables, by reason, as this agent was told last."""
    listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the whole store is listed for somebody."""
    joined: Joined | None = None
    """There when this is one of several agents."""

    async def own_metrics(self) -> bytes:
        """This agent's page for Prometheus; empty until the agent is put together."""
        if self.registry is None:
            return b""
        parts = [metrics.exposition(self.registry)]
        for part in self.client_metrics():
            parts.append(part)
            await asyncio.sleep(0)
        return b"".join(parts)

    async def joined_numbers(self, names: Collection[str]) -> Metrics:
        """Likewise, of all agents that share this port: counters are summed."""
        if self.joined is None:
            return self.numbers(names)
        found = metrics_of((await self.joined.metrics()).decode())
        bucket = "_bucket"
        return {key: found[key] for key in found if key[0].removesuffix(bucket) in names}

    def readiness(self) -> dict[str, Any]:
        """`ready`, `reasons` why not, and where there are any `notes`, `codes` of both, and by what it is `overloaded`."""
        reasons, notes = self.not_ready(), self.notes()
        said: dict[str, Any] = {"ready": not reasons, "reasons": reasons}
        if codes := sorted({fault for each in reasons + notes if (fault := fault_of(each))}):
            said["codes"] = codes
        if notes:
            said["notes"] = notes
        if overloaded := self.overloaded():
            said["overloaded"] = overloaded
        return said
