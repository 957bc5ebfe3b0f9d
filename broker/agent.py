"""The composition root: settings and adapters become a running agent; the TaskGroup at the top.

    ports bound ─▶ store and log are ours? ─▶ session, log's end reached ─▶ serving ─▶ leaving
         nobody is served until then, readiness says no (P12, P16)

What holds: an agent whose store or log is away waits, at start and later; it does not end. Until it serves Kafka's
clients wait behind its ports (`broker.doors`), each for no longer than a stall (P17), until AJAR_S_MAX has passed or
store or log are known to be away; then they are refused and look elsewhere. HTTP comes after Kafka's clients where
they can be served at once. An agent ends by `stop` (SIGTERM), when another process took its node name, the log cannot
be followed (P13), store or log are another cluster's, or the log is older than the store: always with a sentence.

Everything runs on the loop it is started on, with the clocks and the chance of `Parts`, so the
simulator builds the same agents. Left out: processes, signals, real clocks (`broker.process`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from broker.admin.admin_view import AdminView
from broker.admin.load_watch import LoadWatch
from broker.admin.log_writes import LogWrites
from broker.admin.memory_bound import machine_bytes, memory_bound
from broker.cluster.nodes import with_node_counts
from broker.composition import Parts, compose, load_layouts, works_in_loop
from broker.config.settings import ONE_AGENT, Settings, advertised, listeners_of, name_of
from broker.doors import Door, DoorError, Reserved
from broker.edge.limits import limits_of, told_of_connections
from broker.edge.secured import SecuredError, secured_listeners
from broker.edge.server import KafkaServer
from broker.handlers import SERVED
from broker.http_listeners import HttpListenerError, HttpListeners
from broker.jobs import worker_process
from broker.jobs.host import JobHost
from broker.node import Node
from broker.sasl.decisions import Decisions
from broker.sasl.rules import rules_by_listener
from broker.store import identity, truncation
from broker.store.clock import StoreTime
from broker.store.identity import ClusterMismatchError
from broker.store.log_checkpoints import LogCheckpoints
from broker.store.probe import StoreProbe
from broker.store.truncation import TruncatedLogError, with_advice
from broker.upkeep import first_users, upkeep_tasks
from coordinator.log.metadata_log import EraOverError, LogError, LogRefusedError, LogReplacedError
from coordinator.log_client import AgentIdentity, LogClient, ReplacedError, ReplicaStoppedError
from coordinator.replica import first_error
from coordinator.snapshot.store import SnapshotStore
from protocol.fault_codes import FaultError, Sentence, coded, fault_of
from protocol.types import ERA, Incarnation
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.counted import StoreUse
from storage.stores.object_store import StoreError, StoreRefusedError
from storage.stores.retry import until_done
from storage.stores.retry_policy import NO_LIMIT, RetryPolicy
from storage.writer import Writer

if TYPE_CHECKING:
    from broker.edge.tls_listener import TlsListener
    from broker.registry.checker import SchemaChecker

logger = logging.getLogger(__name__)

START = RetryPolicy(attempt_s_max=NO_LIMIT)
"""A listing of a large store takes as long as it takes."""
TELL_AGAIN_S = 30.0
"""An agent that waits says so at once, and then this often."""
DEPART_S_MAX = 2.0
"""Of the drain, each: to give shards of groups to others, and jobs. Without that the Close frees them."""
AJAR_S_MAX = 2.0
AJAR_ALONE_S_MAX = 10.0
"""Kafka's clients wait no longer until an agent serves; the second where no other can have its log."""
HTTP_S_MAX = 1.0
"""HTTP does not wait any longer for Kafka's clients to be served first."""

_SENTENCES = (
    ReplacedError,
    ReplicaStoppedError,
    TruncatedLogError,
    ClusterMismatchError,
    EraOverError,
)
"""Errors that end an agent and say themselves what to do."""


class AgentError(FaultError):
    """The agent cannot start, or cannot go on; the sentence says why and what to do."""


class _StoppedError(Exception):
    """`stop` is done; ends the TaskGroup."""


class _Shells(NamedTuple):
    """What serves, once it is put together."""

    log_client: LogClient
    node: Node
    writer: Writer
    jobs: JobHost
    time: StoreTime
    checkpoints: LogCheckpoints
    load: LoadWatch
    log_writes: LogWrites


