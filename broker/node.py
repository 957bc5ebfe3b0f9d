"""The parts of an agent that handlers may use, put together by the composition root.

Handlers get a `Node` and a `Call` (`broker.edge.dispatch`) and nothing else: no globals, no clock but
`now_ms` and `boot_ms`, no chance but `rng`. The two hot paths are named here only by type.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.calls.shares import Ledger
from broker.calls.slices import Slices
from broker.cluster.placement import Placement, Placements
from broker.sasl.decisions import Decisions
from broker.sasl.delegation import Delegation, Lifetimes
from coordinator.commands.entries import Outcome
from coordinator.tables.topics import PARTITIONS_MAX

if TYPE_CHECKING:  # The hot paths import this module; at run time nothing here needs any of them.
    from broker.calls.off_loop import OffLoop
    from broker.cluster.rights_agreement import RightsAgreement
    from broker.config.kafka_settings import KafkaSettings
    from broker.config.settings import Settings
    from broker.dynamic.in_force import SettingsInForce
    from broker.fetch.fetch_path import FetchPath
    from broker.groups.coordinator import GroupCoordinator
    from broker.produce.produce_path import ProducePath
    from broker.produce.value_checking import ValueChecking
    from broker.quotas.quotas import Quotas
    from broker.rights.rights import Rights
    from broker.telemetry.collecting import ClientTelemetry
    from broker.transactions.coordinator import TransactionCoordinator
    from broker.transactions.producer_ids import ProducerIds
    from coordinator.log_client import LogClient
    from storage.reader import Reader

LATENCY_BUCKETS = 18
"""Bucket b counts answers of less than 2**b ms (and not less than half of that); the last has
all that took longer than a minute."""


@dataclass(slots=True)
class EdgeStats:
    """Counters of the server and the dispatcher, read at each scrape."""

    connections_open: int = 0
    connections_total: int = 0
    connections_refused: dict[str, int] = field(default_factory=dict)
    """Closed at once, by reason: "full", "address" (it has too many), "leaving"."""
    connections_closed: dict[str, int] = field(default_factory=dict)
    """By reason, a word each: "client", "malformed", "idle", "stalled", "silent", "crowded", …"""
    authentications: dict[tuple[str, str], int] = field(default_factory=dict)
    """By SASL mechanism ("": one that is not enabled), and "accepted" or "refused"."""
    handshakes_total: int = 0
    """Of TLS, that ended well."""
    handshakes_failed: dict[str, int] = field(default_factory=dict)
    """By reason: "certificate", "late", "not tls", … (`broker.edge.tls`)."""
    certificate_ends_ms: dict[str, int] = field(default_factory=dict)
    """By listener: when its certificate ends, ms since the epoch."""
    certificate_reloads: int = 0
    certificate_failures: int = 0
    """Looks at a listener's files that could not be used."""
    requests: dict[int, int] = field(default_factory=dict)
    """Answered, by API key."""
    latencies: dict[int, list[int]] = field(default_factory=dict)
    """By API key: answers by time from the frame's last byte to the write (LATENCY_BUCKETS)."""
    request_bytes: int = 0
    response_bytes: int = 0
    held_bytes: int = 0
    """Frames being received or not yet answered, all connections."""
    queued: int = 0
    """Gauge: connections whose next request waits in line (`broker.edge.starts`)."""
    queued_since_ms: int = 0
    """By boot_ms: when there was none the last time."""
    stalls: int = 0
    stall_longest_ms: int = 0
    refused_stale: int = 0
    """Requests refused because the loop had stood still (P17)."""
    failed_handlers: int = 0
    """Handlers that ended in an error that nobody foresaw: each one is a bug."""
    topics_auto_created: int = 0
    barriers_failed: int = 0

    def count_refused(self, reason: str) -> None:
        self.connections_refused[reason] = self.connections_refused.get(reason, 0) + 1

    def count_closed(self, reason: str) -> None:
        self.connections_closed[reason] = self.connections_closed.get(reason, 0) + 1

    def count_authentication(self, mechanism: str, outcome: str) -> None:
        key = (mechanism, outcome)
        self.authentications[key] = self.authentications.get(key, 0) + 1

    def count_answer(self, api_key: int, elapsed_ms: int) -> None:
        self.requests[api_key] = self.requests.get(api_key, 0) + 1
        buckets = self.latencies.get(api_key)
        if buckets is None:
            buckets = self.latencies[api_key] = [0] * LATENCY_BUCKETS
        buckets[min(elapsed_ms.bit_length(), LATENCY_BUCKETS - 1)] += 1


