"""Every metric of an agent in one table, read from plain numbers when Prometheus asks.

Nothing is counted here: shells count in their own `stats`, the machine knows its sizes, and each
row of `TABLE` says where its number comes from. So no hot path touches a metrics library, and
the dashboard and the alerts in `deploy/` can be checked against the table.

Left out: metrics of the process itself (CPU, memory, files), which prometheus-client brings.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, islice
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from typing_extensions import override

from broker.admin import quota_metrics
from broker.admin.load_watch import LoadWatch
from broker.admin.log_writes import LogWrites
from broker.jobs.host import JobHost
from broker.node import LATENCY_BUCKETS, Node
from broker.produce.produce_path import ProducePath
from broker.reports.export_holds import hold_left_ms
from coordinator.commands.config_commands import Quota
from coordinator.commands.job_commands import JobKind
from coordinator.log_client import LogClient
from protocol.apis import APIS
from storage.reader import Reader
from storage.stores.counted import StoreCalls, StoreUse
from storage.writer import Writer

DAY_MS = 86_400_000
OVERDUE_LOOKED_AT = 1_000
"""Of the open transactions, the oldest: a scrape must not make the agent stand still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The parts of an agent that have numbers."""

    node: Node
    log_client: LogClient
    producing: ProducePath
    reader: Reader
    writer: Writer
    store_use: StoreUse
    log_writes: LogWrites
    jobs: JobHost
    load: LoadWatch
    memory_bound: Callable[[], int]
    ready: Callable[[], bool]
    store_reachable: Callable[[], bool]
    now_ms: Callable[[], int]
    clock_skew_ms: Callable[[], int]


class Type(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Numbers = Mapping[str, float] | Mapping[tuple[str, str], float]


class Row(NamedTuple):
    """One metric. `read` gives a number, or numbers by the values of `labels`."""

    name: str
    """Without Prometheus' `_total`, which counters get."""
    type: Type
    help: str
    read: Callable[[Sources], "float | Numbers"]
    labels: str | tuple[str, str] | tuple[()] = ()
    """One name: keys are strings; two: pairs of them."""


def api_label(api_key: int) -> str:
    return APIS[api_key].name if api_key in APIS else str(api_key)


def _clock_skew_ms(sources: Sources) -> float:
    """How far this agent's clock is ahead of the newest one seen in the log, at most."""
    clocks = [row.clock_ms for row in sources.log_client.machine.incarnations]
    return float(max(0, max(clocks) - sources.now_ms())) if clocks else 0.0


def _certificate_days(sources: Sources) -> dict[str, float]:
    now_ms = sources.now_ms()
    ends_ms = sources.node.stats.certificate_ends_ms
    return {name: (each - now_ms) / DAY_MS for name, each in ends_ms.items()}


def _overdue_ms(sources: Sources) -> float:
    """By the clocks of this agent and of the one where the transaction began."""
    now_ms = sources.now_ms()
    oldest = islice(sources.log_client.machine.transactions.ongoing.values(), OVERDUE_LOOKED_AT)
    return float(max([0, *(now_ms - row.started_ms - row.timeout_ms for row in oldest)]))


def _record_bytes(sources: Sources) -> dict[str, float]:
    partitions = sources.log_client.machine.partitions
    segment_bytes = partitions.segment_bytes
    return {"chunk": partitions.data_bytes - segment_bytes, "segment": segment_bytes}


def _fetch_bytes(sources: Sources) -> dict[str, float]:
    stats = sources.node.fetching.stats
    own, other = stats.own_rack_bytes, stats.other_rack_bytes
    return {"none": stats.answered_bytes - own - other, "own": own, "other": other}


def _of_quotas(name: str, measure: str, quota: Quota, what: str) -> tuple[Row, Row]:
    """The two metrics of a quota: what is used, and for how long clients wait."""
    return (
        Row(f"frazil_{name}_{measure}", GAUGE, f"{what}, where it has a quota.",
            lambda s: quota_metrics.used(s.node.quotas, quota), ("user", "client_id")),
        Row(f"frazil_{name}_throttle_time_seconds", COUNTER,
            "For how long the quota's clients were told to wait.",
            lambda s: quota_metrics.throttled_seconds(s.node.quotas, quota),
            ("user", "client_id")),
    )  # fmt: skip


