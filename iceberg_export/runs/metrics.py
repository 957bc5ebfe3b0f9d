"""Metrics of a loop of exports, for Prometheus: plain numbers, read when they are asked for.

Nothing here is needed by an export; without `--metrics-port` nobody ever reads the numbers.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from iceberg_export.errors import SettingsError
from iceberg_export.runs.job import Committed
from iceberg_export.runs.status import TopicStatus

CONNECTIONS_MAX = 32
REQUEST_S_MAX = 5.0
"""For what a client sends, or takes, next."""


@dataclass(slots=True)
class TopicMetrics:
    """Of one topic, since the process began."""

    lag: int = 0
    lag_bytes: int = 0
    lag_seconds: int = 0
    dlq_rows: int = 0
    dlq_by_code: Mapping[str, int] = field(default_factory=dict)
    is_refused: bool = False
    """It cannot be exported as things are, so all of its log is behind."""
    rows: int = 0
    byte_count: int = 0
    files: int = 0
    commits: int = 0
    errors: int = 0
    consecutive_failures: int = 0
    """Exports that failed since one ended well."""
    bad: int = 0
    exported_ms: int = 0
    """When an export last ended well, wall clock."""

    def polled(self, status: TopicStatus, now_ms: int) -> None:
        self.is_refused = bool(status.problem)
        self.lag, self.lag_bytes = status.lag, status.byte_count
        self.lag_seconds = status.seconds(now_ms) or 0
        self.dlq_rows, self.dlq_by_code = status.dlq_rows, status.dlq_by_code or {}

    def count_failure(self, consecutive_failures: int) -> None:
        self.errors += 1
        self.consecutive_failures = consecutive_failures

    def committed(self, committed: Committed) -> None:
        self.rows += committed.rows
        self.byte_count += committed.byte_count
        self.files += committed.files
        self.commits += 1

    def exported(self, now_ms: int, *, caught_up: bool) -> None:
        self.exported_ms = now_ms
        if caught_up:
            self.lag = self.lag_bytes = self.lag_seconds = 0


@dataclass(slots=True)
class LoopMetrics:
    rounds: int = 0
    rounds_failed: int = 0
    round_ms: int = 0
    """How long the last one took."""
    round_ended_ms: int = 0
    """Wall clock; 0 before the first."""
    topics: dict[tuple[str, str], TopicMetrics] = field(default_factory=dict)
    """By name, and by table where the topic has several (`Topic.route`)."""

    def round_done(self, now_ms: int, took_ms: int) -> None:
        self.rounds += 1
        self.round_ended_ms, self.round_ms = now_ms, took_ms


_TOPIC_GAUGES: tuple[tuple[str, str, Callable[[TopicMetrics], float]], ...] = (
    ("lag_offsets", "Offsets that the table does not have yet", lambda one: one.lag),
    ("lag_bytes", "Bytes of the log that wait, as far as looked at", lambda one: one.lag_bytes),
    ("lag_seconds", "How long the oldest of them has waited", lambda one: one.lag_seconds),
    ("dead_letters", "Rows of the dead-letter table", lambda one: one.dlq_rows),
    (
        "refused",
        "1: the topic cannot be exported as things are, and status says why",
        lambda one: one.is_refused,
    ),
    (
        "failures_in_a_row",
        "Exports of the topic that failed since one ended well",
        lambda one: one.consecutive_failures,
    ),
    (
        "last_export_timestamp_seconds",
        "When an export of the topic last ended well",
        lambda one: one.exported_ms / 1000,
    ),
)
_TOPIC_COUNTERS: tuple[tuple[str, str, Callable[[TopicMetrics], float]], ...] = (
    ("rows", "Records written into tables", lambda one: one.rows),
    ("bytes", "Bytes of the log exported", lambda one: one.byte_count),
    ("files", "Data files written", lambda one: one.files),
    ("commits", "Commits to tables", lambda one: one.commits),
    ("errors", "Exports of a topic that failed", lambda one: one.errors),
    ("bad_records", "Records that are not in the table, for a reason", lambda one: one.bad),
)


NAMES = tuple(
    f"frazil_export_{name}"
    for name in (
        *(name for name, _said, _read in _TOPIC_GAUGES),
        *(f"{name}_total" for name, _said, _read in _TOPIC_COUNTERS),
        "dead_letters_by_code",
        "rounds_total",
        "rounds_failed_total",
        "round_seconds",
        "round_timestamp_seconds",
    )
)
"""As Prometheus stores them."""


class LoopCollector(Collector):
    """Reads the numbers when Prometheus asks, from its own thread: they only ever grow, or are
    replaced."""

    def __init__(self, numbers: LoopMetrics) -> None:
        self._numbers = numbers

    @override
    def collect(self) -> Iterator[Metric]:
        numbers = self._numbers
        topics = sorted(numbers.topics.items())
        for name, text, read in _TOPIC_GAUGES:
            gauge = GaugeMetricFamily(f"frazil_export_{name}", text)
            for topic, one in topics:
                gauge.add_sample(gauge.name, _labels(topic), read(one))
            yield gauge
        by_code = GaugeMetricFamily(
            "frazil_export_dead_letters_by_code",
            "Rows of the dead-letter table, by reason",
        )
        for topic, one in topics:
            for code, count in one.dlq_by_code.items():
                by_code.add_sample(by_code.name, {**_labels(topic), "code": code}, count)
        yield by_code
        for name, text, read in _TOPIC_COUNTERS:
            counter = CounterMetricFamily(f"frazil_export_{name}", text)
            for topic, one in topics:
                counter.add_sample(f"{counter.name}_total", _labels(topic), read(one))
            yield counter
        yield CounterMetricFamily("frazil_export_rounds", "Rounds that ended", numbers.rounds)
        yield CounterMetricFamily(
            "frazil_export_rounds_failed", "Rounds ended by an error", numbers.rounds_failed
        )
        yield GaugeMetricFamily(
            "frazil_export_round_seconds", "Length of the last round", numbers.round_ms / 1000
        )
        yield GaugeMetricFamily(
            "frazil_export_round_timestamp_seconds",
            "When the last round ended",
            numbers.round_ended_ms / 1000,
        )


def _labels(topic: tuple[str, str]) -> dict[str, str]:
    name, route = topic
    return {"topic": name, "route": route} if route else {"topic": name}


def parse_address(text: str) -> tuple[str, int]:
    """Parses `[HOST:]PORT`; the host is the loopback if not given. Raises SettingsError."""
    host, colon, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or not 0 <= int(port) < 1 << 16:
        raise SettingsError(f"--metrics-port {text!r} is not [HOST:]PORT")
    return (host.strip("[]") if colon else "127.0.0.1"), int(port)


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, a bounded number of them: the exporter needs its descriptors for
    tables. A newcomer has the place of the oldest; a scrape is over long before that."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily) -> None:
        self.address_family = family
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= CONNECTIONS_MAX:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """What ends a connection early is its client's business."""


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_S_MAX

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Nobody wants to know of each scrape."""


def _bound_server(host: str, port: int) -> _Server:
    """Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return _Server((str(address[0]), port), family)


def serve(numbers: LoopMetrics, address: str) -> tuple[int, Callable[[], None]]:
    """Answers Prometheus from a thread; returns the port and how to end it. Raises SettingsError."""
    host, port = parse_address(address)
    registry = CollectorRegistry()
    registry.register(LoopCollector(numbers))
    try:
        server = _bound_server(host, port)
    except OSError as error:
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def end() -> None:
        server.shutdown()
        thread.join()
        server.server_close()

    return int(server.server_port), end
