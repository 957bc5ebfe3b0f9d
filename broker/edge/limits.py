"""Bounds of connections (P15): of each, and of all together. Pure."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from broker.config.kafka_settings import KafkaSettings
from broker.edge.pressure import Patience
from broker.node import Node
from protocol.framing import FRAME_BYTES_MAX_DEFAULT

KiB: Final = 1 << 10
MiB: Final = 1 << 20
FIRST_FRAME_BYTES: Final = 16 * MiB
REQUEST_BYTES: Final = 2 * KiB
"""Memory that a request takes besides its frame until it is answered, at most, as measured: of one batch."""
DESCRIPTORS_KEPT: Final = 256
"""For store, log, workers, and HTTP with health and metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of one connection."""

    frame_bytes_max: int = FRAME_BYTES_MAX_DEFAULT
    """Kafka's socket.request.max.bytes."""
    first_frame_bytes_max: int = FIRST_FRAME_BYTES
    """Of one that has not shown itself: none of its requests was answered. Not all clients begin
    with ApiVersions, so a Produce of the greatest usual size must pass."""
    requests_max: int = 1024
    """Unanswered ones. A client that has no bound of its own fills a round trip with them: 64 requests of
    16 KiB were 13 MB/s where PUTs take 80 ms."""
    bytes_max: int = 32 * MiB
    """Unanswered requests, with `REQUEST_BYTES` for each; one frame more may come on top."""
    write_buffer_bytes: int = 512 * KiB
    """Unsent answers; the answer that goes over comes on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds of all connections together, and of each."""

    connections_max: int
    connections_possible: int = sys.maxsize
    """What the descriptors of the process are enough for: never more than that."""
    connections_per_address_max: int = sys.maxsize
    connections_per_address: Mapping[str, int] = field(default_factory=dict)
    """Instead of that, by address."""
    connection_rate_max: int = sys.maxsize
    """New ones a second."""
    silent_ms_max: int = 10_000
    """While most connections are taken, one that has not shown itself is closed after this."""
    idle_ms_max: int
    """Without a byte from the client, or without it taking one, a connection is closed.
    Negative: never."""
    refusal_delay_ms: int = 100
    """How long a client that failed to authenticate itself waits for its answer, as in Kafka."""
    held_bytes_max: int
    """Requests being received or unanswered, all connections."""
    patience: Patience = field(default_factory=Patience)
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)

    def __post_init__(self) -> None:
        assert self.held_bytes_max >= self.connection.frame_bytes_max


def limits_of(node: Node, *, descriptors: int | None = None) -> ServerLimits:
    """The bounds that an agent's settings ask for, within the descriptors that its process has."""
    kafka = node.kafka
    possible = connections_within(descriptors)
    frame_bytes_max = kafka.socket_request_max_bytes
    limits = ServerLimits(
        connections_max=possible,
        connections_possible=possible,
        idle_ms_max=kafka.connections_max_idle_ms,
        refusal_delay_ms=kafka.connection_failed_authentication_delay_ms,
        held_bytes_max=max(256 * MiB, 2 * frame_bytes_max),
        connection=ConnectionLimits(frame_bytes_max=frame_bytes_max),
    )
    return changed_limits(limits, kafka)


def changed_limits(limits: ServerLimits, kafka: KafkaSettings) -> ServerLimits:
    """The bounds with what the settings say of those that change while an agent runs."""
    first_frame_bytes_max = max(FIRST_FRAME_BYTES, 2 * kafka.message_max_bytes)
    of_one = replace(
        limits.connection,
        first_frame_bytes_max=min(limits.connection.frame_bytes_max, first_frame_bytes_max),
    )
    return replace(
        limits,
        connections_max=min(kafka.max_connections, limits.connections_possible),
        connections_per_address_max=kafka.max_connections_per_ip,
        connections_per_address=kafka.connections_per_ip_overrides(),
        connection_rate_max=kafka.max_connection_creation_rate,
        connection=of_one,
    )


def connections_within(descriptors: int | None) -> int:
    """How many connections a process with so many descriptors may have (None: any number).

    256 are kept back, of fewer than 512 half.
    """
    if descriptors is None:
        return sys.maxsize
    return max(1, descriptors - min(DESCRIPTORS_KEPT, descriptors // 2))


def told_of_connections(limits: ServerLimits, descriptors: int | None) -> str:
    """How many connections there may be, and why no more."""
    count = limits.connections_max
    if descriptors is None or count < connections_within(descriptors):
        return f"{count} connections at once"
    kept = descriptors - count
    return (
        f"{count} connections at once: the process may have {descriptors} descriptors (ulimit -n),"
        f" and {kept} are kept for store, log and HTTP"
    )