def _job_bytes(sources: Sources) -> dict[tuple[str, str], float]:
    moved: dict[tuple[str, str], float] = {}
    for kind in JobKind:
        stats = sources.jobs.stats.job(kind)
        moved[kind.name.lower(), "read"] = stats.bytes_read
        moved[kind.name.lower(), "written"] = stats.bytes_written
    return moved


def _store_calls(sources: Sources) -> dict[str, StoreCalls]:
    """By cause: of producing, fetching, archiving, each job, and what the agent asks beside them."""
    written, read = sources.writer.stats, sources.reader.stats
    calls = {
        "produce": StoreCalls(puts=written.puts + written.retries, bytes_written=written.put_bytes),
        "fetch": StoreCalls(gets=read.reads_whole + read.reads_range, bytes_read=read.read_bytes),
        "archive": sources.jobs.stats.archive(),
        **sources.store_use.calls,
    }
    return calls | {kind.name.lower(): sources.jobs.stats.job(kind) for kind in JobKind}


def _store_requests(sources: Sources) -> dict[tuple[str, str], float]:
    counts: dict[tuple[str, str], float] = {}
    for cause, calls in _store_calls(sources).items():
        counts |= {(cause, "put"): calls.puts, (cause, "get"): calls.gets}
        counts |= {(cause, "list"): calls.lists, (cause, "delete"): calls.deletes}
    return {key: count for key, count in counts.items() if count}


def _store_bytes(sources: Sources) -> dict[tuple[str, str], float]:
    moved: dict[tuple[str, str], float] = {}
    for cause, calls in _store_calls(sources).items():
        moved |= {(cause, "written"): calls.bytes_written, (cause, "read"): calls.bytes_read}
    return {key: count for key, count in moved.items() if count}


def _forwarded(sources: Sources) -> dict[str, int]:
    forwarder = sources.node.telemetry.forwarder
    return {} if forwarder is None else forwarder.counts


def _refused(sources: Sources) -> float:
    """Who has no worker any more does not know what became of them."""
    jobs = sources.jobs
    return jobs.stats.job(JobKind.COLLECT).refused if jobs.worker_running else 0


def _archive_behind_ms(sources: Sources) -> float:
    """Who has no worker any more does not know."""
    jobs = sources.jobs
    return 1000 * jobs.stats.worker.archive.behind_s if jobs.worker_running else 0


def _snapshot_position(sources: Sources) -> float:
    published = sources.log_client.machine.snapshots.published
    return published[0].position if published else 0


COUNTER, GAUGE = Type.COUNTER, Type.GAUGE