class Agent:
    """One agent. `run` is called once."""

    def __init__(
        self,
        settings: Settings,
        parts: Parts,
        *,
        host_name: str = "localhost",
        software_version: str = "0",
        descriptors: int | None = None,
        reserved: Reserved | None = None,
        own_ports: Mapping[str, int] | None = None,
    ) -> None:
        """`host_name`: what clients are told of a listener on all addresses. `descriptors`: how many
        the process may have (None: any number). `reserved`: ports that are ajar already. `own_ports`:
        by listener, where this agent is reached when others listen at the ports of the settings, too
        (None: nobody else does)."""
        self._settings = settings
        self._parts = parts
        self._host_name = host_name
        self._software_version = software_version
        self._descriptors = descriptors
        self._reserved = reserved
        self._ajar_since_ms = parts.boot_ms() if reserved is None else reserved.since_ms
        """Nobody behind a port has waited since before that."""
        self._own_ports = own_ports
        self._cluster = ClusterIdentity(settings.cluster_id, ERA)
        self._doors: list[tuple[str, Door]] = []
        """Of the Kafka listeners, by name."""
        self._bound: dict[str, tuple[str, int]] = {}
        self._told_ports: dict[str, int] = {}
        """Of the Kafka listeners, for clients."""
        self._shells: _Shells | None = None
        self._server: KafkaServer | None = None
        """Made when it is to serve: from then on it watches for stalls of the loop."""
        self._tls: Mapping[str, TlsListener] = {}
        self._sasl = rules_by_listener(listeners_of(settings))
        self._http = _http_listeners(settings, parts, host_name, shared=own_ports is not None)
        self._use = StoreUse(parts.store)
        """What is no record; the paths of records count themselves."""
        self._checker: SchemaChecker | None = None
        """There with the HTTP endpoints."""
        self._view = AdminView(
            settings=settings,
            store=self._use.by("admin"),
            log=parts.log,
            bound=self._bound,
            access=self._http.access,
            audit=self._http.audit,
            not_ready=self.not_ready,
            notes=self.notes,
        )
        self._identified = asyncio.Event()
        """Store and log are this cluster's, and the store's clock is known."""
        self._waiting_for = Sentence("the store and the log are being checked", None)
        self._store = StoreProbe(self._use.by("probe"))
        self._leaving = False
        self._on_node: list[Callable[[Node], None]] = []
        self._stop = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._opened = asyncio.Event()
        """HTTP is answered; `listening` is complete."""
        self._serving = asyncio.Event()
        self._listening = asyncio.Event()
        """Kafka's clients are let in."""
        self._member = asyncio.Event()
        """The first session is proven and the log's end reached."""

    async def run(self) -> None:
        """Be an agent until `stop` is done or this is cancelled. Raises AgentError."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._until_stopped(), name="stop")
                await self._bind_doors()
                tasks.create_task(self._keep_ajar(), name="doors")
                self._compose(tasks)
                bound = {name: f"{host}:{port}" for name, (host, port) in self._bound.items()}
                logger.info("ports are bound; nobody is served until it can", extra=bound)
                tasks.create_task(self._open_http(tasks), name="HTTP")
                tasks.create_task(self._live(tasks), name="agent")
        except BaseExceptionGroup as group:
            error = first_error(group)
            if isinstance(error, AgentError):
                raise error from group
            if isinstance(error, _SENTENCES):
                raise AgentError.of(error) from group
            if isinstance(error, LogReplacedError):
                raise AgentError(with_advice(error), fault=error.fault) from group
            if not isinstance(error, _StoppedError):
                raise
        finally:
            self._close_doors()
            await self._http.aclose()
            if self._checker is not None:
                await self._checker.aclose()
            if self._shells is not None:
                await self._shells.node.value_checking.aclose()
            self._opened.set()
            self._serving.set()
            self._has_ended.set()

    async def stop(self) -> None:
        """Leave as SIGTERM wants it (docs/design/running.md §6); returns when `run` is over."""
        self._stop.set()
        await self._has_ended.wait()

    def listening(self) -> dict[str, tuple[str, int]]:
        """The addresses bound so far, by listener name; `http` is the admin listener, `registry`
        the schema registry's."""
        return dict(self._bound)

    async def opened(self) -> None:
        """Wait until HTTP is answered, or the agent has ended before."""
        await self._opened.wait()

    async def serving(self) -> None:
        """Wait until clients are served, or the agent has ended before."""
        await self._serving.wait()

    def on_node(self, callback: Callable[[Node], None]) -> None:
        """Call, within `run`, when the agent is put together and nothing of it runs yet."""
        self._on_node.append(callback)

    @property
    def admin(self) -> AdminView:
        """What the admin listener reads."""
        return self._view

    @property
    def node(self) -> Node:
        """What the handlers see; there once `on_node` was called or `opened` is over."""
        assert self._shells is not None
        return self._shells.node

    def not_ready(self) -> list[str]:
        """Reasons why clients should be sent elsewhere; none when all is well."""
        reasons: list[str] = []
        shells = self._shells
        if self._leaving:
            reasons.append("the agent is leaving")
        if not self._identified.is_set() or shells is None:
            reasons.append(self._waiting_for)
        elif shells.log_client.incarnation() is None:
            reasons.append("there is no proven session in the metadata log")
        elif not self._leaving and not self._serving.is_set():
            reasons.append("the agent is starting")
        if (trouble := self._store.trouble) is not None:
            reasons.append(Sentence(f"the object store is away: {trouble}", fault_of(trouble)))
        return reasons

    def notes(self) -> list[str]:
        """What is wrong everywhere, so that no other agent would be better."""
        return [] if self._shells is None else self._shells.jobs.notes()

    # Doors.

    async def _bind_doors(self) -> None:
        shared = self._own_ports is not None
        try:
            for address in self._settings.listen:
                assert address.port is not None
                name, host = address.name, address.host
                bound = await self._bind_door(name, host, address.port, shared=shared)
                self._bound[name] = bound
                if self._own_ports is not None:
                    bound = await self._bind_door(name, host, self._own_ports[name])
                self._told_ports[name] = bound[1]
            self._bound |= await self._http.bind()
        except (DoorError, HttpListenerError) as error:
            raise AgentError.of(error) from error

    async def _bind_door(
        self, name: str, host: str, port: int, *, shared: bool = False
    ) -> tuple[str, int]:
        backlog = self._settings.kafka.socket_listen_backlog_size
        door = Door(backlog=backlog, setting="listen", shared=shared, reserved=self._reserved)
        self._doors.append((name, door))
        bound = await door.bind(host, port)
        if not shared:  # Else others, who listen there, too, serve who is not let in here.
            door.set_ajar()
        return bound

    async def _keep_ajar(self) -> None:
        """Have clients wait, none as long as a stall (P17); have them look elsewhere if it takes long."""
        settings = self._settings
        most_s = AJAR_ALONE_S_MAX if settings.log_url.startswith(ONE_AGENT) else AJAR_S_MAX
        for _ in range(max(1, round(most_s * 1000 / settings.stall_ms))):
            left_ms = settings.stall_ms - self._ajar_ms()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000):
                    await self._listening.wait()
                    return
            self._turn_away()
        self._shut_doors()

    def _ajar_ms(self) -> int:
        return self._parts.boot_ms() - self._ajar_since_ms

    def _turn_away(self) -> None:
        for _, door in self._doors:
            door.turn_away()
        self._ajar_since_ms = self._parts.boot_ms()

    def _shut_doors(self) -> None:
        for _, door in self._doors:
            door.shut()

    async def _listen(self) -> None:
        """Let clients in. Raises AgentError when somebody else listens by now."""
        assert self._server is not None
        if self._ajar_ms() > self._settings.stall_ms:
            self._turn_away()
        for name, door in list(self._doors):
            if self._leaving:
                return
            try:
                await door.open(self._server.factory(name))
            except DoorError as error:
                raise AgentError.of(error) from error
        self._listening.set()

    def _close_doors(self) -> None:
        for _, door in self._doors:
            door.close()
        self._doors = []

    async def _open_http(self, tasks: asyncio.TaskGroup) -> None:
        """The admin endpoints and the schema registry, after Kafka's clients if those come soon."""
        if not self._http.are_wanted:
            self._opened.set()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(HTTP_S_MAX):
                await self._listening.wait()
        assert self._shells is not None
        shells, parts, http = self._shells, self._parts, self._http
        # In a thread: clients that are let in by now should not wait for it.
        await asyncio.to_thread(import_module, "broker.http_composition")
        from broker.http_composition import Served, compose_http

        served = Served(
            node=shells.node,
            writer=shells.writer,
            jobs=shells.jobs,
            load=shells.load,
            store_use=self._use,
            log_writes=shells.log_writes,
            memory_bytes=self._memory_bytes(),
            tls=bool(self._tls),
            clock_skew_ms=shells.time.skew_ms,
            not_ready=self.not_ready,
            store_reachable=lambda: self._identified.is_set() and self._store.trouble is None,
            is_member=self._member.is_set,
            works_in_loop=works_in_loop(self._settings, parts),
            tasks=tasks,
        )
        try:
            http.prepare(shells.node)
            endpoints = compose_http(http, parts, served, self._view)
            self._checker = endpoints.checker
            await http.open(endpoints.admin, endpoints.registry)
        except HttpListenerError as error:
            raise AgentError.of(error) from error
        http.watch(tasks)
        self._opened.set()

    # Composition.

    def _compose(self, tasks: asyncio.TaskGroup) -> None:
        """Put the shells together; nothing of them runs yet."""
        settings, parts = self._settings, self._parts
        clock, steady_ms = self._use.by("clock"), parts.steady_ms or parts.boot_ms
        time = StoreTime(clock, now_ms=parts.now_ms, boot_ms=steady_ms, rng=parts.rng)
        cluster, rng, loop_ns = settings.cluster_id, parts.rng, parts.loop_ns
        writer = Writer(parts.store, cluster_id=cluster, rng=rng, clock_ns=loop_ns)
        node = compose(
            settings,
            parts,
            self._agent_identity(),
            writer=writer,
            tasks=tasks,
            entry_ms=time.now_ms,
            store_ms=time.store_ms,
            snapshots=SnapshotStore(self._use.by("start"), self._cluster),
            before_joining=self._find_no_truncation,
        )
        log_client = node.log_client
        log_client.on_incarnation(self._session_changed)
        jobs = self._job_host(log_client)
        checkpoints = LogCheckpoints(self._use.by("checkpoint"), log_client, cluster_id=cluster)
        limits = limits_of(node, descriptors=self._descriptors)
        load = LoadWatch(
            node,
            request_bytes_max=limits.held_bytes_max,
            connections_max=self._connections_max,
        )
        writes = LogWrites(log_client)
        self._shells = _Shells(log_client, node, writer, jobs, time, checkpoints, load, writes)
        try:
            self._tls = secured_listeners(settings, node.stats)
        except SecuredError as error:
            raise AgentError.of(error) from error
        node.decisions = Decisions(self._sasl.values(), boot_ms=parts.boot_ms)
        for callback in self._on_node:
            callback(node)

    def _connections_max(self) -> int:
        """As it is by now; not 0, as a part of it is told."""
        return 1 if self._server is None else max(1, self._server.limits.connections_max)

    def _memory_bytes(self) -> int:
        """What it takes at most, besides what the cluster holds."""
        assert self._shells is not None
        limits = limits_of(self._shells.node, descriptors=self._descriptors)
        return memory_bound(self._settings, request_bytes_max=limits.held_bytes_max)

    def _job_host(self, log_client: LogClient) -> JobHost:
        settings, parts = self._settings, self._parts
        return JobHost(
            log_client,
            log=parts.log,
            run_worker=worker_process.runner(
                settings=settings,
                store=parts.store,
                log=parts.log,
                in_loop=works_in_loop(settings, parts),
                agent_bytes=lambda: self._memory_bytes() + machine_bytes(log_client.machine),
            ),
            boot_ms=parts.boot_ms,
            enabled=settings.jobs_enabled,
            start_delay_ms=settings.jobs_start_delay_ms,
            archives=settings.log_archive_ms > 0,
        )

    def _agent_identity(self) -> AgentIdentity:
        listeners = advertised(self._settings, ports=self._told_ports, host_name=self._host_name)
        return AgentIdentity(
            node_name=name_of(self._settings, listeners=listeners, host_name=self._host_name),
            node_id_wanted=self._settings.node_id,
            zone=self._settings.zone,
            listeners=with_node_counts(
                listeners, self._settings.nodes_per_agent, self._settings.nodes_of_listeners
            ),
            software_version=self._software_version,
        )

    def _session_changed(self, incarnation: Incarnation | None) -> None:
        assert self._shells is not None
        if incarnation is None:
            if not self._leaving:
                logger.warning("there is no proven session any more: no writes, no leading")
            return
        node_id = self._shells.log_client.node_id()
        logger.info("a session is proven", extra={"incarnation": incarnation, "node_id": node_id})
        self._member.set()

    # Life.

    async def _live(self, tasks: asyncio.TaskGroup) -> None:
        """From the first look at store and log to serving."""
        assert self._shells is not None
        shells = self._shells
        # While store and log are waited for. Until it is done each step of it may delay a request.
        tasks.create_task(load_layouts(), name="layouts of messages")
        await self._until_there(self._identify)
        # What the log says is read meanwhile, and acted upon when the time is known.
        tasks.create_task(shells.log_client.run(), name="coordinator")
        await self._until_there(shells.time.measure)
        self._identified.set()
        tasks.create_task(self._store.run(), name="store probe")
        tasks.create_task(shells.checkpoints.run(), name="checkpoints of the log")
        tasks.create_task(shells.node.producing.run(), name="produce deadlines")
        tasks.create_task(shells.node.groups.run(), name="groups")
        tasks.create_task(shells.node.transactions.run(), name="transactions")
        upkeep_tasks.start(shells.node, tasks)
        tasks.create_task(shells.jobs.run(), name="jobs")
        tasks.create_task(shells.node.decisions.key_sets.run(), name="keys of tokens")
        if shells.node.telemetry.forwarder is not None:
            tasks.create_task(shells.node.telemetry.forwarder.run(), name="metrics of clients")
        await self._member.wait()
        await first_users.make(shells.node)
        if self._leaving:
            return
        limits = limits_of(shells.node, descriptors=self._descriptors)
        logger.info("at most %s", told_of_connections(limits, self._descriptors))
        megabytes = self._memory_bytes() >> 20
        logger.info("at most %d MiB of memory, besides what the cluster holds", megabytes)
        for listener in self._tls.values():
            listener.tell(self._parts.now_ms())
            tasks.create_task(listener.run(), name="certificates")
        self._server = KafkaServer(
            shells.node, SERVED, limits=limits, sasl=self._sasl, tls=self._tls
        )
        tasks.create_task(self._server.run(), name="connections")
        tasks.create_task(shells.load.run(), name="load")
        await self._server.started()
        await self._listen()
        await self._opened.wait()
        tasks.create_task(shells.time.run(), name="the store's clock")
        if not self._leaving:
            logger.info("serving")
            self._serving.set()

    async def _identify(self) -> None:
        """Store and log are this cluster's. Raises StoreError, LogError and WrongPlaceError."""
        self._view.origin = await identity.check(
            self._use.by("start"), self._parts.log, self._settings.cluster_id, self._parts.rng
        )

    async def _find_no_truncation(self) -> None:
        """The log is not older than the store, and entries can be dated. Raises TruncatedLogError."""
        assert self._shells is not None
        store, log = self._use.by("start"), self._parts.log
        machine = self._shells.log_client.machine
        await self._until_there(lambda: truncation.check(store, log, machine))
        await self._identified.wait()

    async def _until_there(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask until store and log have answered (P16)."""
        loop = asyncio.get_running_loop()
        told_s = -TELL_AGAIN_S

        def tell(error: Exception, _failures: int) -> None:
            nonlocal told_s
            what = "object store" if isinstance(error, StoreError) else "metadata log"
            self._waiting_for = Sentence(f"waiting for the {what}: {error}", fault_of(error))
            self._shut_doors()
            if loop.time() - told_s >= TELL_AGAIN_S:
                told_s = loop.time()
                text, extra = "%s; clients are refused meanwhile", coded(self._waiting_for)
                logger.warning(text, self._waiting_for, extra=extra)

        async def ask_once() -> None:
            try:
                await ask()
            except (StoreRefusedError, LogRefusedError, LogReplacedError) as error:
                raise AgentError.of(error) from error

        await until_done(ask_once, START, tell=tell, passing=(StoreError, LogError))

    # Leaving.

    async def _until_stopped(self) -> None:
        await self._stop.wait()
        await self._leave()
        raise _StoppedError

    async def _leave(self) -> None:
        """Not ready, not named as leader, flush, Close, answer; within `drain.ms`."""
        self._leaving = True
        self._close_doors()
        shells, server = self._shells, self._server
        if shells is None or server is None:
            if shells is not None and self._member.is_set():
                await shells.log_client.leave()
            return
        logger.info("leaving")
        shells.node.leaving = True
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        # First of all: members whose connections end by the drain then find their new coordinator.
        depart_s = min(DEPART_S_MAX, self._settings.drain_ms / 2000)
        await shells.node.groups.depart(depart_s)
        drain_ms = max(0, self._settings.drain_ms - int((loop.time() - begun_s) * 1000))
        left = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            # Requests are taken no more; those under way are answered as they are settled.
            tasks.create_task(server.drain(drain_ms, left))
            try:
                async with asyncio.timeout(max(0.0, drain_ms / 1000 - depart_s)):
                    await shells.node.producing.drain()
            except TimeoutError:
                logger.warning("left with records that were not known to be durable in time")
            # The last archive has what was drained.
            await shells.jobs.leave(depart_s)
            # From the Close on no other agent names this one, before its connections are gone.
            await shells.log_client.leave()
            left.set()
        await shells.checkpoints.put_last()
        logger.info("left")


def _http_listeners(
    settings: Settings, parts: Parts, host_name: str, *, shared: bool
) -> HttpListeners:
    """The HTTP listeners. Raises AgentError."""
    try:
        return HttpListeners(settings, parts, host_name=host_name, shared=shared)
    except HttpListenerError as error:
        raise AgentError.of(error) from error
