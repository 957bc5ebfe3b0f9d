"""Bounds of connections (P15): of each, and of all together. Pure."""

from dataclasses import dataclass, field
from typing import Final

from broker.node import Node
from protocol.framing import FRAME_BYTES_MAX_DEFAULT

KiB: Final = 1 << 10
MiB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of one connection."""

    frame_bytes_max: int = FRAME_BYTES_MAX_DEFAULT
    """Kafka's socket.request.max.bytes."""
    requests_max: int = 64
    bytes_max: int = 16 * MiB
    """Unanswered request bytes; one frame more may come on top."""
    write_buffer_bytes: int = 512 * KiB
    """Unsent answers; the answer that goes over comes on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds of all connections together, and of each."""

    connections_max: int
    idle_ms_max: int
    """Without a byte from the client, or without it taking one, a connection is closed.
    Negative: never."""
    held_bytes_max: int
    """Requests being received or unanswered, all connections."""
    frame_pause_ms_max: int = 30_000
    """While others wait for memory, a frame under way must not pause for longer."""
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)

    def __post_init__(self) -> None:
        assert self.held_bytes_max >= self.connection.frame_bytes_max


def limits_of(node: Node) -> ServerLimits:
    """The bounds that an agent's settings ask for."""
    kafka = node.settings.kafka
    frame_bytes_max = kafka.socket_request_max_bytes
    return ServerLimits(
        connections_max=kafka.max_connections,
        idle_ms_max=kafka.connections_max_idle_ms,
        held_bytes_max=max(256 * MiB, 2 * frame_bytes_max),
        connection=ConnectionLimits(frame_bytes_max=frame_bytes_max),
    )