TABLE: tuple[Row, ...] = (
    # The agent.
    Row("frazil_ready", GAUGE, "1 when the agent may be sent clients.",
        lambda s: float(s.ready())),
    Row("frazil_store_reachable", GAUGE, "1 when the newest probe of the object store succeeded.",
        lambda s: float(s.store_reachable())),
    Row("frazil_overloaded", GAUGE, "1 for each bound that load has reached.",
        lambda s: s.load.flags(), "reason"),
    Row("frazil_memory_bound_bytes", GAUGE, "Memory that the agent takes at most, the worker apart.",
        lambda s: s.memory_bound()),
    Row("frazil_loop_lag_ms", GAUGE, "How late the event loop was at most in the last 15 s.",
        lambda s: s.load.lag_ms()),
    Row("frazil_loop_stalls", COUNTER, "Times that the event loop stood still too long.",
        lambda s: s.node.stats.stalls),
    Row("frazil_loop_stall_longest_ms", GAUGE, "The longest of them.",
        lambda s: s.node.stats.stall_longest_ms),
    # Connections and requests.
    Row("frazil_connections", GAUGE, "Open Kafka connections.",
        lambda s: s.node.stats.connections_open),
    Row("frazil_connections_accepted", COUNTER, "Kafka connections ever accepted.",
        lambda s: s.node.stats.connections_total),
    Row("frazil_connections_refused", COUNTER, "Connections closed at once, by reason.",
        lambda s: s.node.stats.connections_refused, "reason"),
    Row("frazil_connections_closed", COUNTER, "Connections closed by the agent, by reason.",
        lambda s: s.node.stats.connections_closed, "reason"),
    Row("frazil_authentications", COUNTER, "Ends of authentications, by SASL and over HTTP.",
        lambda s: s.node.stats.authentications, ("mechanism", "outcome")),
    Row("frazil_handshakes", COUNTER, "TLS handshakes that ended well.",
        lambda s: s.node.stats.handshakes_total),
    Row("frazil_handshakes_failed", COUNTER, "TLS handshakes that came to nothing, by reason.",
        lambda s: s.node.stats.handshakes_failed, "reason"),
    Row("frazil_certificate_days", GAUGE, "Days until a listener's certificate ends.",
        _certificate_days, "listener"),
    Row("frazil_certificate_reloads", COUNTER, "Certificates that were taken as files changed.",
        lambda s: s.node.stats.certificate_reloads),
    Row("frazil_certificate_failures", COUNTER,
        "Looks at files of a listener that could not be used; its certificate stays.",
        lambda s: s.node.stats.certificate_failures),
    Row("frazil_requests", COUNTER, "Requests answered, by API.",
        lambda s: {api_label(key): count for key, count in s.node.stats.requests.items()}, "api"),
    Row("frazil_request_bytes", COUNTER, "Bytes of requests.", lambda s: s.node.stats.request_bytes),
    Row("frazil_response_bytes", COUNTER, "Bytes of answers.",
        lambda s: s.node.stats.response_bytes),
    Row("frazil_request_memory_bytes", GAUGE, "Requests being received or not yet answered.",
        lambda s: s.node.stats.held_bytes),
    Row("frazil_requests_queued", GAUGE, "Connections whose next request waits in line.",
        lambda s: s.node.stats.queued),
    Row("frazil_requests_refused_stale", COUNTER, "Changes refused after a stall of the loop.",
        lambda s: s.node.stats.refused_stale),
    Row("frazil_handler_failures", COUNTER, "Requests that ended in an unforeseen error: bugs.",
        lambda s: s.node.stats.failed_handlers),
    Row("frazil_topics_auto_created", COUNTER, "Topics made because a client asked for them.",
        lambda s: s.node.stats.topics_auto_created),
    # Producing.
    Row("frazil_produce_records", COUNTER, "Records taken from producers.",
        lambda s: s.producing.stats.records),
    Row("frazil_produce_bytes", COUNTER, "Bytes of record batches taken from producers.",
        lambda s: s.producing.stats.batch_bytes),
    Row("frazil_produce_batches", COUNTER, "Record batches taken from producers.",
        lambda s: s.producing.stats.batches),
    Row("frazil_produce_batches_acknowledged", COUNTER, "Batches durable and in the log.",
        lambda s: s.producing.stats.batches_acknowledged),
    Row("frazil_produce_batches_refused", COUNTER, "Batches refused by the log or given up.",
        lambda s: s.producing.stats.batches_refused),
    Row("frazil_produce_batches_duplicate", COUNTER, "Batches that were in the log already.",
        lambda s: s.producing.stats.batches_duplicate),
    Row("frazil_produce_timeouts", COUNTER, "Produce requests whose time was up.",
        lambda s: s.producing.stats.requests_timed_out),
    Row("frazil_produce_waiting_bytes", GAUGE, "Bytes waiting to become durable.",
        lambda s: s.producing.stats.waiting_bytes),
    Row("frazil_produce_buffer_bytes", GAUGE, "Bound of the bytes waiting to become durable.",
        lambda s: s.node.settings.produce_buffer_bytes),
    Row("frazil_produce_full", COUNTER, "Times that producers had to wait for memory.",
        lambda s: s.producing.stats.full_count),
    Row("frazil_chunks_committed", COUNTER, "Objects whose records are in the log.",
        lambda s: s.producing.stats.chunks_committed),
    Row("frazil_chunks_given_up", COUNTER, "Objects whose records were refused to producers.",
        lambda s: s.producing.stats.chunks_given_up),
    # Fetching.
    Row("frazil_fetch_bytes", COUNTER,
        "Bytes of record batches given to consumers, by the zone that they tell as client.rack:"
        " none, the agent's own, or another.",
        _fetch_bytes, "rack"),
    Row("frazil_fetch_partitions_sent_on", COUNTER,
        "Fetched partitions whose consumer was sent to an agent of its zone.",
        lambda s: s.node.fetching.stats.sent_on),
    # Quotas of clients.
    *_of_quotas("produce", "byte_rate", Quota.PRODUCER_BYTE_RATE, "Bytes that a client writes"),
    *_of_quotas("fetch", "byte_rate", Quota.CONSUMER_BYTE_RATE, "Bytes that a client reads"),
    *_of_quotas("request", "time", Quota.REQUEST_PERCENTAGE,
        "Percents of the loop that a client takes"),
    *_of_quotas("controller_mutation", "tokens", Quota.CONTROLLER_MUTATION_RATE,
        "Tokens that a client has left"),
    *_of_quotas("connection", "tokens", Quota.CONNECTION_CREATION_RATE,
        "Tokens for new connections that an address has left"),
    # Groups that this agent coordinates.
    Row("frazil_group_shards", GAUGE, "Shards of groups held by this agent.",
        lambda s: len(s.node.groups.claims.served)),
    Row("frazil_groups", GAUGE, "Groups with members coordinated here, by protocol and state.",
        lambda s: s.node.groups.states(), ("protocol", "state")),
    Row("frazil_group_members", GAUGE, "Members of them that are in the log.",
        lambda s: s.node.groups.member_count()),
    Row("frazil_group_rebalances", COUNTER, "Times that a group became stable.",
        lambda s: s.node.groups.stats.rebalances),
    Row("frazil_group_heartbeats", COUNTER, "Heartbeats of both protocols.",
        lambda s: s.node.groups.stats.heartbeats),
    Row("frazil_group_members_expired", COUNTER, "Members removed because they were silent.",
        lambda s: s.node.groups.stats.expired_members),
    Row("frazil_group_requests_parked", GAUGE, "Requests waiting for other members or the log.",
        lambda s: s.node.groups.stats.parked),
    Row("frazil_group_requests_overflowed", COUNTER, "Requests refused: too many waited.",
        lambda s: s.node.groups.stats.overflows),
    Row("frazil_group_writes", COUNTER, "Changes of groups put into the log.",
        lambda s: s.node.groups.stats.writes),
    Row("frazil_group_writes_failed", COUNTER, "Changes of groups that did not happen.",
        lambda s: s.node.groups.stats.writes_failed),
    Row("frazil_group_writes_fenced", COUNTER, "Of them, those that the log fenced: bugs.",
        lambda s: s.node.groups.stats.writes_fenced),
    Row("frazil_group_takeovers", COUNTER, "Groups with members taken over with their shard.",
        lambda s: s.node.groups.stats.takeovers),
    Row("frazil_group_shards_claimed", COUNTER, "Shards that this agent asked for.",
        lambda s: s.node.groups.stats.shards_claimed),
    Row("frazil_group_shards_released", COUNTER, "Shards that it gave to other agents.",
        lambda s: s.node.groups.stats.shards_released),
    Row("frazil_group_rows_unreadable", COUNTER, "Groups of a version that this agent cannot read.",
        lambda s: s.node.groups.stats.unreadable),
    # Metrics of clients.
    Row("frazil_client_instances", GAUGE, "Clients that push metrics here.",
        lambda s: len(s.node.telemetry.instances)),
    Row("frazil_client_series", GAUGE, "Series of what they pushed.",
        lambda s: s.node.telemetry.series.count),
    Row("frazil_client_series_bytes", GAUGE, "What these take of telemetry.metrics.bytes.",
        lambda s: s.node.telemetry.series.bytes_used),
    Row("frazil_client_pushes", COUNTER, "Pushes of metrics, by Kafka's error that was answered.",
        lambda s: s.node.telemetry.stats.pushes, "error"),
    Row("frazil_client_points_left_out", COUNTER,
        "Points of metrics that are in no series, by the reason.",
        lambda s: s.node.telemetry.stats.left_out, "reason"),
    Row("frazil_client_payloads_forwarded", COUNTER,
        "Pushes for telemetry.otlp.endpoint, by what became of them.",
        _forwarded, "outcome"),
    # Transactions.
    Row("frazil_transactions_open", GAUGE, "Open transactions of the cluster.",
        lambda s: s.node.transactions.open_count),
    Row("frazil_transaction_oldest_ms", GAUGE, "How long the oldest has been seen open.",
        lambda s: s.node.transactions.oldest_open_ms()),
    Row("frazil_transaction_overdue_ms", GAUGE, "How long one is open after its timeout, at most.",
        _overdue_ms),
    Row("frazil_transactions_ended", COUNTER, "Transactions ended by this agent, by outcome.",
        lambda s: {how.value: count for how, count in s.node.transactions.stats.ended.items()},
        "outcome"),
    Row("frazil_transaction_challenges", COUNTER, "EndTxn that had to come again: perhaps late.",
        lambda s: s.node.transactions.stats.challenges),
    Row("frazil_transactions_moved", COUNTER, "Adds and EndTxn that met another transaction.",
        lambda s: s.node.transactions.stats.moved),
    Row("frazil_transaction_fates_open", COUNTER, "Connections closed: nobody knew the outcome yet.",
        lambda s: s.node.transactions.stats.open_fates),
    Row("frazil_transactional_ids", GAUGE, "Transactional ids of the cluster.",
        lambda s: len(s.log_client.machine.transactions)),
    Row("frazil_transactional_ids_expired_early", COUNTER,
        "Transactional ids forgotten before transactional.id.expiration.ms: there were nearly too many.",
        lambda s: s.node.transactions.stats.ids_expired_early),
    Row("frazil_offsets_pending", GAUGE, "Offsets that wait for the end of a transaction.",
        lambda s: s.log_client.machine.groups.pending_rows),
    Row("frazil_producer_windows", GAUGE, "Producers remembered, once for every partition.",
        lambda s: s.log_client.machine.partitions.window_count),
    # The object store.
    Row("frazil_store_puts", COUNTER, "Objects written.", lambda s: s.writer.stats.puts),
    Row("frazil_store_put_bytes", COUNTER, "Bytes of chunks written.",
        lambda s: s.writer.stats.put_bytes),
    Row("frazil_store_put_seconds", COUNTER, "Time that writing chunks took, retries included.",
        lambda s: s.writer.stats.put_seconds),
    Row("frazil_store_put_retries", COUNTER, "Writes of chunks made again.",
        lambda s: s.writer.stats.retries),
    Row("frazil_store_puts_given_up", COUNTER, "Objects that could not be written in time.",
        lambda s: s.writer.stats.given_up),
    Row("frazil_store_puts_in_flight", GAUGE, "Objects being written.",
        lambda s: s.producing.stats.puts_in_flight),
    Row("frazil_store_requests", COUNTER,
        "Requests to the object store, by cause and call; those that were repeated count again.",
        _store_requests, ("cause", "call")),
    Row("frazil_store_bytes", COUNTER, "Bytes of objects, by cause and way.", _store_bytes,
        ("cause", "way")),
    Row("frazil_store_reads", COUNTER, "Reads of chunks, whole or in part.",
        lambda s: {"whole": s.reader.stats.reads_whole, "range": s.reader.stats.reads_range},
        "kind"),
    Row("frazil_store_read_bytes", COUNTER, "Bytes read from chunks.",
        lambda s: s.reader.stats.read_bytes),
    Row("frazil_store_read_seconds", COUNTER, "Time that reading chunks took.",
        lambda s: s.reader.stats.read_seconds),
    Row("frazil_cache_bytes", GAUGE, "Bytes of records in memory.",
        lambda s: s.reader.cache.bytes_used),
    Row("frazil_cache_bytes_max", GAUGE, "Bound of the records in memory.",
        lambda s: s.reader.cache.bytes_max),
    Row("frazil_cache_hits", COUNTER, "Spans found in memory.", lambda s: s.reader.stats.hits),
    Row("frazil_cache_misses", COUNTER, "Spans that had to be read.",
        lambda s: s.reader.stats.misses),
    Row("frazil_cache_evictions", COUNTER, "Values that had to make room.",
        lambda s: s.reader.cache.evictions),
    # The metadata log.
    Row("frazil_session_lost_ms", GAUGE, "How long no session has been proven; 0 when one is.",
        lambda s: s.log_client.session_lost_ms()),
    Row("frazil_sessions_opened", COUNTER, "Incarnations of this process.",
        lambda s: s.log_client.stats.sessions_opened),
    Row("frazil_sessions_lost", COUNTER, "Sessions that were lost.",
        lambda s: s.log_client.stats.sessions_lost),
    Row("frazil_log_lag", GAUGE, "Positions known to be in the log and not applied.",
        lambda s: s.log_client.stats.lag),
    Row("frazil_log_applied_position", GAUGE, "The newest position that is applied.",
        lambda s: s.log_client.machine.position),
    Row("frazil_log_entries_applied", COUNTER, "Entries of all agents applied.",
        lambda s: s.log_client.stats.entries_applied),
    Row("frazil_log_commands_applied", COUNTER, "Commands in them.",
        lambda s: s.log_client.stats.commands_applied),
    Row("frazil_log_commands_rejected", COUNTER, "Commands among them that changed nothing.",
        lambda s: s.log_client.stats.commands_rejected),
    Row("frazil_log_apply_seconds", COUNTER, "Time that applying took.",
        lambda s: s.log_client.stats.apply_seconds),
    Row("frazil_log_tail_restarts", COUNTER, "Times that the tail of the log broke off.",
        lambda s: s.log_client.stats.tail_restarts),
    Row("frazil_log_entries_appended", COUNTER, "Entries of this agent.",
        lambda s: s.log_client.stats.entries_appended),
    Row("frazil_log_writes", COUNTER,
        "Entries of this agent in the log, by what their first command is for.",
        lambda s: s.log_writes.counts, "cause"),
    Row("frazil_log_bytes_appended", COUNTER, "Bytes of them.",
        lambda s: s.log_client.stats.bytes_appended),
    Row("frazil_log_append_seconds", COUNTER, "Time that appending them took.",
        lambda s: s.log_client.stats.append_seconds),
    Row("frazil_log_appends_repeated", COUNTER, "Appends sent again because no answer came.",
        lambda s: s.log_client.stats.appends_repeated),
    Row("frazil_log_commands_not_done", COUNTER, "Commands that were never appended.",
        lambda s: s.log_client.stats.commands_not_done),
    Row("frazil_log_commands_over_budget", COUNTER,
        "Commands among them that were refused because the log was over its budget.",
        lambda s: s.log_client.stats.commands_over_budget),
    Row("frazil_barriers", COUNTER, "Waits for the log's end.",
        lambda s: s.log_client.stats.barriers),
    Row("frazil_barrier_seconds", COUNTER, "Time that they took.",
        lambda s: s.log_client.stats.barrier_seconds),
    Row("frazil_barriers_failed", COUNTER, "Waits for the log's end that ended too late.",
        lambda s: s.log_client.stats.barriers_failed),
    # The machine.
    Row("frazil_agents", GAUGE, "Live agents.", lambda s: len(s.log_client.machine.incarnations)),
    Row("frazil_topics", GAUGE, "Topics.", lambda s: len(s.log_client.machine.topics)),
    Row("frazil_partitions", GAUGE, "Partitions of topics, of those being deleted too.",
        lambda s: len(s.log_client.machine.partitions)),
    Row("frazil_chunks", GAUGE, "Objects that hold records of topics.",
        lambda s: len(s.log_client.machine.objects)),
    Row("frazil_rows", GAUGE, "Rows of partitions in memory.",
        lambda s: s.log_client.machine.partitions.row_count),
    Row("frazil_pages", GAUGE, "Pages that stand for rows which are not in memory.",
        lambda s: s.log_client.machine.partitions.page_count),
    Row("frazil_paged_rows", GAUGE, "Rows in them.",
        lambda s: s.log_client.machine.partitions.paged_row_count),
    Row("frazil_record_bytes", GAUGE, "Bytes of records, by the kind of object that they lie in.",
        _record_bytes, "kind"),
    Row("frazil_objects_unreferenced", GAUGE, "Objects that nothing points at, not yet doomed.",
        lambda s: s.log_client.machine.objects.unreferenced_count),
    Row("frazil_objects_doomed", GAUGE, "Objects that are being deleted.",
        lambda s: s.log_client.machine.objects.doomed_count),
    Row("frazil_objects_refused", GAUGE,
        "Objects that the store refused to delete when this agent's worker last tried.",
        _refused),
    Row("frazil_export_hold_left_ms", GAUGE,
        "Until old records of a topic go that wait for their export.",
        lambda s: hold_left_ms(s.log_client.machine, s.node.kafka), "topic"),
    # Jobs.
    Row("frazil_jobs_held", GAUGE, "Kinds of jobs that this agent holds.",
        lambda s: len(s.jobs.held_jobs)),
    Row("frazil_job_worker_running", GAUGE, "1 while this agent's worker of the jobs runs.",
        lambda s: float(s.jobs.worker_running)),
    Row("frazil_job_worker_memory_bytes", GAUGE, "Resident memory of the worker process.",
        lambda s: s.jobs.stats.worker.memory_bytes),
    Row("frazil_job_worker_memory_max_bytes", GAUGE, "What it may take; 0: no bound is known.",
        lambda s: s.jobs.stats.worker.memory_bytes_max),
    Row("frazil_job_workers_started", COUNTER, "Workers started.",
        lambda s: s.jobs.stats.workers_started),
    Row("frazil_job_workers_failed", COUNTER, "Workers that ended though they should not.",
        lambda s: s.jobs.stats.workers_failed),
    Row("frazil_job_workers_short_of_memory", COUNTER,
        "Of these: that gave up, since they neared what they may take.",
        lambda s: s.jobs.stats.workers_short_of_memory),
    Row("frazil_job_runs", COUNTER, "Rounds of jobs begun here.",
        lambda s: {kind.name.lower(): s.jobs.stats.job(kind).runs for kind in JobKind}, "kind"),
    Row("frazil_job_failures", COUNTER, "Rounds that will be tried again.",
        lambda s: {kind.name.lower(): s.jobs.stats.job(kind).failures for kind in JobKind}, "kind"),
    Row("frazil_job_seconds", COUNTER, "Time that finished rounds took.",
        lambda s: {kind.name.lower(): s.jobs.stats.job(kind).seconds for kind in JobKind}, "kind"),
    Row("frazil_job_bytes", COUNTER, "Bytes that jobs moved, by kind and way.", _job_bytes,
        ("kind", "way")),
    Row("frazil_snapshot_position", GAUGE, "Of the newest snapshot; 0: there is none.",
        _snapshot_position),
    Row("frazil_snapshot_age_ms", GAUGE,
        "Since this agent saw a snapshot published; since its start, if it has seen none.",
        lambda s: s.jobs.snapshot_age_ms()),
    Row("frazil_archive_position", GAUGE,
        "The log is in the object store to here, by this agent's worker; 0: it has none.",
        lambda s: s.jobs.stats.worker.archive.position if s.jobs.worker_running else 0),
    Row("frazil_archive_behind_ms", GAUGE,
        "Since the oldest entry of the log was applied that this agent's worker has not archived.",
        _archive_behind_ms),
    Row("frazil_archive_objects", COUNTER, "Archives of the log written.",
        lambda s: s.jobs.stats.archive().objects),
    Row("frazil_archive_bytes", COUNTER, "Bytes of them.",
        lambda s: s.jobs.stats.archive().bytes_written),
    Row("frazil_archive_failures", COUNTER, "Calls on the store that were made again for them.",
        lambda s: s.jobs.stats.archive().failures),
    Row("frazil_log_bytes", GAUGE, "Of the log since the older snapshot, as far as applied here.",
        lambda s: s.log_client.log_bytes),
    Row("frazil_log_bytes_max", GAUGE, "Bound of it: beyond, only jobs write.",
        lambda s: s.node.settings.log_bytes_max),
    Row("frazil_log_entries_cut", COUNTER, "Entries of the log that this agent deleted.",
        lambda s: s.jobs.stats.entries_cut),
    Row("frazil_machine_position", GAUGE, "Newest position applied.",
        lambda s: s.log_client.machine.position),
    Row("frazil_clock_behind_ms", GAUGE, "How far this agent's clock is behind another's, at least.",
        _clock_skew_ms),
    Row("frazil_clock_ahead_of_store_ms", GAUGE,
        "How far this agent's clock is ahead of the object store's; retention goes by the earlier.",
        lambda s: s.clock_skew_ms()),
    Row("frazil_machine_time_behind_ms", GAUGE,
        "How far the log's time, by which retention goes, is behind this agent's clock.",
        lambda s: s.now_ms() - s.log_client.machine.time_ms),
)  # fmt: skip