CONFIG_BYTES_MAX = 128 << 20
"""Of topics that were configured through this agent; nothing else bounds the sum."""
PartitionRange = tuple[str, int, int]
"""Partitions of a topic that came at once: its name, the first, how many."""


@dataclass(slots=True, kw_only=True)
class Node:
    """One agent, as its handlers see it."""

    settings: "Settings"
    """What it was started with; `kafka` is what of Kafka's settings holds by now."""
    in_force: "SettingsInForce"
    log_client: "LogClient"
    producing: "ProducePath"
    fetching: "FetchPath"
    reader: "Reader"
    off_loop: "OffLoop"
    value_checking: "ValueChecking"
    producer_ids: "ProducerIds"
    groups: "GroupCoordinator"
    transactions: "TransactionCoordinator"
    telemetry: "ClientTelemetry"
    quotas: "Quotas"
    now_ms: Callable[[], int]
    """Wall clock, ms since the epoch."""
    store_ms: Callable[[], int]
    """The same by the object store's clock, as it was read last; by the wall clock before."""
    boot_ms: Callable[[], int]
    """Boot-time clock, ms; for durations, and for what must not follow the wall clock."""
    rng: random.Random
    rights_agreement: "RightsAgreement"
    rights: "Rights | None" = None
    """None: there is no authorizer, and everybody may do everything."""
    rests: Callable[[int], None] = lambda waiting: None
    """Lets other threads work when it is time to (`broker.calls.rests`)."""
    decisions: Decisions = field(default_factory=Decisions)
    """Of logins, as far as they take long."""
    delegation: Delegation | None = field(init=False, repr=False)
    """None: delegation tokens are not served."""
    leaving: bool = False
    """The agent is going down: it names others as leaders where there are others."""
    stats: EdgeStats = field(default_factory=EdgeStats)
    slices: Slices = field(default_factory=Slices)
    placements: Placements = field(default_factory=Placements)
    creations: dict[str, asyncio.Future[Outcome]] = field(default_factory=dict)
    """Topics being created because somebody asked for their metadata, by name."""
    partition_shares: Ledger[PartitionRange] = field(init=False)
    config_shares: Ledger[str] = field(init=False)
    """Bytes of the configs of topics, by name."""

    def __post_init__(self) -> None:
        machine = self.log_client.machine
        kafka = self.kafka
        self.delegation = None
        if kafka.delegation_token_secret_key:
            lifetimes = Lifetimes(
                max_ms=kafka.delegation_token_max_lifetime_ms,
                renewal_ms=kafka.delegation_token_expiry_time_ms,
            )
            self.delegation = Delegation(
                kafka.delegation_token_secret_key, machine.delegation_tokens, lifetimes=lifetimes
            )

        def size_of(added: PartitionRange) -> int:
            name, first, count = added
            topic = machine.topics.by_name(name)
            return count if topic is not None and topic.partition_count >= first + count else 0

        self.partition_shares = Ledger(
            PARTITIONS_MAX, "partitions", size_of=size_of, used=lambda: len(machine.partitions)
        )

        def config_bytes(name: str) -> int:
            topic = machine.topics.by_name(name)
            return 0 if topic is None else sum([len(k) + len(v) for k, v in topic.configs.items()])

        self.config_shares = Ledger(
            CONFIG_BYTES_MAX, "bytes of configs of topics", size_of=config_bytes
        )

    @property
    def kafka(self) -> "KafkaSettings":
        """Kafka's settings as they are now: some change while the agent runs."""
        return self.in_force.kafka

    def rest(self) -> None:
        """Let other threads work, if it is time to. Called between two pieces of work."""
        self.rests(self.stats.queued + self.slices.waiting)

    def placement(self, listener: str) -> Placement:
        """Which live agents the clients of a listener are told to use."""
        return self.placements.current(
            self.log_client.machine.incarnations,
            listener=listener,
            without=self.log_client.node_id() if self.leaving else None,
        )
