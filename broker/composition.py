"""Puts the parts of an agent together, from settings and adapters; nothing of them runs yet.

`broker.agent` runs what is made here, in the order of an agent's life, and adds ports, admin HTTP,
jobs and the store's clock. Tests run the same parts without those.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from broker.calls.off_loop import OffLoop
from broker.calls.slices import Slices
from broker.cluster.rights_agreement import RightsAgreement
from broker.config.settings import Settings
from broker.config.topic_rules import TopicRules
from broker.dynamic.in_force import SettingsInForce
from broker.fetch.fetch_path import FetchPath
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group.live import GroupFactory
from broker.groups.group_factory import GROUP_FACTORY
from broker.node import Node
from broker.produce.produce_path import ProducePath
from broker.produce.value_checking import ValueChecking
from broker.quotas.quotas import Quotas
from broker.quotas.rates import SECOND_MS, Window
from broker.rights.authorizer import Authorizer
from broker.rights.rights import Rights
from broker.telemetry.collecting import ClientTelemetry
from broker.telemetry.forwarding import Forwarder
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.producer_ids import ProducerIds
from coordinator.log.metadata_log import MetadataLog
from coordinator.log_client import AgentIdentity, LogClient, LogClientSettings
from coordinator.snapshot.loading import SnapshotSource
from protocol.apis import APIS, FETCH, PRODUCE
from protocol.messages.codec import request_layout, response_layout
from storage.reader import Reader
from storage.stores.object_store import ObjectStore
from storage.writer import Writer

logger = logging.getLogger(__name__)
NS_PER_MS = 1_000_000
audit_logger = logging.getLogger("frazil.audit")
"""Lines of JSON about refusals and changes of rights (`broker.rights.audit`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The store, the log and the clocks that an agent gets besides its settings. Who opens the adapters closes them."""

    store: ObjectStore
    log: MetadataLog
    now_ms: Callable[[], int]
    """Wall clock."""
    boot_ms: Callable[[], int]
    """A clock that nobody sets and that counts suspension, and pauses as far as they show."""
    rng: random.Random
    steady_ms: Callable[[], int] | None = None
    """The same without pauses, so that no wall clock moves it; None: that one will do."""
    loop_ns: Callable[[], int] | None = None
    """As `boot_ms`, fine enough to measure steps of the loop by; None: that one will do."""
    rests: Callable[[int], None] = lambda waiting: None
    """Of the loop, for other threads (`broker.calls.rests`); a simulation has none."""
    jobs_in_loop: bool | None = None
    """Whether jobs run in the agent's own loop instead of a process of their own; None: when
    store or log are in this process's memory, which no other process could see."""


def compose(
    settings: Settings,
    parts: Parts,
    identity: AgentIdentity,
    *,
    writer: Writer,
    tasks: asyncio.TaskGroup,
    entry_ms: Callable[[], int],
    store_ms: Callable[[], int] | None = None,
    snapshots: SnapshotSource | None = None,
    before_joining: Callable[[], Awaitable[None]] | None = None,
    factory: GroupFactory = GROUP_FACTORY,
) -> Node:
    """All that serves clients, and the coordinator below it.

    `entry_ms`: the time to write into entries; `store_ms`: the object store's, None: it is the wall clock's;
    `factory`: how groups are made; others: `LogClient`'s.
    """
    log_client = LogClient(
        parts.log,
        identity=identity,
        settings=_of_log_client(settings),
        now_ms=entry_ms,
        boot_ms=parts.boot_ms,
        snapshots=snapshots,
        before_joining=before_joining,
    )
    in_force, rights = _in_force(settings, log_client), _rights(settings, parts, log_client)
    reader = Reader(parts.store, settings.cache_bytes, tasks)

    slices, off_loop = Slices(), OffLoop()
    node = Node(
        settings=settings,
        in_force=in_force,
        slices=slices,
        log_client=log_client,
        producing=ProducePath(
            settings,
            rules=TopicRules(in_force),
            log_client=log_client,
            writer=writer,
            reader=reader,
            tasks=tasks,
        ),
        fetching=FetchPath(
            settings,
            rules=TopicRules(in_force),
            log_client=log_client,
            reader=reader,
            placement=lambda listener: node.placement(listener),  # noqa: PLW0108 - There is no node yet.
            slices=slices,
            tasks=tasks,
            rng=parts.rng,
            rights=rights,
        ),
        reader=reader,
        off_loop=off_loop,
        value_checking=_value_checking(settings, parts, log_client, off_loop),
        producer_ids=ProducerIds(log_client),
        groups=GroupCoordinator(
            log_client,
            settings=settings,
            factory=factory,
            boot_ms=parts.boot_ms,
            rng=parts.rng,
            slices=slices,
            rights=rights,
        ),
        transactions=TransactionCoordinator(log_client, settings=settings, boot_ms=parts.boot_ms),
        telemetry=_telemetry(settings, parts, log_client, slices, off_loop),
        quotas=_quotas(settings, parts, log_client),
        now_ms=parts.now_ms,
        store_ms=store_ms or parts.now_ms,
        boot_ms=parts.boot_ms,
        rng=parts.rng,
        rights=rights,
        rights_agreement=RightsAgreement(log_client),
        rests=parts.rests,
    )
    return node


def works_in_loop(settings: Settings, parts: Parts) -> bool:
    """Whether there are no processes beside the agent's: nobody else sees its memory."""
    if parts.jobs_in_loop is not None:
        return parts.jobs_in_loop
    return any(url.startswith("memory:") for url in (settings.store_url, settings.log_url))


def _value_checking(
    settings: Settings, parts: Parts, log_client: LogClient, off_loop: OffLoop
) -> ValueChecking:
    in_loop = works_in_loop(settings, parts)
    return ValueChecking(log_client.machine.schemas, off_loop, in_loop=in_loop)


def _rights(settings: Settings, parts: Parts, log_client: LogClient) -> Rights | None:
    kafka = settings.kafka
    if not kafka.authorizer_class_name:
        return None
    authorizer = Authorizer(
        log_client.machine.acls,
        super_users=kafka.super_user_principals(),
        allow_everyone=kafka.allow_everyone_if_no_acl_found,
    )
    return Rights(authorizer, write=audit_logger.info, now_ms=parts.now_ms, boot_ms=parts.boot_ms)


def _telemetry(
    settings: Settings, parts: Parts, log_client: LogClient, slices: Slices, off_loop: OffLoop
) -> ClientTelemetry:
    forwarder = None
    if settings.telemetry_otlp_endpoint is not None:
        headers = dict(settings.telemetry_otlp_headers)
        trusted = settings.telemetry_otlp_ca
        forwarder = Forwarder(settings.telemetry_otlp_endpoint, headers, trusted=trusted)
    return ClientTelemetry(
        log_client.machine.dynamic_configs,
        bytes_max=settings.kafka.telemetry_max_bytes,
        series_bytes_max=settings.telemetry_metrics_bytes,
        slices=slices,
        off_loop=off_loop,
        boot_ms=parts.boot_ms,
        rng=parts.rng,
        forwarder=forwarder,
    )


def _quotas(settings: Settings, parts: Parts, log_client: LogClient) -> Quotas:
    kafka = settings.kafka
    return Quotas(
        log_client.machine.client_quotas,
        window=Window(kafka.quota_window_num, kafka.quota_window_size_seconds * SECOND_MS),
        controller_window=Window(
            kafka.controller_quota_window_num,
            kafka.controller_quota_window_size_seconds * SECOND_MS,
        ),
        boot_ms=parts.boot_ms,
        loop_ns=parts.loop_ns or (lambda: parts.boot_ms() * NS_PER_MS),
    )


def _of_log_client(settings: Settings) -> LogClientSettings:
    return LogClientSettings(
        lease_ttl_ms=settings.lease_ttl_ms,
        session_deadline_ms=settings.session_deadline_ms,
        session_read_ms=settings.session_read_ms,
        log_bytes_max=settings.log_bytes_max,
    )


def _in_force(settings: Settings, log_client: LogClient) -> SettingsInForce:
    """Kept up with the log, before anybody else hears of what was applied."""
    in_force = SettingsInForce(settings.kafka, log_client.machine.dynamic_configs)

    def refresh(_: object) -> None:
        for sentence in in_force.refresh(log_client.node_id()):
            logger.warning("%s", sentence)

    log_client.on_applied(refresh)
    return in_force


async def load_layouts() -> None:
    """Have every message's layout at hand before the first client asks.

    Together they take a tenth of a second when they are first used: that would be in the middle of the
    first requests.
    """
    for api in APIS.values():
        if api.key not in (PRODUCE, FETCH):  # Read and written by hand.
            for version in range(api.min_version, api.max_version + 1):
                request_layout(api.key, version)
                response_layout(api.key, version)
                await asyncio.sleep(0)
