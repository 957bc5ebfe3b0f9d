"""Puts an agent's HTTP endpoints together: the admin endpoints, the metrics, the schema registry.

Not imported before they are due: what they are made of (aiohttp, Prometheus, parsers of schemas) takes a
fifth of the CPU of a start, and Kafka's clients come first (`broker.agent`). Nothing is opened here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from aiohttp import web

from broker.admin import listener, metrics
from broker.admin.admin_view import AdminView
from broker.admin.load_watch import LoadWatch
from broker.admin.log_writes import LogWrites
from broker.admin.memory_bound import connection_bytes, fetching_bytes, machine_bytes
from broker.admin.numbers import numbers_of
from broker.composition import Parts
from broker.console import figure_pages, pages, record_pages, record_producing
from broker.console.actions import action_pages
from broker.console.record_access import RECORDS, RecordAccess
from broker.edge.local_calls import DispatchedCalls
from broker.handlers import SERVED
from broker.http_listeners import HttpListeners
from broker.jobs.host import JobHost
from broker.node import Node
from broker.registry import rest
from broker.registry.checker import InLoopChecker, SchemaChecker, two_checkers
from broker.registry.rest_support import RegistryView
from storage.stores.counted import StoreUse
from storage.writer import Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What of an agent the endpoints tell of."""

    node: Node
    writer: Writer
    jobs: JobHost
    load: LoadWatch
    store_use: StoreUse
    log_writes: LogWrites
    memory_bytes: int
    """That it takes at most, besides what the cluster holds and connections."""
    tls: bool
    """Whether a listener of Kafka's speaks it."""
    clock_skew_ms: Callable[[], int]
    not_ready: Callable[[], list[str]]
    store_reachable: Callable[[], bool]
    is_member: Callable[[], bool]
    """Whether it has had a session."""
    works_in_loop: bool
    """Whether there are no processes beside the agent's."""
    tasks: asyncio.TaskGroup
    """Owns what pages have the agent do."""


class Endpoints(NamedTuple):
    """Ready to be opened."""

    checker: SchemaChecker
    admin: web.Application
    registry: Callable[[], web.Application]
    """An application for each of the listeners."""


def compose_http(http: HttpListeners, parts: Parts, served: Served, view: AdminView) -> Endpoints:
    """The applications, of an agent whose certificates were read; completes what the admin
    endpoints read."""
    node = served.node
    checker: SchemaChecker = InLoopChecker() if served.works_in_loop else two_checkers()
    view.overloaded = served.load.sentences
    view.logins = http.logins("http", node)
    view.log_client = node.log_client
    view.reader = node.reader
    sources = _sources(parts, served)
    view.registry = metrics.registry_of(sources)
    view.numbers = partial(numbers_of, sources)
    view.client_metrics = node.telemetry.text
    registry_view = RegistryView(
        log_client=node.log_client,
        checker=checker,
        cluster_id=node.settings.cluster_id,
        logins=http.logins("registry", node),
        rights=node.rights,
        ready=served.is_member,
    )
    routes = (
        *pages.ROUTES,
        *figure_pages.ROUTES,
        *record_pages.ROUTES,
        *record_producing.ROUTES,
        *action_pages.ROUTES,
    )
    admin = listener.make_app(view, routes)
    pages.install(admin, node.boot_ms)
    calls = DispatchedCalls(node, SERVED, served.tasks)
    action_pages.install(admin, node, calls)
    admin[RECORDS] = RecordAccess(calls, checker, node.rights, node.now_ms)
    return Endpoints(checker, admin, lambda: rest.make_app(registry_view))


def _sources(parts: Parts, served: Served) -> metrics.Sources:
    node, log_client = served.node, served.node.log_client
    return metrics.Sources(
        node=node,
        log_client=log_client,
        producing=node.producing,
        reader=node.reader,
        writer=served.writer,
        jobs=served.jobs,
        load=served.load,
        store_use=served.store_use,
        log_writes=served.log_writes,
        memory_bound=lambda: (
            served.memory_bytes
            + machine_bytes(log_client.machine)
            + connection_bytes(node.stats.connections_open, tls=served.tls)
            + fetching_bytes(
                places=node.fetching.sessions.places_count,
                watches=node.fetching.parked.watches_count,
            )
        ),
        ready=lambda: not served.not_ready(),
        store_reachable=served.store_reachable,
        now_ms=parts.now_ms,
        clock_skew_ms=served.clock_skew_ms,
    )