LATENCY = "frazil_request_seconds"
"""The one histogram: answers by API and time."""

NAMES: tuple[str, ...] = (
    *(f"{row.name}_total" if row.type is COUNTER else row.name for row in TABLE),
    f"{LATENCY}_bucket",
    f"{LATENCY}_count",
    f"{LATENCY}_sum",
)
"""All series that the agent's own metrics make, as Prometheus stores them."""


def names_of(labels: Sequence[str]) -> Sequence[str]:
    """Labels as the library wants them: one stands alone in the table."""
    return (labels,) if isinstance(labels, str) else labels


class AgentCollector(Collector):
    """Reads the table when a scrape comes."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @override
    def collect(self) -> Iterator[Metric]:
        for row in TABLE:
            family = (CounterMetricFamily if row.type is COUNTER else GaugeMetricFamily)(
                row.name, row.help, labels=names_of(row.labels)
            )
            value = row.read(self._sources)
            if isinstance(value, Mapping):
                for labels, number in sorted(value.items()):
                    family.add_metric(names_of(labels), number)
            else:
                family.add_metric([], value)
            yield family
        yield self._latencies()

    def _latencies(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(
            LATENCY, "Time from a request's last byte to its answer, by API.", labels=["api"]
        )
        for api_key, counts in sorted(self._sources.node.stats.latencies.items()):
            assert len(counts) == LATENCY_BUCKETS
            # Only the bucket is known: its middle stands for what is in it.
            seconds = sum(
                [count * 0.75 * (1 << index) / 1000 for index, count in enumerate(counts)]
            )
            family.add_metric([api_label(api_key)], cumulated(counts), sum_value=seconds)
        return family


def cumulated(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Bounds in seconds, as Prometheus writes them, and how many answers took no longer."""
    bounds = [str((1 << index) / 1000) for index in range(LATENCY_BUCKETS - 1)]
    return list(zip([*bounds, "+Inf"], map(float, accumulate(counts)), strict=True))


def registry_of(sources: Sources) -> CollectorRegistry:
    """A registry of its own (several agents may live in one process), with the process's."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(AgentCollector(sources))
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """The page that Prometheus scrapes, in its text format."""
    return generate_latest(registry)
